"""Partitions that a plan holds back because their source does not continue what is archived: see `copy_fork`."""

from include.tiering.copying.copy_fork import follow_offset, fork_of, undecided_divergence
from include.tiering.copying.copy_plan import CopyPlan, HeldBack, HeldBackPartition
from include.tiering.kafka.log_dirs.contract import Replica
from include.tiering.model.histories import SeenBy
from include.tiering.segments.contract import RemoteLogMetadata


def held_by_divergence(replica: Replica, highest: int | None, metadata: RemoteLogMetadata) -> HeldBackPartition | None:
    """What waits for a decision, whether it was recorded before or shows now. `highest`: highest copied offset."""
    partition, epochs, end = replica.topic_id_partition, replica.leader_epochs, replica.log_end_offset
    if highest is None:
        return None
    undecided = undecided_divergence(partition, metadata)
    fork = fork_of(partition, epochs, end, highest, metadata, SeenBy.PLAN)
    seen = [one.seen for one in (undecided, fork) if one is not None]
    if not seen:
        return None
    first = min(one.offsets.first for one in seen)
    if fork is not None and fork.is_behind:
        detail, follow_from = f"{seen[0]}; the source is behind what was copied: wait for its leader", None
    else:
        follow_from = follow_offset(replica, highest, undecided, fork)
        detail = f"{seen[0]}; from offset {follow_from} on the source can be followed, by decision: see ./tiering skip"
        if undecided is not None and undecided.is_stored_from(follow_from):
            detail += "; the store has copies of it, which ./tiering adopt takes in behind the decision"
    return HeldBackPartition(
        partition, first, HeldBack.FORK, detail, fork=fork, undecided=undecided, follow_from=follow_from
    )


def record_divergences(plan: CopyPlan, metadata: RemoteLogMetadata) -> None:
    """Record what shows now for the first time; it stays true whatever the source forgets."""
    for held in plan.held_back:
        if held.fork is not None:
            held.fork.record(held.topic_id_partition, metadata)
