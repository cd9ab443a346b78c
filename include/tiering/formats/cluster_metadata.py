"""Records of Kafka's metadata log (KRaft): decode those about topics and configs, encode those that create a topic.

Each value: frame version uvarint (1) | api key uvarint | record version uvarint | body. Bodies use the flexible
encoding: compact strings and arrays carry length + 1 as uvarint (0 = null), uuids are 16 bytes, integers are
big-endian, and every body ends in tagged fields: count uvarint, then per field tag uvarint, size uvarint, bytes.

    key  record            body
      2  topic             name string | topic id uuid
      3  partition         partition int32 | topic id uuid | replicas, isr, removing, adding int32 arrays |
                           leader, leader epoch, partition epoch int32 | from version 1: directories uuid array
      4  config            resource type int8 | resource name string | key string | value nullable string
      5  partition change  partition int32 | topic id uuid | tagged fields: 0 isr, 1 leader, 2 replicas,
                           8 directories
      9  remove topic      topic id uuid

Records with other keys are dropped without decoding, because the log can hold credentials. Errors contain positions and
numbers, never text from a record. A record of any version is decoded by this table, and refused if bytes are left over.

`topic_batch` returns the records that create a topic, as one batch of a metadata log or bootstrap file, in the versions
that every KRaft release reads: version 0 of the topic record, and version 0 of the partition record, which has no
directory ids: the broker assigns them itself. Source: the schemas of Kafka's metadata records, read from logs of 4.x
brokers.
"""

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final, TypeVar

from include.tiering.errors import FormatError
from include.tiering.formats.primitive_types import Writer, read_uvarint, read_varint, read_varlong, write_varint
from include.tiering.formats.record_batch import (
    CODEC_MASK,
    CRC_START,
    HEADER,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC,
    NO_PRODUCER,
    BatchHeader,
    extend_crc32c,
)
from include.tiering.model.segments import Uuid

FRAME_VERSION: Final = 1

_INT8: Final = struct.Struct(">b")
_INT32: Final = struct.Struct(">i")
_UUID_SIZE: Final = 16
_TAG_ISR, _TAG_LEADER, _TAG_REPLICAS, _TAG_DIRECTORIES = 0, 1, 2, 8

_Item = TypeVar("_Item")


class ResourceType(IntEnum):
    """The resource types of config records that are used here."""

    TOPIC = 2
    BROKER = 4


@dataclass(frozen=True, slots=True)
class TopicRecord:
    """A topic was created."""

    topic: str
    topic_id: Uuid


@dataclass(frozen=True, slots=True)
class PartitionRecord:
    """The whole state of a partition. `directories` has one directory id per replica; empty if not recorded."""

    partition: int
    topic_id: Uuid
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int
    directories: tuple[Uuid, ...] = ()


@dataclass(frozen=True, slots=True)
class ConfigRecord:
    """One config of a resource; an empty broker name means all brokers, a value of None removes the key."""

    resource_type: int
    resource_name: str
    key: str
    value: str | None = field(repr=False)


@dataclass(frozen=True, slots=True)
class PartitionChangeRecord:
    """The changes of a partition; None = unchanged. Each `leader`, even the same, raises the leader epoch by 1."""

    partition: int
    topic_id: Uuid
    isr: tuple[int, ...] | None = None
    leader: int | None = None
    replicas: tuple[int, ...] | None = None
    directories: tuple[Uuid, ...] | None = None


@dataclass(frozen=True, slots=True)
class RemoveTopicRecord:
    """A topic was deleted, with its partitions and configs."""

    topic_id: Uuid


MetadataRecord = TopicRecord | PartitionRecord | ConfigRecord | PartitionChangeRecord | RemoveTopicRecord


def decode(value: bytes | memoryview) -> MetadataRecord | None:
    """Decode the record in `value`; return None if its key is not in the table above.

    Raises:
        FormatError: the record is malformed; the position is that in `value`, or that within a tagged field.
    """
    fields = _Fields(memoryview(value))
    frame_version = fields.uvarint()
    if frame_version != FRAME_VERSION:
        raise FormatError(f"metadata frame version {frame_version}, not {FRAME_VERSION}")
    api_key = fields.uvarint()
    version = fields.uvarint()
    decode_body = _BODIES.get(api_key)
    return decode_body(fields, version) if decode_body else None


def record_values(batch: memoryview, header: BatchHeader) -> Iterator[memoryview]:
    """Iterate over the record values of a whole batch, without null values.

    Raises:
        FormatError: the batch is compressed (KRaft never compresses), a length points outside the batch, or bytes
            follow the last record.
    """
    if (codec := header.attributes & CODEC_MASK) != 0:
        raise FormatError(f"metadata batch is compressed with codec {codec}")
    position = HEADER_SIZE
    for _ in range(header.record_count):
        length, body = read_varint(batch, position)
        end = body + length
        if length < 1 or end > len(batch):
            raise FormatError(f"record length {length} points outside its batch", position)
        value = _value_of_record(batch[:end], body)
        if value is not None:
            yield value
        position = end
    if position != len(batch):
        raise FormatError(f"{len(batch) - position} bytes after the last record", position)


def _value_of_record(record: memoryview, position: int) -> memoryview | None:
    """Return the value of a record.

    The record is: attributes int8 | timestamp delta varlong | offset delta varint | key length varint, key | value
    length varint, value | ...
    """
    _, position = read_varlong(record, position + 1)
    _, position = read_varint(record, position)
    key_length, position = read_varint(record, position)
    position += max(key_length, 0)
    value_length, position = read_varint(record, position)
    if value_length < 0:
        return None
    if position + value_length > len(record):
        raise FormatError(f"value length {value_length} points outside its record", position)
    return record[position : position + value_length]


class _Fields:
    """Reads fields one after the other. Lengths and counts above the remaining bytes are refused."""

    def __init__(self, buffer: memoryview) -> None:
        self._buffer = buffer
        self._position = 0

    def uvarint(self) -> int:
        value, self._position = read_uvarint(self._buffer, self._position)
        return value

    def int8(self) -> int:
        return int(_INT8.unpack(self._take(_INT8.size))[0])

    def int32(self) -> int:
        return int(_INT32.unpack(self._take(_INT32.size))[0])

    def uuid(self) -> Uuid:
        return Uuid(bytes(self._take(_UUID_SIZE)))

    def nullable_string(self) -> str | None:
        length = self.uvarint() - 1
        if length < 0:
            return None
        start = self._position
        try:
            return str(self._take(length), "utf-8")
        except UnicodeDecodeError:
            raise FormatError("string is not UTF-8", start) from None

    def string(self) -> str:
        text = self.nullable_string()
        if text is None:
            raise FormatError("string is null", self._position)
        return text

    def int32s(self) -> tuple[int, ...]:
        return self._array(self.int32, _INT32.size)

    def uuids(self) -> tuple[Uuid, ...]:
        return self._array(self.uuid, _UUID_SIZE)

    def tags(self) -> Mapping[int, "_Fields"]:
        """Read the tagged fields, which must end the body."""
        count = self.uvarint()
        tagged = {}
        for _ in range(self._checked_count(count, 2)):
            tag = self.uvarint()
            tagged[tag] = _Fields(self._take(self.uvarint()))
        self.end()
        return tagged

    def end(self) -> None:
        left = len(self._buffer) - self._position
        if left:
            raise FormatError(f"{left} bytes after the last field", self._position)

    def _array(self, item: Callable[[], _Item], item_size: int) -> tuple[_Item, ...]:
        count = self.uvarint() - 1
        return tuple(item() for _ in range(self._checked_count(max(count, 0), item_size)))

    def _checked_count(self, count: int, item_size: int) -> int:
        if count * item_size > len(self._buffer) - self._position:
            raise FormatError(f"{count} items do not fit the bytes that are left", self._position)
        return count

    def _take(self, size: int) -> memoryview:
        start = self._position
        if size > len(self._buffer) - start:
            raise FormatError(f"field of {size} bytes is cut off", start)
        self._position = start + size
        return self._buffer[start : self._position]


def _topic(fields: _Fields, _version: int) -> TopicRecord:
    record = TopicRecord(fields.string(), fields.uuid())
    fields.tags()
    return record


def _partition(fields: _Fields, version: int) -> PartitionRecord:
    partition, topic_id = fields.int32(), fields.uuid()
    replicas, isr, _removing, _adding = fields.int32s(), fields.int32s(), fields.int32s(), fields.int32s()
    leader, leader_epoch, _partition_epoch = fields.int32(), fields.int32(), fields.int32()
    directories = fields.uuids() if version >= 1 else ()
    fields.tags()
    return PartitionRecord(partition, topic_id, replicas, isr, leader, leader_epoch, directories)


def _config(fields: _Fields, _version: int) -> ConfigRecord:
    record = ConfigRecord(fields.int8(), fields.string(), fields.string(), fields.nullable_string())
    fields.tags()
    return record


def _partition_change(fields: _Fields, _version: int) -> PartitionChangeRecord:
    partition, topic_id = fields.int32(), fields.uuid()
    tags = fields.tags()
    return PartitionChangeRecord(
        partition,
        topic_id,
        isr=_tagged(tags, _TAG_ISR, _Fields.int32s),
        leader=_tagged(tags, _TAG_LEADER, _Fields.int32),
        replicas=_tagged(tags, _TAG_REPLICAS, _Fields.int32s),
        directories=_tagged(tags, _TAG_DIRECTORIES, _Fields.uuids),
    )


def _tagged(tags: Mapping[int, _Fields], tag: int, read: Callable[[_Fields], _Item]) -> _Item | None:
    if tag not in tags:
        return None
    value = read(tags[tag])
    tags[tag].end()
    return value


def _remove_topic(fields: _Fields, _version: int) -> RemoveTopicRecord:
    record = RemoveTopicRecord(fields.uuid())
    fields.tags()
    return record


_BODIES: Final[Mapping[int, Callable[[_Fields, int], MetadataRecord]]] = {
    2: _topic,
    3: _partition,
    4: _config,
    5: _partition_change,
    9: _remove_topic,
}


_TOPIC, _PARTITION = 2, 3
_CRC: Final = struct.Struct(">I")
_CRC_POSITION: Final = CRC_START - _CRC.size


def topic_batch(topic: str, topic_id: Uuid, leader_epochs: Mapping[int, int], *, broker_id: int, now_ms: int) -> bytes:
    """Return the records of a topic whose partitions have their only replica on one broker, as in-sync leader.

    Args:
        topic: the topic's name.
        topic_id: the topic's id.
        leader_epochs: leader epochs by partition. When the broker registers, it becomes leader in a higher epoch.
        broker_id: the broker.
        now_ms: the timestamp of the records, in ms.
    """
    records = [_write_topic(topic, topic_id)]
    records += [
        _write_partition(topic_id, partition, broker_id, epoch) for partition, epoch in sorted(leader_epochs.items())
    ]
    return _write_batch(records, now_ms)


def _write_topic(topic: str, topic_id: Uuid) -> bytes:
    fields = _write_frame(_TOPIC)
    fields.string(topic)
    fields.uuid(topic_id)
    fields.tags(())
    return fields.value()


def _write_partition(topic_id: Uuid, partition: int, broker_id: int, leader_epoch: int) -> bytes:
    fields = _write_frame(_PARTITION)
    fields.int32(partition)
    fields.uuid(topic_id)
    for brokers in ((broker_id,), (broker_id,), (), ()):
        fields.array(Writer.int32, brokers)
    for number in (broker_id, leader_epoch, 0):
        fields.int32(number)
    fields.tags(())
    return fields.value()


def _write_frame(api_key: int) -> Writer:
    fields = Writer()
    for number in (FRAME_VERSION, api_key, 0):
        fields.uvarint(number)
    return fields


def _write_batch(values: Sequence[bytes], now_ms: int) -> bytes:
    """Return an uncompressed batch without a producer. Its base offset and leader epoch are 0; the reader sets both."""
    records = b"".join(_write_record(delta, value) for delta, value in enumerate(values))
    header = BatchHeader(
        base_offset=0,
        batch_length=HEADER_SIZE - LOG_OVERHEAD + len(records),
        partition_leader_epoch=0,
        magic=MAGIC,
        crc=0,
        attributes=0,
        last_offset_delta=len(values) - 1,
        base_timestamp=now_ms,
        max_timestamp=now_ms,
        producer_id=NO_PRODUCER,
        producer_epoch=NO_PRODUCER,
        base_sequence=NO_PRODUCER,
        record_count=len(values),
    )
    batch = bytearray(HEADER.pack(*header) + records)
    _CRC.pack_into(batch, _CRC_POSITION, extend_crc32c(0, memoryview(batch)[CRC_START:]))
    return bytes(batch)


def _write_record(delta: int, value: bytes) -> bytes:
    """Return a record: attributes | timestamp delta 0 | offset delta | key length -1 | value | 0 headers."""
    body = b"\0" + write_varint(0) + write_varint(delta) + write_varint(-1)
    body += write_varint(len(value)) + value + write_varint(0)
    return write_varint(len(body)) + body
