"""Which segments may be copied, as seen from their source, and which bytes count as local alone. Pure.

Nothing at or above min(high watermark, last stable offset); never the active segment; never a compacted, internal or
broker-tiered topic; only the leader's replica; nothing wholly below the log start or past the retention that applies;
nothing unflushed unless other replicas hold it. A corrupt segment stops itself and everything behind it; one that was
compacted away stops itself alone, since somebody may have decided to go on behind it.
Whether a segment was copied before is not asked here, nor what was decided.

How many bytes of a partition are local alone is counted as far as they may decide that something remote goes. The size
that a file system gives a file proves nothing: a damaged one may be sparse, or longer than what was written. So a
segment counts at most what Kafka allows, and nothing if it is damaged, or if its size cannot be what its batches take.
Less is counted than there is, and less is deleted; what did not count is named.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from include.tiering.kafka.cluster.contract import PartitionMetadata, TopicMetadata
from include.tiering.kafka.log_dirs.contract import IneligibleReason, LogSegment, Replica
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
"""So many in-sync replicas, and so many demanded of every write, make up for a flush that is not proved."""


@dataclass(frozen=True, slots=True)
class ReplicaBounds:
    """What the replica allows. Offsets are exclusive ends, `log_start_offset` is inclusive.

    `retention_cut_off_ms`: a segment whose largest timestamp is known and lies below it is past retention; None = no
    retention applies.
    """

    log_start_offset: int
    high_watermark: int
    last_stable_offset: int
    recovery_point: int
    is_replicated: bool
    retention_cut_off_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Candidate:
    """One segment: [base_offset, next_base_offset), and what is known of its files."""

    base_offset: int
    next_base_offset: int
    max_timestamp_ms: int
    active: bool
    has_leader_epoch: bool
    has_producer_snapshot: bool
    is_corrupt: bool = False
    is_old_magic: bool = False
    is_compacted: bool = False


def topic_refusal(
    topic: str, topic_metadata: TopicMetadata | None, *, removed: bool, named: bool, cleaned: bool
) -> IneligibleReason | None:
    """Why no segment of a topic may be copied.

    Args:
        topic: its name on disk.
        topic_metadata: of the topic id on disk; None if unknown.
        removed: this topic id was deleted, or its name belongs to another id now.
        named: the user asked for the topic by name, which stands in for unknown metadata.
        cleaned: the broker's log cleaner has a checkpoint for it; counts where no cleanup.policy is known.
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
    """Every acknowledged write is on two brokers or more, by configuration and right now."""
    if topic_metadata is None or partition is None:
        return False
    demanded = topic_metadata.configs.get("min.insync.replicas", "1")
    return demanded.isdecimal() and int(demanded) >= MIN_REPLICATED and len(partition.isr) >= MIN_REPLICATED


def segment_reasons(
    candidates: Sequence[Candidate], bounds: ReplicaBounds, refusal: IneligibleReason | None
) -> list[IneligibleReason | None]:
    """One reason per candidate in offset order, None = eligible. `refusal` concerns the whole replica.

    A corrupt segment wholly below the log start does not count: nobody will ask for it.
    """
    behind: IneligibleReason | None = None
    reasons = []
    for candidate in candidates:
        reasons.append(refusal or _first(_segment_checks(candidate, bounds)) or behind)
        if candidate.is_corrupt and candidate.next_base_offset > bounds.log_start_offset:
            behind = IneligibleReason.AFTER_CORRUPT
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
    yield candidate.is_corrupt, IneligibleReason.CORRUPT


def _first(checks: Iterable[tuple[bool, IneligibleReason]]) -> IneligibleReason | None:
    return next((reason for holds, reason in checks if holds), None)


MOST_SEGMENT_BYTES: Final = 2**31 - 1
"""Positions in a segment are 32-bit integers in Kafka."""


def local_only_segments(replica: Replica, highest_copied_offset: int | None, log_start_offset: int) -> list[LogSegment]:
    """Segments wholly behind what was copied, the active one included.

    One that is remote in part counts as remote, and one that a log start fell into as gone: the total is rather too
    low, which deletes less.
    """
    first = max(replica.log_start_offset, log_start_offset)
    highest = -1 if highest_copied_offset is None else highest_copied_offset
    return [segment for segment in replica.segments if segment.base_offset >= max(highest + 1, first)]


def local_only_bytes(replica: Replica, highest_copied_offset: int | None, log_start_offset: int) -> int:
    """Bytes of the replica that are not remote, of each segment at most what Kafka allows."""
    segments = local_only_segments(replica, highest_copied_offset, log_start_offset)
    return sum(counted_bytes(segment, replica) for segment in segments)


def counted_bytes(segment: LogSegment, replica: Replica) -> int:
    """At most `segment.bytes`, where it is known, and what 32-bit positions reach."""
    allowed = MOST_SEGMENT_BYTES if replica.segment_bytes is None else replica.segment_bytes
    return min(segment.size_bytes, allowed, MOST_SEGMENT_BYTES)


def without_doubtful(
    replica: Replica, segments: Sequence[LogSegment], doubts: Mapping[int, str]
) -> tuple[Replica, list[str]]:
    """The replica without those of `segments` that must not count, and a sentence for each.

    `doubts` says by base offset why the size of one cannot be right.
    """
    why = {**{segment.base_offset: "it is corrupt" for segment in segments if segment.is_corrupt}, **doubts}
    doubtful = [segment for segment in segments if segment.base_offset in why]
    sentences = [
        f"the local segment at offset {one.base_offset} has {format_bytes(one.size_bytes)}, which count as 0:"
        f" {why[one.base_offset]}"
        for one in doubtful
    ]
    sure = tuple(segment for segment in replica.segments if segment.base_offset not in why)
    return replace(replica, segments=sure), sentences
