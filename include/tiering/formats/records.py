"""Decompress the records of a batch, count and check them, or decode them as a consumer does.

Compressed batches use gzip, snappy, LZ4 or Zstandard, as Kafka's clients write them. The decompressed size is limited,
because a few bytes can decompress to gigabytes. A `Decompressor` returns all bytes at once, and refuses a batch above
its limit; `PlainStream` returns larger batches in small pieces. Gzip data must be one member. LZ4 and Zstandard data
are one frame (more are accepted); the library limits the window of Zstandard to 128 MiB. Snappy data have one of two
framings: a raw block (librdkafka), or the stream of snappy-java (Java clients, brokers):

    at  size  field
     0     8  82 'SNAPPY' 00
     8     4  version               1
    12     4  compatible since      1
    16        blocks: length int32, a raw block

A record:

    length varint           bytes after it
    attributes int8
    timestamp delta varlong relative to the batch's base timestamp
    offset delta varint     relative to the batch's base offset
    key                     length varint (-1: none) | bytes
    value                   length varint (-1: none) | bytes
    headers                 count varint | each: name length varint, name, value length varint (-1: none), value

`read_records` and `read_record_pieces` count records, check their lengths and offset deltas, and find the largest
timestamp delta. They do not read attributes, keys, values and headers. `records_of` returns the contents.
Source: Kafka's DefaultRecord.
"""

import struct
import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple, Protocol

import cramjam

from include.tiering.errors import BatchTooLargeError, FormatError
from include.tiering.formats.primitive_types import read_varint, read_varlong
from include.tiering.formats.record_batch import BatchHeader, Codec, check_codec
from include.tiering.model.segments import SeenRecord
from include.tiering.units import KIB, MIB

MAX_RECORDS_BYTES: Final = 64 * MIB
"""The largest compressed batch, in decompressed bytes, that is held in memory at once."""

MAX_STREAMED_BYTES: Final = 512 * MIB
"""How many bytes of a larger batch are decompressed at most; the rest of it is not read."""

_PIECE_BYTES: Final = 256 * KIB
_GZIP_FED_BYTES: Final = 16 * KIB
_FIRST_BUFFER_BYTES: Final = MIB
_GROWTH: Final = 8
_BUFFER_TOO_SMALL: Final = "failed to write whole buffer"
_GZIP_WINDOW_BITS: Final = 16 + zlib.MAX_WBITS
_SNAPPY_STREAM_MAGIC: Final = b"\x82SNAPPY\0"
_SNAPPY_STREAM_HEADER_BYTES: Final = 16
_BLOCK_LENGTH: Final = struct.Struct(">i")
_SNAPPY_COPY_BYTES: Final = 3
_SNAPPY_MAX_COPIED_BYTES: Final = 64


class Decompressor:
    """Decompresses at most `max_bytes` at once. A buffer is reused: a result is valid until the next call."""

    def __init__(self, max_bytes: int = MAX_RECORDS_BYTES, max_streamed_bytes: int = MAX_STREAMED_BYTES) -> None:
        self._max_bytes = max_bytes
        self._max_streamed_bytes = max_streamed_bytes
        self._buffer = bytearray()

    def stream(self, codec: Codec, data: memoryview) -> "PlainStream":
        """Return an iterator over the decompressed pieces, for batches that are too large to decompress at once."""
        return PlainStream(codec, data, self._max_streamed_bytes)

    def decompress(self, codec: Codec, data: memoryview) -> memoryview:
        """Return all decompressed bytes; with the codec NONE, `data` itself.

        Raises:
            BatchTooLargeError: a compressed batch has more than `max_bytes` after decompression.
            FormatError: the data are not in the format of this codec.
        """
        match codec:
            case Codec.NONE:
                return data
            case Codec.GZIP:
                return self._decompress_gzip(data)
            case Codec.SNAPPY:
                return self._decompress_snappy(bytes(data))
            case Codec.LZ4:
                return self._decompress_frame(cramjam.lz4.decompress_into, "LZ4", bytes(data))
            case Codec.ZSTD:
                return self._decompress_frame(cramjam.zstd.decompress_into, "Zstandard", bytes(data))

    def _decompress_gzip(self, data: memoryview) -> memoryview:
        member = zlib.decompressobj(_GZIP_WINDOW_BITS)
        try:
            plain = member.decompress(data, self._max_bytes + 1)
        except zlib.error as error:
            raise FormatError(f"gzip: {error}") from error
        if len(plain) > self._max_bytes:
            raise _too_large(self._max_bytes)
        if not member.eof or member.unused_data:
            raise FormatError("gzip: cut off" if not member.eof else "gzip: bytes follow the end")
        return memoryview(plain)

    def _decompress_frame(
        self, decompress_into: Callable[[bytes, bytearray], int], name: str, data: bytes
    ) -> memoryview:
        self._reserve(min(_FIRST_BUFFER_BYTES, self._max_bytes))
        while True:
            try:
                size_bytes = decompress_into(data, self._buffer)
            except cramjam.DecompressionError as error:
                if _BUFFER_TOO_SMALL not in str(error):
                    raise FormatError(f"{name}: {error}") from error
                if len(self._buffer) >= self._max_bytes:
                    raise _too_large(self._max_bytes) from error
                self._reserve(min(len(self._buffer) * _GROWTH, self._max_bytes))
            else:
                return memoryview(self._buffer)[:size_bytes]

    def _decompress_snappy(self, data: bytes) -> memoryview:
        blocks = list(_snappy_blocks(data))
        sizes = [_snappy_size(block) for block in blocks]
        if sum(sizes) > self._max_bytes:
            raise _too_large(self._max_bytes)
        self._reserve(sum(sizes))
        plain = memoryview(self._buffer)
        at = 0
        for block, size_bytes in zip(blocks, sizes, strict=True):
            _decompress_snappy_into(block, plain[at : at + size_bytes])
            at += size_bytes
        return plain[:at]

    def _reserve(self, size_bytes: int) -> None:
        if len(self._buffer) < size_bytes:
            self._buffer = bytearray(size_bytes)


class PlainStream:
    """Iterate once over the decompressed pieces of a batch, up to `max_bytes`.

    Memory: a piece, and the window of the codec (128 MiB at most); for snappy one block.

    Attributes:
        size_bytes: the decompressed bytes so far.

    Raises, while iterating:
        BatchTooLargeError: there are more than `max_bytes`, or a snappy block is too large to decompress at once.
        FormatError: the data are not in the format of this codec.
    """

    def __init__(self, codec: Codec, data: memoryview, max_bytes: int) -> None:
        self._pieces = _pieces(codec, data)
        self._max_bytes = max_bytes
        self.size_bytes = 0

    def __iter__(self) -> Iterator[bytes]:
        for piece in self._pieces:
            self.size_bytes += len(piece)
            if self.size_bytes > self._max_bytes:
                raise _too_large(self._max_bytes)
            yield piece


def _pieces(codec: Codec, data: memoryview) -> Iterator[bytes]:
    match codec:
        case Codec.NONE:
            return (bytes(data[at : at + _PIECE_BYTES]) for at in range(0, len(data), _PIECE_BYTES))
        case Codec.GZIP:
            return _gzip_pieces(data)
        case Codec.SNAPPY:
            return _snappy_pieces(bytes(data))
        case Codec.LZ4:
            return _frame_pieces(data, "lz4", "LZ4")
        case Codec.ZSTD:
            return _frame_pieces(data, "zstd", "Zstandard")


def _gzip_pieces(data: memoryview) -> Iterator[bytes]:
    member = zlib.decompressobj(_GZIP_WINDOW_BITS)
    fed = 0
    try:
        while not member.eof:
            # Input is passed in small parts, because zlib copies the unconsumed rest for each piece.
            left = member.unconsumed_tail or data[fed : fed + _GZIP_FED_BYTES]
            fed += 0 if member.unconsumed_tail else len(left)
            piece = member.decompress(left, _PIECE_BYTES)
            if piece:
                yield piece
            elif not len(left):
                raise FormatError("gzip: cut off")
    except zlib.error as error:
        raise FormatError(f"gzip: {error}") from error
    if member.unused_data or fed < len(data):
        raise FormatError("gzip: bytes follow the end")


class _Reads(Protocol):
    def read(self, size_bytes: int) -> bytes: ...


def _frame_pieces(data: memoryview, name: str, title: str) -> Iterator[bytes]:
    # pyarrow takes a tenth of a second to import, and batches that need it are rare.
    import pyarrow as pa

    try:
        stream: _Reads = pa.CompressedInputStream(pa.BufferReader(pa.py_buffer(data)), name)
        while piece := stream.read(_PIECE_BYTES):
            yield piece
    except (OSError, pa.ArrowException) as error:
        raise FormatError(f"{title}: {error}") from error


def _snappy_pieces(data: bytes) -> Iterator[bytes]:
    for block in _snappy_blocks(data):
        size_bytes = _snappy_size(block)
        if size_bytes > MAX_RECORDS_BYTES:
            raise _too_large(MAX_RECORDS_BYTES)
        plain = bytearray(size_bytes)
        _decompress_snappy_into(block, memoryview(plain))
        for at in range(0, len(plain), _PIECE_BYTES):
            yield bytes(plain[at : at + _PIECE_BYTES])


def _snappy_size(block: bytes) -> int:
    """Return the decompressed size in a block's header. The densest element of snappy stores 64 bytes in 3."""
    try:
        size_bytes = int(cramjam.snappy.decompress_raw_len(block))
    except cramjam.DecompressionError as error:
        raise FormatError(f"snappy: {error}") from error
    if size_bytes * _SNAPPY_COPY_BYTES > len(block) * _SNAPPY_MAX_COPIED_BYTES:
        raise FormatError(f"snappy: a block of {len(block)} bytes cannot contain {size_bytes} bytes")
    return size_bytes


def _decompress_snappy_into(block: bytes, plain: memoryview) -> None:
    try:
        cramjam.snappy.decompress_raw_into(block, plain)
    except cramjam.DecompressionError as error:
        raise FormatError(f"snappy: {error}") from error


def _snappy_blocks(data: bytes) -> Iterator[bytes]:
    if not data.startswith(_SNAPPY_STREAM_MAGIC):
        yield data
        return
    at = _SNAPPY_STREAM_HEADER_BYTES
    while at < len(data):
        if at + _BLOCK_LENGTH.size > len(data):
            raise FormatError("snappy: a block's length is cut off")
        (size_bytes,) = _BLOCK_LENGTH.unpack_from(data, at)
        at += _BLOCK_LENGTH.size
        if not 0 < size_bytes <= len(data) - at:
            raise FormatError(f"snappy: a block of {size_bytes} bytes, {len(data) - at} are left")
        yield data[at : at + size_bytes]
        at += size_bytes


def _too_large(max_bytes: int) -> BatchTooLargeError:
    return BatchTooLargeError(f"more than {max_bytes} bytes after decompression")


MIN_RECORD_BYTES: Final = 7
MAX_RECORDS: Final = 1 << 21
"""How many records of one batch are checked at most, because each takes about a microsecond; one more may be read."""

_MIN_LENGTH: Final = MIN_RECORD_BYTES - 1
_MAX_HEAD_BYTES: Final = 5 + 1 + 10 + 5


class RecordsFound(NamedTuple):
    """Count and deltas of the records of a batch. Deltas are 0 without a record."""

    records: int
    last_offset_delta: int
    largest_timestamp_delta: int


class OpenedBatch(NamedTuple):
    """The result for a batch in which no fault was found.

    Attributes:
        plain_bytes: the decompressed bytes.
        not_opened: why the rest of the batch was not read; empty if all of it was.
    """

    plain_bytes: int
    not_opened: str = ""


def check_records(header: BatchHeader, payload: memoryview, decompressor: Decompressor) -> OpenedBatch:
    """Decompress a batch whose CRC is correct, and compare its records with its header.

    A compressed batch above the decompressor's `max_bytes` is decompressed in pieces, up to its `max_streamed_bytes`.
    At most `MAX_RECORDS` records of a batch, and one more, are read. A batch above `max_streamed_bytes`, a batch with a
    snappy block above `MAX_RECORDS_BYTES`, and a batch whose header rightly says that it has more than `MAX_RECORDS`
    records are checked as far as read, and not compared with the header.

    Args:
        header: the header of the batch.
        payload: all bytes after the header.
        decompressor: the decompressor, which may be reused.

    Raises:
        FormatError: the batch cannot be decompressed, a record is malformed (the position is that in the decompressed
            records), or the number, the offsets or the largest timestamp of the records do not match the header.
    """
    max_count = min(header.record_count, MAX_RECORDS)
    try:
        plain = decompressor.decompress(header.codec, payload)
    except BatchTooLargeError:
        stream = decompressor.stream(header.codec, payload)
        try:
            found = read_record_pieces(stream, max_count)
        except BatchTooLargeError as error:
            return OpenedBatch(stream.size_bytes, error.message)
        size_bytes = stream.size_bytes
    else:
        found = read_records(bytes(plain), max_count)
        size_bytes = len(plain)
    if found.records > MAX_RECORDS and header.record_count > MAX_RECORDS:
        return OpenedBatch(size_bytes, f"more than {MAX_RECORDS} records are inside")
    _compare(header, found)
    return OpenedBatch(size_bytes)


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
    """Read the records to the end, or to one more than `max_count`.

    Raises:
        FormatError: a record is cut off or too short, or offset deltas do not ascend.
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
    """Do the same as `read_records` for records in pieces; a large record is never whole in memory.

    Raises:
        FormatError: as for `read_records`, or raised by the pieces.
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
    """The part of a stream of pieces that is in memory: a piece, and the rest of the previous one.

    Attributes:
        position: the position of the next byte in the stream.
    """

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._pieces: Iterator[bytes] = iter(pieces)
        self._held = b""
        self._at = 0
        self.position = 0

    def head(self) -> bytes:
        """Return the next bytes, enough for all fields before a key; fewer only at the end of the stream."""
        while len(self._held) - self._at < _MAX_HEAD_BYTES:
            piece = next(self._pieces, None)
            if piece is None:
                break
            self._held, self._at = self._held[self._at :] + piece, 0
        return self._held[self._at : self._at + _MAX_HEAD_BYTES]

    def skip(self, count: int) -> None:
        """Skip bytes. Raises FormatError if the stream ends before."""
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
    """Decode the records of a batch whose CRC is correct. Not for control batches.

    Args:
        header: the header of the batch.
        payload: all bytes after the header.
        decompressor: the decompressor, which may be reused.

    Raises:
        FormatError: the batch cannot be decompressed, or a record is cut off (the position is that in the decompressed
            records).
    """
    check_codec(header, 0)
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
