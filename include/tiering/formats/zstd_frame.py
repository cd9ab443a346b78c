"""One zstd frame of known content size: what a chunk of a compressed segment is.

    at   size      field
    0    4         magic                28 b5 2f fd
    4    1         descriptor           6-7: size of the last field, 5: single segment, 2: checksum, 0-1: dictionary
    5    0 or 1    window               unless single segment
    ..   0..4      dictionary id
    ..   0..8      content size         little-endian; of 2 bytes: plus 256

A reader sizes its buffer by the content size: one that is absent or above what may come out is refused before anything
is decompressed.

Source: RFC 8878, section 3.1.1.
"""

from typing import Final

import cramjam

from include.tiering.errors import FormatError

LEVEL: Final = 3
_MAGIC: Final = b"\x28\xb5\x2f\xfd"
_SINGLE_SEGMENT: Final = 0x20
_DICTIONARY_ID_BYTES: Final = (0, 1, 2, 4)
_CONTENT_SIZE_BYTES: Final = (0, 2, 4, 8)


def compress(content: bytes | memoryview) -> bytes:
    """One frame with its content size, without checksum and dictionary."""
    return bytes(cramjam.zstd.compress(content, LEVEL))


def content_size_bytes(frame: bytes | memoryview) -> int:
    """What the frame says of itself.

    Raises:
        FormatError: no zstd frame, cut off in its header, or without a content size.
    """
    head = bytes(frame[:18])
    if head[:4] != _MAGIC:
        raise FormatError("not a zstd frame")
    descriptor = head[4] if len(head) > len(_MAGIC) else 0
    is_single = bool(descriptor & _SINGLE_SEGMENT)
    size_bytes = _CONTENT_SIZE_BYTES[descriptor >> 6] or int(is_single)
    if not size_bytes:
        raise FormatError("a zstd frame without its content size")
    start = 5 + (not is_single) + _DICTIONARY_ID_BYTES[descriptor & 3]
    field = head[start : start + size_bytes]
    if len(field) != size_bytes:
        raise FormatError("a zstd frame that is cut off in its header")
    return int.from_bytes(field, "little") + (256 if size_bytes == 2 else 0)


def decompress(frame: bytes | memoryview, *, most_bytes: int) -> bytes:
    """All that the frame holds.

    Raises:
        FormatError: as `content_size_bytes`, more than `most_bytes`, damaged, or other than one frame.
    """
    size_bytes = content_size_bytes(frame)
    if size_bytes > most_bytes:
        raise FormatError(f"a zstd frame of {size_bytes} bytes: at most {most_bytes} may come out")
    content = bytearray(size_bytes)
    try:
        filled = cramjam.zstd.decompress_into(frame, content)
    except cramjam.DecompressionError as error:
        raise FormatError(f"a zstd frame that cannot be decompressed: {error}") from error
    if filled != size_bytes:
        raise FormatError(f"a zstd frame of {filled} bytes that says {size_bytes}")
    return bytes(content)
