"""Time as an argument: every task takes a `Clock`, so no test sleeps and none patches."""

import time
from typing import Final, Protocol

_ELAPSED: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""Leases end while a host is suspended: Linux's CLOCK_MONOTONIC would stand still."""


class Clock(Protocol):
    """Source of wall-clock time, elapsed time and sleep."""

    def now_ms(self) -> int:
        """UTC wall clock in milliseconds since 1970. May step; never use it for durations."""
        ...

    def monotonic(self) -> float:
        """Seconds that never go back, from an unspecified start; they go on while the host sleeps if it can tell."""
        ...

    def sleep(self, seconds: float) -> None:
        """Wait; a negative or zero value returns at once."""
        ...


class SystemClock:
    """The clock of this host."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.clock_gettime(_ELAPSED)

    def sleep(self, seconds: float) -> None:
        if seconds > 0:
            time.sleep(seconds)
