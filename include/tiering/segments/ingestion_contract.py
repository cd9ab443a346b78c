"""What was read of `__remote_log_metadata`, and how far: brokers' segments beside our own.

Every partition of that topic has a position, the offset (exclusive) below which everything was applied. A page of
records and the position behind it are one transaction, so a record is applied exactly once whatever dies in between.

Segments have an origin. What a broker began is the broker's, for ever: the platform counts, verifies and audits it, and
neither copies over it nor deletes it. What the platform began stays the platform's when the brokers tell of it; their
word about it is kept beside ours, and a difference is a finding. From the moment on that the topic's owner is BROKER, a
deletion by the broker is a deletion of our row.
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
"""How the reason begins for which a metadata partition stays stopped until it is read again."""


class RecordOutcome(StrEnum):
    """What a record did. All but APPLIED changed nothing, as in a broker, which goes on; so does the ingest."""

    APPLIED = "applied"
    UNKNOWN_SEGMENT = "unknown-segment"
    ILLEGAL_TRANSITION = "illegal-transition"
    UNUSABLE = "unusable"

    @property
    def is_finding(self) -> bool:
        """Whether it is written down as an event. Updates of what is not known are ordinary where a topic's beginning
        was deleted.
        """
        return self in (RecordOutcome.ILLEGAL_TRANSITION, RecordOutcome.UNUSABLE)


@dataclass(frozen=True, slots=True)
class MetadataTopicIdentity:
    """Which topic was read: one that was created again, or has more partitions, is another."""

    topic_id: Uuid
    partition_count: int


@dataclass(frozen=True, slots=True)
class IngestPosition:
    """How far one metadata partition was read. All by what the cluster said when it was last asked.

    Attributes:
        next_offset: everything below was applied.
        end_offset: exclusive.
        bounds_read_at_ms: when the cluster was asked, by the database's clock.
        stopped: why nothing behind `next_offset` is applied; None: nothing stands in the way.
        rereading_to: read again from the beginning up to here (exclusive) before it is complete; None: it is.
    """

    metadata_partition: int
    next_offset: int
    end_offset: int
    bounds_read_at_ms: int
    stopped: str | None = None
    rereading_to: int | None = None

    @property
    def lag_records(self) -> int:
        """Offsets that are not applied yet; a few may hold no record."""
        return max(0, self.end_offset - self.next_offset)

    @property
    def is_lost(self) -> bool:
        """Stopped because records were lost: only reading again helps."""
        return self.stopped is not None and self.stopped.startswith(LOST)

    @property
    def is_complete(self) -> bool:
        return self.lag_records == 0 and self.stopped is None and self.rereading_to is None


@dataclass(frozen=True, slots=True)
class PartitionRemoval:
    """The brokers forget all that they know of a partition (DELETE_PARTITION_FINISHED)."""

    topic_id_partition: TopicIdPartition


@dataclass(frozen=True, slots=True)
class UnusableRecord:
    """A record that brokers take and that means nothing here; `message` says why."""

    message: str


MetadataEvent = RemoteLogSegmentMetadata | RemoteLogSegmentMetadataUpdate | PartitionRemoval | UnusableRecord


@dataclass(frozen=True, slots=True)
class IngestPage:
    """Records of one metadata partition, ascending.

    Attributes:
        from_offset: where the stored position must stand.
        next_offset: where it stands afterwards; what has no event in between changes nothing.
        events: (offset, what the record says).
    """

    metadata_partition: int
    from_offset: int
    next_offset: int
    events: tuple[tuple[int, MetadataEvent], ...] = ()


@dataclass(frozen=True, slots=True)
class PageResult:
    """What a page did. `findings` are sentences for a person, each of them an event, too.

    `stopped`: why the page ended early; its position then stands before the record that stopped it.
    """

    next_offset: int
    outcomes: Mapping[RecordOutcome, int]
    findings: tuple[str, ...] = ()
    stopped: str | None = None


@dataclass(frozen=True, slots=True)
class BrokerView:
    """What brokers know of one partition by the records that were applied, whoever began its segments."""

    topic_id_partition: TopicIdPartition
    cache: BrokerCacheState


@dataclass(frozen=True, slots=True)
class BrokerSize:
    """A partition's RemoteLogSizeBytes as its leader has it, by the state that brokers know each segment in.

    Attributes:
        size_bytes: FINISHED and DELETE_STARTED, as newer brokers count.
        all_states_bytes: everything that a broker knows, as older ones count.
        segments: that a broker knows, its RemoteLogMetadataCount.
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
        """The topic that was read so far; None if none was."""
        ...

    def positions(self) -> Sequence[IngestPosition]:
        """By metadata partition. Empty if none was ever looked at."""
        ...

    def record_bounds(
        self, topic: MetadataTopicIdentity, bounds: Mapping[int, OffsetBounds]
    ) -> Sequence[IngestPosition]:
        """Record what the cluster says now, and return every position. A partition that is looked at for the first time
        begins at its `begin`. One whose beginning lies above its position, or whose end below, lost records that were
        not read: it is stopped until it is read again, with an event. Repeating the call is harmless.

        Raises:
            MetadataTopicReplacedError: another topic than before, or another number of partitions. Every position is
                stopped then.
        """
        ...

    def apply(self, page: IngestPage) -> PageResult:
        """Apply the page as a broker's cache would, and move the position, in one transaction. A record over which
        brokers stop ends the page before it: what came earlier is applied, and the position says why it stopped.

        Raises:
            StateConflictError: the position stands elsewhere (somebody else reads, or the page was applied before), or
                the partition lost records.
        """
        ...

    def stop(self, metadata_partition: int, at_offset: int, reason: str) -> None:
        """Write down why nothing is applied from the record at `at_offset` on, with an event if it is news. The next
        page that is applied there clears it.
        """
        ...

    def read_again(
        self, topic: MetadataTopicIdentity, bounds: Mapping[int, OffsetBounds], *, author: str
    ) -> Sequence[IngestPosition]:
        """Put every position back to the topic's beginning of now, with an event. Brokers' word about each segment is
        taken anew; until the end of now is reached, no partition is ready. Segments of brokers that no record told of
        by then are removed by `apply`, and named. Rows of the platform stay as they are.
        """
        ...

    def take_over(self, *, author: str) -> Sequence[str]:
        """Give topics with a live segment of a broker's to the owner BROKER, unless they are being handed over, and
        bring our rows of topics of that owner to the state that brokers gave them. Each is an event; returns them as
        sentences. Repeating the call is harmless.

        To be called when everything was read: the beginning of a topic tells of what is long deleted.
        """
        ...

    def unread(self) -> Mapping[TopicIdPartition, str]:
        """Every partition with segments about which answers are not complete, with why, by topic and partition. Only
        of topics of the owner BROKER, once anything was read: their metadata partition was not read to the end that the
        cluster last named. Mostly none, which is cheap to say.
        """
        ...

    def broker_view(self, partition: TopicIdPartition) -> BrokerView:
        """Empty for a partition that no record told of."""
        ...

    def broker_sizes(self) -> Sequence[BrokerSize]:
        """Of every partition of which brokers know a segment, by topic and partition. Looks at each segment."""
        ...

    def outcomes(self) -> Mapping[int, Mapping[RecordOutcome, int]]:
        """How many records did what since the topic was read from its beginning, by metadata partition."""
        ...
