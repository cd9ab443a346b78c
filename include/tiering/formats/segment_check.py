"""The check pass over a rolled segment: every batch is sound and in its place, and not one byte is left over.

Reads the `.log` once, front to back, and derives the CRC-32C of the whole file on the way. The first rule that breaks
is named with its numbers and its position.
"""

from dataclasses import dataclass, field
from typing import Final

from include.tiering.errors import FormatError
from include.tiering.formats.batch_stream import DEFAULT_BLOCK_BYTES, BatchStream
from include.tiering.formats.crc32c import extend_crc32c
from include.tiering.formats.epoch_guard import EpochGuard
from include.tiering.formats.record_batch import (
    NO_TIMESTAMP,
    BatchHeader,
    Codec,
    ControlType,
    check_codec,
    check_follows,
    control_type,
)
from include.tiering.model.leader_epochs import LeaderEpochs
from include.tiering.model.segment_data import RUNNING_CRC32C_STEP_BYTES, ByteSource

_PLAIN_ATTRIBUTES: Final = frozenset(map(int, Codec))
"""A codec and nothing else: such a batch needs no second look."""


@dataclass(frozen=True, slots=True)
class SegmentFacts:
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
) -> SegmentFacts:
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
    return SegmentFacts(
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
