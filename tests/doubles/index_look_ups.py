"""What look-ups in the indexes of a segment lead to, by the rules of a broker: an index entry, and a scan from there.

Nothing of the product looks anything up here. Source: Kafka's LogSegment (`translateOffset`, `findOffsetByTimestamp`),
OffsetIndex, TimeIndex and FileRecords.
"""

import struct
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from include.tiering.formats.indexes import trim_offset_index, trim_time_index
from include.tiering.formats.record_batch import HEADER_SIZE
from include.tiering.formats.records import Decompressor, records_of
from tests.doubles.leader_logs import headers_of

_OFFSET_ENTRY: Final = struct.Struct(">ii")
_TIME_ENTRY: Final = struct.Struct(">qi")


@dataclass(frozen=True)
class Indexes:
    """The two files of a segment; unused entries at their ends do not count."""

    offset_index: bytes
    time_index: bytes

    def offsets(self, base: int) -> list[tuple[int, int]]:
        """Offsets with the positions of their batches."""
        entries = _OFFSET_ENTRY.iter_unpack(trim_offset_index(self.offset_index))
        return [(base + relative, position) for relative, position in entries]

    def times(self, base: int) -> list[tuple[int, int]]:
        """Timestamps with the offsets of their records."""
        entries = _TIME_ENTRY.iter_unpack(trim_time_index(self.time_index))
        return [(timestamp_ms, base + relative) for timestamp_ms, relative in entries]


class _Batch(NamedTuple):
    position: int
    base_offset: int
    last_offset: int
    largest_ms: int
    records: list[tuple[int, int]]


class Difference(NamedTuple):
    """A look-up of an offset or a timestamp, and what each index leads to: an offset, None without a record."""

    wanted: str
    ours: int | None
    theirs: int | None


class SegmentLookUps:
    """Every look-up that can be told apart, in the indexes of one segment.

    Args:
        base: the segment's base offset.
        log: its `.log`.
    """

    def __init__(self, base: int, log: bytes) -> None:
        decompressor = Decompressor()
        self._base = base
        self._batches = []
        for position, header in headers_of(log):
            payload = memoryview(log)[position + HEADER_SIZE : position + header.size_bytes]
            records = [(record.timestamp_ms, record.offset) for record in records_of(header, payload, decompressor)]
            self._batches.append(
                _Batch(position, header.base_offset, header.last_offset, header.max_timestamp, records)
            )
        self._positions = [batch.position for batch in self._batches]

    def differences(self, ours: Indexes, theirs: Indexes) -> Iterator[Difference]:
        """Look up every offset of the segment, and every timestamp of a record with its neighbours."""
        our_offsets, their_offsets = ours.offsets(self._base), theirs.offsets(self._base)
        our_times, their_times = ours.times(self._base), theirs.times(self._base)
        end = self._batches[-1].last_offset
        for offset in range(self._base, end + 2):
            found = self._batch_of(our_offsets, offset), self._batch_of(their_offsets, offset)
            if found[0] != found[1]:
                yield Difference(f"offset {offset}", *found)
        seen = {timestamp_ms for batch in self._batches for timestamp_ms, _ in batch.records}
        for timestamp_ms in sorted({near for known in seen for near in (known - 1, known, known + 1)}):
            # From the log start, which may lie in the middle of the segment.
            for start in (self._base, (self._base + end) // 2):
                found = (
                    self._record_from(our_offsets, our_times, timestamp_ms, start),
                    self._record_from(their_offsets, their_times, timestamp_ms, start),
                )
                if found[0] != found[1]:
                    yield Difference(f"timestamp {timestamp_ms} from offset {start} on", *found)

    def _batch_of(self, offsets: list[tuple[int, int]], offset: int) -> int | None:
        """Return the base offset of the first batch that does not end below the offset."""
        scanned = self._from(_position(offsets, offset))
        return next((batch.base_offset for batch in scanned if batch.last_offset >= offset), None)

    def _record_from(
        self, offsets: list[tuple[int, int]], times: list[tuple[int, int]], timestamp_ms: int, start: int
    ) -> int | None:
        """Return the first offset from `start` on whose record has at least this timestamp."""
        number = bisect_right(times, timestamp_ms, key=lambda entry: entry[0]) - 1
        after = times[number][1] if number >= 0 else self._base
        for batch in self._from(_position(offsets, max(after, start))):
            if batch.largest_ms >= timestamp_ms and batch.last_offset >= start:
                for record_ms, offset in batch.records:
                    if record_ms >= timestamp_ms and offset >= start:
                        return offset
        return None

    def _from(self, position: int) -> Iterator[_Batch]:
        """Return the batches from a position on; none if no batch begins there."""
        number = bisect_left(self._positions, position)
        if number < len(self._positions) and self._positions[number] == position:
            yield from self._batches[number:]


def _position(offsets: list[tuple[int, int]], offset: int) -> int:
    number = bisect_right(offsets, offset, key=lambda entry: entry[0]) - 1
    return offsets[number][1] if number >= 0 else 0
