"""Clocks, which are passed as arguments so that tests neither sleep nor patch the time."""

import time
from typing import Final, Protocol

_ELAPSED: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""Leases expire while a host is suspended, but Linux's CLOCK_MONOTONIC would stand still."""


class Clock(Protocol):
    """Source of wall-clock time, elapsed time and sleep."""

    def now_ms(self) -> int:
        """UTC wall clock in milliseconds since 1970. May step; never use it for durations."""
        ...

    def monotonic(self) -> float:
        """Seconds from an unspecified start that never decrease; they include suspension if the host supports that."""
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
