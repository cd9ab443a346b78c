"""The records of a compressed batch, made plain: gzip, snappy, LZ4 and Zstandard as Kafka's clients write them.

What comes out is bounded, whatever goes in: a few bytes can claim to be gigabytes. A `Decompressor` gives all of it at
once and refuses what is larger than its buffer may grow; `PlainStream` gives larger batches in small pieces.
Snappy comes in two framings: a raw block (librdkafka), or the stream of snappy-java (Java clients, brokers):

    at  size  field
     0     8  82 'SNAPPY' 00
     8     4  version               1
    12     4  compatible since      1
    16        blocks: length int32, a raw block

Gzip is one member, LZ4 one frame, Zstandard one frame, whose window the library bounds at 128 MiB.
"""

import struct
import zlib
from collections.abc import Callable, Iterator
from typing import Final, Protocol

import cramjam

from include.tiering.errors import BatchTooLargeError, FormatError
from include.tiering.formats.record_batch import Codec
from include.tiering.units import KIB, MIB

MAX_RECORDS_BYTES: Final = 64 * MIB
"""The largest batch that is opened at once."""

MAX_STREAMED_BYTES: Final = 512 * MIB
"""What comes out of a larger batch at most; the rest of it is not opened."""

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
_SNAPPY_MOST_COPIED_BYTES: Final = 64


class Decompressor:
    """Decompresses into one buffer, which grows up to `max_bytes` and is used again: a result lasts until the next."""

    def __init__(self, max_bytes: int = MAX_RECORDS_BYTES, max_streamed_bytes: int = MAX_STREAMED_BYTES) -> None:
        self._max_bytes = max_bytes
        self._max_streamed_bytes = max_streamed_bytes
        self._buffer = bytearray()

    def stream(self, codec: Codec, data: memoryview) -> "PlainStream":
        """What comes out, piece by piece; for what is too large to be decompressed at once."""
        return PlainStream(codec, data, self._max_streamed_bytes)

    def decompress(self, codec: Codec, data: memoryview) -> memoryview:
        """All that comes out.

        Raises:
            BatchTooLargeError: more than `max_bytes` come out.
            FormatError: not what this codec writes.
        """
        match codec:
            case Codec.NONE:
                return data
            case Codec.GZIP:
                return self._gunzip(data)
            case Codec.SNAPPY:
                return self._unsnap(bytes(data))
            case Codec.LZ4:
                return self._unframe(cramjam.lz4.decompress_into, "LZ4", bytes(data))
            case Codec.ZSTD:
                return self._unframe(cramjam.zstd.decompress_into, "Zstandard", bytes(data))

    def _gunzip(self, data: memoryview) -> memoryview:
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

    def _unframe(self, decompress_into: Callable[[bytes, bytearray], int], name: str, data: bytes) -> memoryview:
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

    def _unsnap(self, data: bytes) -> memoryview:
        blocks = list(_snappy_blocks(data))
        sizes = [_snappy_size(block) for block in blocks]
        if sum(sizes) > self._max_bytes:
            raise _too_large(self._max_bytes)
        self._reserve(sum(sizes))
        plain = memoryview(self._buffer)
        at = 0
        for block, size_bytes in zip(blocks, sizes, strict=True):
            _unsnap_into(block, plain[at : at + size_bytes])
            at += size_bytes
        return plain[:at]

    def _reserve(self, size_bytes: int) -> None:
        if len(self._buffer) < size_bytes:
            self._buffer = bytearray(size_bytes)


class PlainStream:
    """What comes out of one batch, piece by piece, up to `max_bytes` of it. Iterate once.

    Memory: a piece, and the window of the codec (128 MiB at most); of snappy one block.

    Attributes:
        size_bytes: what came out so far.

    Raises, while iterating:
        BatchTooLargeError: more than `max_bytes` come out, or a snappy block is too large to be opened at once.
        FormatError: not what this codec writes.
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
            # What was not consumed is copied for each piece: it is given in small parts.
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
        _unsnap_into(block, memoryview(plain))
        for at in range(0, len(plain), _PIECE_BYTES):
            yield bytes(plain[at : at + _PIECE_BYTES])


def _snappy_size(block: bytes) -> int:
    """What a block says that comes out of it. Its densest element is a copy of 64 bytes that takes 3."""
    try:
        size_bytes = int(cramjam.snappy.decompress_raw_len(block))
    except cramjam.DecompressionError as error:
        raise FormatError(f"snappy: {error}") from error
    if size_bytes * _SNAPPY_COPY_BYTES > len(block) * _SNAPPY_MOST_COPIED_BYTES:
        raise FormatError(f"snappy: a block of {len(block)} bytes says that {size_bytes} come out")
    return size_bytes


def _unsnap_into(block: bytes, plain: memoryview) -> None:
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
    return BatchTooLargeError(f"more than {max_bytes} bytes come out")
