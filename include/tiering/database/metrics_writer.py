"""The writer of metrics: it writes into `metric_series` what this process recorded.

It writes just after each minute, and when the app closes. A process that is killed loses what it recorded since the
last write, about a minute. If a write fails, the next write also has the values of the failed one. They are lost if the
process ends while the database cannot be reached. A failed write fails no work of the process, and no work waits for a
write; only the end of the process does, for at most a few seconds.
"""

import os
import threading
import time
from collections.abc import Callable
from typing import Final

from include.tiering.clock import Clock
from include.tiering.database.metric_series import MetricSeries
from include.tiering.errors import TieringError
from include.tiering.telemetry import get_logger
from include.tiering.telemetry.metrics import MINUTE_MS, MetricsRecorder

_log: Final = get_logger(__name__)
WRITER_PATIENCE_MS: Final = 2_000
"""The longest wait of the writer for a lock and, on PostgreSQL, for each statement: a command must not end late."""

_MOST_CLOSE_SECONDS: Final = 5.0
_PHASES: Final = 32
_LONGEST_PHASE_SECONDS: Final = 8.0


class MetricsWriter:
    """Writes what `recorder` collects.

    Attributes:
        recorder: collects the metrics of this process.
    """

    def __init__(self, store: Callable[[], MetricSeries], clock: Clock) -> None:
        self.recorder = MetricsRecorder(clock, self._start)
        self._store = store
        self._lock = threading.Lock()
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None
        self._is_warned = False
        self._gives_up = False
        self._ended = threading.Event()

    @property
    def series(self) -> MetricSeries:
        """The metrics of all processes."""
        return self._store()

    def write(self) -> None:
        """Write what was recorded since the last write. A failure is logged, and tried again by the next write."""
        with self._lock:
            recorded = self.recorder.drain()
            if not recorded:
                return
            try:
                self.series.write(recorded)
            except Exception as error:  # noqa: BLE001
                self.recorder.put_back(recorded)
                self._gives_up = self._ended.is_set()
                if isinstance(error, TieringError):
                    _log.warning("metrics are not written: %s", error)
                else:
                    _log.exception("metrics are not written")

    def close(self) -> None:
        """End the thread, and write what is left. Raises nothing.

        What is left is lost if the database does not take it now: if a write of the thread goes on for longer than
        `_MOST_CLOSE_SECONDS`, or the last write fails.
        """
        self._ended.set()
        if self._thread is not None and self._thread.is_alive():
            self._thread.join(_MOST_CLOSE_SECONDS)
            if self._thread.is_alive():
                _log.warning("metrics of the last minute are lost: the database has not taken them in time")
                return
        if not self._gives_up:
            self.write()

    def _start(self) -> None:
        """Start the thread unless it runs in this process: a forked child gets a thread of its own.

        A host at its limit of processes refuses a thread. Then the next value that is recorded tries again, and `close`
        writes what is left: the work that is measured must not fail for want of the thread.
        """
        if self._ended.is_set() or (self._thread is not None and self._thread.is_alive()):
            return
        if not self._starting.acquire(blocking=False):
            return
        try:
            thread = threading.Thread(target=self._run, name="metrics-writer", daemon=True)
            thread.start()
            self._thread = thread
        except Exception as error:  # noqa: BLE001
            self._thread = None
            if not self._is_warned:
                _log.warning("metrics are written at the end only, because no thread could be started: %s", error)
            self._is_warned = True
        finally:
            self._starting.release()

    def _run(self) -> None:
        while not self._ended.wait(seconds_to_next_write(time.time(), os.getpid())):
            self.write()


def seconds_to_next_write(now_seconds: float, process_id: int) -> float:
    """Return how long to wait until the next minute has ended and it is this process's moment to write.

    The moments of processes differ, so that not all write at once. All are 1 to 9 seconds after the minute: readers
    take a minute as complete after `SETTLED_MS`.
    """
    phase = 1.0 + process_id % _PHASES / _PHASES * _LONGEST_PHASE_SECONDS
    minute_seconds = MINUTE_MS / 1000
    return minute_seconds - (now_seconds - phase) % minute_seconds
