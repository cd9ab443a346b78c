"""The values of the four kinds of records of `__remote_log_metadata`, and their conversion to the model of a segment.

The values allow everything that Kafka's decoder accepts, and so does the decoder of this project
(`formats/remote_log_metadata.py`). The model is stricter: it refuses, for example, an illegal topic name, a negative
partition, or epochs whose offsets fall. So a record that a broker reads, but that cannot describe a segment of a topic,
is decoded, and refused when it is converted to the model (`metadata_of`, `update_of`). Unknown tagged fields are kept,
in their order.
"""

from dataclasses import dataclass

from include.tiering.errors import FormatError
from include.tiering.formats.primitive_types import Tags
from include.tiering.model.leader_epochs import LeaderEpochs
from include.tiering.model.segments import (
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemoteLogSegmentState,
    RemotePartitionDeleteState,
    TopicIdPartition,
    Uuid,
)


@dataclass(frozen=True, slots=True)
class PartitionEntry:
    """A partition. Bytes of `topic` that are not UTF-8 are kept as surrogates (`surrogateescape`)."""

    topic: str
    topic_id: Uuid
    partition: int
    tags: Tags = ()


@dataclass(frozen=True, slots=True)
class SegmentIdEntry:
    """The id of one attempt to copy a segment."""

    partition: PartitionEntry
    id: Uuid
    tags: Tags = ()


@dataclass(frozen=True, slots=True)
class EpochEntry:
    """The segment's records from `offset` (inclusive) on have this leader epoch."""

    leader_epoch: int
    offset: int
    tags: Tags = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentDescription:
    """The common fields of `SegmentRecord` and `SegmentSnapshotRecord`. Offsets are inclusive.

    Raises:
        ValueError: there is no epoch.
    """

    start_offset: int
    end_offset: int
    broker_id: int
    max_timestamp_ms: int
    event_timestamp_ms: int
    epochs: tuple[EpochEntry, ...]
    size_bytes: int
    custom_metadata: bytes | None
    state: RemoteLogSegmentState
    txn_index_empty: bool = False
    tags: Tags = ()

    def __post_init__(self) -> None:
        if not self.epochs:
            raise ValueError("the segment has no leader epoch")


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentRecord(SegmentDescription):
    """Api key 0: a segment.

    Raises:
        ValueError: the start offset is negative or above the end offset, or there is no epoch.
    """

    segment_id: SegmentIdEntry

    def __post_init__(self) -> None:
        SegmentDescription.__post_init__(self)
        if self.start_offset < 0:
            raise ValueError(f"start offset {self.start_offset} is negative")
        if self.end_offset < self.start_offset:
            raise ValueError(f"end offset {self.end_offset} is below start offset {self.start_offset}")


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentSnapshotRecord(SegmentDescription):
    """Api key 3: a segment in a snapshot of one partition, without the partition.

    Offsets are not checked: brokers check those of a `SegmentRecord` and not these.
    """

    id: Uuid


@dataclass(frozen=True, slots=True)
class SegmentUpdateRecord:
    """Api key 1: the next state of a segment. `custom_metadata` replaces the previous value, even if it is None."""

    segment_id: SegmentIdEntry
    broker_id: int
    event_timestamp_ms: int
    custom_metadata: bytes | None
    state: RemoteLogSegmentState
    tags: Tags = ()


@dataclass(frozen=True, slots=True)
class PartitionDeleteRecord:
    """Api key 2: the state of the deletion of a whole partition."""

    partition: PartitionEntry
    broker_id: int
    event_timestamp_ms: int
    state: RemotePartitionDeleteState
    tags: Tags = ()


RemoteLogRecord = SegmentRecord | SegmentUpdateRecord | PartitionDeleteRecord | SegmentSnapshotRecord


def segment_record(metadata: RemoteLogSegmentMetadata) -> SegmentRecord:
    """Return the record for the metadata of a segment, with its state."""
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
    """Return the record for an update."""
    return SegmentUpdateRecord(
        _segment_id_entry(update.remote_log_segment_id),
        update.broker_id,
        update.event_timestamp_ms,
        update.custom_metadata,
        update.state,
    )


def metadata_of(record: SegmentRecord) -> RemoteLogSegmentMetadata:
    """Return the metadata in a record. The last entry of a repeated epoch applies, as in a broker.

    Raises:
        FormatError: the topic name, the partition, the size or the epochs are not legal.
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
    """Return the update in a record.

    Raises:
        FormatError: the topic name or the partition is not legal.
    """
    return RemoteLogSegmentMetadataUpdate(
        remote_log_segment_id=segment_id_of(record.segment_id),
        state=record.state,
        event_timestamp_ms=record.event_timestamp_ms,
        broker_id=record.broker_id,
        custom_metadata=record.custom_metadata,
    )


def segment_id_of(entry: SegmentIdEntry) -> RemoteLogSegmentId:
    """Return the segment id. Raises FormatError for an illegal topic name or partition."""
    return RemoteLogSegmentId(partition_of(entry.partition), entry.id)


def partition_of(entry: PartitionEntry) -> TopicIdPartition:
    """Return the partition. Raises FormatError for an illegal topic name or partition."""
    try:
        return TopicIdPartition(entry.topic_id, entry.partition, entry.topic)
    except ValueError as error:
        raise FormatError(str(error)) from error


def _segment_id_entry(segment_id: RemoteLogSegmentId) -> SegmentIdEntry:
    partition = segment_id.topic_id_partition
    return SegmentIdEntry(PartitionEntry(partition.topic, partition.topic_id, partition.partition), segment_id.id)
