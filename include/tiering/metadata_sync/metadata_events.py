"""What a value of `__remote_log_metadata` means to a broker's cache."""

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
from include.tiering.model.segment_metadata import RemoteLogSegmentState, RemotePartitionDeleteState
from include.tiering.segments.ingestion_contract import MetadataEvent, PartitionRemoval, UnusableRecord


def harmless_record(value: bytes) -> RemoteLogRecord:
    """What a value says that brokers take, whatever it means to them.

    Raises:
        PoisonRecordError: every broker that reads it stops reading remote log metadata, also after a restart: it is no
            record, a snapshot, or a segment that does not begin as COPY_SEGMENT_STARTED.
    """
    try:
        record = decode(value)
    except FormatError as error:
        raise PoisonRecordError(f"no record that Kafka's decoder takes: {error}") from error
    if isinstance(record, SegmentSnapshotRecord):
        raise PoisonRecordError("a snapshot of a segment, which belongs into a broker's own file")
    if isinstance(record, SegmentRecord) and record.state is not RemoteLogSegmentState.COPY_SEGMENT_STARTED:
        raise PoisonRecordError(f"a segment that begins as {record.state.name}")
    return record


def event_of(value: bytes) -> MetadataEvent | None:
    """None for what brokers only remember: a partition whose deletion has begun.

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
