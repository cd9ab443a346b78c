"""Where the log of a crashed or running broker ends, and a cheap walk over its batch headers.

A broker appends while we read, and one that died leaves a torn batch or, with `preallocate=true`, zeros up to
`segment.bytes`. The valid part ends where recovery would cut: before the first batch whose length, magic, CRC-32C or
offset is wrong. Source: Kafka's LogSegment.recover.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from include.tiering.errors import FormatError, OldMagicError
from include.tiering.formats.batch_stream import DEFAULT_BLOCK_BYTES, BatchStream
from include.tiering.formats.record_batch import (
    HEADER_SIZE,
    NO_TIMESTAMP,
    BatchHeader,
    LogBatch,
    check_follows,
    control_type,
    parse_header,
)
from include.tiering.model.segment_data import ByteSource
from include.tiering.units import KIB

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
