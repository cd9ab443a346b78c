"""Offsets that an archive goes on without, by decision: the source lost them before they were copied.

A decision permits a gap; it does not say that there is one. What the source has after all is copied, and then answers.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple


class OffsetRange(NamedTuple):
    """Both inclusive."""

    first: int
    last: int

    def __str__(self) -> str:
        return f"{self.first}..{self.last}"

    @property
    def size(self) -> int:
        return self.last - self.first + 1


@dataclass(frozen=True, slots=True)
class SkippedOffsets:
    """One decision about a partition. `recorded_at_ms` is a time of the database.

    Raises:
        ValueError: a negative offset, or no offset at all.
    """

    offsets: OffsetRange
    reason: str
    author: str
    recorded_at_ms: int

    def __post_init__(self) -> None:
        if not 0 <= self.offsets.first <= self.offsets.last:
            raise ValueError(f"offsets {self.offsets} are no hole")


def not_skipped(first_offset: int, last_offset: int, decisions: Sequence[SkippedOffsets]) -> tuple[OffsetRange, ...]:
    """What of the offsets from first to last, both inclusive, no decision covers, ascending. Empty if all is covered.

    Decisions may come in any order, and overlap.
    """
    return without(OffsetRange(first_offset, last_offset), [decision.offsets for decision in decisions])


def without(offsets: OffsetRange, holes: Sequence[OffsetRange]) -> tuple[OffsetRange, ...]:
    """What is left of the range without the holes, ascending. Holes may come in any order, and overlap."""
    first_offset, last_offset = offsets
    left = []
    for hole in sorted(holes):
        if hole.first > first_offset:
            left.append(OffsetRange(first_offset, min(hole.first - 1, last_offset)))
        first_offset = max(first_offset, hole.last + 1)
    left.append(OffsetRange(first_offset, last_offset))
    return tuple(part for part in left if part.first <= part.last)


def decision_about(offset: int, decisions: Sequence[SkippedOffsets]) -> SkippedOffsets | None:
    """The decision that covers this offset."""
    return next((one for one in decisions if one.offsets.first <= offset <= one.offsets.last), None)
