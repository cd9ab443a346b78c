"""The `chunkIndex` of a manifest: how a segment file was cut into chunks, and where each stored chunk begins.

All chunks of an uncompressed segment, except the last, have the same stored size: the chunk size, plus 28 bytes if the
segment is encrypted. The index of such a segment is `fixed` and has four numbers: the chunk size, the size of the
segment file, the stored size of every chunk but the last, and the stored size of the last chunk. Compressed chunks
differ in size. The index of a compressed segment is `variable` and has the stored size of every chunk: base64 of one
zstd frame, whose content is (big-endian)

    chunks    content
    0         int32 0
    1         int32 1, int32 size
    n >= 2    int32 n, int32 base, int8 width (1..4), n-1 times (size - base) in width bytes unsigned, int32 last size

Base is the smallest size of all chunks except the last. Width is the number of bytes that the largest difference
(size - base) needs, at least 1.

A compressed chunk is one zstd frame of known content size:

    at   size      field
    0    4         magic                28 b5 2f fd
    4    1         descriptor           bits 6-7: code of the length of the content size, 5: single segment,
                                        2: checksum, 0-1: code of the length of the dictionary id
    5    0 or 1    window               absent if the bit "single segment" is set
    ..   0..4      dictionary id
    ..   0..8      content size         little-endian; if it has 2 bytes, 256 must be added to it

The codes 0, 1, 2 and 3 mean 0, 2, 4 and 8 bytes of content size, and 0, 1, 2 and 4 bytes of dictionary id. Code 0
means 1 byte of content size if the bit "single segment" is set.

The reader allocates its buffer by the content size. A frame without a content size, or with one above the limit, is
refused before it is decompressed.

Source: Aiven's tiered-storage-for-apache-kafka 1.2, `manifest.index`; RFC 8878, section 3.1.1.
"""

import base64
import binascii
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Final

import cramjam

from include.tiering.errors import FormatError
from include.tiering.units import GIB, MIB

MAX_CHUNK_SIZE_BYTES: Final = GIB
MAX_CHUNKS: Final = 2**20
"""The highest number of chunks of a compressed or encrypted log that is read or written: 2 GiB in chunks of 2 KiB."""

INT32_MAX: Final = 2**31 - 1
IV_BYTES: Final = 12
TAG_BYTES: Final = 16
ENCRYPTION_OVERHEAD_BYTES: Final = IV_BYTES + TAG_BYTES
"""Bytes that encryption adds to a chunk or index: the initialisation vector before it and the tag after it."""

MAX_ENCODED_BYTES: Final = 10 * MIB
_HEAD: Final = struct.Struct(">iiB")
_INT32: Final = struct.Struct(">i")


@dataclass(frozen=True, slots=True)
class Chunk:
    """One chunk; `number` counts from 0.

    `position` and `size_bytes` refer to the segment file, `stored_position` and `stored_size_bytes` to the object.
    """

    number: int
    position: int
    size_bytes: int
    stored_position: int
    stored_size_bytes: int


@dataclass(frozen=True, slots=True)
class FixedChunkIndex:
    """The index of an uncompressed segment: every stored chunk but the last has the same size."""

    original_chunk_size_bytes: int
    original_file_size_bytes: int
    transformed_chunk_size_bytes: int
    final_transformed_chunk_size_bytes: int

    @classmethod
    def plain(cls, chunk_size_bytes: int, file_size_bytes: int, overhead_bytes: int = 0) -> "FixedChunkIndex":
        """Return the index of an uncompressed file; each stored chunk has `overhead_bytes` more than the file's chunk.

        The last chunk of a file whose size is a multiple of the chunk size is a full chunk.

        Raises:
            ValueError: the chunk size is outside 1..`MAX_CHUNK_SIZE_BYTES`.
        """
        if not 0 < chunk_size_bytes <= MAX_CHUNK_SIZE_BYTES:
            raise ValueError(f"chunk size {chunk_size_bytes} is outside 1..{MAX_CHUNK_SIZE_BYTES}")
        final = file_size_bytes % chunk_size_bytes or min(chunk_size_bytes, file_size_bytes)
        return cls(chunk_size_bytes, file_size_bytes, chunk_size_bytes + overhead_bytes, final + overhead_bytes)

    @property
    def stored_size_bytes(self) -> int:
        """The size of the stored object."""
        before_last = max(0, chunk_count(self) - 1)
        return before_last * self.transformed_chunk_size_bytes + self.final_transformed_chunk_size_bytes

    def stored_chunks(self, first: int) -> Iterator[tuple[int, int]]:
        """Iterate over (position, size) of the stored chunks from number `first` on."""
        last = chunk_count(self) - 1
        for number in range(first, last):
            yield number * self.transformed_chunk_size_bytes, self.transformed_chunk_size_bytes
        if first <= last:
            yield last * self.transformed_chunk_size_bytes, self.final_transformed_chunk_size_bytes


@dataclass(frozen=True, slots=True)
class VariableChunkIndex:
    """The index of a compressed segment: stored chunks differ in size."""

    original_chunk_size_bytes: int
    original_file_size_bytes: int
    stored_sizes_bytes: tuple[int, ...]

    @property
    def stored_size_bytes(self) -> int:
        """The size of the stored object."""
        return sum(self.stored_sizes_bytes)

    def stored_chunks(self, first: int) -> Iterator[tuple[int, int]]:
        """Iterate over (position, size) of the stored chunks from number `first` on."""
        before = sum(self.stored_sizes_bytes[:first])
        sizes = self.stored_sizes_bytes[first:]
        yield from zip(accumulate(sizes, initial=before), sizes, strict=False)


ChunkIndex = FixedChunkIndex | VariableChunkIndex


def chunk_count(index: ChunkIndex) -> int:
    return -(-index.original_file_size_bytes // index.original_chunk_size_bytes)


def chunks_over(index: ChunkIndex, first: int, last: int) -> Iterator[Chunk]:
    """Iterate over the chunks that contain the bytes `first` to `last` (inclusive) of the segment file."""
    number = first // index.original_chunk_size_bytes
    for stored_position, stored_size_bytes in index.stored_chunks(number):
        position = number * index.original_chunk_size_bytes
        if position > last:
            return
        size_bytes = min(index.original_chunk_size_bytes, index.original_file_size_bytes - position)
        yield Chunk(number, position, size_bytes, stored_position, stored_size_bytes)
        number += 1


def encode_sizes(sizes_bytes: Sequence[int]) -> str:
    """Return the `transformedChunks` of a variable index."""
    return base64.b64encode(compress_frame(_packed(sizes_bytes))).decode()


def decode_sizes(text: str, expected_chunks: int) -> tuple[int, ...]:
    """Return the sizes in a text of `encode_sizes`. The number of sizes is checked before they are unpacked.

    Raises:
        FormatError: the encoding is wrong, `expected_chunks` is above `MAX_CHUNKS`, the text has another number of
            sizes than `expected_chunks`, or a size is below 1.
    """
    if expected_chunks > MAX_CHUNKS:
        raise FormatError(f"{expected_chunks} chunks: at most {MAX_CHUNKS} are read")
    try:
        frame = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise FormatError("transformedChunks is not base64") from error
    packed = decompress_frame(frame, max_bytes=MAX_ENCODED_BYTES)
    sizes = _unpacked(packed, expected_chunks)
    if sizes and min(sizes) < 1:
        raise FormatError(f"transformedChunks has a chunk of {min(sizes)} bytes")
    return sizes


def _packed(sizes_bytes: Sequence[int]) -> bytes:
    if len(sizes_bytes) < 2:
        return b"".join(map(_INT32.pack, (len(sizes_bytes), *sizes_bytes)))
    *differing, last = sizes_bytes
    base = min(differing)
    width = max(1, -(-(max(differing) - base).bit_length() // 8))
    differences = b"".join((size - base).to_bytes(width, "big") for size in differing)
    return _HEAD.pack(len(sizes_bytes), base, width) + differences + _INT32.pack(last)


def _unpacked(packed: bytes, expected_chunks: int) -> tuple[int, ...]:
    if len(packed) < _INT32.size:
        raise FormatError(f"transformedChunks has {len(packed)} bytes")
    (count,) = _INT32.unpack_from(packed)
    if count != expected_chunks:
        raise FormatError(f"transformedChunks says {count} chunks, the file has {expected_chunks}")
    width = 0
    if count > 1:
        if len(packed) < _HEAD.size:
            raise FormatError(f"transformedChunks has {len(packed)} bytes")
        _, base, width = _HEAD.unpack_from(packed)
        if not 1 <= width <= _INT32.size or base < 0:
            raise FormatError(f"transformedChunks has base {base} and width {width}")
    expected_bytes = _HEAD.size + (count - 1) * width + _INT32.size if count > 1 else _INT32.size * (1 + count)
    if len(packed) != expected_bytes:
        raise FormatError(f"transformedChunks has {len(packed)} bytes, {count} chunks need {expected_bytes}")
    if not count:
        return ()
    (last,) = _INT32.unpack_from(packed, len(packed) - _INT32.size)
    starts = range(_HEAD.size, len(packed) - _INT32.size, width) if count > 1 else ()
    return (*(base + int.from_bytes(packed[at : at + width], "big") for at in starts), last)


COMPRESSION_LEVEL: Final = 3
_MAGIC: Final = b"\x28\xb5\x2f\xfd"
_SINGLE_SEGMENT: Final = 0x20
_DICTIONARY_ID_BYTES: Final = (0, 1, 2, 4)
_CONTENT_SIZE_BYTES: Final = (0, 2, 4, 8)


def compress_frame(content: bytes | memoryview) -> bytes:
    """Compress into one frame with its content size, without checksum and dictionary."""
    return bytes(cramjam.zstd.compress(content, COMPRESSION_LEVEL))


def frame_content_size_bytes(frame: bytes | memoryview) -> int:
    """Return the content size in a frame's header.

    Raises:
        FormatError: the bytes are no zstd frame, its header is cut off, or it has no content size.
    """
    head = bytes(frame[:18])
    if head[:4] != _MAGIC:
        raise FormatError("not a zstd frame")
    descriptor = head[4] if len(head) > len(_MAGIC) else 0
    is_single = bool(descriptor & _SINGLE_SEGMENT)
    size_bytes = _CONTENT_SIZE_BYTES[descriptor >> 6] or int(is_single)
    if not size_bytes:
        raise FormatError("the zstd frame has no content size")
    start = 5 + (not is_single) + _DICTIONARY_ID_BYTES[descriptor & 3]
    field = head[start : start + size_bytes]
    if len(field) != size_bytes:
        raise FormatError("the zstd frame is cut off in its header")
    return int.from_bytes(field, "little") + (256 if size_bytes == 2 else 0)


def decompress_frame(frame: bytes | memoryview, *, max_bytes: int) -> bytes:
    """Decompress a frame.

    Raises:
        FormatError: as for `frame_content_size_bytes`; or the content is larger than `max_bytes`, the frame is
            damaged, or other bytes than frames without content follow it.
    """
    size_bytes = frame_content_size_bytes(frame)
    if size_bytes > max_bytes:
        raise FormatError(f"the zstd frame has a content of {size_bytes} bytes: at most {max_bytes} are allowed")
    content = bytearray(size_bytes)
    try:
        filled = cramjam.zstd.decompress_into(frame, content)
    except cramjam.DecompressionError as error:
        raise FormatError(f"the zstd frame cannot be decompressed: {error}") from error
    if filled != size_bytes:
        raise FormatError(f"the zstd frame was decompressed to {filled} bytes, its header says {size_bytes}")
    return bytes(content)
