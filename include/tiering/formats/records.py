"""The records inside of a batch: counted and checked, or with all that a consumer sees of them.

    length varint           bytes after it
    attributes int8
    timestamp delta varlong against the batch's base timestamp
    offset delta varint     against its base offset
    key                     length varint (-1: none) | bytes
    value                   length varint (-1: none) | bytes
    headers                 count varint | of each: name length varint, name, value length varint (-1: none), value

`check_records`, `read_records` and `read_record_pieces` count and look at all but keys, values and headers, which take
at least 3 bytes; `records_of` gives the contents. Source: Kafka's DefaultRecord.
"""

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from include.tiering.errors import BatchTooLargeError, FormatError
from include.tiering.formats.codecs import Decompressor
from include.tiering.formats.primitive_types import read_varint, read_varlong
from include.tiering.formats.record_batch import BatchHeader
from include.tiering.model.segments import SeenRecord

MIN_RECORD_BYTES: Final = 7
MAX_RECORDS: Final = 1 << 21
"""As many records of one batch are followed; the rest of it is not opened. Each costs about a microsecond."""

_MIN_LENGTH: Final = MIN_RECORD_BYTES - 1
_MAX_HEAD_BYTES: Final = 5 + 1 + 10 + 5


class RecordsFound(NamedTuple):
    """What the records of a batch say. Deltas are 0 without a record."""

    records: int
    last_offset_delta: int
    largest_timestamp_delta: int


class Opened(NamedTuple):
    """A batch that was opened without a fault.

    Attributes:
        plain_bytes: what came out of it.
        not_opened: why the rest of it was not opened; empty if all of it was.
    """

    plain_bytes: int
    not_opened: str = ""


def check_records(header: BatchHeader, payload: memoryview, decompressor: Decompressor) -> Opened:
    """Open a batch whose CRC is right and compare its records with its header.

    One that is larger than the decompressor's bound is opened piece by piece, up to `MAX_STREAMED_BYTES` and
    `MAX_RECORDS`; what was opened until then is checked.

    Args:
        payload: all that follows the header.

    Raises:
        FormatError: it cannot be opened, or its records are not those that the header tells of: how many, their
            offsets, the largest timestamp. The position is that in the plain records.
    """
    max_count = min(header.record_count, MAX_RECORDS)
    try:
        plain = decompressor.decompress(header.codec, payload)
    except BatchTooLargeError:
        stream = decompressor.stream(header.codec, payload)
        try:
            found = read_record_pieces(stream, max_count)
        except BatchTooLargeError as error:
            return Opened(stream.size_bytes, error.message)
        size_bytes = stream.size_bytes
    else:
        found = read_records(bytes(plain), max_count)
        size_bytes = len(plain)
    if found.records > MAX_RECORDS and header.record_count > MAX_RECORDS:
        return Opened(size_bytes, f"more than {MAX_RECORDS} records are inside")
    _compare(header, found)
    return Opened(size_bytes)


def _compare(header: BatchHeader, found: RecordsFound) -> None:
    if found.records != header.record_count:
        raise FormatError(f"{found.records} records are inside, the header says {header.record_count}")
    if found.last_offset_delta > header.last_offset_delta:
        raise FormatError(f"offset delta {found.last_offset_delta} is above the batch's {header.last_offset_delta}")
    largest_ms = header.base_timestamp + found.largest_timestamp_delta
    has_own_times = found.records > 0 and not header.has_log_append_time and not header.has_delete_horizon
    if has_own_times and largest_ms != header.max_timestamp:
        raise FormatError(f"the largest timestamp inside is {largest_ms}, the header says {header.max_timestamp}")


def read_records(plain: bytes, max_count: int) -> RecordsFound:
    """Follows the records to the end, or to one more than `max_count`.

    Raises:
        FormatError: a record that is cut off or too short, or an offset delta that does not ascend.
    """
    at, records, last_offset_delta, largest = 0, 0, -1, None
    while at < len(plain) and records <= max_count:
        length, body = read_varint(plain, at)
        end = body + length
        if length < _MIN_LENGTH or end > len(plain):
            raise FormatError(f"record of {length} bytes, {len(plain) - body} are left", at)
        timestamp_delta, next_field = read_varlong(plain, body + 1)
        offset_delta, next_field = read_varint(plain, next_field)
        if next_field > end or offset_delta <= last_offset_delta:
            raise FormatError(f"offset delta {offset_delta} follows {last_offset_delta}", at)
        if largest is None or timestamp_delta > largest:
            largest = timestamp_delta
        last_offset_delta = offset_delta
        records += 1
        at = end
    return RecordsFound(records, max(last_offset_delta, 0), largest or 0)


def read_record_pieces(pieces: Iterable[bytes], max_count: int) -> RecordsFound:
    """The same as `read_records`, of records that come in pieces: of each no more than its first bytes is kept.

    Raises:
        FormatError: as `read_records`, and what the pieces raise.
    """
    window = _Window(pieces)
    records, last_offset_delta, largest = 0, -1, None
    while records <= max_count and (head := window.head()):
        try:
            length, body = read_varint(head, 0)
            if length < _MIN_LENGTH:
                raise FormatError(f"record of {length} bytes")
            timestamp_delta, next_field = read_varlong(head, body + 1)
            offset_delta, next_field = read_varint(head, next_field)
        except FormatError as error:
            raise FormatError(error.message, window.position) from error
        if next_field > body + length or offset_delta <= last_offset_delta:
            raise FormatError(f"offset delta {offset_delta} follows {last_offset_delta}", window.position)
        if largest is None or timestamp_delta > largest:
            largest = timestamp_delta
        last_offset_delta = offset_delta
        records += 1
        window.skip(body + length)
    return RecordsFound(records, max(last_offset_delta, 0), largest or 0)


class _Window:
    """The part of a stream of pieces that is in memory: a piece, and what is left of the one before.

    Attributes:
        position: of the next byte, from the beginning of the stream.
    """

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._pieces: Iterator[bytes] = iter(pieces)
        self._held = b""
        self._at = 0
        self.position = 0

    def head(self) -> bytes:
        """The next bytes, as many as the fields before a key may take; fewer only at the end of the stream."""
        while len(self._held) - self._at < _MAX_HEAD_BYTES:
            piece = next(self._pieces, None)
            if piece is None:
                break
            self._held, self._at = self._held[self._at :] + piece, 0
        return self._held[self._at : self._at + _MAX_HEAD_BYTES]

    def skip(self, count: int) -> None:
        """Raises FormatError: there are not so many."""
        begins_at, self.position = self.position, self.position + count
        self._at += count
        while self._at > len(self._held):
            piece = next(self._pieces, None)
            if piece is None:
                missing = self._at - len(self._held)
                raise FormatError(f"record of {count} bytes, {count - missing} are left", begins_at)
            self._held, self._at = piece, self._at - len(self._held)


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
