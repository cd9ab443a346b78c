"""Whose turn it is: a share of all segments in each period, and over time every one of them.

Each segment has its place on a circle of 2^64 places, by its id alone. Periods are numbered; each is an arc as long as
the share, and begins where the one before it ended:

    period 0 |---- 0.3 ----|
    period 1               |---- 0.3 ----|
    period 2                             |---- 0.3 ----|
    period 3 ---- 0.2 ---|                             |0.1-     it goes on from the beginning

So any ceil(1 / share) consecutive periods take every segment at least once, whatever was added or deleted meanwhile,
and a period takes about the share of the bytes: places are spread evenly, and know nothing of sizes.
"""

import hashlib
from dataclasses import dataclass
from fractions import Fraction
from typing import Final, Self

from include.tiering.model.ids import RemoteLogSegmentId

PLACES: Final = 2**64
_MOST_DENOMINATOR: Final = 10**9


@dataclass(frozen=True, slots=True)
class Turn:
    """The arc of one period: `length` places from `first` on."""

    first: int
    length: int

    @classmethod
    def of(cls, share: float, period: int) -> Self:
        """Raises ValueError for a share that is not above 0 and at most 1."""
        if not 0 < share <= 1:
            raise ValueError(f"share {share} is not above 0 and at most 1")
        exact = Fraction(share).limit_denominator(_MOST_DENOMINATOR)
        begin, end = (int(number * exact * PLACES) for number in (period, period + 1))
        return cls(begin % PLACES, end - begin)

    def holds(self, segment_id: RemoteLogSegmentId) -> bool:
        """Whether it is this segment's turn."""
        return (place_of(segment_id) - self.first) % PLACES < self.length


def place_of(segment_id: RemoteLogSegmentId) -> int:
    """0 to 2^64 - 1."""
    return int.from_bytes(hashlib.blake2b(segment_id.id.value, digest_size=8).digest())
