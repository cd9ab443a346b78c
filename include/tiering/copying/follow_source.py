"""Decide that an archive goes on with its source's history, after the two have diverged: one partition, by decision.

From where on is no choice: the first offset of the source's own history that it still has, which a plan of this moment
names. A person names it again, so that nobody agrees to more than was shown.

    step       a crash right after it leaves                      cleaned up by
    found      nothing                                            -
    recorded   the divergence, open, if no run had recorded it    the same call again decides about it
    decided    the decision and its event, together               -

Nothing is deleted. What is remote above that offset stays under its leader epochs, and expires by the ordinary rules.
"""

from dataclasses import dataclass, replace

from include.tiering.copying.copy_plan import CopyPlan, HeldBackPartition
from include.tiering.copying.skip_offsets import meant_replica
from include.tiering.errors import SettingError, StateConflictError
from include.tiering.kafka.log_dirs.contract import ScanReport
from include.tiering.model.histories import Divergence, OffsetRange, SeenDivergence
from include.tiering.model.ids import TopicIdPartition
from include.tiering.model.leader_epochs import LeaderEpochs
from include.tiering.segments.contract import RemoteLogMetadata


@dataclass(frozen=True, slots=True)
class FollowSource:
    """What may be decided: `from_offset` (inclusive) is where the source's history is gone on with.

    `seen` is the divergence as it was recorded, or as it shows now where nobody did.
    `source_epochs` are the source's, as far as they are committed.
    `decided` is None as long as it is not.
    """

    topic_id_partition: TopicIdPartition
    from_offset: int
    waits: HeldBackPartition
    seen: SeenDivergence
    source_epochs: LeaderEpochs
    decided: Divergence | None = None

    @property
    def kept(self) -> OffsetRange | None:
        """What is remote already from this offset on, and answers from now on to those alone who ask by epoch."""
        first, last = max(self.from_offset, self.seen.offsets.first), self.seen.offsets.last
        return OffsetRange(first, last) if first <= last else None

    @property
    def missing(self) -> OffsetRange | None:
        """What of the source's history will never be in the archive."""
        first = self.seen.offsets.first
        return OffsetRange(first, self.from_offset - 1) if first < self.from_offset else None


def plan_follow(
    report: ScanReport, plan: CopyPlan, topic: str, number: int, from_offset: int, topic_id: str | None
) -> FollowSource:
    """What the decision means now, by a scan and by the plan that was made of it. Changes nothing.

    Raises:
        SettingError: no replica that a copy may read is found, or several topics had the name.
        StateConflictError: nothing waits for such a decision, or the source can be followed from another offset.
    """
    replica = meant_replica(report, topic, number, topic_id)
    partition = replica.topic_id_partition
    held = [one for one in plan.held_back if one.topic_id_partition == partition]
    found = [(one, seen.seen) for one in held for seen in (one.undecided, one.fork) if seen is not None]
    if not found:
        raise StateConflictError(f"{partition}: no divergence of histories waits for a decision")
    waits, seen = found[0]
    if waits.follow_from is None:
        raise StateConflictError(f"{partition}: {waits.detail}")
    if waits.follow_from != from_offset:
        raise StateConflictError(
            f"{partition}: the source can be followed from offset {waits.follow_from} on, not from {from_offset}"
        )
    return FollowSource(partition, from_offset, waits, seen, replica.leader_epochs.range(-1, replica.high_watermark))


def follow_source(planned: FollowSource, *, metadata: RemoteLogMetadata, reason: str, author: str) -> FollowSource:
    """Record the decision, with an event.

    Raises:
        SettingError: no reason is given.
        StateConflictError: somebody decided meanwhile, or the platform does not own the topic any more.
    """
    if not reason.strip():
        raise SettingError("--reason is empty: say why the archive is to go on with the source's history")
    partition, fork, undecided = planned.topic_id_partition, planned.waits.fork, planned.waits.undecided
    if fork is not None:
        undecided = metadata.record_divergence(partition, fork.seen, history=fork.history)
    if undecided is None:
        raise StateConflictError(f"{partition}: what was shown is not so any more: ask again")
    decided = metadata.follow_source(
        partition,
        undecided.number,
        planned.from_offset,
        source_epochs=planned.source_epochs,
        reason=reason.strip(),
        author=author,
    )
    return replace(planned, decided=decided)
