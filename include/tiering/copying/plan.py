"""The plan of a copy run: what is to be copied, what waits and why, and why a run left planned segments.

Partitions wait whose source does not continue what is archived (see `copy_checks`), and partitions that the cluster has
and that no readable directory leads: nothing of them can be copied. A scan shows what is on disk, so whoever asks the
scan alone never hears of a topic that lies on brokers whose directories nobody named. The cluster's own word says what
there ought to be.

What a run left has one reason for each partition, or none that anything shows. That another batch holds a partition is
normal where two runs work at once. Work that is left though nothing holds it, pauses it, throttles it or stopped it is
a finding: it would be left by the next run as well, and nothing would say so.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from include.tiering.copying.copy_checks import SourceDivergence, find_divergence, follow_offset, undecided_divergence
from include.tiering.errors import ClusterMetadataError, QuotaExceededError
from include.tiering.kafka.cluster.contract import ClusterMetadata, PartitionMetadata, TopicMetadata
from include.tiering.kafka.log_dirs.contract import IneligibleReason, Replica, ScanError, ScanReport, matches
from include.tiering.kafka.log_dirs.rules import topic_refusal
from include.tiering.model.histories import Divergence, OffsetRange, SeenBy
from include.tiering.model.ownership import TopicOwner
from include.tiering.model.reasons import Reason
from include.tiering.model.segments import TopicIdPartition
from include.tiering.runs.contract import ALL_TOPICS, LeaseHolder, PlannedPartition, SegmentOutcome, WorkItem
from include.tiering.segments.contract import RemoteLogMetadata, TopicRegistry
from include.tiering.segments.failed_copies import Loss
from include.tiering.units import format_utc

WAITING_CANNOT_HELP: Final = frozenset(reason for reason in IneligibleReason if not reason.retriable)


class HeldBack(Reason):
    """Why something of a partition is not in this plan."""

    NOT_READY = "not-ready", "its metadata is not complete", True
    OUT_OF_SIGHT = "no-leader-replica", "its leader's replica is not found in a readable log directory"
    STOPPED = "stopped", "stopped by a failed segment"
    LOST = "lost", "a failed segment cannot be copied anew: its offsets are lost until somebody decides"
    FAILED_AGAIN = "failed-again", "the new copy of a failed segment failed as well"
    STORE_IN_DOUBT = (
        "store-in-doubt",
        "a failed segment is missing, and so is one that passed: the store is not what it seems to be",
    )
    HOLE = "hole", "offsets are gone from the source: a hole must be recorded by decision first"
    DIVERGENCE = "log-divergence", "the source's history is another one than that of what was copied"
    BYTE_LIMIT = "byte-limit", "beyond the byte limit of this run", True
    NOT_ELIGIBLE = "not-eligible", "next segment is not eligible", True
    DAMAGED = "damaged", "next segment cannot be copied as it is"
    COMPACTED = "compacted", "compacted away before it was copied: to go on behind it is a decision"
    NOT_OURS = "not-ours", "another owner copies this topic", True
    PAST_RETENTION = "past-retention", "past our retention: the copy begins behind it", True


@dataclass(frozen=True, slots=True)
class HeldBackPartition:
    """A partition that waits, at once or behind what is planned of it.

    `next_offset` is the first offset (inclusive) that this plan does not copy; `detail` says why, in words. `hole` is
    what the source has no longer, or not as it was, and nobody has decided about, `lost` are failed segments that no
    new copy replaces.
    `divergence` is what this plan sees, `undecided` what is recorded; `follow_from` is from where on the source can be
    followed, None while it is behind. `ineligible` is why the next segment may not be copied.
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


@dataclass(frozen=True, slots=True)
class CopyPlan:
    """Most urgent partition first. `errors` are the items of the source that could not be read, `notes` those of them
    that no copy needs.
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
    """What waits for a decision, whether it was recorded before or shows now. `highest`: highest copied offset."""
    partition, epochs, end = replica.topic_id_partition, replica.leader_epochs, replica.log_end_offset
    if highest is None:
        return None
    undecided = undecided_divergence(partition, metadata)
    found = find_divergence(partition, epochs, end, highest, metadata, SeenBy.PLAN)
    seen = [one.seen for one in (undecided, found) if one is not None]
    if not seen:
        return None
    first = min(one.offsets.first for one in seen)
    if found is not None and found.is_behind:
        detail, follow_from = f"{seen[0]}; the source is behind what was copied: wait for its leader", None
    else:
        follow_from = follow_offset(replica, highest, undecided, found)
        detail = f"{seen[0]}; from offset {follow_from} on the source can be followed, by decision: see ./tiering skip"
        if undecided is not None and undecided.is_stored_from(follow_from):
            detail += "; the store has copies of it, which ./tiering adopt takes in behind the decision"
    return HeldBackPartition(
        partition, first, HeldBack.DIVERGENCE, detail, divergence=found, undecided=undecided, follow_from=follow_from
    )


def record_divergences(plan: CopyPlan, metadata: RemoteLogMetadata) -> None:
    """Record what shows now for the first time; it stays true whatever the source forgets."""
    for held in plan.held_back:
        if held.divergence is not None:
            held.divergence.record(held.topic_id_partition, metadata)


NEVER_TIERED: Final = frozenset({IneligibleReason.INTERNAL_TOPIC, IneligibleReason.COMPACTED})
_PATTERN_CHARACTERS: Final = frozenset("*?[")


def partitions_of_cluster(
    report: ScanReport, topics: Collection[str], cluster_metadata: ClusterMetadata
) -> Mapping[TopicIdPartition, PartitionMetadata]:
    """All partitions that the cluster has of the topics that match, but for topics that are never tiered or that the
    brokers tier. What cannot be asked adds nothing: the scan has said so.

    Raises:
        ClusterMetadataError: nothing can be asked just now; a later question may be answered.
    """
    never = {
        replica.topic_id_partition.topic_id
        for replica in report.replicas
        if any(segment.reason in NEVER_TIERED for segment in replica.segments)
    }
    found = {}
    for topic in _topics(topics, cluster_metadata):
        if topic.topic_id not in never and _is_tiered(topic):
            for number, partition in topic.partitions.items():
                found[TopicIdPartition(topic.topic_id, number, topic.topic)] = partition
    return found


def partitions_out_of_sight(
    report: ScanReport, topics: Collection[str], cluster_metadata: ClusterMetadata, registry: TopicRegistry
) -> Mapping[TopicIdPartition, str]:
    """Those of `partitions_of_cluster` that would be copied here and of which no copy can read a replica; each with
    where it may be, for a person. By topic and partition.
    """
    chosen = {replica.topic_id_partition for replica in report.replicas if replica.chosen}
    expected = partitions_of_cluster(report, topics, cluster_metadata)
    missing = sorted(expected.keys() - chosen, key=lambda one: (one.topic, one.partition))
    return {
        partition: where_it_may_be(partition, report, expected[partition])
        for partition in missing
        if registry.owner(partition.topic_id) in (TopicOwner.PLATFORM, TopicOwner.NONE)
    }


def where_it_may_be(partition: TopicIdPartition, report: ScanReport, known: PartitionMetadata | None) -> str:
    """Who leads it, as far as that is `known`, and what was found in its place: what could not be read of it or of a
    whole log directory, else its followers.
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
    """Errors of the partition's own directories, then of log directories that could not be read at all: it may be in
    one of them. What is wrong with others is no reason for this one.
    """
    own = [error for error in errors if error.partition == str(partition)]
    return own + [error for error in errors if error.partition is None]


def _topics(patterns: Collection[str], cluster_metadata: ClusterMetadata) -> Iterator[TopicMetadata]:
    if not patterns:
        return
    try:
        names: Collection[str] = patterns
        if any(not _PATTERN_CHARACTERS.isdisjoint(pattern) for pattern in patterns):
            names = [name for name in cluster_metadata.topic_names() if matches(name, patterns)]
    except ClusterMetadataError as error:
        if error.retriable:
            raise
        return
    for name in sorted(set(names)):
        topic = _named(name, cluster_metadata)
        if topic is not None:
            yield topic


def _named(name: str, cluster_metadata: ClusterMetadata) -> TopicMetadata | None:
    """None as well where this user may not ask about it."""
    try:
        return cluster_metadata.topic_named(name)
    except ClusterMetadataError as error:
        if error.retriable:
            raise
        return None


def _is_tiered(topic: TopicMetadata) -> bool:
    return topic_refusal(topic.topic, topic, removed=False, named=True, cleaned=False) is None


def _leader(known: PartitionMetadata) -> str:
    return f"broker {known.leader} leads it" if known.leader >= 0 else "no broker leads it now"


def _followers(replicas: Sequence[Replica]) -> str:
    found = ", ".join(str(replica.replica_id.broker_id) for replica in replicas)
    return f"only followers of it are found, on broker {found}" if found else "no log directory in log_dirs holds it"


class LeftBecause(Reason):
    """Why planned segments of a partition were left."""

    FAILED = "failed", "behind a segment that failed"
    THROTTLED = "throttled", "throttled by topic quota", True
    COPIED = "copied", "another run has copied them meanwhile", True
    HELD = "held", "another batch holds the partition", True
    PAUSED = "paused", "paused", True
    ENDED = "ended", "the run ended before them", True
    UNKNOWN = "unknown", "nothing says why: no batch holds the partition, and it is neither paused nor throttled"


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
    """Of every planned segment of a run with its outcome, those that have none, by partition.

    Args:
        holder: who has a live lease to copy a partition now.
        highest_copied: `RemoteLogMetadata.highest_copied_offset`.
        paused: names of paused topics, or `ALL_TOPICS`.
        ended_early: its batches ended for another reason than that no work was left.
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
