"""Bytes on their way to or from a store: bodies held in memory, blocks, checksums of blocks."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import google_crc32c

from include.tiering.errors import RemoteChecksumError
from include.tiering.model.segment_data import ByteSource
from include.tiering.units import MIB

BLOCK_BYTES: Final = MIB


@dataclass(frozen=True, slots=True)
class BytesSource:
    """A `ByteSource` of bytes in memory: indexes, manifests, markers."""

    content: bytes

    @property
    def size_bytes(self) -> int:
        return len(self.content)

    def read_into(self, position: int, buffer: memoryview) -> int:
        part = self.content[position : position + len(buffer)]
        buffer[: len(part)] = part
        return len(part)


def crc32c_of(content: bytes) -> int:
    return int(google_crc32c.value(content))


def extend_crc32c(crc32c: int, block: bytes | bytearray | memoryview) -> int:
    """CRC-32C of what `crc32c` covers followed by `block`."""
    return int(google_crc32c.extend(crc32c, bytes(block)))


def blocks_of(
    source: ByteSource, buffer: bytearray, first: int = 0, size_bytes: int | None = None
) -> Iterator[memoryview]:
    """Bytes of `source` from `first` on, in turns of at most `buffer`, which every block shares.

    Raises:
        RemoteChecksumError: the source ended early, without saying so itself.
    """
    position = first
    end = source.size_bytes if size_bytes is None else first + size_bytes
    whole = memoryview(buffer)
    while position < end:
        filled = source.read_into(position, whole[: min(len(buffer), end - position)])
        if not filled:
            raise RemoteChecksumError(f"the source ended at byte {position} of {source.size_bytes}")
        yield whole[:filled]
        position += filled
