"""The outbox of the metadata topic: records about a partition, their offsets, and how far the topic was read back.

Each user partition has one journal. Its records have sequence numbers from 0 on, in the order of sending. A record is
stored here before it is sent. At most the last one is pending, which means that it may or may not be in the topic.
Changes need a lease of the role PUBLISH, so a partition has one writer.
"""

from dataclasses import dataclass
from typing import Protocol

from include.tiering.model.ownership import Fence, PartitionLease
from include.tiering.model.segments import RemoteLogSegmentState, TopicIdPartition, Uuid


@dataclass(frozen=True, slots=True)
class Intent:
    """A record about one segment that is to be sent. Offsets are those of the segment, inclusive.

    `value` is what is sent: each try sends the same bytes.
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
        intended_at_ms: when it was last stored for sending, by the database's clock.
        offset: the offset in the metadata partition at which it was read back; None while it is pending.
    """

    sequence: int
    intent: Intent
    intended_at_ms: int
    offset: int | None


@dataclass(frozen=True, slots=True)
class Journal:
    """Everything that was published about one user partition, in order.

    Attributes:
        metadata_partition, partition_count: the partition of the metadata topic, and the topic's partition count.
        next_offset: everything below it (exclusive) was read, and the journal has all records about the user partition.
    """

    metadata_partition: int
    partition_count: int
    next_offset: int
    records: tuple[JournalRecord, ...] = ()

    @property
    def pending(self) -> JournalRecord | None:
        """The record that may or may not be in the topic; None without one."""
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
        """Take the lease to publish about this partition. A live lease of the same run and batch is taken over.

        `WorkStore` renews and releases it.

        Returns:
            The lease; None while another batch has it.
        """
        ...

    def now_ms(self) -> int:
        """Return the database's time, which `intended_at_ms` uses, too."""
        ...

    def journal(self, partition: TopicIdPartition) -> Journal | None:
        """Return the journal of a partition; None if its publication never began."""
        ...

    def begin(self, fence: Fence, *, metadata_partition: int, partition_count: int, next_offset: int) -> Journal:
        """Create an empty journal, or leave an existing one unchanged; return the stored one. Idempotent.

        Raises:
            LeaseLostError: another batch took the lease.
        """
        ...

    def intend(self, fence: Fence, sequence: int, intent: Intent) -> JournalRecord:
        """Store what is to be sent next, before it is sent. A pending record is stored again with the present time.

        The topic's owner is checked in the same transaction.

        Raises:
            LeaseLostError: another batch took the lease.
            PublicationRefusedError: the topic is not HANDING_OVER; a record before it is pending; or the journal has
                another record under this number, or ends before it.
        """
        ...

    def advance(self, fence: Fence, next_offset: int, *, found: int | None = None) -> None:
        """Store that everything below `next_offset` (exclusive) was read. Idempotent; `next_offset` never falls.

        Args:
            fence: the lease.
            next_offset: the first offset that was not read.
            found: the offset of the pending record, if it was found.

        Raises:
            LeaseLostError: another batch took the lease.
            PublicationRefusedError: no record is pending, or `found` is not below `next_offset`.
        """
        ...

    def forget_pending(self, fence: Fence) -> None:
        """Remove the pending record: it is not in the topic, cannot arrive any more, and is not needed any more.

        Raises:
            LeaseLostError: another batch took the lease.
        """
        ...

    def totals(self) -> tuple[PublicationTotal, ...]:
        """Return the totals of every partition with a journal, ordered by topic and partition."""
        ...
