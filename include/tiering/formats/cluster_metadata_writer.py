"""Records that create a topic, in one batch of a KRaft metadata log or bootstrap file.

The bodies are those of `cluster_metadata`, at the versions that every KRaft release reads: topic 0, partition 0 (no
directory ids: the broker assigns them itself).
"""

import struct
from collections.abc import Mapping, Sequence
from typing import Final

from include.tiering.formats.cluster_metadata import FRAME_VERSION
from include.tiering.formats.crc32c import extend_crc32c
from include.tiering.formats.flexible import Writer
from include.tiering.formats.record_batch import (
    CRC_START,
    HEADER,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC,
    NO_PRODUCER,
    BatchHeader,
)
from include.tiering.formats.varint import write_varint
from include.tiering.model.ids import Uuid

_TOPIC, _PARTITION = 2, 3
_CRC: Final = struct.Struct(">I")
_CRC_POSITION: Final = CRC_START - _CRC.size


def topic_batch(topic: str, topic_id: Uuid, leader_epochs: Mapping[int, int], *, broker_id: int, now_ms: int) -> bytes:
    """A topic whose every partition has its one replica on `broker_id`, in sync and leading it.

    Args:
        leader_epochs: by partition. When the broker registers it is elected in a higher one.
    """
    records = [_topic(topic, topic_id)]
    records += [_partition(topic_id, partition, broker_id, epoch) for partition, epoch in sorted(leader_epochs.items())]
    return _batch(records, now_ms)


def _topic(topic: str, topic_id: Uuid) -> bytes:
    fields = _framed(_TOPIC)
    fields.string(topic)
    fields.uuid(topic_id)
    fields.tags(())
    return fields.value()


def _partition(topic_id: Uuid, partition: int, broker_id: int, leader_epoch: int) -> bytes:
    fields = _framed(_PARTITION)
    fields.int32(partition)
    fields.uuid(topic_id)
    for brokers in ((broker_id,), (broker_id,), (), ()):
        fields.array(Writer.int32, brokers)
    for number in (broker_id, leader_epoch, 0):
        fields.int32(number)
    fields.tags(())
    return fields.value()


def _framed(api_key: int) -> Writer:
    fields = Writer()
    for number in (FRAME_VERSION, api_key, 0):
        fields.uvarint(number)
    return fields


def _batch(values: Sequence[bytes], now_ms: int) -> bytes:
    """Not compressed, without a producer, at offset 0 and of leader epoch 0: who takes it in sets both."""
    records = b"".join(_record(delta, value) for delta, value in enumerate(values))
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


def _record(delta: int, value: bytes) -> bytes:
    """attributes int8 | timestamp delta varlong | offset delta varint | key length varint -1 | value | headers 0"""
    body = b"\0" + write_varint(0) + write_varint(delta) + write_varint(-1)
    body += write_varint(len(value)) + value + write_varint(0)
    return write_varint(len(body)) + body
