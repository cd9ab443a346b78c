"""Bytes on their way to or from a store: bodies held in memory, blocks, checksums of blocks."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from include.tiering.errors import RemoteChecksumError
from include.tiering.formats.crc32c import extend_crc32c
from include.tiering.model.segment_data import ByteSource
from include.tiering.quotas.contract import ByteLimiter, UnlimitedBytes
from include.tiering.units import MIB

BLOCK_BYTES: Final = MIB
_EVERY_BYTE: Final = UnlimitedBytes()


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
    return extend_crc32c(0, content)


def filled_block(source: ByteSource, position: int, buffer: memoryview) -> memoryview:
    """The part of `buffer` that `source` could fill from `position` on: at least one byte.

    Raises:
        RemoteChecksumError: the source ended, without saying so itself.
    """
    filled = source.read_into(position, buffer)
    if not filled:
        raise RemoteChecksumError(f"the source ended at byte {position} of {source.size_bytes}")
    return buffer[:filled]


def blocks_of(
    source: ByteSource, first: int, size_bytes: int, limiter: ByteLimiter = _EVERY_BYTE
) -> Iterator[memoryview]:
    """`size_bytes` of `source` from `first` on, in blocks as `limiter` grants them; each is valid until the next one.

    Raises:
        RemoteChecksumError: as `filled_block`.
        SendingStoppedError, LeaseLostError: from the limiter.
    """
    buffer = memoryview(bytearray(min(BLOCK_BYTES, size_bytes)))
    position = first
    end = first + size_bytes
    while position < end:
        granted_bytes = limiter.take(min(len(buffer), end - position))
        block = filled_block(source, position, buffer[:granted_bytes])
        yield block
        position += len(block)
