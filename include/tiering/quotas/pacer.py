"""How bytes of one rate are spread inside the second: pure arithmetic, no clock.

A byte at the rate r takes 1/r seconds. The pacer keeps the moment at which the next byte may leave; each grant moves it
on by the time that its bytes take. A sender that was held up may catch up by `CATCH_UP_SECONDS`, no more: what a longer
silence did not use is lost. So any T seconds carry at most r x (T + CATCH_UP_SECONDS + SLICE_SECONDS), the first
included.
"""

from dataclasses import dataclass
from typing import Final

SLICE_SECONDS: Final = 0.010
"""A grant is at most this much of the rate, so that a change of the rate bites at once."""

CATCH_UP_SECONDS: Final = 0.030
"""About a late wake-up, or an answer and the head of the next request: the pauses that every upload has."""


@dataclass(slots=True)
class Pacer:
    """Times are seconds of one monotonic clock. A rate of 0 grants nothing."""

    bytes_per_second: float
    free_at: float

    def wait_seconds(self, now: float) -> float:
        """Seconds until the next grant; infinite at rate 0."""
        return max(0.0, self.free_at - now) if self.bytes_per_second > 0 else float("inf")

    def slice_bytes(self) -> int:
        """The most that one grant may hold, at least one byte."""
        return max(1, int(self.bytes_per_second * SLICE_SECONDS))

    def charge(self, size_bytes: int, now: float) -> None:
        """Count bytes that leave now."""
        self.free_at = max(self.free_at, now - CATCH_UP_SECONDS) + size_bytes / self.bytes_per_second

    def change(self, bytes_per_second: float, now: float) -> None:
        """Go on at another rate: what was granted and is not yet waited for takes its time at the new one.

        That is at most the time of one slice, so neither a fall nor a rise of the rate leaves a silence or a burst.
        """
        pending_bytes = max(0.0, self.free_at - now) * self.bytes_per_second
        self.bytes_per_second = bytes_per_second
        if bytes_per_second > 0:
            self.free_at = min(self.free_at, now) + min(pending_bytes, self.slice_bytes()) / bytes_per_second
