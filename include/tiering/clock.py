"""Clocks, which are passed as arguments so that tests neither sleep nor patch the time."""

import time
from pathlib import Path
from typing import Final, Protocol

_ELAPSED: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""Leases also expire while a host is suspended. CLOCK_BOOTTIME counts that time; CLOCK_MONOTONIC does not."""

_OF_THIS_THREAD: Final = Path("/proc/thread-self/schedstat")


class Clock(Protocol):
    """Source of wall-clock time, elapsed time and sleep."""

    def now_ms(self) -> int:
        """UTC wall clock in milliseconds since 1970. It may jump in both directions: never use it for durations."""
        ...

    def monotonic(self) -> float:
        """Seconds since an unspecified moment; never decreasing. A suspension counts if the host has CLOCK_BOOTTIME."""
        ...

    def process_seconds(self) -> float:
        """CPU seconds that this process has used so far, in all of its threads."""
        ...

    def thread_seconds(self) -> float:
        """Seconds that the calling thread has run so far, or was ready to run and waited for a processor.

        Where the host does not tell how long a thread waited for a processor, that is left out.
        """
        ...

    def sleep(self, seconds: float) -> None:
        """Wait for this time; return at once if it is negative or zero."""
        ...


class SystemClock:
    """The clock of this host."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.clock_gettime(_ELAPSED)

    def process_seconds(self) -> float:
        return time.process_time()

    def thread_seconds(self) -> float:
        try:
            ran_ns, waited_ns, _ = _OF_THIS_THREAD.read_bytes().split()
        except OSError:
            return time.thread_time()
        return (int(ran_ns) + int(waited_ns)) / 1e9

    def sleep(self, seconds: float) -> None:
        if seconds > 0:
            time.sleep(seconds)


BUSY_CORES: Final = 0.8
"""A process that uses this much of a core, or more, is limited by this machine: Python code runs in one thread at a
time."""

WINDOW_SECONDS: Final = 0.03
"""How long the use of a core is measured at least before `is_free` gives an answer."""


class CoreUse:
    """Measures in consecutive windows of time whether this machine limits this process. Not thread-safe.

    A window lasts until the first call of `is_free` that finds it long enough.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.begin()

    def begin(self) -> None:
        """Measure from now on."""
        self._began_at, self._used_seconds = self._clock.monotonic(), self._clock.process_seconds()

    def is_free(self, window_seconds: float = WINDOW_SECONDS) -> bool | None:
        """Return whether the process used less than `BUSY_CORES`; None if the window is not over.

        When a window is over, the next one begins with this call.
        """
        seconds = self._clock.monotonic() - self._began_at
        if seconds < window_seconds:
            return None
        used_seconds = self._clock.process_seconds() - self._used_seconds
        self.begin()
        return used_seconds / seconds < BUSY_CORES
