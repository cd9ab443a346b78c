"""The outbox of the metadata topic: what was decided to be sent about a partition, where it is, how far was read back.

Each user partition has one journal. Its records have sequence numbers from 0 on, in the order of sending; one is
written here before it is sent, and at most the last one is pending, that is, may or may not be in the topic. Changes
need a lease of the role PUBLISH, so a partition has one writer.
"""

from dataclasses import dataclass
from typing import Protocol

from include.tiering.model.ownership import Fence, PartitionLease
from include.tiering.model.segments import RemoteLogSegmentState, TopicIdPartition, Uuid


@dataclass(frozen=True, slots=True)
class Intent:
    """A record about one segment that is to be in the topic. Offsets are the segment's, inclusive.

    `value` is what is sent, byte for byte, however often it has to be tried.
    """

    segment_id: Uuid
    state: RemoteLogSegmentState
    start_offset: int
    end_offset: int
    value: bytes


@dataclass(frozen=True, slots=True)
class JournalRecord:
    """An intent with its place in the journal.

    Attributes:
        intended_at_ms: when it was written down last, by the database's clock.
        offset: where in the metadata partition it was read back; None while it is pending.
    """

    sequence: int
    intent: Intent
    intended_at_ms: int
    offset: int | None


@dataclass(frozen=True, slots=True)
class Journal:
    """Everything that was published about one user partition, in order.

    Attributes:
        metadata_partition, partition_count: where its records go, and of how many partitions.
        next_offset: everything below was read, and what of it is about the user partition is in the journal.
    """

    metadata_partition: int
    partition_count: int
    next_offset: int
    records: tuple[JournalRecord, ...] = ()

    @property
    def pending(self) -> JournalRecord | None:
        """The record of which nobody knows yet whether it is in the topic."""
        last = self.records[-1] if self.records else None
        return last if last is not None and last.offset is None else None


@dataclass(frozen=True, slots=True)
class PublicationTotal:
    """How far one partition is published.

    Attributes:
        live_segments: FINISHED in the topic and not deleted there.
        end_offset: the highest end (inclusive) of those, None without any.
    """

    topic_id_partition: TopicIdPartition
    live_segments: int
    end_offset: int | None


class PublicationStore(Protocol):
    """The journals of one cluster. Each call is one transaction, on disk when it returns."""

    def claim(self, partition: TopicIdPartition, *, run_id: str, batch_id: str, lease_ms: int) -> PartitionLease | None:
        """The right to publish about this partition; None while somebody else has it.

        A live lease of the same run and batch is taken over. `WorkStore` renews and releases it.
        """
        ...

    def now_ms(self) -> int:
        """The database's clock: the one that `intended_at_ms` is from."""
        ...

    def journal(self, partition: TopicIdPartition) -> Journal | None:
        """None if nobody ever began to publish about it."""
        ...

    def begin(self, fence: Fence, *, metadata_partition: int, partition_count: int, next_offset: int) -> Journal:
        """Make an empty journal; one that is there stays as it is. Returns what holds.

        Raises:
            LeaseLostError
        """
        ...

    def intend(self, fence: Fence, sequence: int, intent: Intent) -> JournalRecord:
        """Write down what is to be sent next, before it is sent. A pending record is written down again, as of now.

        The topic's owner is read in the same transaction.

        Raises:
            LeaseLostError
            PublicationRefusedError: the topic is not HANDING_OVER; a record before it is pending; or the journal has
                another record under this number, or ends before it.
        """
        ...

    def advance(self, fence: Fence, next_offset: int, *, found: int | None = None) -> None:
        """Everything below `next_offset` was read. `found` is the offset at which the pending record came, if it did.

        `next_offset` never falls; repeating the call is harmless.

        Raises:
            LeaseLostError
            PublicationRefusedError: no record is pending, or `found` is not below `next_offset`.
        """
        ...

    def forget_pending(self, fence: Fence) -> None:
        """Remove the pending record: it is not in the topic, will not come, and is not to be sent any more.

        Raises:
            LeaseLostError
        """
        ...

    def totals(self) -> tuple[PublicationTotal, ...]:
        """Every partition with a journal, by topic and partition."""
        ...
