"""Between the records of `__remote_log_metadata` and the model of a segment.

The model takes less than the wire: what cannot be a segment of a topic is refused here, not in the decoder, because
brokers take it without harm.
"""

from include.tiering.errors import FormatError
from include.tiering.formats.remote_log_metadata_records import (
    EpochEntry,
    PartitionEntry,
    SegmentIdEntry,
    SegmentRecord,
    SegmentUpdateRecord,
)
from include.tiering.model.ids import RemoteLogSegmentId, TopicIdPartition
from include.tiering.model.leader_epochs import LeaderEpochs
from include.tiering.model.segment_metadata import RemoteLogSegmentMetadata, RemoteLogSegmentMetadataUpdate


def segment_record(metadata: RemoteLogSegmentMetadata) -> SegmentRecord:
    """The record that says all of this, in the state that the metadata have."""
    return SegmentRecord(
        segment_id=_segment_id_entry(metadata.remote_log_segment_id),
        start_offset=metadata.start_offset,
        end_offset=metadata.end_offset,
        broker_id=metadata.broker_id,
        max_timestamp_ms=metadata.max_timestamp_ms,
        event_timestamp_ms=metadata.event_timestamp_ms,
        epochs=tuple(EpochEntry(epoch, start) for epoch, start in metadata.segment_leader_epochs),
        size_bytes=metadata.segment_size_bytes,
        custom_metadata=metadata.custom_metadata,
        state=metadata.state,
        txn_index_empty=metadata.txn_index_empty,
    )


def update_record(update: RemoteLogSegmentMetadataUpdate) -> SegmentUpdateRecord:
    """The record that says this."""
    return SegmentUpdateRecord(
        _segment_id_entry(update.remote_log_segment_id),
        update.broker_id,
        update.event_timestamp_ms,
        update.custom_metadata,
        update.state,
    )


def metadata_of(record: SegmentRecord) -> RemoteLogSegmentMetadata:
    """What the record says. Of an epoch that it names twice the later entry holds, as in a broker.

    Raises:
        FormatError: a topic name, partition, size or epochs that no segment has.
    """
    epochs = {entry.leader_epoch: entry.offset for entry in record.epochs}
    try:
        return RemoteLogSegmentMetadata(
            remote_log_segment_id=segment_id_of(record.segment_id),
            start_offset=record.start_offset,
            end_offset=record.end_offset,
            max_timestamp_ms=record.max_timestamp_ms,
            broker_id=record.broker_id,
            event_timestamp_ms=record.event_timestamp_ms,
            segment_size_bytes=record.size_bytes,
            segment_leader_epochs=LeaderEpochs.of(sorted(epochs.items())),
            state=record.state,
            custom_metadata=record.custom_metadata,
            txn_index_empty=record.txn_index_empty,
        )
    except ValueError as error:
        raise FormatError(str(error)) from error


def update_of(record: SegmentUpdateRecord) -> RemoteLogSegmentMetadataUpdate:
    """What the record says.

    Raises:
        FormatError: a topic name or partition that no segment has.
    """
    return RemoteLogSegmentMetadataUpdate(
        remote_log_segment_id=segment_id_of(record.segment_id),
        state=record.state,
        event_timestamp_ms=record.event_timestamp_ms,
        broker_id=record.broker_id,
        custom_metadata=record.custom_metadata,
    )


def segment_id_of(entry: SegmentIdEntry) -> RemoteLogSegmentId:
    """Raises FormatError for a topic name or partition that no segment has."""
    return RemoteLogSegmentId(partition_of(entry.partition), entry.id)


def partition_of(entry: PartitionEntry) -> TopicIdPartition:
    """Raises FormatError for a topic name or partition that no partition has."""
    try:
        return TopicIdPartition(entry.topic_id, entry.partition, entry.topic)
    except ValueError as error:
        raise FormatError(str(error)) from error


def _segment_id_entry(segment_id: RemoteLogSegmentId) -> SegmentIdEntry:
    partition = segment_id.topic_id_partition
    return SegmentIdEntry(PartitionEntry(partition.topic, partition.topic_id, partition.partition), segment_id.id)
