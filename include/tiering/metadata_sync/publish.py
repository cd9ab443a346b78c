"""Publish a partition's segments to `__remote_log_metadata`, one record at a time: the protocol and its crash table.

What is in the topic can be taken back by nobody, and a broker that is switched on believes all of it. So each record is
decided, checked by an independent hand, written down, sent, and read back before the next one is decided on; whatever
dies in between, the topic has a beginning of the whole that a broker could work with.

    step       done when it is reached                      a crash right after it leaves           cleaned up by
    INTENDED   the record is in the journal, pending        a record that was not sent              A
    SENT       all in-sync replicas have it                 one in the topic, pending here          A
    READ_BACK  everything up to it was read                 the same                                A
    RECORDED   the journal knows its offset                 nothing to clean up                     -

A: the next publisher of the partition, before it decides on anything. It waits until nothing of the dead one can still
   be under way (`settle_ms` after the record was written down), reads the topic from where the journal was read back
   to, and finds the pending record or not. If not, it sends the same bytes, so that one that comes late all the same
   says nothing new; or forgets it, if it is not to be sent any more.
   Who sends it again writes it down again, so that the one after waits from then on.

One writer for each partition: a lease of the role PUBLISH, proved in the transaction of each step. A writer that was
asleep for longer than its lease sends nothing more, nor does one whose record was written down too long ago: who took
its lease away waits for that record no longer.

What is read back is compared with the journal of what was sent. Every record of the metadata partition is looked at:
one about the user partition must be the pending one, or one that is known already and came a second time (a request
that the brokers took up late: brokers drop it, as it is no next state). Anything else was written by somebody else.
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
)
from include.tiering.metadata_sync.publication_contract import Intent, Journal, JournalRecord, PublicationStore
from include.tiering.model.ownership import PartitionLease, SegmentOrigin, TopicOwner
from include.tiering.model.segments import RemoteLogSegmentState, TopicIdPartition
from include.tiering.runs.contract import ALL_TOPICS, WorkStore
from include.tiering.segments.contract import RemoteLogMetadata, TopicRegistry

LEASE_MS = 120_000
"""Longer than a record takes at most: appending, reading back, and the database."""
SEND_WITHIN_MS = 5_000
"""A request begins so soon after its record began to be written down, or never. With the time after which a request is
given up, that is within the default of `settle_ms`."""


class PublishStep(StrEnum):
    """Named points of the protocol, in order; reported after each is done, with the number of the record."""

    INTENDED = "written down"
    SENT = "sent"
    READ_BACK = "read back"
    RECORDED = "recorded"


PublishObserver = Callable[[PublishStep, TopicIdPartition, int], None]
PublishProgress = Callable[[int, int], None]
"""Records sent, of records that the plan has."""


@dataclass(frozen=True, slots=True)
class Published:
    """What a call did: `plan` as it was carried out, and how many records that took. `repeated`: records of ours that
    stand in the topic twice, which harms nobody.
    """

    plan: PublicationPlan
    records: int
    repeated: int = 0


@dataclass(frozen=True, slots=True)
class Publisher:
    """Everything that publishing touches.

    `broker_id` is reserved: no broker of the cluster has it. Each method may raise `MetadataUnavailableError`, and what
    `MetadataTopic` raises.
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
        """What `publish` would send now, by what was read back so far. Asks no broker and changes nothing."""
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
        """Send what is to be sent; harmless to repeat. `log_start_offset` is the broker's, of now.

        Raises:
            PublicationRefusedError: the topic is not being handed over, the segments do not begin where the broker's
                log does, the metadata topic has another number of partitions than before, or a check failed.
            ForeignRecordError: somebody else wrote about the partition, or what was published is not there any more.
            LeaseLostError: somebody else publishes it.
            SendingStoppedError: paused.
        """
        owner = self.registry.owner(partition.topic_id)
        if owner is not TopicOwner.HANDING_OVER:
            raise PublicationRefusedError(f"{partition}: its topic's owner is {owner}, not {TopicOwner.HANDING_OVER}")
        lease = self.journals.claim(partition, run_id=run_id, batch_id=batch_id, lease_ms=self.lease_ms)
        if lease is None:
            raise LeaseLostError(f"{partition}: somebody else publishes it now")
        try:
            journal, repeated = self._caught_up(lease, partition)
            plan = self._planned(partition, journal, log_start_offset)
            if plan.refused is not None:
                raise PublicationRefusedError(f"{partition}: {plan.refused}. Nothing was sent")
            if plan.steps:
                # What brokers do not have any more cannot be gone on with.
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
        """Read everything that was published once more. None: nothing ever was.

        Raises:
            ForeignRecordError: something is missing, or somebody else wrote about the partition.
            PublicationRefusedError: a record is pending: publish first.
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
        """The journal with all that the topic has by now."""
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
                " partition was first published: brokers would look for its records elsewhere"
            )
        if journal.pending is not None:
            self._settle(journal.pending)
        read = read_back(self.topic, partition, journal)
        self.journals.advance(lease.fence, read.next_offset, found=read.found)
        return self._reloaded(partition), len(read.repeated)

    def _settle(self, pending: JournalRecord) -> None:
        """Until nothing of whoever wrote it down can still be under way."""
        age_ms = self.journals.now_ms() - pending.intended_at_ms
        self.clock.sleep(max(0, min(self.settle_ms, self.settle_ms - age_ms)) / 1000)

    def _without_stale_intent(self, lease: PartitionLease, journal: Journal, plan: PublicationPlan) -> Journal:
        """A pending record that is not the next one by the plan is not sent any more."""
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
                f"{partition}: this publisher was asleep for longer than its lease, or than the next one waits for its"
                " record"
            )
        offset = self.topic.append(journal.metadata_partition, intent.value)
        self.observe(PublishStep.SENT, partition, sequence)
        journal = replace(journal, records=(*before, record))
        read = read_back(self.topic, partition, journal, end_offset=offset + 1)
        if read.found is None:
            raise MetadataTopicRangeError(f"{partition}: the record acknowledged at offset {offset} is not there")
        self.observe(PublishStep.READ_BACK, partition, sequence)
        self.journals.advance(lease.fence, read.next_offset, found=read.found)
        self.observe(PublishStep.RECORDED, partition, sequence)
        return replace(journal, next_offset=read.next_offset, records=(*before, replace(record, offset=read.found)))

    def _intent(self, journal: Journal, step: PublicationStep) -> Intent:
        return intent_for(step, journal, broker_id=self.broker_id, event_timestamp_ms=self.clock.now_ms())

    def _planned(self, partition: TopicIdPartition, journal: Journal | None, log_start_offset: int) -> PublicationPlan:
        rows = {
            row.metadata.remote_log_segment_id.id: row
            for row in self.metadata.list_segments(partition)
            if row.origin is SegmentOrigin.PLATFORM
        }
        return plan_publication(partition, journal, rows, log_start_offset=log_start_offset)

    def _renewed(self, lease: PartitionLease) -> tuple[PartitionLease, float]:
        """The lease, and until when on our own clock it holds for sure."""
        asked_at = self.clock.monotonic()
        left_ms = lease.expires_at_ms - self.journals.now_ms()
        if left_ms < self.lease_ms // 2:
            lease, left_ms = self.work.renew(lease, lease_ms=self.lease_ms), self.lease_ms
        return lease, asked_at + left_ms / 1000

    def _reloaded(self, partition: TopicIdPartition) -> Journal:
        journal = self.journals.journal(partition)
        if journal is None:
            raise PublicationRefusedError(f"{partition}: its journal is gone")
        return journal

    def _require_not_paused(self, partition: TopicIdPartition) -> None:
        if {ALL_TOPICS, partition.topic} & self.work.paused_topics():
            raise SendingStoppedError(f"{partition}: paused; ./tiering resume lets it go on")


def _is_for(intent: Intent, step: PublicationStep) -> bool:
    return (intent.segment_id, intent.state) == (step.segment.remote_log_segment_id.id, step.state)


_STARTED: Final = RemoteLogSegmentState.COPY_SEGMENT_STARTED
_DELETE_FINISHED: Final = RemoteLogSegmentState.DELETE_SEGMENT_FINISHED


@dataclass(frozen=True, slots=True)
class ReadBack:
    """What was read: everything below `next_offset`. `found` is where the pending record is, None if it is not there.

    `repeated`: offsets at which a known record came once more.
    """

    next_offset: int
    found: int | None
    repeated: tuple[int, ...] = ()


def read_back(
    topic: MetadataTopic, partition: TopicIdPartition, journal: Journal, *, end_offset: int | None = None
) -> ReadBack:
    """Look at everything from `journal.next_offset` to `end_offset` (exclusive; None: to the end of now).

    Raises:
        ForeignRecordError: a record about the partition that is not ours, or one over which brokers stop.
        MetadataTopicRangeError: records that were not read yet are gone, or more than what is there was read before.
        MetadataTopicUnavailableError, MetadataTopicRefusedError
    """
    end = topic.offsets(journal.metadata_partition).end if end_offset is None else end_offset
    if end < journal.next_offset:
        raise MetadataTopicRangeError(
            f"{METADATA_TOPIC}-{journal.metadata_partition} ends at {end}, and was read up to {journal.next_offset}:"
            " the topic was created anew, or its end is lost"
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
    """Read everything again, from the first record of ours on: each is where it was read back, and nothing else is
    about the partition.

    Raises:
        ForeignRecordError: a record is missing or another one, or somebody else wrote about the partition.
        MetadataTopicRangeError, MetadataTopicUnavailableError, MetadataTopicRefusedError
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
                f"{partition}: what was published at offset {offset} of {METADATA_TOPIC}-{journal.metadata_partition}"
                " is not there any more: the topic was created anew, or its records were removed"
            )
    for offset, value in seen.items():
        if value not in values:
            raise _foreign(partition, journal.metadata_partition, offset)


def _require_harmless(partition: TopicIdPartition, journal: Journal, record: MetadataTopicRecord) -> None:
    """A record of ours that came once more says nothing new, unless it begins a segment that brokers have forgotten."""
    mine = next((one.intent for one in journal.records if one.intent.value == record.value), None)
    if mine is None:
        raise _foreign(partition, record.partition, record.offset)
    last = [one.intent.state for one in journal.records if one.intent.segment_id == mine.segment_id][-1]
    if mine.state is _STARTED and last is _DELETE_FINISHED:
        raise ForeignRecordError(
            f"{partition}: a record that begins segment {mine.segment_id} came once more at offset {record.offset} of"
            f" {METADATA_TOPIC}-{record.partition}, after its deletion: brokers know it again"
        )


def _foreign(partition: TopicIdPartition, metadata_partition: int, offset: int) -> ForeignRecordError:
    return ForeignRecordError(
        f"{partition}: somebody else wrote about it, at offset {offset} of {METADATA_TOPIC}-{metadata_partition}. A"
        " broker tiers it, another publisher is at work, or the database is older than what it published"
    )


def _is_about(partition: TopicIdPartition, record: MetadataTopicRecord) -> bool:
    try:
        said = harmless_record(record.value)
    except PoisonRecordError as error:
        raise ForeignRecordError(
            f"{METADATA_TOPIC}-{record.partition} has a record at offset {record.offset} over which every broker stops:"
            f" {error}. Nothing is published behind it"
        ) from error
    match said:
        case SegmentRecord() | SegmentUpdateRecord():
            entry = said.segment_id.partition
        case PartitionDeleteRecord():
            entry = said.partition
        case _:
            return False
    return (entry.topic_id, entry.partition) == (partition.topic_id, partition.partition)
