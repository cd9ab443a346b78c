"""The batches of a `.log`, read in one of three ways. No record is decoded.

- `BatchStream`: every batch, checked, through one buffer that is filled again and again. The hot path of check passes
  and of log recovery: one loop turn per batch, no byte is copied after the read. A batch that does not fit the buffer
  is checksummed piece by piece.
- `find_log_end` and `iter_headers`: where the log of a crashed or running broker ends, and a cheap walk over its batch
  headers. A broker appends while we read, and one that died leaves a torn batch or, with `preallocate=true`, zeros up
  to `segment.bytes`. The valid part ends where recovery would cut: before the first batch whose length, magic, CRC-32C
  or offset is wrong. Source: Kafka's LogSegment.recover.
- `WholeBatches`: whole batches out of consecutive bytes of a `.log`, which is what a fetch from an offset gives.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import google_crc32c
import numpy as np

from include.tiering.errors import FormatError, OldMagicError
from include.tiering.formats.crc32c import extend_crc32c
from include.tiering.formats.record_batch import (
    CRC_START,
    HEADER,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC,
    NO_TIMESTAMP,
    BatchHeader,
    LogBatch,
    check_follows,
    check_frame,
    control_type,
    parse_header,
)
from include.tiering.model.segments import ByteSource
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


_WINDOW_BYTES: Final = 8 * KIB
_CONTROL_PREFIX_BYTES: Final = 128
"""Header and key of a control batch fit in this."""


@dataclass(frozen=True, slots=True)
class LogEnd:
    """The valid part of a `.log`.

    `log_end_offset` is exclusive: the offset that the next record would get, the file's base offset if there is no
    batch. `max_timestamp_ms` is -1 if no batch has one. `torn` says that bytes follow the valid part, `reason` why they
    do not count.
    """

    valid_bytes: int
    log_end_offset: int
    max_timestamp_ms: int
    batch_count: int
    torn: bool
    reason: str | None


def find_log_end(source: ByteSource, *, base_offset: int, block_bytes: int = DEFAULT_BLOCK_BYTES) -> LogEnd:
    """Reads and checks every batch up to the first that is not valid.

    Raises:
        OldMagicError: the file begins with magic 0 or 1.
        SourceError: what the source raises.
    """
    valid_bytes, log_end_offset, max_timestamp_ms, batch_count = 0, base_offset, NO_TIMESTAMP, 0
    reason = None
    try:
        for position, fields in BatchStream(source, block_bytes):
            header = BatchHeader._make(fields)
            check_follows(header, log_end_offset, position)
            valid_bytes = position + header.size_bytes
            log_end_offset = header.last_offset + 1
            max_timestamp_ms = max(max_timestamp_ms, header.max_timestamp)
            batch_count += 1
    except OldMagicError as error:
        if error.position == 0:
            raise
        reason = error.message
    except FormatError as error:
        reason = error.message
    return LogEnd(valid_bytes, log_end_offset, max_timestamp_ms, batch_count, reason is not None, reason)


def iter_headers(source: ByteSource, start_position: int = 0) -> Iterator[LogBatch]:
    """The batches from `start_position` (the start of a batch) on, by their headers alone: no CRC is checked.

    Ends silently before the first that is cut off or impossible, as a tail under a running writer may be; conclude
    nothing beyond the last batch's end. A control batch comes with what it says.

    Raises:
        SourceError: what the source raises.
    """
    window = _Window(source)
    position, next_offset = start_position, 0
    while source.size_bytes - position >= HEADER_SIZE:
        try:
            header = parse_header(window.view(position, HEADER_SIZE))
            check_follows(header, next_offset, position)
            if position + header.size_bytes > source.size_bytes:
                return
            control = None
            if header.is_control:
                prefix = window.view(position, min(header.size_bytes, _CONTROL_PREFIX_BYTES))
                control = control_type(prefix, HEADER_SIZE)
        except FormatError:
            return
        yield LogBatch(position, header, control)
        position += header.size_bytes
        next_offset = header.last_offset + 1


class _Window:
    """A small part of the source, moved to where the next header is."""

    def __init__(self, source: ByteSource) -> None:
        self._source = source
        self._buffer = memoryview(bytearray(_WINDOW_BYTES))
        self._start = 0
        self._filled = 0

    def view(self, position: int, size_bytes: int) -> memoryview:
        """The bytes from `position` on, at most `size_bytes`; valid until the next call."""
        at = position - self._start
        if at < 0 or at + size_bytes > self._filled:
            wanted = min(_WINDOW_BYTES, self._source.size_bytes - position)
            self._filled = self._source.read_into(position, self._buffer[:wanted])
            self._start, at = position, 0
        return self._buffer[at : min(at + size_bytes, self._filled)]


class WholeBatches:
    """Collects batches from the first one that reaches `next_offset` on, up to `max_bytes`; the first even if larger.

    Feed it blocks from the start of any batch at or before that one. `missing_bytes` says how many bytes on from the
    last block it can use at most, as far as it knows by then; 0 once it is full. A new segment goes on where the last
    one ended: `begin` it. No batch is taken that begins behind `last_offset` (inclusive), if there is one. Memory: what
    was collected, and the part of the last block that is no whole batch yet.
    """

    def __init__(self, next_offset: int, max_bytes: int, last_offset: int | None = None) -> None:
        self.records = bytearray()
        self.next_offset = next_offset
        self.base_offset: int | None = None
        self.full = False
        self._max_bytes = max_bytes
        self._last_offset = last_offset
        self._pending = bytearray()
        self._position = 0
        self._size_bytes = 0
        self._skip_bytes = 0

    def begin(self, position: int, size_bytes: int, next_offset: int) -> None:
        """The next block is at `position`, the start of a batch, of a segment of `size_bytes`.

        Offsets below `next_offset` are not wanted of it.
        """
        self._position, self._size_bytes, self._skip_bytes = position, size_bytes, 0
        self.next_offset = max(self.next_offset, next_offset)

    def feed(self, block: bytes) -> None:
        """Take the bytes that follow those of the last block.

        Raises:
            FormatError: a batch is damaged; its position is that in the segment.
            OldMagicError
        """
        skipped_bytes = min(self._skip_bytes, len(block))
        self._skip_bytes -= skipped_bytes
        self._position += skipped_bytes
        self._pending += memoryview(block)[skipped_bytes:]
        at = 0
        while not self.full and len(self._pending) - at >= HEADER_SIZE:
            header = self._header(at)
            end = at + header.size_bytes
            if header.last_offset < self.next_offset:
                self._skip_bytes = max(0, end - len(self._pending))
            elif self._is_behind_the_last(header.base_offset) or (
                self.records and len(self.records) + header.size_bytes > self._max_bytes
            ):
                self.full = True
                break
            elif end > len(self._pending):
                break
            else:
                self._collect(header, at, end)
            at = min(end, len(self._pending))
        del self._pending[:at]
        self._position += at

    @property
    def missing_bytes(self) -> int:
        if self.full:
            return 0
        room_bytes = self._max_bytes - len(self.records) - len(self._pending)
        if len(self._pending) < HEADER_SIZE:
            return max(self._skip_bytes + room_bytes, HEADER_SIZE - len(self._pending))
        return max(room_bytes, self._header(0).size_bytes - len(self._pending))

    def end(self) -> None:
        """Nothing more comes of this segment.

        Raises:
            FormatError: it ended inside of a batch.
        """
        if self._pending and not self.full:
            raise FormatError(f"{len(self._pending)} bytes are left over", self._position)
        self._pending.clear()

    def _header(self, at: int) -> BatchHeader:
        """Raises FormatError for a batch that cannot be, or does not fit into what is left of the segment."""
        position = self._position + at
        try:
            header = parse_header(self._pending, at)
        except FormatError as error:
            raise type(error)(error.message, position) from None
        if position + header.size_bytes > self._size_bytes:
            left_bytes = self._size_bytes - position
            raise FormatError(f"batch of {header.size_bytes} bytes, {left_bytes} are left of its segment", position)
        return header

    def _collect(self, header: BatchHeader, at: int, end: int) -> None:
        batch = bytes(self._pending[at:end])
        crc = extend_crc32c(0, memoryview(batch)[CRC_START:])
        if crc != header.crc:
            message = f"CRC-32C of the batch at offset {header.base_offset} is {crc:08x}, not {header.crc:08x}"
            raise FormatError(message, self._position + at)
        self.records += batch
        if self.base_offset is None:
            self.base_offset = header.base_offset
        self.next_offset = header.last_offset + 1
        self.full = len(self.records) + HEADER_SIZE > self._max_bytes
        if self._last_offset is not None and header.last_offset >= self._last_offset:
            self.next_offset, self.full = self._last_offset + 1, True

    def _is_behind_the_last(self, offset: int) -> bool:
        return self._last_offset is not None and offset > self._last_offset
