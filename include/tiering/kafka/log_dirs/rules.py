"""Decide which segments may be copied and how many bytes exist only locally. Pure.

Only rolled segments of the leader's replica that lie below min(high watermark, last stable offset) can be eligible. Not
eligible are segments of compacted, internal or broker-tiered topics, segments wholly below the log start or past the
retention that applies, and unflushed segments that are not replicated; `IneligibleReason` has all reasons.
A corrupt segment that is not wholly below the log start blocks itself and all later segments. A compacted segment
blocks only itself, because a person may have decided to skip its offsets. Earlier copies and recorded decisions are not
considered here.

Retention by size counts the bytes of a partition that exist only locally, and a higher count deletes more remote data.
The file size alone is no evidence: a damaged file may be sparse, or longer than what was written. So a segment
counts at most segment.bytes, and 0 if it is damaged or if its size cannot be the size of its batches. These rules make
the count too low rather than too high.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from include.tiering.kafka.cluster.contract import PartitionMetadata, TopicMetadata
from include.tiering.kafka.log_dirs.contract import IneligibleReason, LogSegment, Replica, ScanReport
from include.tiering.units import format_bytes

INTERNAL_TOPICS: Final = frozenset(
    {
        "__cluster_metadata",
        "__consumer_offsets",
        "__remote_log_metadata",
        "__share_group_state",
        "__transaction_state",
    }
)
MIN_REPLICATED: Final = 2
"""With this many in-sync replicas, and as many required by min.insync.replicas, a segment need not be flushed."""


@dataclass(frozen=True, slots=True)
class ReplicaBounds:
    """The offsets and the retention that limit which segments of a replica are eligible.

    Offsets are exclusive ends; `log_start_offset` is inclusive. A segment whose largest timestamp is known and below
    `retention_cut_off_ms` is past retention; None means that no retention applies.
    """

    log_start_offset: int
    high_watermark: int
    last_stable_offset: int
    recovery_point: int
    is_replicated: bool
    retention_cut_off_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Candidate:
    """A segment to evaluate: its offsets [base_offset, next_base_offset) and the results of checking its files."""

    base_offset: int
    next_base_offset: int
    max_timestamp_ms: int
    active: bool
    has_leader_epoch: bool
    has_producer_snapshot: bool
    is_unreadable: bool = False
    is_corrupt: bool = False
    is_old_magic: bool = False
    is_compacted: bool = False


def topic_refusal(
    topic: str, topic_metadata: TopicMetadata | None, *, removed: bool, named: bool, cleaned: bool
) -> IneligibleReason | None:
    """Return why no segment of a topic may be copied; None if the topic itself prevents no copy.

    Args:
        topic: the topic's name on disk.
        topic_metadata: metadata of the topic id on disk; None if unknown.
        removed: this topic id was deleted, or its name belongs to another id now.
        named: the user named the topic explicitly, which may allow a copy without metadata.
        cleaned: a log cleaner has a checkpoint for the partition. If the topic's cleanup.policy is not known, the topic
            then counts as compacted.
    """
    if topic in INTERNAL_TOPICS:
        return IneligibleReason.INTERNAL_TOPIC
    if topic_metadata is not None and topic_metadata.topic != topic:
        return IneligibleReason.TOPIC_CONTRADICTED
    if removed:
        return IneligibleReason.TOPIC_REMOVED
    if topic_metadata is None:
        if cleaned:
            return IneligibleReason.COMPACTED
        return None if named else IneligibleReason.TOPIC_UNKNOWN
    if topic_metadata.is_compacted or (cleaned and "cleanup.policy" not in topic_metadata.configs):
        return IneligibleReason.COMPACTED
    return IneligibleReason.BROKER_TIERED if topic_metadata.is_remote_storage_enabled else None


def is_replicated(topic_metadata: TopicMetadata | None, partition: PartitionMetadata | None) -> bool:
    """Return whether min.insync.replicas and the size of the current ISR are known and at least `MIN_REPLICATED`."""
    if topic_metadata is None or partition is None:
        return False
    required = topic_metadata.configs.get("min.insync.replicas", "1")
    return required.isdecimal() and int(required) >= MIN_REPLICATED and len(partition.isr) >= MIN_REPLICATED


def segment_reasons(
    candidates: Sequence[Candidate], bounds: ReplicaBounds, refusal: IneligibleReason | None
) -> list[IneligibleReason | None]:
    """Return one reason per candidate; None means eligible.

    A corrupt or unreadable segment wholly below the log start does not block later segments, because it is not copied.

    Args:
        candidates: segments in offset order.
        bounds: the offsets and the retention of the replica.
        refusal: the reason for all segments of the replica; None if there is none.
    """
    after_corrupt: IneligibleReason | None = None
    reasons = []
    for candidate in candidates:
        reasons.append(refusal or _first(_segment_checks(candidate, bounds)) or after_corrupt)
        if (candidate.is_corrupt or candidate.is_unreadable) and candidate.next_base_offset > bounds.log_start_offset:
            after_corrupt = IneligibleReason.AFTER_CORRUPT
    return reasons


def _segment_checks(candidate: Candidate, bounds: ReplicaBounds) -> Iterable[tuple[bool, IneligibleReason]]:
    end = candidate.next_base_offset
    cut_off_ms = bounds.retention_cut_off_ms
    yield candidate.active, IneligibleReason.ACTIVE
    yield end <= bounds.log_start_offset, IneligibleReason.BELOW_LOG_START
    yield end > bounds.high_watermark, IneligibleReason.ABOVE_HIGH_WATERMARK
    yield end > bounds.last_stable_offset, IneligibleReason.ABOVE_LAST_STABLE_OFFSET
    yield end > bounds.recovery_point and not bounds.is_replicated, IneligibleReason.NOT_FLUSHED
    yield cut_off_ms is not None and 0 <= candidate.max_timestamp_ms < cut_off_ms, IneligibleReason.PAST_RETENTION
    yield candidate.is_compacted, IneligibleReason.COMPACTED_SEGMENT
    yield candidate.is_old_magic, IneligibleReason.OLD_MAGIC
    yield not candidate.has_leader_epoch, IneligibleReason.NO_LEADER_EPOCH
    yield not candidate.has_producer_snapshot, IneligibleReason.NO_PRODUCER_SNAPSHOT
    yield candidate.is_unreadable, IneligibleReason.UNREADABLE
    yield candidate.is_corrupt, IneligibleReason.CORRUPT


def _first(checks: Iterable[tuple[bool, IneligibleReason]]) -> IneligibleReason | None:
    return next((reason for holds, reason in checks if holds), None)


DAMAGE: Final = frozenset({IneligibleReason.UNREADABLE, IneligibleReason.CORRUPT, IneligibleReason.AFTER_CORRUPT})
"""Reasons that come from a file that is damaged or cannot be read; a scan has an error that names it."""

MAX_SEGMENT_BYTES: Final = 2**31 - 1
"""Positions in a segment are 32-bit integers in Kafka."""


def local_only_segments(replica: Replica, highest_copied_offset: int | None, log_start_offset: int) -> list[LogSegment]:
    """Return the segments wholly above the copied offsets and not below the log start, rolled or active.

    A segment that is partly remote counts as remote, and a segment that begins below the log start counts as deleted.
    These rules can only make the total of the local bytes too low, so that less is deleted.

    Args:
        replica: the replica.
        highest_copied_offset: inclusive; None if nothing was copied.
        log_start_offset: the log start that the platform stores, inclusive.
    """
    first = max(replica.log_start_offset, log_start_offset)
    if highest_copied_offset is not None:
        first = max(first, highest_copied_offset + 1)
    return [segment for segment in replica.segments if segment.base_offset >= first]


def local_only_bytes(replica: Replica, highest_copied_offset: int | None, log_start_offset: int) -> int:
    """Return the counted bytes of all local-only segments; see `local_only_segments` and `counted_bytes`."""
    segments = local_only_segments(replica, highest_copied_offset, log_start_offset)
    return sum(counted_bytes(segment, replica) for segment in segments)


def counted_bytes(segment: LogSegment, replica: Replica) -> int:
    """Return the segment's size in bytes, at most segment.bytes (if known) and `MAX_SEGMENT_BYTES`."""
    allowed = MAX_SEGMENT_BYTES if replica.segment_bytes is None else replica.segment_bytes
    return min(segment.size_bytes, allowed, MAX_SEGMENT_BYTES)


def without_doubtful(
    replica: Replica, segments: Sequence[LogSegment], doubts: Mapping[int, str]
) -> tuple[Replica, list[str]]:
    """Remove the segments whose size must not count.

    Args:
        replica: the replica.
        segments: the segments to consider; the corrupt and the unreadable ones are removed.
        doubts: by base offset, why the size of a segment cannot be right; these segments are removed, too.

    Returns:
        The replica without these segments, and one sentence for each of them.
    """
    why = {
        **{segment.base_offset: "it is corrupt or unreadable" for segment in segments if segment.is_corrupt},
        **doubts,
    }
    doubtful = [segment for segment in segments if segment.base_offset in why]
    sentences = [
        f"the local segment at offset {segment.base_offset} has {format_bytes(segment.size_bytes)}, which count as 0:"
        f" {why[segment.base_offset]}"
        for segment in doubtful
    ]
    sure = tuple(segment for segment in replica.segments if segment.base_offset not in why)
    return replace(replica, segments=sure), sentences


def merged(reports: Sequence[ScanReport]) -> ScanReport:
    """Return one report of several, of which each found other replicas.

    A partition that two of them would read is read by none: they saw different leaders.
    """
    readers = Counter(r.topic_id_partition for report in reports for r in report.replicas if r.chosen)
    replicas = (
        _refused(replica) if readers[replica.topic_id_partition] > 1 else replica
        for report in reports
        for replica in report.replicas
    )
    return ScanReport(
        next((report.cluster_id for report in reports if report.cluster_id is not None), None),
        tuple(sorted(replicas, key=lambda replica: replica.replica_id.order)),
        tuple(error for report in reports for error in report.errors),
        tuple(note for report in reports for note in report.notes),
    )


def _refused(replica: Replica) -> Replica:
    segments = (
        replace(segment, reason=segment.reason or IneligibleReason.AMBIGUOUS_REPLICA) for segment in replica.segments
    )
    return replace(replica, chosen=False, segments=tuple(segments))
