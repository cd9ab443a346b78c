"""The records of a compressed batch, made plain: gzip, snappy, LZ4 and Zstandard as Kafka's clients write them.

What comes out is bounded, whatever goes in: a few bytes can claim to be gigabytes.
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
from typing import Final

import cramjam

from include.tiering.errors import FormatError
from include.tiering.formats.record_batch import Codec
from include.tiering.units import MIB

MAX_RECORDS_BYTES: Final = 64 * MIB
_FIRST_BUFFER_BYTES: Final = MIB
_GROWTH: Final = 8
_BUFFER_TOO_SMALL: Final = "failed to write whole buffer"
_GZIP_WINDOW_BITS: Final = 16 + zlib.MAX_WBITS
_SNAPPY_STREAM_MAGIC: Final = b"\x82SNAPPY\0"
_SNAPPY_STREAM_HEADER_BYTES: Final = 16
_BLOCK_LENGTH: Final = struct.Struct(">i")


class Decompressor:
    """Decompresses into one buffer, which grows up to `max_bytes` and is used again: a result lasts until the next."""

    def __init__(self, max_bytes: int = MAX_RECORDS_BYTES) -> None:
        self._max_bytes = max_bytes
        self._buffer = bytearray()

    def decompress(self, codec: Codec, data: memoryview) -> memoryview:
        """Raises FormatError: not what this codec writes, or more than `max_bytes` come out."""
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
            raise self._too_much()
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
                    raise self._too_much() from error
                self._reserve(min(len(self._buffer) * _GROWTH, self._max_bytes))
            else:
                return memoryview(self._buffer)[:size_bytes]

    def _unsnap(self, data: bytes) -> memoryview:
        blocks = list(_snappy_blocks(data))
        try:
            sizes = [cramjam.snappy.decompress_raw_len(block) for block in blocks]
            if sum(sizes) > self._max_bytes:
                raise self._too_much()
            self._reserve(sum(sizes))
            plain = memoryview(self._buffer)
            at = 0
            for block, size_bytes in zip(blocks, sizes, strict=True):
                cramjam.snappy.decompress_raw_into(block, plain[at : at + size_bytes])
                at += size_bytes
        except cramjam.DecompressionError as error:
            raise FormatError(f"snappy: {error}") from error
        return plain[:at]

    def _reserve(self, size_bytes: int) -> None:
        if len(self._buffer) < size_bytes:
            self._buffer = bytearray(size_bytes)

    def _too_much(self) -> FormatError:
        return FormatError(f"more than {self._max_bytes} bytes come out")


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
