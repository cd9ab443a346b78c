"""Time as an argument: every task takes a `Clock`, so no test sleeps and none patches."""

import time
from typing import Protocol


class Clock(Protocol):
    """Source of wall-clock time, elapsed time and sleep."""

    def now_ms(self) -> int:
        """UTC wall clock in milliseconds since 1970. May step; never use it for durations."""
        ...

    def monotonic(self) -> float:
        """Seconds that never go back, from an unspecified start."""
        ...

    def sleep(self, seconds: float) -> None:
        """Wait; a negative or zero value returns at once."""
        ...


class SystemClock:
    """The clock of this host."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        if seconds > 0:
            time.sleep(seconds)
