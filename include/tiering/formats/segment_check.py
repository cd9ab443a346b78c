"""The check pass over a rolled segment: every batch is sound and in its place, and not one byte is left over.

Reads the `.log` once, front to back, and derives the CRC-32C of the whole file on the way. The leader epochs in the
batches must agree with the partition's history (`EpochGuard`). The first rule that breaks is named with its numbers and
its position.
"""

from bisect import bisect_right
from dataclasses import dataclass, field
from typing import Final

from include.tiering.errors import FormatError
from include.tiering.formats.crc32c import extend_crc32c
from include.tiering.formats.log_batches import DEFAULT_BLOCK_BYTES, BatchStream
from include.tiering.formats.record_batch import (
    MAX_OFFSET,
    NO_TIMESTAMP,
    BatchHeader,
    Codec,
    ControlType,
    check_codec,
    check_follows,
    control_type,
)
from include.tiering.model.leader_epochs import LeaderEpochEntry, LeaderEpochs
from include.tiering.model.segments import RUNNING_CRC32C_STEP_BYTES, ByteSource

_PLAIN_ATTRIBUTES: Final = frozenset(map(int, Codec))
"""A codec and nothing else: such a batch needs no second look."""


@dataclass(frozen=True, slots=True)
class CheckedBatches:
    """What the batches of one segment say. Offsets are inclusive.

    An empty file has `first_offset` = its base offset and `last_offset` one less. `max_timestamp_ms` is -1 if no batch
    has one. `first_missing_offset` is the first of the segment that no batch covers: compaction leaves such holes, or a
    file that is gone. `crc32c` is that of the whole file. `leader_epochs` has the epochs of the batches, each from the
    base offset of its first batch here. Markers are the control batches that end a transaction. `running_crc32c` holds
    the checksums of the file's first `RUNNING_CRC32C_STEP_BYTES`, of its first two steps, and so on.
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
    """Reads and checks every batch of the segment [base_offset, end_offset].

    Each batch: length, magic, CRC-32C, a known codec, offsets that ascend inside the segment, and the leader epoch that
    the partition's history has for them (None: no history is known, epochs must only ascend).

    Raises:
        OldMagicError: at a batch of magic 0 or 1.
        FormatError: at the first batch, or rest of one, that breaks a rule.
        SourceError: what the source raises.
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
    """CRC-32C of all that was read, and of what was read up to each step, if it was read once and in order."""

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
    """Follows the batches of a segment in order.

    A batch of the current `epoch` whose last offset is below `end_offset` needs no call. A history that was cut at the
    front (the log start moved up) tells of the batches before it only how high their epochs may be.
    """

    def __init__(self, history: LeaderEpochs | None) -> None:
        """`history` None or empty: epochs must only not fall."""
        self.epoch = _NO_EPOCH
        self.end_offset = -1
        self._history = history.entries if history is not None else ()
        self._start_offsets = [entry.start_offset for entry in self._history]
        self._seen: list[LeaderEpochEntry] = []

    @property
    def seen(self) -> LeaderEpochs:
        """The epochs of the batches, each from its first batch on; batches without an epoch are left out."""
        return LeaderEpochs(tuple(self._seen))

    def enter(self, epoch: int, first_offset: int, last_offset: int, position: int) -> None:
        """Takes the batch [first_offset, last_offset] at `position`, which the current epoch does not cover.

        Raises:
            FormatError: an epoch that falls, or another than the history has for these offsets.
        """
        if epoch < self.epoch:
            raise FormatError(f"leader epoch {epoch} at offset {first_offset} follows {self.epoch}", position)
        end_offset = self._checked_end(epoch, first_offset, last_offset, position)
        if epoch != self.epoch:
            self._seen.append(LeaderEpochEntry(epoch, first_offset))
        self.epoch, self.end_offset = epoch, end_offset

    def _checked_end(self, epoch: int, first_offset: int, last_offset: int, position: int) -> int:
        """First offset (exclusive end) at which the history must be asked again."""
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
