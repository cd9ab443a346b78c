"""Records of the cluster metadata log as a controller writes them, in batches and snapshots."""

import struct
from collections.abc import Sequence

from include.tiering.formats.primitive_types import write_uvarint, write_varint
from include.tiering.formats.record_batch import ControlType
from include.tiering.model.segments import Uuid
from tests.doubles.record_batches import CONTROL, record_batch

NO_TAGS = b"\0"
_CONTROL_KEY = struct.Struct(">hh")


def frame(api_key: int, version: int, body: bytes) -> bytes:
    return write_uvarint(1) + write_uvarint(api_key) + write_uvarint(version) + body


def topic_record(topic: str, topic_id: Uuid) -> bytes:
    return frame(2, 0, string(topic) + topic_id.value + NO_TAGS)


def partition_record(
    topic_id: Uuid,
    partition: int = 0,
    *,
    replicas: Sequence[int] = (1,),
    isr: Sequence[int] | None = None,
    leader: int = 1,
    leader_epoch: int = 0,
    directories: Sequence[Uuid] | None = None,
) -> bytes:
    """Version 1 with `directories`, else version 0."""
    body = struct.pack(">i", partition) + topic_id.value
    body += int32s(replicas) + int32s(replicas if isr is None else isr) + int32s([]) + int32s([])
    body += struct.pack(">iii", leader, leader_epoch, 0)
    if directories is not None:
        body += uuids(directories)
    return frame(3, 0 if directories is None else 1, body + NO_TAGS)


def config_record(topic: str, key: str, value: str | None, *, resource_type: int = 2) -> bytes:
    encoded = b"\0" if value is None else string(value)
    return frame(4, 0, struct.pack(">b", resource_type) + string(topic) + string(key) + encoded + NO_TAGS)


def partition_change(
    topic_id: Uuid,
    partition: int = 0,
    *,
    isr: Sequence[int] | None = None,
    leader: int | None = None,
    replicas: Sequence[int] | None = None,
    directories: Sequence[Uuid] | None = None,
) -> bytes:
    tags = {
        0: None if isr is None else int32s(isr),
        1: None if leader is None else struct.pack(">i", leader),
        2: None if replicas is None else int32s(replicas),
        8: None if directories is None else uuids(directories),
    }
    present = [(tag, value) for tag, value in tags.items() if value is not None]
    body = struct.pack(">i", partition) + topic_id.value + write_uvarint(len(present))
    for tag, value in present:
        body += write_uvarint(tag) + write_uvarint(len(value)) + value
    return frame(5, 0, body)


def remove_topic(topic_id: Uuid) -> bytes:
    return frame(9, 0, topic_id.value + NO_TAGS)


def metadata_batch(base_offset: int, values: Sequence[bytes]) -> bytes:
    """One batch with one record per value."""
    records = b"".join(_record(delta, None, value) for delta, value in enumerate(values))
    return record_batch(base_offset, count=len(values), records=records)


def control_batch(base_offset: int, control: ControlType) -> bytes:
    records = _record(0, _CONTROL_KEY.pack(0, control), b"\0\0")
    return record_batch(base_offset, attributes=CONTROL, records=records)


def snapshot(values: Sequence[bytes], *, complete: bool = True) -> bytes:
    """A `.checkpoint`: header, records, and the footer if it is complete."""
    batches = control_batch(0, ControlType.SNAPSHOT_HEADER) + metadata_batch(1, values)
    return batches + (control_batch(1 + len(values), ControlType.SNAPSHOT_FOOTER) if complete else b"")


def string(text: str) -> bytes:
    return write_uvarint(len(text.encode()) + 1) + text.encode()


def int32s(values: Sequence[int]) -> bytes:
    return write_uvarint(len(values) + 1) + struct.pack(f">{len(values)}i", *values)


def uuids(values: Sequence[Uuid]) -> bytes:
    return write_uvarint(len(values) + 1) + b"".join(value.value for value in values)


def _record(delta: int, key: bytes | None, value: bytes) -> bytes:
    body = b"\0" + write_varint(0) + write_varint(delta)
    body += b"".join(_nullable(part) for part in (key, value)) + write_varint(0)
    return write_varint(len(body)) + body


def _nullable(part: bytes | None) -> bytes:
    return write_varint(-1) if part is None else write_varint(len(part)) + part
