"""Contract of the ingestion of `__remote_log_metadata`: the records that were applied, and the positions.

Every partition of that topic that was read has a position, the offset (exclusive) below which everything was read. A
page of records and the position after it are stored in one transaction, so one reading applies each record exactly once
even if a process dies.

Segments have an origin. A segment that a broker began stays the broker's: the platform counts, verifies and audits it,
and neither replaces nor deletes it. A segment that the platform began stays the platform's when brokers write records
about it. The segment's state by these records is stored next to the platform's state of the segment. It is a finding if
the records describe the segment differently (offsets, size, leader epochs and so on), or if the segment is FINISHED
only by the records. Once the topic's owner is BROKER, a deletion by brokers advances the platform's row to the same
state of deletion (`take_over`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Protocol

from include.tiering.kafka.metadata_topic.contract import OffsetBounds
from include.tiering.model.broker_cache import BrokerCacheState
from include.tiering.model.ownership import SegmentOrigin as SegmentOrigin
from include.tiering.model.segments import (
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    TopicIdPartition,
    Uuid,
)

LOST: Final = "lost records: "
"""Prefix of the reason why a metadata partition is stopped because records were lost.

Such a partition stays stopped until it is read again, or until later bounds show no loss."""


class RecordOutcome(StrEnum):
    """Effect of a record. Only an APPLIED record changes segments; after each outcome, ingestion continues."""

    APPLIED = "applied"
    UNKNOWN_SEGMENT = "unknown-segment"
    ILLEGAL_TRANSITION = "illegal-transition"
    UNUSABLE = "unusable"

    @property
    def is_finding(self) -> bool:
        """Whether the outcome alone leads to an event.

        An update of an unknown segment leads to none: it is normal if the topic's beginning was deleted.
        """
        return self in (RecordOutcome.ILLEGAL_TRANSITION, RecordOutcome.UNUSABLE)


@dataclass(frozen=True, slots=True)
class MetadataTopicIdentity:
    """Identity of the topic that was read. It changes if the topic is created again or gets more partitions."""

    topic_id: Uuid
    partition_count: int


@dataclass(frozen=True, slots=True)
class IngestPosition:
    """How far one metadata partition was read, and where it ended when its bounds were last read from the brokers.

    Attributes:
        metadata_partition: number of the partition.
        next_offset: the first offset that is not read yet.
        end_offset: end of the partition, exclusive.
        bounds_read_at_ms: when the bounds were recorded, by the database's clock.
        stopped: why nothing from `next_offset` on is applied; None if the partition is not stopped.
        rereading_to: offset (exclusive) up to which the partition is being read again; None if it is not being read
            again.
        first_offset: where the reading began. Records before it were deleted before they were read. None if it is not
            known, because an earlier version of the platform began to read.
    """

    metadata_partition: int
    next_offset: int
    end_offset: int
    bounds_read_at_ms: int
    stopped: str | None = None
    rereading_to: int | None = None
    first_offset: int | None = None

    @property
    def lag_records(self) -> int:
        """Number of offsets below `end_offset` not read yet; some may hold no record."""
        return max(0, self.end_offset - self.next_offset)

    @property
    def is_lost(self) -> bool:
        """Whether the partition is stopped because records were lost; see `LOST`."""
        return self.stopped is not None and self.stopped.startswith(LOST)

    @property
    def is_complete(self) -> bool:
        """Whether all below `end_offset` is read, and the partition is neither stopped nor being read again."""
        return self.lag_records == 0 and self.stopped is None and self.rereading_to is None


@dataclass(frozen=True, slots=True)
class UnreadRecords:
    """Why not everything is read that the metadata topic ever had, as sentences that name partition and offset.

    `not_read` is what can still be read, or what may be unread; `deleted` are the partitions that began above offset 0
    when their reading began, so that nobody can read their first records any more. Both are ordered by partition.
    """

    not_read: tuple[str, ...] = ()
    deleted: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.not_read or self.deleted)


@dataclass(frozen=True, slots=True)
class PartitionRemoval:
    """A record at which brokers remove all metadata of a partition from their caches (DELETE_PARTITION_FINISHED)."""

    topic_id_partition: TopicIdPartition


@dataclass(frozen=True, slots=True)
class UnusableRecord:
    """A record that brokers accept and the platform cannot use; `message` says why."""

    message: str


MetadataEvent = RemoteLogSegmentMetadata | RemoteLogSegmentMetadataUpdate | PartitionRemoval | UnusableRecord


@dataclass(frozen=True, slots=True)
class IngestPage:
    """Records of one metadata partition, ascending by offset.

    Attributes:
        metadata_partition: number of the partition.
        from_offset: the first offset of the page; the stored position must equal it.
        next_offset: the position after the page. Offsets of the page that have no event change nothing.
        events: pairs of an offset and its decoded record.
    """

    metadata_partition: int
    from_offset: int
    next_offset: int
    events: tuple[tuple[int, MetadataEvent], ...] = ()


@dataclass(frozen=True, slots=True)
class PageResult:
    """Result of a page. `findings` are sentences for a person; each is also recorded as an event.

    `stopped` is why the page ended early, None if it did not. If it did, `next_offset` is the offset of the record that
    stopped it, which was not applied.
    """

    next_offset: int
    outcomes: Mapping[RecordOutcome, int]
    findings: tuple[str, ...] = ()
    stopped: str | None = None


@dataclass(frozen=True, slots=True)
class BrokerView:
    """A broker's metadata cache of one partition, as the applied records make it, with segments of every origin."""

    topic_id_partition: TopicIdPartition
    cache: BrokerCacheState


@dataclass(frozen=True, slots=True)
class BrokerSize:
    """A partition's RemoteLogSizeBytes as its leader counts it, computed from the applied records.

    Attributes:
        topic_id_partition: the partition.
        size_bytes: bytes of the segments in the broker's cache that are FINISHED or DELETE_STARTED, as newer brokers
            count them.
        all_states_bytes: bytes of all segments in the broker's cache, as older brokers count them.
        segments: number of all segments in the broker's cache, its RemoteLogMetadataCount.
    """

    topic_id_partition: TopicIdPartition
    size_bytes: int
    all_states_bytes: int
    segments: int


class MetadataIngestion(Protocol):
    """Positions and records of one cluster's metadata topic.

    Each call is one transaction (a call of `take_over` several), and what it changes is on disk when it returns.
    Every method may raise `MetadataUnavailableError`.
    """

    def topic(self) -> MetadataTopicIdentity | None:
        """Return the topic that was read so far; None if none was."""
        ...

    def positions(self) -> Sequence[IngestPosition]:
        """Return all positions, ordered by metadata partition; empty if nothing was ever read."""
        ...

    def record_bounds(
        self, topic: MetadataTopicIdentity, bounds: Mapping[int, OffsetBounds]
    ) -> Sequence[IngestPosition]:
        """Record the current bounds and return every position. Idempotent.

        The position of a new partition is its `begin`. If a partition begins above its position, or ends below it,
        records were lost: the partition is stopped, with an event, until it is read again or later bounds show no loss.

        Raises:
            MetadataTopicReplacedError: the topic has another id, or another number of partitions, than before; every
                position was stopped.
        """
        ...

    def apply(self, page: IngestPage) -> PageResult:
        """Apply the page as a broker's cache would, and move the position, in one transaction.

        The page ends before a record that stops a broker's cache: earlier records are applied, and the reason of the
        stop is stored with the position.

        Raises:
            StateConflictError: there is no position, or it is not `from_offset` (another process reads, or the page was
                applied before), or the partition is stopped because records were lost.
        """
        ...

    def stop(self, metadata_partition: int, at_offset: int, reason: str) -> None:
        """Store why nothing is applied from the record at `at_offset` on, with an event if the reason is new.

        If the position is not `at_offset`, nothing is stored. The next page that moves the position forward clears the
        reason.

        Raises:
            StateConflictError: there is no position.
        """
        ...

    def read_again(
        self, topic: MetadataTopicIdentity, bounds: Mapping[int, OffsetBounds], *, author: str
    ) -> Sequence[IngestPosition]:
        """Reset every position to the topic's current beginning, with an event.

        Each segment's state by the brokers' records is cleared, and set again when the records are read again.
        A user partition in a topic that brokers own is not ready (`RemoteLogMetadata.is_ready`) before its metadata
        partition is read to the end that it has at this call. The `apply` that reaches this end removes the brokers'
        segments that no record named, and reports those of them that were not tombstones. If a metadata partition is
        empty, `read_again` removes its segments itself. The platform's segments stay. Until `take_over` finds
        everything read, nothing expires: the guard `unread-records` is raised.
        """
        ...

    def take_over(self, *, author: str) -> Sequence[str]:
        """Set the owner BROKER for topics with a live segment of a broker, unless a handover of them is under way.

        Also advance the platform's segments in topics with that owner to the states of deletion that brokers recorded.
        At most 1,000 segments follow in a transaction; the next call goes on where a process ended in between. Each
        change of an owner is an event, and so are the advanced segments of each partition. Return these events as
        sentences. If every metadata partition was read from offset 0 and is complete, with bounds from after the guard
        `unread-records` was raised, that guard is cleared last, which is an event, too. Idempotent. Call it only after
        every metadata partition was read to its end or is stopped: the beginning of the metadata topic holds records of
        segments that were deleted long ago.
        """
        ...

    def unread(self) -> Mapping[TopicIdPartition, str]:
        """Return the partitions whose metadata is incomplete, each with the reason, ordered by topic and partition.

        These are the partitions with segments, in topics of the owner BROKER, whose metadata partition has no position
        or one that is not `is_complete`. The result is empty if nothing was ever read. The call is cheap if every
        metadata partition is complete, which is the usual case.
        """
        ...

    def broker_view(self, partition: TopicIdPartition) -> BrokerView:
        """Return the brokers' view of a partition; empty if no applied record named the partition."""
        ...

    def broker_sizes(self) -> Sequence[BrokerSize]:
        """Return the sizes of each partition with segments in the brokers' caches, ordered by topic and partition.

        The call reads every such segment.
        """
        ...

    def outcomes(self) -> Mapping[int, Mapping[RecordOutcome, int]]:
        """Count records by outcome since the topic's first reading or last `read_again`, by metadata partition."""
        ...
