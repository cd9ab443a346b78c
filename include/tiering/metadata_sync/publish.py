"""Publish a partition's segments to `__remote_log_metadata`, one record at a time: the protocol and its crash table.

Published records cannot be removed, and brokers with remote storage act on all of them. So each record is checked by
an independent decoder, stored in the journal, sent, and read back before the next record of the plan is stored. After a
crash at any point the topic has the first records of the plan, and brokers could work with them.

    step       after the step                           a crash right after it leaves                  cleaned up by
    INTENDED   the record is in the journal, pending    a record that was not sent                     A
    SENT       all in-sync replicas have the record     a record in the topic, pending in the journal  A
    READ_BACK  the topic was read up to the record      the same                                       A
    RECORDED   the journal has the record's offset      nothing to clean up                            -

A: the next publisher of the partition, before it decides anything. It waits until no request of the dead publisher can
   still arrive (`settle_ms` after the record was stored), reads the topic from `next_offset` of the journal, and looks
   for the pending record. If the record is missing and still the next one of the plan, the publisher sends the same
   bytes, so that a late request of the dead publisher adds nothing new. If the record is missing and is not the next
   one, the publisher removes it from the journal.
   A publisher that sends the pending record again stores it again first. Its successor then counts `settle_ms` from
   this later time.

Each partition has one writer: a lease of the role PUBLISH is checked in each transaction that changes the journal. A
writer that was suspended for longer than its lease sends nothing more. If a writer stored a record more than
SEND_WITHIN_MS ago, it does not send that record, as a successor may not wait for it any more.

The records that are read back are compared with the journal. Every record from `next_offset` on is checked: a record
about the user partition must be the pending one, or one of the journal that arrived a second time (a request that a
broker processed late). Such a repetition does no harm, unless it is the STARTED record of a segment that
was deleted since. Any other record about the user partition was written by another writer.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from include.tiering.clock import Clock
from include.tiering.errors import (
    ForeignRecordError,
    LeaseLostError,
    MetadataTopicRangeError,
    PoisonRecordError,
    PublicationRefusedError,
    SendingStoppedError,
)
from include.tiering.formats.remote_log_metadata_records import (
    PartitionDeleteRecord,
    SegmentRecord,
    SegmentUpdateRecord,
)
from include.tiering.kafka.metadata_topic.contract import (
    METADATA_TOPIC,
    MetadataTopic,
    MetadataTopicRecord,
    metadata_partition_of,
)
from include.tiering.metadata_sync.metadata_events import harmless_record
from include.tiering.metadata_sync.plan_publication import (
    PublicationPlan,
    PublicationStep,
    intent_for,
    plan_publication,
    plan_withdrawal,
)
from include.tiering.metadata_sync.publication_contract import Intent, Journal, JournalRecord, PublicationStore
from include.tiering.model.ownership import PartitionLease, SegmentOrigin, TopicOwner
from include.tiering.model.segments import RemoteLogSegmentState, TopicIdPartition
from include.tiering.runs.contract import ALL_TOPICS, WorkStore
from include.tiering.segments.contract import RemoteLogMetadata, TopicRegistry

LEASE_MS = 120_000
"""With the default request timeout this is longer than one record takes: appending, reading back, and the database."""
SEND_WITHIN_MS = 5_000
"""A record is sent within this time after it was stored, or not at all. Together with the default request timeout this
is less than the default of `settle_ms`."""


class PublishStep(StrEnum):
    """The steps of the protocol, in order. Each is reported when it is done, with the sequence number of the record."""

    INTENDED = "written down"
    SENT = "sent"
    READ_BACK = "read back"
    RECORDED = "recorded"


PublishObserver = Callable[[PublishStep, TopicIdPartition, int], None]
PublishProgress = Callable[[int, int], None]
"""Called with the number of records that were sent and the number in the plan."""


@dataclass(frozen=True, slots=True)
class Published:
    """The result of a publication: the executed `plan`, and the number of its records.

    `repeated` is the number of the platform's records that this publication, before it sent anything, found in the
    topic a second time; they do no harm.
    """

    plan: PublicationPlan
    records: int
    repeated: int = 0


@dataclass(frozen=True, slots=True)
class Publisher:
    """Publishes the segments of partitions.

    `broker_id` is reserved: no broker of the cluster has it. A record of a dead publisher may still arrive until
    `settle_ms` milliseconds after it was stored. Each method may raise `MetadataUnavailableError` and the errors of
    `MetadataTopic`.
    """

    topic: MetadataTopic
    journals: PublicationStore
    metadata: RemoteLogMetadata
    registry: TopicRegistry
    work: WorkStore
    clock: Clock
    observe: PublishObserver
    broker_id: int
    settle_ms: int
    lease_ms: int = LEASE_MS

    def plan(self, partition: TopicIdPartition, *, log_start_offset: int) -> PublicationPlan:
        """Return what `publish` would send now, from what was read back so far. Changes nothing."""
        return self._planned(partition, self.journals.journal(partition), log_start_offset)

    def publish(
        self,
        partition: TopicIdPartition,
        *,
        log_start_offset: int,
        run_id: str,
        batch_id: str,
        on_progress: PublishProgress = lambda _done, _of: None,
    ) -> Published:
        """Send all records of the plan. Idempotent. `log_start_offset` is the broker's present one.

        If the platform archives the topic again after records about it were published, the plan has only deletions.

        Raises:
            PublicationRefusedError: the topic is neither being handed over nor archived again, the plan is refused (for
                example, the segments do not begin at the broker's log start), the partition count of the metadata topic
                has changed, or the independent decoder reads something else from the bytes of a record.
            ForeignRecordError: another writer wrote about the partition, published records are missing, brokers stop at
                a record, or STARTED of a deleted segment was repeated.
            LeaseLostError: another publisher has the partition, or this one was suspended for too long.
            SendingStoppedError: the topic, or all topics, are paused.
        """
        owner, found = self.registry.owner(partition.topic_id), self.journals.journal(partition)
        if owner is not TopicOwner.HANDING_OVER and (owner is not TopicOwner.PLATFORM or found is None):
            raise PublicationRefusedError(f"{partition}: its topic's owner is {owner}, not {TopicOwner.HANDING_OVER}")
        lease = self.journals.claim(partition, run_id=run_id, batch_id=batch_id, lease_ms=self.lease_ms)
        if lease is None:
            raise LeaseLostError(f"{partition}: another process publishes it now")
        try:
            journal, repeated = self._caught_up(lease, partition)
            plan = self._planned(partition, journal, log_start_offset)
            if plan.refused is not None:
                raise PublicationRefusedError(f"{partition}: {plan.refused}. Nothing was sent")
            if plan.steps:
                # If published records are missing from the topic, no further records may follow them.
                require_published(self.topic, partition, journal)
            journal = self._without_stale_intent(lease, journal, plan)
            for done, step in enumerate(plan.steps):
                self._require_not_paused(partition)
                lease, deadline = self._renewed(lease)
                journal = self._send(lease, journal, step, deadline)
                on_progress(done + 1, len(plan.steps))
            return Published(plan, len(plan.steps), repeated)
        finally:
            self.work.release(lease)

    def confirm(self, partition: TopicIdPartition) -> Journal | None:
        """Check that the topic has everything that was published, and return the journal; None without a journal.

        Raises:
            ForeignRecordError: a record is missing, another writer wrote about the partition, brokers stop at a record,
                or STARTED of a deleted segment was repeated.
            PublicationRefusedError: a record is pending; a publication has to find it or send it again first.
        """
        journal = self.journals.journal(partition)
        if journal is None:
            return None
        if journal.pending is not None:
            raise PublicationRefusedError(f"{partition}: record {journal.pending.sequence} was not read back yet")
        read = read_back(self.topic, partition, journal)
        require_published(self.topic, partition, replace(journal, next_offset=read.next_offset))
        return journal

    def _caught_up(self, lease: PartitionLease, partition: TopicIdPartition) -> tuple[Journal, int]:
        """Read the topic to its end; return the journal as it is then, and the number of repeated records."""
        count = self.topic.partition_count()
        chosen = metadata_partition_of(partition, count)
        journal = self.journals.begin(
            lease.fence,
            metadata_partition=chosen,
            partition_count=count,
            next_offset=self.topic.offsets(chosen).begin,
        )
        if (journal.metadata_partition, journal.partition_count) != (chosen, count):
            raise PublicationRefusedError(
                f"{partition}: the metadata topic has {count} partitions, and had {journal.partition_count} when the"
                " partition was first published: brokers would look for its records in another partition"
            )
        if journal.pending is not None:
            self._settle(journal.pending)
        read = read_back(self.topic, partition, journal)
        self.journals.advance(lease.fence, read.next_offset, found=read.found)
        return self._reloaded(partition), len(read.repeated)

    def _settle(self, pending: JournalRecord) -> None:
        """Wait until a request of the publisher that stored this record cannot arrive any more."""
        age_ms = self.journals.now_ms() - pending.intended_at_ms
        self.clock.sleep(max(0, min(self.settle_ms, self.settle_ms - age_ms)) / 1000)

    def _without_stale_intent(self, lease: PartitionLease, journal: Journal, plan: PublicationPlan) -> Journal:
        """Remove a pending record that is not the next one of the plan; return the journal as it is then."""
        pending = journal.pending
        if pending is None or (plan.steps and _is_for(pending.intent, plan.steps[0])):
            return journal
        self.journals.forget_pending(lease.fence)
        return self._reloaded(lease.fence.topic_id_partition)

    def _send(self, lease: PartitionLease, journal: Journal, step: PublicationStep, deadline: float) -> Journal:
        partition = lease.fence.topic_id_partition
        pending = journal.pending
        before = journal.records[:-1] if pending is not None else journal.records
        sequence = len(before)
        intent = pending.intent if pending is not None else self._intent(journal, step)
        send_by = min(deadline, self.clock.monotonic() + SEND_WITHIN_MS / 1000)
        record = self.journals.intend(lease.fence, sequence, intent)
        self.observe(PublishStep.INTENDED, partition, sequence)
        if self.clock.monotonic() > send_by:
            raise LeaseLostError(
                f"{partition}: this publisher was suspended for longer than its lease, or for more than"
                f" {SEND_WITHIN_MS} ms between storing a record and sending it: the record was not sent"
            )
        offset = self.topic.append(journal.metadata_partition, intent.value)
        self.observe(PublishStep.SENT, partition, sequence)
        journal = replace(journal, records=(*before, record))
        read = read_back(self.topic, partition, journal, end_offset=offset + 1)
        if read.found is None:
            raise MetadataTopicRangeError(f"{partition}: the record acknowledged at offset {offset} is missing")
        self.observe(PublishStep.READ_BACK, partition, sequence)
        self.journals.advance(lease.fence, read.next_offset, found=read.found)
        self.observe(PublishStep.RECORDED, partition, sequence)
        return replace(journal, next_offset=read.next_offset, records=(*before, replace(record, offset=read.found)))

    def _intent(self, journal: Journal, step: PublicationStep) -> Intent:
        return intent_for(step, journal, broker_id=self.broker_id, event_timestamp_ms=self.clock.now_ms())

    def _planned(self, partition: TopicIdPartition, journal: Journal | None, log_start_offset: int) -> PublicationPlan:
        known = () if journal is None else {record.intent.segment_id for record in journal.records}
        # Other segments matter only if they reach into the broker's log.
        found = self.metadata.selected.segments_with_ids(partition, known, finished_from=log_start_offset)
        rows = {row.metadata.remote_log_segment_id.id: row for row in found if row.origin is SegmentOrigin.PLATFORM}
        if journal is not None and self.registry.owner(partition.topic_id) is TopicOwner.PLATFORM:
            return plan_withdrawal(partition, journal, rows, log_start_offset=log_start_offset)
        return plan_publication(partition, journal, rows, log_start_offset=log_start_offset)

    def _renewed(self, lease: PartitionLease) -> tuple[PartitionLease, float]:
        """Return the lease, renewed if needed, and until when it is certainly valid by the monotonic clock."""
        asked_at = self.clock.monotonic()
        left_ms = lease.expires_at_ms - self.journals.now_ms()
        if left_ms < self.lease_ms // 2:
            lease, left_ms = self.work.renew(lease, lease_ms=self.lease_ms), self.lease_ms
        return lease, asked_at + left_ms / 1000

    def _reloaded(self, partition: TopicIdPartition) -> Journal:
        journal = self.journals.journal(partition)
        if journal is None:
            raise PublicationRefusedError(f"{partition}: its journal was deleted")
        return journal

    def _require_not_paused(self, partition: TopicIdPartition) -> None:
        if {ALL_TOPICS, partition.topic} & self.work.paused_topics():
            raise SendingStoppedError(f"{partition}: paused; ./tiering resume ends the pause")


def _is_for(intent: Intent, step: PublicationStep) -> bool:
    return (intent.segment_id, intent.state) == (step.segment.remote_log_segment_id.id, step.state)


_STARTED: Final = RemoteLogSegmentState.COPY_SEGMENT_STARTED
_DELETE_FINISHED: Final = RemoteLogSegmentState.DELETE_SEGMENT_FINISHED


@dataclass(frozen=True, slots=True)
class ReadBack:
    """The result of reading up to `next_offset` (exclusive).

    `found` is the offset of the pending record; None if it was not found, or if none is pending.

    `repeated`: offsets at which a known record was found a second time.
    """

    next_offset: int
    found: int | None
    repeated: tuple[int, ...] = ()


def read_back(
    topic: MetadataTopic, partition: TopicIdPartition, journal: Journal, *, end_offset: int | None = None
) -> ReadBack:
    """Check every record from `journal.next_offset` to `end_offset` (exclusive; None: the present end).

    Raises:
        ForeignRecordError: a record about the partition was written by another writer, brokers stop at a record, or
            STARTED of a deleted segment was repeated.
        MetadataTopicRangeError: unread records are gone, or the topic ends below what was read before.
        MetadataTopicUnavailableError: the topic cannot be read now.
        MetadataTopicRefusedError: the brokers refuse access.
    """
    end = topic.offsets(journal.metadata_partition).end if end_offset is None else end_offset
    if end < journal.next_offset:
        raise MetadataTopicRangeError(
            f"{METADATA_TOPIC}-{journal.metadata_partition} ends at {end}, and was read up to {journal.next_offset}:"
            " the topic was created again, or its end is lost"
        )
    pending = journal.pending
    found, repeated = None, []
    for record in topic.read(journal.metadata_partition, journal.next_offset, end_offset=end):
        if not _is_about(partition, record):
            continue
        if found is None and pending is not None and record.value == pending.intent.value:
            found = record.offset
        else:
            _require_harmless(partition, journal, record)
            repeated.append(record.offset)
    return ReadBack(end, found, tuple(repeated))


def require_published(topic: MetadataTopic, partition: TopicIdPartition, journal: Journal) -> None:
    """Require that each published record is still at its offset, and that no other writer wrote about the partition.

    Only records from the first published one up to `journal.next_offset` (exclusive) are read.

    Raises:
        ForeignRecordError: a record is missing or has changed, another writer wrote about the partition, or brokers
            stop at a record.
        MetadataTopicRangeError: the topic begins above the first of these offsets, or ends below `journal.next_offset`.
        MetadataTopicUnavailableError: the topic cannot be read now.
        MetadataTopicRefusedError: the brokers refuse access.
    """
    placed: Mapping[int, bytes] = {
        record.offset: record.intent.value for record in journal.records if record.offset is not None
    }
    if not placed:
        return
    values = set(placed.values())
    seen: dict[int, bytes] = {}
    for record in topic.read(journal.metadata_partition, min(placed), end_offset=journal.next_offset):
        if _is_about(partition, record):
            seen[record.offset] = record.value
    for offset, value in placed.items():
        if seen.pop(offset, None) != value:
            raise ForeignRecordError(
                f"{partition}: the record published at offset {offset} of {METADATA_TOPIC}-{journal.metadata_partition}"
                " is missing: the topic was created again, or its records were removed"
            )
    for offset, value in seen.items():
        if value not in values:
            raise _foreign(partition, journal.metadata_partition, offset)


def _require_harmless(partition: TopicIdPartition, journal: Journal, record: MetadataTopicRecord) -> None:
    """Require that a record is a harmless repetition. A STARTED record after the segment's deletion is not harmless."""
    mine = next((known.intent for known in journal.records if known.intent.value == record.value), None)
    if mine is None:
        raise _foreign(partition, record.partition, record.offset)
    last = [known.intent.state for known in journal.records if known.intent.segment_id == mine.segment_id][-1]
    if mine.state is _STARTED and last is _DELETE_FINISHED:
        raise ForeignRecordError(
            f"{partition}: COPY_SEGMENT_STARTED of segment {mine.segment_id} was repeated at offset {record.offset} of"
            f" {METADATA_TOPIC}-{record.partition}, after its deletion: brokers have the segment again"
        )


def _foreign(partition: TopicIdPartition, metadata_partition: int, offset: int) -> ForeignRecordError:
    return ForeignRecordError(
        f"{partition}: another writer wrote about it, at offset {offset} of {METADATA_TOPIC}-{metadata_partition}. A"
        " broker tiers it, another publisher is running, or the database is older than the published records"
    )


def _is_about(partition: TopicIdPartition, record: MetadataTopicRecord) -> bool:
    try:
        decoded = harmless_record(record.value)
    except PoisonRecordError as error:
        raise ForeignRecordError(
            f"{METADATA_TOPIC}-{record.partition} has a record at offset {record.offset} at which every broker stops:"
            f" {error}. Nothing is published after it"
        ) from error
    match decoded:
        case SegmentRecord() | SegmentUpdateRecord():
            entry = decoded.segment_id.partition
        case PartitionDeleteRecord():
            entry = decoded.partition
        case _:
            return False
    return (entry.topic_id, entry.partition) == (partition.topic_id, partition.partition)
