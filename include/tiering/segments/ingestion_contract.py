"""Contract of the ingestion of `__remote_log_metadata`: the records that were applied, and the positions.

Every partition of that topic has a position, the offset (exclusive) below which everything was applied. A page of
records and the position after it are one transaction, so each record is applied exactly once even if a process dies.

Segments have an origin. A segment that a broker began stays the broker's: the platform counts, verifies and audits it,
and neither copies over it nor deletes it. A segment that the platform began stays the platform's when brokers write
records about it. Their state of it is stored next to the platform's, and a difference is a finding. Once the topic's
owner is BROKER, a deletion by the broker deletes the platform's row as well.
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
"""Prefix of a reason for which a metadata partition stays stopped until it is read again."""


class RecordOutcome(StrEnum):
    """Effect of a record. All but APPLIED change nothing; as in a broker, ingestion continues after them."""

    APPLIED = "applied"
    UNKNOWN_SEGMENT = "unknown-segment"
    ILLEGAL_TRANSITION = "illegal-transition"
    UNUSABLE = "unusable"

    @property
    def is_finding(self) -> bool:
        """Whether an event is recorded. Updates of unknown segments are normal if the topic's beginning was deleted."""
        return self in (RecordOutcome.ILLEGAL_TRANSITION, RecordOutcome.UNUSABLE)


@dataclass(frozen=True, slots=True)
class MetadataTopicIdentity:
    """Identity of the topic that was read. It changes if the topic is created again or gets more partitions."""

    topic_id: Uuid
    partition_count: int


@dataclass(frozen=True, slots=True)
class IngestPosition:
    """How far one metadata partition was read, compared with its bounds when the cluster was last read.

    Attributes:
        metadata_partition: number of the partition.
        next_offset: everything below was applied.
        end_offset: end of the partition, exclusive.
        bounds_read_at_ms: when the bounds were read, by the database's clock.
        stopped: why nothing from `next_offset` on is applied; None if it is not stopped.
        rereading_to: offset (exclusive) up to which the partition is read again; None if it is not read again.
    """

    metadata_partition: int
    next_offset: int
    end_offset: int
    bounds_read_at_ms: int
    stopped: str | None = None
    rereading_to: int | None = None

    @property
    def lag_records(self) -> int:
        """Number of offsets that are not applied yet; a few of them may hold no record."""
        return max(0, self.end_offset - self.next_offset)

    @property
    def is_lost(self) -> bool:
        """Whether it is stopped because records were lost; then the topic has to be read again."""
        return self.stopped is not None and self.stopped.startswith(LOST)

    @property
    def is_complete(self) -> bool:
        """Whether everything up to `end_offset` is applied."""
        return self.lag_records == 0 and self.stopped is None and self.rereading_to is None


@dataclass(frozen=True, slots=True)
class PartitionRemoval:
    """Brokers remove all metadata of a partition (DELETE_PARTITION_FINISHED)."""

    topic_id_partition: TopicIdPartition


@dataclass(frozen=True, slots=True)
class UnusableRecord:
    """A record that brokers accept and the platform cannot use; `message` says why."""

    message: str


MetadataEvent = RemoteLogSegmentMetadata | RemoteLogSegmentMetadataUpdate | PartitionRemoval | UnusableRecord


@dataclass(frozen=True, slots=True)
class IngestPage:
    """Records of one metadata partition, ascending.

    Attributes:
        metadata_partition: number of the partition.
        from_offset: the stored position must equal it.
        next_offset: the position afterwards; offsets between without an event change nothing.
        events: (offset, decoded record).
    """

    metadata_partition: int
    from_offset: int
    next_offset: int
    events: tuple[tuple[int, MetadataEvent], ...] = ()


@dataclass(frozen=True, slots=True)
class PageResult:
    """Result of a page. `findings` are sentences for a person; each is also recorded as an event.

    `stopped` is why the page ended early; the position is then that of the record that stopped it.
    """

    next_offset: int
    outcomes: Mapping[RecordOutcome, int]
    findings: tuple[str, ...] = ()
    stopped: str | None = None


@dataclass(frozen=True, slots=True)
class BrokerView:
    """A broker's metadata cache of one partition, as the applied records make it, for segments of any origin."""

    topic_id_partition: TopicIdPartition
    cache: BrokerCacheState


@dataclass(frozen=True, slots=True)
class BrokerSize:
    """A partition's RemoteLogSizeBytes as its leader reports it, from the state that brokers have of each segment.

    Attributes:
        topic_id_partition: the partition.
        size_bytes: bytes of FINISHED and DELETE_STARTED segments, as newer brokers count.
        all_states_bytes: bytes of segments in every state, as older brokers count.
        segments: number of segments in every state, the broker's RemoteLogMetadataCount.
    """

    topic_id_partition: TopicIdPartition
    size_bytes: int
    all_states_bytes: int
    segments: int


class MetadataIngestion(Protocol):
    """Positions and records of one cluster's metadata topic. Each call is one transaction, on disk when it returns.

    Every method may raise `MetadataUnavailableError`.
    """

    def topic(self) -> MetadataTopicIdentity | None:
        """Return the topic that was read so far; None if none was."""
        ...

    def positions(self) -> Sequence[IngestPosition]:
        """Return positions by metadata partition; empty if none was ever read."""
        ...

    def record_bounds(
        self, topic: MetadataTopicIdentity, bounds: Mapping[int, OffsetBounds]
    ) -> Sequence[IngestPosition]:
        """Record the current bounds and return every position. Idempotent.

        A new partition starts at its `begin`. If the beginning of a partition lies above its position, or its end
        below, records were lost before they were read: it is stopped until it is read again, with an event.

        Raises:
            MetadataTopicReplacedError: another topic than before, or another number of partitions; every position was
                stopped.
        """
        ...

    def apply(self, page: IngestPage) -> PageResult:
        """Apply the page as a broker's cache would, and move the position, in one transaction.

        At a record that stops a broker's cache the page ends: earlier records are applied, and the position stores why
        it stopped.

        Raises:
            StateConflictError: the position is not `from_offset` (another process reads, or the page was applied
                before), or the partition lost records.
        """
        ...

    def stop(self, metadata_partition: int, at_offset: int, reason: str) -> None:
        """Store why nothing is applied from the record at `at_offset` on, with an event if the reason is new.

        The next page that is applied there clears it.
        """
        ...

    def read_again(
        self, topic: MetadataTopicIdentity, bounds: Mapping[int, OffsetBounds], *, author: str
    ) -> Sequence[IngestPosition]:
        """Reset every position to the topic's current beginning, with an event.

        The states that brokers recorded of segments are read again; until the current end is reached, no partition is
        ready. Then `apply` removes brokers' segments that no record named, and reports them. The platform's rows stay
        as they are.
        """
        ...

    def take_over(self, *, author: str) -> Sequence[str]:
        """Set the owner BROKER for topics with a live segment of a broker, unless a handover of them is under way.

        Also advance the platform's segments of topics with that owner to the states that brokers gave them. Each change
        is an event; returns them as sentences. Idempotent. Call it only after every metadata partition was read to its
        end or is stopped: the beginning of a topic holds records of segments that were deleted long ago.
        """
        ...

    def unread(self) -> Mapping[TopicIdPartition, str]:
        """Return the partitions whose metadata is not complete, with the reason, by topic and partition.

        Only topics of the owner BROKER count, once anything was read: their metadata partition was not read up to its
        last recorded end. Cheap if there are none, which is the usual case.
        """
        ...

    def broker_view(self, partition: TopicIdPartition) -> BrokerView:
        """Return the brokers' view of a partition; empty if no record named it."""
        ...

    def broker_sizes(self) -> Sequence[BrokerSize]:
        """Return sizes of every partition that brokers have segments of, by topic and partition. Reads each segment."""
        ...

    def outcomes(self) -> Mapping[int, Mapping[RecordOutcome, int]]:
        """Count records by outcome since the topic was read from its beginning, by metadata partition."""
        ...
