"""How bytes are spread over time at one rate. Pure: the caller says what time it is.

A byte at the rate r takes 1/r s. A sender that was delayed may make up for at most `LATE_SECONDS`; what it did not use
before is lost. It does so slowly: at a constant r of 100 bytes/s or more any second carries at most
r x (1 + CATCH_UP_SECONDS + SLICE_SECONDS), including the first, and any T seconds carry at most
r x (T + LATE_SECONDS + SLICE_SECONDS).
"""

import math
from collections import deque
from dataclasses import dataclass, field
from typing import Final

SLICE_SECONDS: Final = 0.010
"""A grant to a sender that is not late is at most this much of the rate, so that a change takes effect soon."""

CATCH_UP_SECONDS: Final = 0.040
"""How much lost time a sender may catch up at once: the pauses that uploads have.

Such a pause is a late wake-up, a response and the header of the next request, or the sending of the last grant. So a
stream that needs up to 50 ms for each grant, the slice and the catch-up, gets the whole rate."""

WINDOW_SECONDS: Final = 1.0
_MOST_OF_WINDOW: Final = 1 + (CATCH_UP_SECONDS + SLICE_SECONDS) / WINDOW_SECONDS
"""What any window may carry, as a part of what the rate alone carries. With `FILL`, a second carries at most 104.5 % of
a quota."""

_ROUNDING_SECONDS: Final = 1e-9
"""What a sum of times may be off, so that who waited until a moment is not told to wait on."""

LATE_SECONDS: Final = 0.250
_REPAYMENT: Final = 1.2
"""How much lost time a sender may make up for bit by bit, at most so much faster than the rate, within the windows.

Now and then a whole process stands still for a tenth of a second, such as for a commit. Once in five seconds, this
would cost one percent of a quota."""


@dataclass(slots=True)
class Pacer:
    """Paces one scope. Times are seconds of one monotonic clock. At a rate of 0 no byte is granted.

    Three conditions hold a grant back:

        free_at   of the rate: what was granted before takes its time, of which at most `LATE_SECONDS` are made up for
        paced_at  the same at the rate of the repayment, of which at most `CATCH_UP_SECONDS` are caught up at once
        recent    grants of the last second; all that a window may carry includes them
    """

    bytes_per_second: float
    free_at: float
    _paced_at: float = -math.inf
    _recent: deque[tuple[float, float]] = field(default_factory=deque)
    _recent_bytes: float = 0.0

    def wait_seconds(self, now: float) -> float:
        """Seconds until the next grant is possible; infinite at rate 0."""
        if self.bytes_per_second <= 0:
            return math.inf
        wait_seconds = max(0.0, self.free_at - now, self._paced_at - now)
        return max(wait_seconds, self._full_until(now + wait_seconds) - now)

    def slice_bytes(self, now: float) -> int:
        """The largest grant, at least one byte: a slice, and what a sender that is late may catch up.

        A late sender gets both in one grant, because each grant may cost it the same time again.
        """
        late_seconds = min(CATCH_UP_SECONDS, max(0.0, now - max(self.free_at, self._paced_at)))
        return max(1, int(min(self.bytes_per_second * (SLICE_SECONDS + late_seconds), self._room(now))))

    def charge(self, size_bytes: int, now: float) -> None:
        """Count bytes that are granted now."""
        self.free_at = max(self.free_at, now - LATE_SECONDS) + size_bytes / self.bytes_per_second
        paced_seconds = size_bytes / self.bytes_per_second / _REPAYMENT
        self._paced_at = max(self._paced_at, now - CATCH_UP_SECONDS) + paced_seconds
        self._forget_old(now)
        self._recent.append((now, size_bytes))
        self._recent_bytes += size_bytes

    def change(self, bytes_per_second: float, now: float) -> None:
        """Continue at another rate, at which the next grant first waits for the bytes already granted ahead of time.

        For these it waits at most for one slice, so a change of the rate (not to 0) causes no long pause. At a higher
        rate lost time is worth as many bytes as before. At a lower one it is worth fewer, and what the window has
        carried counts as if it had been granted at the new rate.
        """
        before, self.bytes_per_second = self.bytes_per_second, bytes_per_second
        if bytes_per_second <= 0:
            return
        pending_bytes = max(0.0, self.free_at - now) * before
        late_seconds = max(0.0, now - self.free_at) * min(1.0, before / bytes_per_second)
        self.free_at = now - late_seconds
        self._paced_at = min(self._paced_at, now)
        if pending_bytes:
            self.free_at += min(pending_bytes, self.bytes_per_second * SLICE_SECONDS) / bytes_per_second
        if bytes_per_second < before:
            part = bytes_per_second / before
            self._recent = deque((at, size_bytes * part) for at, size_bytes in self._recent)
            self._recent_bytes *= part

    def _room(self, now: float) -> float:
        """Return the bytes that may be granted now so that no window carries too many."""
        if self.bytes_per_second * SLICE_SECONDS < 1:
            return math.inf  # A slice is rounded up to a byte, which may be more than a window.
        self._forget_old(now)
        return self._window_bytes - self._recent_bytes

    @property
    def _window_bytes(self) -> float:
        return self.bytes_per_second * WINDOW_SECONDS * _MOST_OF_WINDOW

    def _full_until(self, now: float) -> float:
        """Return when the window has room for a slice; `now` if it has."""
        slice_bytes, until = self.bytes_per_second * SLICE_SECONDS, now
        if slice_bytes < 1:
            return until
        missing_bytes = slice_bytes + self._recent_bytes - self._window_bytes
        for at, size_bytes in self._recent:
            if missing_bytes <= 0:
                break
            until, missing_bytes = max(now, at + WINDOW_SECONDS), missing_bytes - size_bytes
        return until

    def _forget_old(self, now: float) -> None:
        while self._recent and self._recent[0][0] + WINDOW_SECONDS <= now + _ROUNDING_SECONDS:
            self._recent_bytes -= self._recent.popleft()[1]
        if not self._recent:
            self._recent_bytes = 0.0  # Not what rounding left.
