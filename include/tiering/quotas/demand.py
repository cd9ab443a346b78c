"""How much of a rate a process asks for next, from what it used of its share: pure arithmetic, no clock."""

from dataclasses import dataclass
from typing import Final

ALL_THERE_IS: Final = float("inf")

_FULL_USE: Final = 0.98
"""A share of which this part was used holds its owner up."""

_SPARE: Final = 0.10
_MOST_SPARE_OF_QUOTA: Final = 0.002
"""Room above what a slow sender uses: enough to see it grow, too little to keep from the busy ones."""


@dataclass(slots=True)
class DemandMeter:
    """The use of one scope by one process between two rounds of the ledger."""

    used_bytes: int = 0
    waiting: int = 0
    _last_rate: float = 0.0

    def wanted(self, seconds: float, share: float, quota: float) -> float:
        """Bytes a second to ask for, 0 if idle, `ALL_THERE_IS` if the share held the sender up; begins a new period.

        `seconds` is the length of the period that ends now, `share` what was held in it, `quota` that of the scope.
        A sender may pause between two segments: the faster one of the last two periods counts.
        """
        rate = self.used_bytes / seconds if seconds > 0 else 0.0
        usual_rate, self._last_rate, self.used_bytes = max(rate, self._last_rate), rate, 0
        if self.waiting and rate >= _FULL_USE * share:
            return ALL_THERE_IS
        return usual_rate + min(_SPARE * usual_rate, _MOST_SPARE_OF_QUOTA * quota)
