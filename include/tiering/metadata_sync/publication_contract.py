"""The outbox of the metadata topic: records about a partition, their offsets, and how far the topic was read back.

Each user partition has one journal. Its records have sequence numbers from 0 on, in the order of sending. A record is
stored here before it is sent. Only the last record can be pending, which means that it may or may not be in the topic.
Changes need a lease of the role PUBLISH, so a journal has one writer at a time.
"""

from dataclasses import dataclass
from typing import Protocol

from include.tiering.model.ownership import Fence, PartitionLease, TopicOwner
from include.tiering.model.segments import RemoteLogSegmentState, TopicIdPartition, Uuid


@dataclass(frozen=True, slots=True)
class Intent:
    """A record to be sent, about one segment. The offsets are those of the segment, both inclusive.

    `value` has the bytes of the record: each try sends the same bytes.
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
    """Everything that was published, or is pending, about one user partition, in order.

    Attributes:
        metadata_partition, partition_count: the partition of the metadata topic to which the records go, and that
            topic's partition count when the publication began.
        next_offset: the metadata partition was read back up to this offset (exclusive). The journal has each record
            below it that is about the user partition, repeated ones once.
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
        live_segments: number of segments whose last record that was read back is FINISHED.
        end_offset: the highest end (inclusive) of these segments; None without any.
    """

    topic_id_partition: TopicIdPartition
    live_segments: int
    end_offset: int | None


def owners_that_publish(state: RemoteLogSegmentState) -> tuple[TopicOwner, ...]:
    """Return the owners a topic may have when a record that sets a segment to `state` is stored for sending.

    Only a topic that is being handed over gets new segments. Deletions are also published about a topic that the
    platform archives again, after a handover of it was given up.
    """
    if state >= RemoteLogSegmentState.DELETE_SEGMENT_STARTED:
        return (TopicOwner.HANDING_OVER, TopicOwner.PLATFORM)
    return (TopicOwner.HANDING_OVER,)


class PublicationStore(Protocol):
    """The journals of one cluster. Each call is one transaction, on disk when it returns."""

    def claim(self, partition: TopicIdPartition, *, run_id: str, batch_id: str, lease_ms: int) -> PartitionLease | None:
        """Take the lease to publish about this partition. A live lease of the same run and batch is taken over.

        `WorkStore` renews and releases it.

        Returns:
            The lease; None while another batch has a live one.
        """
        ...

    def now_ms(self) -> int:
        """Return the database's time in UTC milliseconds; `intended_at_ms` is by the same clock."""
        ...

    def journal(self, partition: TopicIdPartition) -> Journal | None:
        """Return the journal of a partition; None if its publication never began."""
        ...

    def begin(self, fence: Fence, *, metadata_partition: int, partition_count: int, next_offset: int) -> Journal:
        """Create an empty journal, or leave an existing one unchanged; return the stored one. Idempotent.

        Raises:
            LeaseLostError: the lease was taken again, or was given back.
        """
        ...

    def intend(self, fence: Fence, sequence: int, intent: Intent) -> JournalRecord:
        """Store the record that is to be sent next, before it is sent.

        If this record is the pending one already, only `intended_at_ms` is set again, to the present time. If it is the
        last one and was read back, nothing is changed. The topic's owner is checked in the same transaction.

        Raises:
            LeaseLostError: the lease was taken again, or was given back.
            PublicationRefusedError: the topic's owner is not HANDING_OVER (nor PLATFORM, if the record is about the
                deletion of a segment), the previous record is still pending, `sequence` is not the next number, or the
                publication never began.
        """
        ...

    def advance(self, fence: Fence, next_offset: int, *, found: int | None = None) -> None:
        """Store that everything below `next_offset` (exclusive) was read. Idempotent; `next_offset` never falls.

        Args:
            fence: the lease.
            next_offset: the first offset that was not read.
            found: the offset of the pending record, if it was found.

        Raises:
            LeaseLostError: the lease was taken again, or was given back.
            PublicationRefusedError: the publication never began; `found` is not below `next_offset`; or `found` is
                given, but no record is pending and the last one was not found at this offset before.
        """
        ...

    def forget_pending(self, fence: Fence) -> None:
        """Remove the pending record, if there is one.

        Call it only for a record that is not in the topic, cannot arrive there any more, and is not needed any more.

        Raises:
            LeaseLostError: the lease was taken again, or was given back.
            PublicationRefusedError: the publication never began.
        """
        ...

    def held_segments(self, partition: TopicIdPartition) -> frozenset[Uuid]:
        """Return the segments that brokers may have, so their objects must not be deleted.

        These are the segments in the journal whose newest record is not about their deletion, or was not read back yet;
        and the platform's segments that brokers have by the ingested records, unless the journal withdrew them. The
        latter protect segments whose journal was lost: the database was restored or rebuilt after their publication.
        """
        ...

    def totals(self) -> tuple[PublicationTotal, ...]:
        """Return the totals of every partition with a journal, ordered by topic and partition."""
        ...
