"""The plan of a copy run: which partitions it takes, what is copied, what waits and why, and why segments were left.

A partition waits if its source does not continue what is archived (see `copy_checks`). A partition that would be copied
also waits if the cluster has it and the scan does not show its leader's replica: no readable log directory holds it, or
the leader did not answer. A scan of log directories shows only what is on disk: it misses a topic whose brokers'
directories are not in `log_dirs`. Therefore the plan also reads the cluster's metadata, which lists all partitions that
ought to be there.

For each partition of which a run left segments, `left_work` gives one reason. It is normal that another batch holds the
partition while two runs work at the same time. If none of the known reasons applies, the reason is UNKNOWN. That is a
finding, because the next run would probably leave the segments as well.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from include.tiering.copying.copy_checks import SourceDivergence, find_divergence, follow_offset, undecided_divergence
from include.tiering.copying.run_scope import RunScope
from include.tiering.errors import QuotaExceededError
from include.tiering.kafka.cluster.contract import ClusterMetadata, PartitionMetadata, TopicMetadata
from include.tiering.kafka.log_dirs.contract import IneligibleReason, Replica, ScanError, ScanReport
from include.tiering.kafka.log_dirs.rules import topic_refusal
from include.tiering.model.histories import Divergence, OffsetRange, SeenBy
from include.tiering.model.ownership import TopicOwner
from include.tiering.model.reasons import Reason
from include.tiering.model.segments import TopicIdPartition
from include.tiering.runs.contract import ALL_TOPICS, LeaseHolder, PlannedPartition, SegmentOutcome, WorkItem
from include.tiering.segments.contract import RemoteLogMetadata, TopicRegistry
from include.tiering.segments.failed_copies import Loss
from include.tiering.units import format_utc

NEVER_TIERED: Final = frozenset({IneligibleReason.INTERNAL_TOPIC, IneligibleReason.COMPACTED})
WAITING_CANNOT_HELP: Final = frozenset(reason for reason in IneligibleReason if not reason.retriable)


class HeldBack(Reason):
    """Why a partition, or some of its segments, are not in this plan."""

    NOT_READY = "not-ready", "its metadata is not complete", True
    OUT_OF_SIGHT = "no-leader-replica", "its leader's replica is not found in a readable log directory"
    STOPPED = "stopped", "stopped by a failed segment"
    LOST = "lost", "a failed segment cannot be copied again: its offsets are lost until a person decides"
    FAILED_AGAIN = "failed-again", "the new copy of a failed segment failed as well"
    STORE_IN_DOUBT = (
        "store-in-doubt",
        "a failed segment is missing, and so is one that passed: this may not be the right store",
    )
    COPY_IN_DOUBT = (
        "copy-in-doubt",
        "a copy of offsets that the source lost may be whole, and cannot be read: they are not given up",
    )
    HOLE = "hole", "offsets are gone from the source: a hole must be recorded by decision first"
    DIVERGENCE = "log-divergence", "the source's history has diverged from what was copied"
    BYTE_LIMIT = "byte-limit", "beyond the byte limit of this run", True
    NOT_ELIGIBLE = "not-eligible", "next segment is not eligible", True
    DAMAGED = "damaged", "next segment cannot be copied as it is"
    COMPACTED = "compacted", "compacted away before it was copied: only a decision lets the copy continue after it"
    NOT_OURS = "not-ours", "another owner copies this topic", True
    PAST_RETENTION = "past-retention", "past the platform's retention: the copy begins after it", True


@dataclass(frozen=True, slots=True)
class HeldBackPartition:
    """A partition that waits, as a whole or in part: the plan may copy segments before or after the waiting offsets.

    `next_offset` is the first offset (inclusive) to which `reason` applies; `detail` says more. `hole` are offsets
    without a decision that the source lost, or that were compacted there, or that are missing between copied segments.
    `lost` are failed segments that no new copy replaces. `divergence` is the divergence that this plan found,
    `undecided` the recorded one that awaits a decision. From `follow_from` (inclusive) on the source can be followed;
    None without a divergence, and while the source lags. `ineligible` is why the next segment may not be copied, set
    only if `reason` is NOT_ELIGIBLE or DAMAGED.
    """

    topic_id_partition: TopicIdPartition
    next_offset: int
    reason: HeldBack
    detail: str
    hole: OffsetRange | None = None
    lost: tuple[Loss, ...] = ()
    divergence: SourceDivergence | None = None
    undecided: Divergence | None = None
    follow_from: int | None = None
    ineligible: IneligibleReason | None = None

    @property
    def needs_a_person(self) -> bool:
        return not self.reason.retriable

    @property
    def is_never_copied(self) -> bool:
        """Whether its topic is internal or compacted, which is never tiered: waiting does not change that."""
        return self.ineligible in NEVER_TIERED

    @property
    def waits_for_a_copy(self) -> bool:
        """Whether this platform will copy the offsets once the reason is gone."""
        return not self.is_never_copied and self.reason not in (HeldBack.NOT_OURS, HeldBack.PAST_RETENTION)

    @property
    def words(self) -> "HeldBack | IneligibleReason":
        """The reason that says most: that of the next segment, if it is not eligible."""
        return self.ineligible or self.reason


@dataclass(frozen=True, slots=True)
class CopyPlan:
    """A plan, most urgent partition first.

    `errors` and `notes` are those of the scan: see `ScanReport`.
    """

    run_id: str
    partitions: tuple[PlannedPartition, ...]
    held_back: tuple[HeldBackPartition, ...]
    errors: tuple[ScanError, ...]
    notes: tuple[ScanError, ...] = ()

    @property
    def size_bytes(self) -> int:
        return sum(partition.size_bytes for partition in self.partitions)

    @property
    def segments(self) -> int:
        return sum(len(partition.segments) for partition in self.partitions)


def held_by_divergence(replica: Replica, highest: int | None, metadata: RemoteLogMetadata) -> HeldBackPartition | None:
    """Return how the partition waits because of a divergence, recorded before or found now; None without any.

    If the source only lags, it waits for a new leader, not for a decision. `highest` is the highest copied offset
    (inclusive), None if nothing was copied; then the result is None, too.
    """
    partition, epochs, end = replica.topic_id_partition, replica.leader_epochs, replica.log_end_offset
    if highest is None:
        return None
    undecided = undecided_divergence(partition, metadata)
    # Above what plans have read of a leader's log, its epochs are not known yet, unless they have read it to its end.
    is_read = replica.found_to is None or highest < replica.found_to or not replica.unread_offsets
    found = find_divergence(partition, epochs, end, highest, metadata, SeenBy.PLAN) if is_read else None
    seen = [divergence.seen for divergence in (undecided, found) if divergence is not None]
    if not seen:
        return None
    first = min(differing.offsets.first for differing in seen)
    if found is not None and found.is_behind:
        detail, follow_from = f"{seen[0]}; the source is behind what was copied: wait for the new leader", None
    else:
        follow_from = follow_offset(replica, highest, undecided, found)
        detail = f"{seen[0]}; from offset {follow_from} on the source can be followed, by decision: see ./tiering skip"
        if undecided is not None and undecided.is_stored_from(follow_from):
            detail += "; the store has copies of it, which ./tiering adopt imports after the decision"
    return HeldBackPartition(
        partition, first, HeldBack.DIVERGENCE, detail, divergence=found, undecided=undecided, follow_from=follow_from
    )


def record_divergences(plan: CopyPlan, metadata: RemoteLogMetadata) -> None:
    """Record the divergences that this plan found, so that they stay known when the source no longer shows them.

    Nothing is recorded of a source that only lags.
    """
    for held in plan.held_back:
        if held.divergence is not None:
            held.divergence.record(held.topic_id_partition, metadata)


def partitions_of_cluster(
    report: ScanReport, scope: RunScope, cluster_metadata: ClusterMetadata
) -> Mapping[TopicIdPartition, PartitionMetadata]:
    """Return the cluster's partitions that a run takes, without topics never tiered and topics that brokers tier.

    Topics whose metadata cannot be read, even by a retry, are left out.

    Raises:
        ClusterMetadataError: the cluster's metadata cannot be read now; a retry may succeed.
    """
    never = {
        replica.topic_id_partition.topic_id
        for replica in report.replicas
        if any(segment.reason in NEVER_TIERED for segment in replica.segments)
    }
    found = {}
    for topic in scope.in_cluster(cluster_metadata):
        if topic.topic_id not in never and _is_tiered(topic):
            for number, partition in topic.partitions.items():
                found[TopicIdPartition(topic.topic_id, number, topic.topic)] = partition
    return found


def partitions_out_of_sight(
    report: ScanReport, scope: RunScope, cluster_metadata: ClusterMetadata, registry: TopicRegistry
) -> Mapping[TopicIdPartition, str]:
    """Return the partitions to be copied whose leader's replica the scan does not show.

    They are ordered by topic and partition, and each has a text that says where its replica may be.
    """
    chosen = {replica.topic_id_partition for replica in report.replicas if replica.chosen}
    expected = partitions_of_cluster(report, scope, cluster_metadata)
    missing = sorted(expected.keys() - chosen, key=lambda partition: (partition.topic, partition.partition))
    return {
        partition: where_it_may_be(partition, report, expected[partition])
        for partition in missing
        if registry.owner(partition.topic_id) in (TopicOwner.PLATFORM, TopicOwner.NONE)
    }


def where_it_may_be(partition: TopicIdPartition, report: ScanReport, known: PartitionMetadata | None) -> str:
    """Return who leads the partition, if its metadata are `known`, and what the scan found of it.

    That is an error of its own directory, of a whole log directory or of the cluster's metadata. Without such an error
    it is the partition's followers, or that no log directory holds the partition.
    """
    replicas = [replica for replica in report.replicas if replica.topic_id_partition == partition]
    errors = errors_about(partition, report.errors)
    if errors:
        more = f" and {len(errors) - 1} more" if len(errors) > 1 else ""
        found = f"{errors[0].path}: {errors[0].message}{more}"
    else:
        found = _followers(replicas)
    return f"{_leader(known)}; {found}" if known is not None else found


def errors_about(partition: TopicIdPartition, errors: Sequence[ScanError]) -> list[ScanError]:
    """Return errors of the partition's own directories, then errors of whole log directories or the cluster metadata.

    The partition may be in a log directory that could not be read. Errors of other partitions do not explain why this
    partition is missing.
    """
    own = [error for error in errors if error.partition == str(partition)]
    return own + [error for error in errors if error.partition is None]


def _is_tiered(topic: TopicMetadata) -> bool:
    return topic_refusal(topic.topic, topic, removed=False, named=True, cleaned=False) is None


def _leader(known: PartitionMetadata) -> str:
    return f"broker {known.leader} leads it" if known.leader >= 0 else "no broker leads it now"


def _followers(replicas: Sequence[Replica]) -> str:
    found = ", ".join(str(replica.replica_id.broker_id) for replica in replicas)
    return f"only followers of it are found, on broker {found}" if found else "no log directory in log_dirs holds it"


class LeftBecause(Reason):
    """Why planned segments of a partition were left."""

    FAILED = "failed", "after a segment that failed"
    THROTTLED = "throttled", "throttled by topic quota", True
    COPIED = "copied", "another run copied them meanwhile", True
    HELD = "held", "another batch holds the partition", True
    PAUSED = "paused", "paused", True
    ENDED = "ended", "the run ended before them", True
    UNKNOWN = "unknown", "unexplained: no batch holds the partition, and it is neither paused nor throttled"


@dataclass(frozen=True, slots=True)
class LeftPartition:
    """Planned segments of one partition that have no outcome. `detail` is for a person."""

    topic_id_partition: TopicIdPartition
    segments: int
    size_bytes: int
    reason: LeftBecause
    detail: str = ""

    @property
    def is_explained(self) -> bool:
        return self.reason is not LeftBecause.UNKNOWN

    def __str__(self) -> str:
        return f"{self.reason}: {self.detail}" if self.detail else str(self.reason)


def left_work(
    items: Iterable[WorkItem],
    *,
    holder: Callable[[TopicIdPartition], LeaseHolder | None],
    highest_copied: Callable[[TopicIdPartition], int | None],
    paused: Collection[str],
    ended_early: bool,
) -> tuple[LeftPartition, ...]:
    """Return, for each partition, the planned segments of a run that have no outcome.

    Args:
        items: every planned segment of the run.
        holder: returns who has a live copy lease of a partition now.
        highest_copied: `RemoteLogMetadata.highest_copied_offset`.
        paused: names of paused topics, with `ALL_TOPICS` if all are paused.
        ended_early: whether batches of the run ended although work was left.
    """
    by_partition: dict[TopicIdPartition, list[WorkItem]] = {}
    for item in items:
        by_partition.setdefault(item.topic_id_partition, []).append(item)
    left = []
    for partition, planned in by_partition.items():
        waiting = [item for item in planned if item.outcome is SegmentOutcome.PLANNED]
        if not waiting:
            continue
        reason, detail = _left_reason(partition, planned, waiting, holder, highest_copied, paused, ended_early)
        size_bytes = sum(item.segment.size_bytes for item in waiting)
        left.append(LeftPartition(partition, len(waiting), size_bytes, reason, detail))
    return tuple(left)


def _left_reason(
    partition: TopicIdPartition,
    planned: Sequence[WorkItem],
    waiting: Sequence[WorkItem],
    holder: Callable[[TopicIdPartition], LeaseHolder | None],
    highest_copied: Callable[[TopicIdPartition], int | None],
    paused: Collection[str],
    ended_early: bool,
) -> tuple[LeftBecause, str]:
    if any(item.outcome is SegmentOutcome.FAILED for item in planned):
        return LeftBecause.FAILED, ""
    noted = next((item for item in waiting if item.error is not None), None)
    if noted is not None:
        is_throttled = noted.error == QuotaExceededError.__name__
        return LeftBecause.THROTTLED if is_throttled else LeftBecause.FAILED, noted.message or ""
    highest = highest_copied(partition)
    if highest is not None and all(_is_copied(item, highest) for item in waiting):
        return LeftBecause.COPIED, ""
    held_by = holder(partition)
    if held_by is not None:
        until = format_utc(held_by.expires_at_ms)
        return LeftBecause.HELD, f"{held_by.batch_id} of run {held_by.run_id}, until {until} unless it renews"
    if ALL_TOPICS in paused or partition.topic in paused:
        return LeftBecause.PAUSED, "./tiering resume"
    return (LeftBecause.ENDED, "the next run takes them") if ended_early else (LeftBecause.UNKNOWN, "")


def _is_copied(item: WorkItem, highest_copied: int) -> bool:
    return item.segment.supersedes is None and item.segment.end_offset <= highest_copied
