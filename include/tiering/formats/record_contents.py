"""The records inside of a batch with all that a consumer sees of them.

    length varint
    attributes int8
    timestamp delta varlong
    offset delta varint
    key      length varint (-1: none) | bytes
    value    length varint (-1: none) | bytes
    headers  count varint | of each: name length varint, name, value length varint (-1: none), value

Source: Kafka's DefaultRecord.
"""

from collections.abc import Iterator
from typing import NamedTuple

from include.tiering.errors import FormatError
from include.tiering.formats.codecs import Decompressor
from include.tiering.formats.record_batch import BatchHeader
from include.tiering.formats.varint import read_varint, read_varlong
from include.tiering.model.segment_data import SeenRecord


class _Field(NamedTuple):
    content: bytes | None
    end: int


def records_of(header: BatchHeader, payload: memoryview, decompressor: Decompressor) -> Iterator[SeenRecord]:
    """Records of a batch whose CRC is right: `payload` is all that follows its header. Not for control batches.

    Raises:
        FormatError: it cannot be opened, or a record is cut off; the position is that in the plain records.
    """
    plain = bytes(decompressor.decompress(header.codec, payload))
    at = 0
    for _ in range(header.record_count):
        length, body = read_varint(plain, at)
        end = body + length
        if length < 0 or end > len(plain):
            raise FormatError(f"record of {length} bytes, {len(plain) - body} are left", at)
        yield _record(header, plain, body, end)
        at = end


def _record(header: BatchHeader, plain: bytes, body: int, end: int) -> SeenRecord:
    timestamp_delta, at = read_varlong(plain, body + 1)
    offset_delta, at = read_varint(plain, at)
    key = _field(plain, at, end)
    value = _field(plain, key.end, end)
    count, at = read_varint(plain, value.end)
    headers: list[tuple[bytes, bytes | None]] = []
    for _ in range(max(0, min(count, end - at))):
        name = _field(plain, at, end)
        content = _field(plain, name.end, end)
        headers.append((name.content or b"", content.content))
        at = content.end
    is_append_time = header.has_log_append_time
    timestamp_ms = header.max_timestamp if is_append_time else header.base_timestamp + timestamp_delta
    offset = header.base_offset + offset_delta
    return SeenRecord(offset, is_append_time, timestamp_ms, key.content, value.content, tuple(headers))


def _field(plain: bytes, at: int, end: int) -> _Field:
    length, start = read_varint(plain, at)
    if length < 0:
        return _Field(None, start)
    if start + length > end:
        raise FormatError(f"field of {length} bytes, {end - start} are left in its record", at)
    return _Field(plain[start : start + length], start + length)
