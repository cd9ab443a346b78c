"""How bytes are spread over time at one rate. Pure: the caller says what time it is.

A byte at the rate r takes 1/r s. A sender that was delayed makes up for at most `CATCH_UP_SECONDS` of the lost time at
once, and for at most `LATE_SECONDS` slowly; what it did not use before that is lost for good. So at a constant r of 100
bytes/s or more, any T seconds, including the first, carry at most the smaller of

    r x MAKE_UP x (T + CATCH_UP_SECONDS) + r x SLICE_SECONDS       for T = 1 s: 1.0453 r
    r x (T + LATE_SECONDS + SLICE_SECONDS)
"""

import math
from dataclasses import dataclass, field
from typing import Final

SLICE_SECONDS: Final = 0.010
"""A grant to a sender that is not late is at most this much of the rate, so that a change takes effect soon."""

CATCH_UP_SECONDS: Final = 0.020
"""How much lost time a sender may catch up at once: the pauses that uploads have.

Such a pause is a late wake-up, a response and the header of the next request, or the sending of the last grant. So a
stream that needs up to 30 ms for each grant, the slice and the catch-up, gets the whole rate."""

LATE_SECONDS: Final = 0.250
MAKE_UP: Final = 1.015
"""How much lost time a sender may make up for bit by bit, and how much faster than the rate.

Now and then a whole process stands still for a tenth of a second or more, such as for a commit of its database. Without
this, one such pause in ten seconds would cost a quota one percent. Making up has to be slow: bytes may arrive some
hundredths of a second after they were granted, and so a little closer together."""


@dataclass(slots=True)
class Pacer:
    """Paces one scope. Times are seconds of one monotonic clock. At a rate of 0 no byte is granted.

    Two times hold a grant back:

        free_at    when the granted bytes have had their time at the rate; at most `LATE_SECONDS` of lost time count
        smooth_at  the same at the rate x `MAKE_UP`; at most `CATCH_UP_SECONDS` of lost time count
    """

    bytes_per_second: float
    free_at: float
    smooth_at: float = field(init=False)

    def __post_init__(self) -> None:
        self.smooth_at = self.free_at

    def wait_seconds(self, now: float) -> float:
        """Seconds until the next grant is possible; infinite at rate 0."""
        return max(0.0, self.due_seconds(now))

    def due_seconds(self, now: float) -> float:
        """The same, and negative if the next grant has been possible for a while."""
        return self._next_at - now if self.bytes_per_second > 0 else math.inf

    def slice_bytes(self, now: float) -> int:
        """The largest grant, at least one byte: a slice, and what a sender that is late may catch up.

        A late sender gets both in one grant, because each grant may cost it the same time again.
        """
        late_seconds = min(CATCH_UP_SECONDS, max(0.0, now - self._next_at))
        return max(1, int(self.bytes_per_second * (SLICE_SECONDS + late_seconds)))

    def charge(self, size_bytes: int, now: float) -> None:
        """Count bytes that are granted now."""
        seconds = size_bytes / self.bytes_per_second
        self.free_at = max(self.free_at, now - LATE_SECONDS) + seconds
        self.smooth_at = max(self.smooth_at, now - CATCH_UP_SECONDS) + seconds / MAKE_UP

    def change(self, bytes_per_second: float, now: float) -> None:
        """Continue at another rate, at which the next grant first waits for the bytes already granted ahead of time.

        For these it waits at most for one slice, so a change of the rate (not to 0) causes no long pause. Lost time is
        worth no more bytes than before.
        """
        before, self.bytes_per_second = self.bytes_per_second, bytes_per_second
        if bytes_per_second > 0:
            part = before / bytes_per_second
            self.free_at = _after_change(self.free_at, now, part)
            self.smooth_at = _after_change(self.smooth_at, now, part)

    def lost_seconds(self, now: float) -> float:
        """Return for how long bytes could have been granted and were not."""
        return max(0.0, now - self.free_at)

    def forget_lost_time(self, now: float, *, but: float = 0.0) -> None:
        """Keep at most `but` seconds of lost time to make up for; what can be caught up at once is kept in any case."""
        self.free_at = max(self.free_at, now - max(but, CATCH_UP_SECONDS))

    @property
    def _next_at(self) -> float:
        return max(self.free_at, self.smooth_at)


def _after_change(at: float, now: float, part: float) -> float:
    """Return the time that stands for `at` after a change of the rate.

    Args:
        at: when the granted bytes have had their time at the old rate; if that is in the past, time is lost since then.
        now: the time of the change.
        part: the rate before as a part of the rate from now on.
    """
    if at > now:
        return now + min((at - now) * part, SLICE_SECONDS)
    return now - (now - at) * min(1.0, part)
