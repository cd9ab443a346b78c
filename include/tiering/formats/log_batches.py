"""Iterate over the batches of a `.log` and check each. Of records only the type of a control record is decoded.

- `BatchStream` reads every batch through one reused buffer. It is the hot path of segment checks and log recovery: one
  loop iteration per batch, and after the read only a batch that is not yet whole in the buffer is copied. A batch
  larger than the buffer is checksummed in pieces.
- `BatchBuffer` checks batches that are in memory already.
- `find_log_end` finds the end of the log of a crashed or running broker. A running broker may append during the read,
  and a crash may leave an incomplete batch or, with `preallocate=true`, zeros up to `segment.bytes`. The valid part
  ends where recovery would truncate: before the first batch whose length, magic, CRC-32C or offset is wrong. Source:
  Kafka's LogSegment.recover.
- `check_segment` checks a rolled segment: every batch is valid, offsets ascend within the segment, and no byte follows
  the last batch. It reads the `.log` once, front to back, and computes the CRC-32C of the whole file. The leader epochs
  of the batches must agree with the leader epochs of the partition (`EpochGuard`). The error of the first failure has
  its numbers and its position.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

import google_crc32c
import numpy as np

from include.tiering.errors import FormatError, OldMagicError
from include.tiering.formats.primitive_types import Buffer
from include.tiering.formats.record_batch import (
    CRC_START,
    HEADER,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC,
    MAX_OFFSET,
    NO_TIMESTAMP,
    BatchHeader,
    Codec,
    ControlType,
    check_codec,
    check_crc,
    check_follows,
    check_frame,
    control_type,
    extend_crc32c,
    parse_header,
)
from include.tiering.model.leader_epochs import LeaderEpochEntry, LeaderEpochs
from include.tiering.model.segments import RUNNING_CRC32C_STEP_BYTES, ByteSource
from include.tiering.units import KIB

DEFAULT_BLOCK_BYTES: Final = 512 * KIB
MIN_BLOCK_BYTES: Final = KIB
_MIN_LENGTH: Final = HEADER_SIZE - LOG_OVERHEAD
_PLAIN_ATTRIBUTES: Final = frozenset(map(int, Codec))
"""Attributes with a codec and no flag, which need no further check."""

Fields = tuple[int, int, int, int, int, int, int, int, int, int, int, int, int]
"""The fields of a `BatchHeader`, in its order."""


def _refuse(error: FormatError) -> None:
    raise error


class BatchStream:
    """Iterate once, front to back, over the batches: (position in the source, header fields) of each.

    A batch is yielded after its length, magic and CRC-32C were checked; the caller checks the order of offsets. Every
    byte from `start_position` on is read once, in order.

    Args:
        source: the bytes.
        block_bytes: the size of the buffer, at least `MIN_BLOCK_BYTES`; no other memory is used for batches.
        start_position: where to begin; a batch must start there.
        on_wrong_crc: called with the error of a batch whose CRC-32C does not match its header, just before the batch is
            yielded. By default the error is raised.

    Raises, while iterating:
        OldMagicError: a batch has magic 0 or 1.
        FormatError: a batch is damaged or cut off, or bytes follow the last one (the position is the start of the batch
            or of these bytes); or the source ended before its size.
        SourceError: the source raised it.
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
        """Return the content of the buffer from the first record of the batch that was yielded last.

        `position` is that of this batch. The result is empty if the batch is larger than the buffer, because the buffer
        then holds only the end of the batch.
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
        """Move the incomplete batch to the front and read more; return False at the end of the source."""
        rest = self._filled - self._next
        self._view[:rest] = self._view[self._next : self._filled]
        self._start += self._next
        self._next = 0
        self._filled = rest + self._read(self._start + rest, rest)
        if self._filled == rest and rest > 0:
            raise self._cut_off_error()
        return self._filled > 0

    def _read(self, position: int, at: int) -> int:
        """Fill the buffer from `at` on; return the number of bytes read, 0 only at the end of the source."""
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
        """Read a batch through the buffer in pieces; bytes after it stay in the buffer."""
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


_make_header, _unpack_header, _crc32c = BatchHeader._make, HEADER.unpack_from, google_crc32c.value


class BatchBuffer:
    """Batches in one buffer, each of which is checked by itself. Nothing is copied.

    Args:
        buffer: the bytes; the checks return what they are at that moment.
    """

    def __init__(self, buffer: Buffer) -> None:
        self.view = memoryview(buffer)
        self._size_bytes = len(self.view)
        # google-crc32c takes no memoryview, but slices of an array without a copy.
        self._array = np.frombuffer(buffer, dtype=np.uint8) if len(buffer) else np.empty(0, dtype=np.uint8)

    def batch_at(self, at: int) -> BatchHeader | None:
        """Return the header of the batch at `at`, whose CRC-32C and codec were checked; None if it is incomplete.

        Raises:
            OldMagicError: the batch has magic 0 or 1.
            FormatError: the batch is damaged.
        """
        if self._size_bytes - at < HEADER_SIZE:
            return None
        header = _make_header(_unpack_header(self.view, at))
        base, length, _, magic, crc, attributes, last_offset_delta, _, _, _, _, _, records = header
        end = at + LOG_OVERHEAD + length
        if end > self._size_bytes:
            return None
        if (
            length < _MIN_LENGTH
            or magic != MAGIC
            or not 0 <= base <= MAX_OFFSET - last_offset_delta
            or last_offset_delta < 0
            or records < 0
        ):
            parse_header(self.view, at)
        if attributes not in _PLAIN_ATTRIBUTES:
            check_codec(header, at)
        if _crc32c(self._array[at + CRC_START : end]) != crc:
            check_crc(header, self.view[at:end], at)
        return header

    def extend_crc32c(self, crc32c: int, start: int, end: int) -> int:
        """Return the CRC-32C of the bytes that `crc32c` covers, followed by those from `start` to `end` (exclusive)."""
        return int(google_crc32c.extend(crc32c, self._array[start:end]))


def _size_bytes(fields: Fields) -> int:
    return LOG_OVERHEAD + fields[1]


def _crc_error(position: int, fields: Fields, crc: int) -> FormatError:
    return FormatError(f"CRC-32C of the batch at offset {fields[0]} is {crc:08x}, not {fields[4]:08x}", position)


@dataclass(frozen=True, slots=True)
class LogEnd:
    """The valid part of a `.log`.

    `log_end_offset` is exclusive: the offset that the next record would get, the file's base offset if there is no
    batch. `max_timestamp_ms` is -1 if no batch has one. `torn` is set if bytes follow the valid part; `reason` is
    then the first error in them, otherwise None.
    """

    valid_bytes: int
    log_end_offset: int
    max_timestamp_ms: int
    batch_count: int
    torn: bool
    reason: str | None


def find_log_end(source: ByteSource, *, base_offset: int, block_bytes: int = DEFAULT_BLOCK_BYTES) -> LogEnd:
    """Read and check every batch up to the first that is not valid.

    Raises:
        OldMagicError: the file begins with magic 0 or 1.
        SourceError: the source raised it.
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


@dataclass(frozen=True, slots=True)
class CheckedBatches:
    """The result of `check_segment`. Offsets are inclusive.

    An empty file has its base offset as `first_offset`, and one less as `last_offset`. `max_timestamp_ms` is -1 if no
    batch has one. `first_missing_offset` is the segment's first offset that no batch covers, None if all are covered; a
    gap comes from compaction or from a missing file. `crc32c` covers the whole file. `leader_epochs` has the epochs of
    the batches, each from the base offset of its first batch in the segment. Markers are control batches that end a
    transaction. `running_crc32c` has the checksums of the file's first `RUNNING_CRC32C_STEP_BYTES`, of its first two
    steps, etc.
    """

    size_bytes: int
    batch_count: int
    record_count: int
    first_offset: int
    last_offset: int
    max_timestamp_ms: int
    crc32c: int
    first_missing_offset: int | None
    leader_epochs: LeaderEpochs
    control_batch_count: int
    abort_marker_count: int
    commit_marker_count: int
    running_crc32c: tuple[int, ...] = field(default=(), compare=False)


def check_segment(
    source: ByteSource,
    *,
    base_offset: int,
    end_offset: int,
    leader_epochs: LeaderEpochs | None,
    block_bytes: int = DEFAULT_BLOCK_BYTES,
) -> CheckedBatches:
    """Read and check every batch of a segment.

    The checks of each batch: length, magic, CRC-32C, codec, record count, offsets (they must ascend and be within the
    segment), leader epoch, and the record of a control batch.

    Args:
        source: the `.log`.
        base_offset: the segment's first offset, inclusive.
        end_offset: the segment's last offset, inclusive.
        leader_epochs: the leader epochs of the partition; if None or empty, the only check of epochs is that they do
            not fall.
        block_bytes: the size of the read buffer.

    Raises:
        OldMagicError: a batch has magic 0 or 1.
        FormatError: a batch, or bytes after the last one, failed a check; the position is that of the first failure.
        SourceError: the source raised it.
    """
    checksummed = _ChecksummedSource(source)
    stream = BatchStream(checksummed, block_bytes)
    epochs = EpochGuard(leader_epochs)
    controls: list[ControlType] = []
    first_missing: int | None = None
    first_offset, next_offset, max_timestamp_ms, batch_count, record_count = -1, base_offset, NO_TIMESTAMP, 0, 0
    for position, fields in stream:
        base, _, epoch, _, _, attributes, last_offset_delta, _, timestamp, _, _, _, records = fields
        last = base + last_offset_delta
        if base < next_offset or last_offset_delta < 0 or last > end_offset or records < 0:
            check_follows(BatchHeader._make(fields), next_offset, position)
            raise FormatError(f"batch {base}..{last} reaches beyond the segment's end {end_offset}", position)
        if base != next_offset and first_missing is None:
            first_missing = next_offset
        if epoch != epochs.epoch or last >= epochs.end_offset:
            epochs.enter(epoch, base, last, position)
        if attributes not in _PLAIN_ATTRIBUTES:
            header = BatchHeader._make(fields)
            check_codec(header, position)
            if header.is_control:
                controls.append(_control_type(stream, position))
        if timestamp > max_timestamp_ms:
            max_timestamp_ms = timestamp
        if not batch_count:
            first_offset = base
        next_offset = last + 1
        batch_count += 1
        record_count += records
    if first_missing is None and next_offset <= end_offset:
        first_missing = next_offset
    return CheckedBatches(
        size_bytes=source.size_bytes,
        batch_count=batch_count,
        record_count=record_count,
        first_offset=first_offset if batch_count else base_offset,
        last_offset=next_offset - 1,
        max_timestamp_ms=max_timestamp_ms,
        crc32c=checksummed.crc32c,
        first_missing_offset=first_missing,
        leader_epochs=epochs.seen,
        control_batch_count=len(controls),
        abort_marker_count=controls.count(ControlType.ABORT),
        commit_marker_count=controls.count(ControlType.COMMIT),
        running_crc32c=tuple(checksummed.running_crc32c),
    )


def _control_type(stream: BatchStream, position: int) -> ControlType:
    try:
        return control_type(stream.records(position), 0)
    except FormatError as error:
        raise FormatError(error.message, position) from error


class _ChecksummedSource:
    """Compute the CRC-32C of a source that is read once, in order: of all bytes, and of the bytes up to each step."""

    def __init__(self, inner: ByteSource) -> None:
        self._inner = inner
        self.crc32c = 0
        self.running_crc32c: list[int] = []

    @property
    def size_bytes(self) -> int:
        return self._inner.size_bytes

    def read_into(self, position: int, buffer: memoryview) -> int:
        count = self._inner.read_into(position, buffer)
        left = buffer[:count]
        to_step_bytes = RUNNING_CRC32C_STEP_BYTES - position % RUNNING_CRC32C_STEP_BYTES
        while len(left) >= to_step_bytes:
            self.crc32c = extend_crc32c(self.crc32c, left[:to_step_bytes])
            self.running_crc32c.append(self.crc32c)
            left, to_step_bytes = left[to_step_bytes:], RUNNING_CRC32C_STEP_BYTES
        self.crc32c = extend_crc32c(self.crc32c, left)
        return count


_NO_EPOCH: Final = -1


class EpochGuard:
    """Compare the epochs of a segment's batches, in offset order, with the partition's leader epochs.

    `enter` need not be called for a batch of the current `epoch` whose last offset is below `end_offset`. The leader
    epochs may begin above the segment's first offset, because a broker truncates them when the log start rises. Batches
    below the first entry may have any epoch up to its epoch.
    """

    def __init__(self, history: LeaderEpochs | None) -> None:
        """If `history` is None or empty, the only check is that epochs do not fall."""
        self.epoch = _NO_EPOCH
        self.end_offset = -1
        self._history = history.entries if history is not None else ()
        self._start_offsets = [entry.start_offset for entry in self._history]
        self._seen: list[LeaderEpochEntry] = []

    @property
    def seen(self) -> LeaderEpochs:
        """The epochs of the batches, each from its first batch on, without batches that have no epoch."""
        return LeaderEpochs(tuple(self._seen))

    def enter(self, epoch: int, first_offset: int, last_offset: int, position: int) -> None:
        """Check the batch [first_offset, last_offset] at `position`, which the current epoch does not cover.

        Raises:
            FormatError: its epoch is lower than that of the previous batch, or differs from the history at its offsets.
        """
        if epoch < self.epoch:
            raise FormatError(f"leader epoch {epoch} at offset {first_offset} follows {self.epoch}", position)
        end_offset = self._checked_end(epoch, first_offset, last_offset, position)
        if epoch != self.epoch:
            self._seen.append(LeaderEpochEntry(epoch, first_offset))
        self.epoch, self.end_offset = epoch, end_offset

    def _checked_end(self, epoch: int, first_offset: int, last_offset: int, position: int) -> int:
        """Return the offset (exclusive) up to which batches of this epoch need no further check."""
        if not self._history:
            return MAX_OFFSET + 1
        found = bisect_right(self._start_offsets, last_offset) - 1
        if found < 0:
            start_offset, highest = self._history[0].start_offset, self._history[0].epoch
            if epoch > highest:
                message = (
                    f"leader epoch {epoch} at offset {first_offset}, the history has {highest} from {start_offset}"
                )
                raise FormatError(message, position)
            return start_offset
        entry = self._history[found]
        crosses = found > 0 and first_offset < entry.start_offset
        if epoch != entry.epoch or crosses:
            batch = f"leader epoch {epoch} at offsets {first_offset}..{last_offset}"
            raise FormatError(f"{batch}, the history has {entry.epoch} from {entry.start_offset}", position)
        following = self._start_offsets[found + 1 :]
        return following[0] if following else MAX_OFFSET + 1
