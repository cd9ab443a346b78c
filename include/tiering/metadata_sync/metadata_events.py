"""Decode records of `__remote_log_metadata`, and apply a page of them to brokers' caches in memory. No I/O.

The result (`PageEffects`) counts the records by their effect, and has the content of the caches before and after.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from include.tiering.errors import FormatError, PoisonRecordError
from include.tiering.formats.remote_log_metadata import decode
from include.tiering.formats.remote_log_metadata_records import (
    PartitionDeleteRecord,
    RemoteLogRecord,
    SegmentRecord,
    SegmentSnapshotRecord,
    SegmentUpdateRecord,
    metadata_of,
    partition_of,
    update_of,
)
from include.tiering.model.broker_cache import BrokerCache, BrokerCacheState, Effect
from include.tiering.model.segments import (
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemoteLogSegmentState,
    RemotePartitionDeleteState,
    TopicIdPartition,
)
from include.tiering.segments.ingestion_contract import (
    IngestPage,
    MetadataEvent,
    PartitionRemoval,
    RecordOutcome,
    UnusableRecord,
)


def harmless_record(value: bytes) -> RemoteLogRecord:
    """Decode a value that brokers accept, even if they then ignore it.

    An update to COPY_SEGMENT_STARTED is decoded, although brokers stop at it if the segment has this state.

    Raises:
        PoisonRecordError: the value cannot be decoded, is a snapshot, or is a segment record in another state than
            COPY_SEGMENT_STARTED. Every broker that reads the value stops reading remote log metadata, also after a
            restart.
    """
    try:
        record = decode(value)
    except FormatError as error:
        raise PoisonRecordError(f"no record that Kafka's decoder accepts: {error}") from error
    if isinstance(record, SegmentSnapshotRecord):
        raise PoisonRecordError("a snapshot of a segment, which belongs in a broker's snapshot file")
    if isinstance(record, SegmentRecord) and record.state is not RemoteLogSegmentState.COPY_SEGMENT_STARTED:
        raise PoisonRecordError(f"a segment that begins as {record.state.name}")
    return record


def event_of(value: bytes) -> MetadataEvent | None:
    """Return the event of a value; None for the first two states of a partition's deletion, which change no segment.

    A value that brokers accept and the platform cannot use becomes an `UnusableRecord`.

    Raises:
        PoisonRecordError: as `harmless_record`.
    """
    record = harmless_record(value)
    try:
        return _meaning(record)
    except FormatError as error:
        return UnusableRecord(error.message)


def _meaning(record: RemoteLogRecord) -> MetadataEvent | None:
    match record:
        case SegmentRecord():
            return metadata_of(record)
        case SegmentUpdateRecord():
            return update_of(record)
        case PartitionDeleteRecord(state=RemotePartitionDeleteState.DELETE_PARTITION_FINISHED):
            return PartitionRemoval(partition_of(record.partition))
        case _:
            return None


_OUTCOMES = {
    Effect.APPLIED: RecordOutcome.APPLIED,
    Effect.UNKNOWN_SEGMENT: RecordOutcome.UNKNOWN_SEGMENT,
    Effect.ILLEGAL_TRANSITION: RecordOutcome.ILLEGAL_TRANSITION,
}


@dataclass(slots=True)
class AppliedPartition:
    """The effect of a page on one partition.

    Attributes:
        before, after: the loaded part of the cache before and after the page.
        last: every segment that a record about it, or about its partition, changed in the page, as it is after the last
            of these records; a segment that was removed from the cache has the state DELETE_SEGMENT_FINISHED.
        times_ms: for each of these segments the times, by its records, at which it entered its states within the page;
            if its partition was removed, the time of DELETE_SEGMENT_FINISHED is that of its last record.
    """

    before: BrokerCacheState
    after: BrokerCacheState
    last: Mapping[RemoteLogSegmentId, RemoteLogSegmentMetadata]
    times_ms: Mapping[RemoteLogSegmentId, Mapping[RemoteLogSegmentState, int]]


@dataclass(slots=True)
class _Partition:
    before: BrokerCacheState
    cache: BrokerCache
    last: dict[RemoteLogSegmentId, RemoteLogSegmentMetadata] = field(default_factory=dict)
    times_ms: dict[RemoteLogSegmentId, dict[RemoteLogSegmentState, int]] = field(default_factory=dict)

    def note(self, metadata: RemoteLogSegmentMetadata) -> None:
        segment_id = metadata.remote_log_segment_id
        self.last[segment_id] = metadata
        self.times_ms.setdefault(segment_id, {})[metadata.state] = metadata.event_timestamp_ms

    def add(self, metadata: RemoteLogSegmentMetadata) -> Effect:
        effect = self.cache.add(metadata)
        if effect is Effect.APPLIED:
            self.note(metadata)
        return effect

    def update(self, change: RemoteLogSegmentMetadataUpdate) -> Effect:
        known = self.cache.segment(change.remote_log_segment_id)
        effect = self.cache.update(change)
        if effect is Effect.APPLIED and known is not None:
            self.note(known.with_update(change))
        return effect

    def remove(self) -> None:
        for known in self.cache.list_segments():
            self.note(replace(known, state=RemoteLogSegmentState.DELETE_SEGMENT_FINISHED))
        self.cache = BrokerCache()


@dataclass(slots=True)
class PageEffects:
    """The effects of a page up to `next_offset` (exclusive). `stopped` is why the page ended early, None if it did not.

    `findings` are sentences for the event log, each with its partition; None for an unusable record.
    """

    next_offset: int
    outcomes: Counter[RecordOutcome] = field(default_factory=Counter)
    findings: list[tuple[TopicIdPartition | None, str]] = field(default_factory=list)
    partitions: dict[TopicIdPartition, AppliedPartition] = field(default_factory=dict)
    stopped: str | None = None


def partition_of_event(event: MetadataEvent) -> TopicIdPartition | None:
    """Return the partition of an event; None for an unusable record."""
    match event:
        case UnusableRecord():
            return None
        case PartitionRemoval():
            return event.topic_id_partition
        case _:
            return event.remote_log_segment_id.topic_id_partition


def apply_in_memory(page: IngestPage, caches: Mapping[TopicIdPartition, BrokerCacheState]) -> PageEffects:
    """Apply the events in order. `caches` has the state that `load_cache` returns for each partition of the page.

    The page ends before the first record at which brokers stop.
    """
    effects = PageEffects(page.next_offset)
    parts = {partition: _Partition(state, BrokerCache(state)) for partition, state in caches.items()}
    for offset, event in page.events:
        where = partition_of_event(event)
        try:
            outcome = _apply(event, None if where is None else parts[where])
        except PoisonRecordError as error:
            effects.next_offset, effects.stopped = offset, str(error)
            break
        effects.outcomes[outcome] += 1
        if outcome.is_finding:
            effects.findings.append((where, f"offset {offset}: {_finding_text(event, outcome)}"))
    effects.partitions = {
        partition: AppliedPartition(part.before, part.cache.state(), part.last, part.times_ms)
        for partition, part in parts.items()
    }
    return effects


def _apply(event: MetadataEvent, part: _Partition | None) -> RecordOutcome:
    if part is None:
        return RecordOutcome.UNUSABLE
    match event:
        case RemoteLogSegmentMetadata():
            return _OUTCOMES[part.add(event)]
        case RemoteLogSegmentMetadataUpdate():
            return _OUTCOMES[part.update(event)]
        case _:
            part.remove()
            return RecordOutcome.APPLIED


def _finding_text(event: MetadataEvent, outcome: RecordOutcome) -> str:
    match event:
        case UnusableRecord():
            return f"{outcome}: {event.message}"
        case RemoteLogSegmentMetadata() | RemoteLogSegmentMetadataUpdate():
            return f"{outcome}: segment {event.remote_log_segment_id.id} may not become {event.state.name} now"
        case _:
            return str(outcome)
