"""Writes what a process recorded into the database: just after each minute, and when the app closes.

A process that is killed loses what it recorded since the last write, about a minute. If a write fails, what it held is
written with the next one; a process that ends without the database loses it. No work waits for a write or fails by it.
"""

import os
import threading
import time
from collections.abc import Callable
from typing import Final

from include.tiering.clock import Clock
from include.tiering.errors import TieringError
from include.tiering.series.contract import SeriesStore
from include.tiering.telemetry import get_logger
from include.tiering.telemetry.metrics import MINUTE_MS, MetricsRecorder

_log: Final = get_logger(__name__)
_PHASES: Final = 32
_LONGEST_PHASE_SECONDS: Final = 8.0


class MetricsWriter:
    """Writes what `recorder` collects.

    Attributes:
        recorder: collects the metrics of this process.
    """

    def __init__(self, store: Callable[[], SeriesStore], clock: Clock) -> None:
        self.recorder = MetricsRecorder(clock, self._start)
        self._store = store
        self._clock = clock
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._ended = threading.Event()

    def write(self) -> None:
        """Write what was recorded since the last write. A failure is logged, and tried again by the next write."""
        with self._lock:
            recorded = self.recorder.drain()
            if not recorded:
                return
            try:
                self._store().write(recorded, now_ms=self._clock.now_ms())
            except TieringError as error:
                self.recorder.put_back(recorded)
                _log.warning("metrics are not written: %s", error)

    def close(self) -> None:
        """End the thread, and write what is left."""
        self._ended.set()
        if self._thread is not None and self._thread.is_alive():
            self._thread.join()
        self.write()

    def _start(self) -> None:
        """Start the thread unless it runs in this process: a forked child gets a thread of its own."""
        if self._ended.is_set() or (self._thread is not None and self._thread.is_alive()):
            return
        self._thread = threading.Thread(target=self._run, name="metrics-writer", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._ended.wait(seconds_to_next_write(time.time(), os.getpid())):
            self.write()


def seconds_to_next_write(now_seconds: float, process_id: int) -> float:
    """Return how long to wait until the next minute has ended and it is this process's moment to write.

    The moments of processes differ, so that not all write at once; all are well within `rules.SETTLED_MS`.
    """
    phase = 1.0 + process_id % _PHASES / _PHASES * _LONGEST_PHASE_SECONDS
    minute_seconds = MINUTE_MS / 1000
    return minute_seconds - (now_seconds - phase) % minute_seconds
