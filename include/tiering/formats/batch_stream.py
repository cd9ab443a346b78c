"""Every batch of a `.log`, checked, through one buffer that is filled again and again.

The hot path of check passes and of log recovery: one loop turn per batch, no record is decoded, no byte is copied after
the read. A batch that does not fit the buffer is checksummed piece by piece.
"""

from collections.abc import Callable, Iterator
from typing import Final

import google_crc32c
import numpy as np

from include.tiering.errors import FormatError
from include.tiering.formats.record_batch import CRC_START, HEADER, HEADER_SIZE, LOG_OVERHEAD, MAGIC, check_frame
from include.tiering.model.segment_data import ByteSource
from include.tiering.units import KIB

DEFAULT_BLOCK_BYTES: Final = 512 * KIB
MIN_BLOCK_BYTES: Final = KIB
_MIN_LENGTH: Final = HEADER_SIZE - LOG_OVERHEAD

Fields = tuple[int, int, int, int, int, int, int, int, int, int, int, int, int]
"""The fields of a `BatchHeader`, in its order."""


def _refuse(error: FormatError) -> None:
    raise error


class BatchStream:
    """Iterates once, front to back, over (position in the source, header fields) of each batch.

    It begins at `start_position`, where a batch must start. `on_wrong_crc` gets the error of a batch with another
    CRC-32C than its header says, just before the batch is yielded; without it the error is raised.

    A batch is yielded after its length, magic and CRC-32C were found right; how batches follow each other is for the
    caller to judge. Memory: `block_bytes`. Every byte of the source is read once, in order.

    Raises, while iterating:
        OldMagicError: a batch of magic 0 or 1.
        FormatError: at the start of the first batch that is damaged or cut off, or of the bytes left over.
        SourceError: what the source raises.
    """

    def __init__(
        self,
        source: ByteSource,
        block_bytes: int = DEFAULT_BLOCK_BYTES,
        *,
        start_position: int = 0,
        on_wrong_crc: Callable[[FormatError], None] = _refuse,
    ) -> None:
        self._source = source
        self._on_wrong_crc = on_wrong_crc
        self._view = memoryview(bytearray(max(block_bytes, MIN_BLOCK_BYTES)))
        # google-crc32c takes no memoryview, but slices of an array without a copy.
        self._array = np.frombuffer(self._view, dtype=np.uint8)
        self._start = start_position  # source position of the buffer's first byte
        self._filled = 0  # bytes of the buffer that hold source bytes
        self._next = 0  # buffer position of the first batch that is not whole in the buffer

    def __iter__(self) -> Iterator[tuple[int, Fields]]:
        while self._refill():
            yield from self._whole_batches()
            while self._next_is_large():
                yield self._large_batch()
                yield from self._whole_batches()

    def records(self, position: int) -> memoryview:
        """What the buffer holds from the records of the batch at `position` on, which was yielded last.

        Empty if that batch is larger than the buffer: only its end is there.
        """
        at = position - self._start
        return self._view[at + HEADER_SIZE : self._filled] if at >= 0 else self._view[:0]

    def _whole_batches(self) -> Iterator[tuple[int, Fields]]:
        view, array, filled, start, at = self._view, self._array, self._filled, self._start, self._next
        unpack_header, crc32c = HEADER.unpack_from, google_crc32c.value
        while filled - at >= HEADER_SIZE:
            fields: Fields = unpack_header(view, at)
            batch_length = fields[1]
            if batch_length < _MIN_LENGTH or fields[3] != MAGIC:
                check_frame(fields[3], batch_length, start + at)
            end = at + LOG_OVERHEAD + batch_length
            if end > filled:
                break
            crc = crc32c(array[at + CRC_START : end])
            if crc != fields[4]:
                self._on_wrong_crc(_crc_error(start + at, fields, crc))
            yield start + at, fields
            at = end
        self._next = at

    def _refill(self) -> bool:
        """Moves the incomplete batch to the front and reads on; False at the clean end."""
        rest = self._filled - self._next
        self._view[:rest] = self._view[self._next : self._filled]
        self._start += self._next
        self._next = 0
        self._filled = rest + self._read(self._start + rest, rest)
        if self._filled == rest and rest > 0:
            raise self._cut_off_error()
        return self._filled > 0

    def _read(self, position: int, at: int) -> int:
        """Fills the buffer from `at` on; returns the bytes read, 0 only at the end of the source."""
        wanted = min(len(self._view) - at, self._source.size_bytes - position)
        if wanted <= 0:
            return 0
        count = self._source.read_into(position, self._view[at : at + wanted])
        if count <= 0:
            raise FormatError(f"the source ended before its {self._source.size_bytes} bytes", position)
        return count

    def _next_is_large(self) -> bool:
        if self._filled - self._next < HEADER_SIZE:
            return False
        return _size_bytes(HEADER.unpack_from(self._view, self._next)) > len(self._view)

    def _large_batch(self) -> tuple[int, Fields]:
        """Reads the batch through the buffer, piece by piece; what follows it stays in the buffer."""
        position = self._start + self._next
        fields: Fields = HEADER.unpack_from(self._view, self._next)
        end = position + _size_bytes(fields)
        if end > self._source.size_bytes:
            raise self._cut_off_error()
        crc = google_crc32c.value(self._array[self._next + CRC_START : self._filled])
        while self._start + self._filled < end:
            self._start += self._filled
            self._filled = self._read(self._start, 0)
            self._next = min(self._filled, end - self._start)
            crc = google_crc32c.extend(crc, self._array[: self._next])
        if crc != fields[4]:
            self._on_wrong_crc(_crc_error(position, fields, crc))
        return position, fields

    def _cut_off_error(self) -> FormatError:
        position = self._start + self._next
        left = self._source.size_bytes - position
        if left < HEADER_SIZE:
            return FormatError(f"{left} bytes are left over, a batch header has {HEADER_SIZE}", position)
        size_bytes = _size_bytes(HEADER.unpack_from(self._view, self._next))
        return FormatError(f"batch of {size_bytes} bytes is cut off after {left}", position)


def _size_bytes(fields: Fields) -> int:
    return LOG_OVERHEAD + fields[1]


def _crc_error(position: int, fields: Fields, crc: int) -> FormatError:
    return FormatError(f"CRC-32C of the batch at offset {fields[0]} is {crc:08x}, not {fields[4]:08x}", position)
