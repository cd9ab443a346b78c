"""Values of records in the topic `__remote_log_metadata`.

    value:   frame version uvarint = 1 | api key uvarint | api version uvarint = 0 | body, to the last byte

    partition:   topic string | topic id uuid | partition int32 | tags
    segment id:  partition | segment id uuid | tags
    epochs:      array of: leader epoch int32 | offset int64 | tags

    key  record            body
      0  segment           segment id | description
      1  segment update    segment id | broker id int32 | event timestamp int64 | custom metadata nullable bytes |
                           state int8 | tags
      2  partition delete  partition | broker id int32 | event timestamp int64 | state int8 | tags
      3  segment snapshot  segment id uuid | description

    description: start, end offset int64 | broker id int32 | max, event timestamp int64 | epochs | size int32 |
                 custom metadata nullable bytes | state int8 | tags: 0 txn index empty, 1 byte

Tag 0 is written only if its value is true.
Source: Kafka's message schemas and records of real brokers. A value is refused if the decoder of any Kafka release
refuses it.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, Final, TypeVar

from include.tiering.errors import FormatError
from include.tiering.formats.primitive_types import Reader, TaggedField, Writer
from include.tiering.formats.remote_log_metadata_records import (
    EpochEntry,
    PartitionDeleteRecord,
    PartitionEntry,
    RemoteLogRecord,
    SegmentDescription,
    SegmentIdEntry,
    SegmentRecord,
    SegmentSnapshotRecord,
    SegmentUpdateRecord,
)
from include.tiering.model.segments import RemoteLogSegmentState, RemotePartitionDeleteState

FRAME_VERSION: Final = 1
API_VERSION: Final = 0
"""The version of all records, which every release reads."""

_TXN_INDEX_EMPTY: Final = 0
_TRUE: Final = b"\x01"

_Description = TypeVar("_Description", bound=SegmentDescription)
_State = TypeVar("_State", RemoteLogSegmentState, RemotePartitionDeleteState)


def decode(value: bytes) -> RemoteLogRecord:
    """Decode the record in `value`.

    Raises:
        FormatError: the decoder of some Kafka release throws for this value, or tag 0 has another size than 1 byte; the
            position is that in `value`.
    """
    reader = Reader(value)
    frame_version = reader.short_uvarint("frame version")
    if frame_version != FRAME_VERSION:
        raise FormatError(f"frame version {frame_version}, not {FRAME_VERSION}")
    start, api_key = reader.position, reader.short_uvarint("api key")
    read = _READ.get(api_key)
    if read is None:
        raise FormatError(f"unknown api key {api_key}", start)
    start, version = reader.position, reader.short_uvarint("api version")
    if version > API_VERSION:
        raise FormatError(f"version {version} of api key {api_key} is newer than {API_VERSION}", start)
    try:
        record = read(reader)
    except ValueError as error:
        raise FormatError(str(error), reader.position) from error
    if reader.remaining:
        raise FormatError(f"{reader.remaining} bytes after the record", reader.position)
    return record


def encode(record: RemoteLogRecord) -> bytes:
    """Encode a record in the canonical form, as a broker does; unknown tagged fields stay in their order.

    Raises:
        ValueError: a number does not fit into its field, or a name has more than 32767 bytes.
    """
    api_key, write = _WRITE[type(record)]
    writer = Writer()
    for number in (FRAME_VERSION, api_key, API_VERSION):
        writer.uvarint(number)
    write(writer, record)
    return writer.value()


def _read_partition(reader: Reader) -> PartitionEntry:
    return PartitionEntry(reader.string("topic"), reader.uuid(), reader.int32(), reader.tags())


def _read_segment_id(reader: Reader) -> SegmentIdEntry:
    return SegmentIdEntry(_read_partition(reader), reader.uuid(), reader.tags())


def _read_epoch(reader: Reader) -> EpochEntry:
    return EpochEntry(reader.int32(), reader.int64(), reader.tags())


def _read_segment(reader: Reader) -> SegmentRecord:
    return _read_description(reader, partial(SegmentRecord, segment_id=_read_segment_id(reader)))


def _read_snapshot(reader: Reader) -> SegmentSnapshotRecord:
    return _read_description(reader, partial(SegmentSnapshotRecord, id=reader.uuid()))


def _read_description(reader: Reader, make: Callable[..., _Description]) -> _Description:
    start_offset, end_offset = reader.int64(), reader.int64()
    broker_id = reader.int32()
    max_timestamp_ms, event_timestamp_ms = reader.int64(), reader.int64()
    epochs = reader.array(_read_epoch, "leader epochs")
    size_bytes = reader.int32()
    custom_metadata = reader.nullable_bytes("custom metadata")
    state = _read_state(reader, RemoteLogSegmentState)
    txn_index_empty, tags = reader.flag_and_tags(_TXN_INDEX_EMPTY)
    return make(
        start_offset=start_offset,
        end_offset=end_offset,
        broker_id=broker_id,
        max_timestamp_ms=max_timestamp_ms,
        event_timestamp_ms=event_timestamp_ms,
        epochs=epochs,
        size_bytes=size_bytes,
        custom_metadata=custom_metadata,
        state=state,
        txn_index_empty=txn_index_empty,
        tags=tags,
    )


def _read_update(reader: Reader) -> SegmentUpdateRecord:
    return SegmentUpdateRecord(
        _read_segment_id(reader),
        reader.int32(),
        reader.int64(),
        reader.nullable_bytes("custom metadata"),
        _read_state(reader, RemoteLogSegmentState),
        reader.tags(),
    )


def _read_partition_delete(reader: Reader) -> PartitionDeleteRecord:
    return PartitionDeleteRecord(
        _read_partition(reader),
        reader.int32(),
        reader.int64(),
        _read_state(reader, RemotePartitionDeleteState),
        reader.tags(),
    )


def _read_state(reader: Reader, states: type[_State]) -> _State:
    start, state = reader.position, reader.int8()
    try:
        return states(state)
    except ValueError as error:
        raise FormatError(f"unknown state {state}", start) from error


def _write_partition(writer: Writer, partition: PartitionEntry) -> None:
    writer.string(partition.topic)
    writer.uuid(partition.topic_id)
    writer.int32(partition.partition)
    writer.tags(partition.tags)


def _write_segment_id(writer: Writer, segment_id: SegmentIdEntry) -> None:
    _write_partition(writer, segment_id.partition)
    writer.uuid(segment_id.id)
    writer.tags(segment_id.tags)


def _write_epoch(writer: Writer, entry: EpochEntry) -> None:
    writer.int32(entry.leader_epoch)
    writer.int64(entry.offset)
    writer.tags(entry.tags)


def _write_segment(writer: Writer, record: SegmentRecord) -> None:
    _write_segment_id(writer, record.segment_id)
    _write_description(writer, record)


def _write_snapshot(writer: Writer, record: SegmentSnapshotRecord) -> None:
    writer.uuid(record.id)
    _write_description(writer, record)


def _write_description(writer: Writer, record: SegmentDescription) -> None:
    writer.int64(record.start_offset)
    writer.int64(record.end_offset)
    writer.int32(record.broker_id)
    writer.int64(record.max_timestamp_ms)
    writer.int64(record.event_timestamp_ms)
    writer.array(_write_epoch, record.epochs)
    writer.int32(record.size_bytes)
    writer.nullable_bytes(record.custom_metadata)
    writer.int8(record.state)
    flag = (TaggedField(_TXN_INDEX_EMPTY, _TRUE),) if record.txn_index_empty else ()
    writer.tags((*flag, *record.tags))


def _write_update(writer: Writer, record: SegmentUpdateRecord) -> None:
    _write_segment_id(writer, record.segment_id)
    writer.int32(record.broker_id)
    writer.int64(record.event_timestamp_ms)
    writer.nullable_bytes(record.custom_metadata)
    writer.int8(record.state)
    writer.tags(record.tags)


def _write_partition_delete(writer: Writer, record: PartitionDeleteRecord) -> None:
    _write_partition(writer, record.partition)
    writer.int32(record.broker_id)
    writer.int64(record.event_timestamp_ms)
    writer.int8(record.state)
    writer.tags(record.tags)


_READ: Final[dict[int, Callable[[Reader], RemoteLogRecord]]] = {
    0: _read_segment,
    1: _read_update,
    2: _read_partition_delete,
    3: _read_snapshot,
}
_WRITE: Final[dict[type[RemoteLogRecord], tuple[int, Callable[[Writer, Any], None]]]] = {
    SegmentRecord: (0, _write_segment),
    SegmentUpdateRecord: (1, _write_update),
    PartitionDeleteRecord: (2, _write_partition_delete),
    SegmentSnapshotRecord: (3, _write_snapshot),
}
