"""The log of a partition as remote storage has it: which served segment a consumer's records come from, and gaps.

A partition may have several copies of the same offsets: after a leader change the new leader's segment is copied whole,
and decisions to follow another history (`model.histories`) leave the replaced one where it is. A `ServedPart` is a
segment with the offsets that are read from it. The parts of a partition ascend and do not overlap:

    segments     0 ....... 99                       200 ....... 299
                      50 ......... 149
    parts        0 ....... 99|100..149    gap       200 ....... 299

Only FINISHED segments with a verdict that is served count. Offsets without one are a gap if parts follow it. This
module decides, without I/O, as `fetch.RecordReader` does for one offset after another.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from include.tiering.model.histories import (
    Divergence,
    OffsetRange,
    SkippedOffsets,
    decision_about,
    history_at,
    same_before,
    without,
)
from include.tiering.model.segments import RemoteLogSegmentMetadata
from include.tiering.segments.contract import SegmentRow


@dataclass(frozen=True, slots=True)
class ServedPart:
    """A segment, and the offsets that are read from it, both inclusive. Compaction may have left some without record.

    Raises:
        ValueError: there are no such offsets, or the segment does not have them.
    """

    segment: RemoteLogSegmentMetadata
    first_offset: int
    last_offset: int

    def __post_init__(self) -> None:
        if not self.segment.start_offset <= self.first_offset <= self.last_offset <= self.segment.end_offset:
            offsets = f"{self.segment.start_offset}..{self.segment.end_offset}"
            raise ValueError(f"offsets {self.first_offset}..{self.last_offset} are no part of {offsets}")

    @property
    def is_whole(self) -> bool:
        """Whether these are all offsets of the segment."""
        return (self.first_offset, self.last_offset) == (self.segment.start_offset, self.segment.end_offset)

    def within(self, first_offset: int, last_offset: int) -> "ServedPart | None":
        """Return the part of it within these offsets, both inclusive; None if there is none."""
        first, last = max(self.first_offset, first_offset), min(self.last_offset, last_offset)
        return ServedPart(self.segment, first, last) if first <= last else None


def served_parts(
    rows: Iterable[SegmentRow],
    divergences: Sequence[Divergence] = (),
    skipped: Sequence[SkippedOffsets] = (),
    *,
    log_start_offset: int = 0,
) -> tuple[ServedPart, ...]:
    """Return the parts of a partition, ascending.

    Each offset is read in the history that it belongs to. Where this history has no served segment, a later history's
    is read, if the two were compared and have the same records there. A segment is not read below its first leader
    epoch, because the log began there when it was copied.

    Args:
        rows: segments of one partition, in any state and order.
        divergences: those recorded for the partition.
        skipped: decisions to skip offsets of it; there, histories were not compared.
        log_start_offset: records below it count as deleted.
    """
    served = [row for row in rows if row.metadata.is_finished and row.verdict.is_served]
    starts = sorted({log_start_offset, *_starts_of_histories(divergences, log_start_offset)})
    highest = max((row.metadata.end_offset for row in served), default=-1)
    ends = [*(start - 1 for start in starts[1:]), max(highest, starts[-1])]
    parts: list[ServedPart] = []
    for start, end in zip(starts, ends, strict=True):
        parts += _cover(_readable(served, OffsetRange(start, end), divergences, skipped))
    return tuple(parts)


def _starts_of_histories(divergences: Iterable[Divergence], above: int) -> Iterator[int]:
    for divergence in divergences:
        if divergence.followed is not None and divergence.followed.from_offset > above:
            yield divergence.followed.from_offset


def _readable(
    rows: Iterable[SegmentRow],
    offsets: OffsetRange,
    divergences: Sequence[Divergence],
    skipped: Sequence[SkippedOffsets],
) -> list[ServedPart]:
    """Return what can be read of each segment within offsets that belong to one history."""
    history = history_at(offsets.first, divergences)
    holes = [decision.offsets for decision in skipped]
    found = []
    for row in rows:
        if row.history < history:
            continue
        first = max(row.metadata.first_readable_offset, offsets.first)
        readable = OffsetRange(first, min(row.metadata.end_offset, offsets.last))
        pieces: Iterable[OffsetRange] = (readable,)
        if row.history > history:
            last = min(readable.last, same_before(history, row.history, divergences) - 1)
            pieces = without(OffsetRange(readable.first, last), holes)
        found += [ServedPart(row.metadata, *piece) for piece in pieces if piece.first <= piece.last]
    return found


def _cover(readable: Iterable[ServedPart]) -> Iterator[ServedPart]:
    """Yield non-overlapping parts: at each offset the one that reaches highest, and as few as possible."""
    waiting = sorted(readable, key=lambda part: (part.first_offset, -part.last_offset))
    next_offset, at = 0, 0
    best: ServedPart | None = None
    while at < len(waiting) or best is not None:
        while at < len(waiting) and (best is None or waiting[at].first_offset <= next_offset):
            if best is None:
                next_offset = max(next_offset, waiting[at].first_offset)
            if best is None or waiting[at].last_offset > best.last_offset:
                best = waiting[at]
            at += 1
        if best is not None:
            if (part := best.within(next_offset, best.last_offset)) is not None:
                yield part
                next_offset = part.last_offset + 1
            best = None


def gaps_between(parts: Sequence[ServedPart]) -> tuple[OffsetRange, ...]:
    """Return the offsets between the parts that none of them has, ascending."""
    return tuple(
        OffsetRange(part.last_offset + 1, after.first_offset - 1)
        for part, after in pairwise(parts)
        if after.first_offset > part.last_offset + 1
    )


def said_of_gap(gap: OffsetRange, rows: Iterable[SegmentRow], skipped: Sequence[SkippedOffsets]) -> str:
    """Return a sentence about why offsets cannot be read."""
    return f"offsets {gap}: {_why_lost(gap, rows, skipped)}"


def _why_lost(gap: OffsetRange, rows: Iterable[SegmentRow], skipped: Sequence[SkippedOffsets]) -> str:
    for row in rows:
        segment = row.metadata
        if segment.is_finished and segment.first_readable_offset <= gap.last and segment.end_offset >= gap.first:
            ids = f"{segment.remote_log_segment_id.id} ({segment.start_offset}..{segment.end_offset})"
            if not row.verdict.is_served:
                return f"segment {ids} is not served: its verdict is {row.verdict}; ./tiering verify verifies it"
    decision = decision_about(gap.first, skipped)
    if decision is not None:
        return f"{decision.offsets} were skipped by {decision.author} ({decision.reason})"
    return "no segment in remote storage has them"
