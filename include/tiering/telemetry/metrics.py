"""Metrics, the recorder that sets them, and a thread that publishes them once a second.

The recorder uses a registry of prometheus-client. Batches are short-lived processes. If the environment variable
PROMETHEUS_MULTIPROC_DIR of prometheus-client names a directory of this host, each process keeps its values in files
there, and the files stay when the process ends. The process that serves the directory shows the sum of each counter
over all processes, and for each gauge the value that `Across` selects.
"""

import os
import re
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any, Final

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge

from include.tiering.model.segments import TopicIdPartition


class MetricKind(StrEnum):
    """A COUNTER only increases, and prometheus-client appends `_total` to its name. A GAUGE has the value set last."""

    COUNTER = "counter"
    GAUGE = "gauge"


class Across(StrEnum):
    """Which value a gauge shows that several processes set: the value set last, the sum, or the highest.

    SUM and HIGHEST leave out an ended process once `remove_files_of_ended_processes` removed its file; NEWEST does not.
    """

    NEWEST = "mostrecent"
    SUM = "livesum"
    HIGHEST = "livemax"


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric. `sentence` says what it measures, and in which unit. `across` is used for gauges only."""

    name: str
    kind: MetricKind
    labels: tuple[str, ...]
    sentence: str
    across: Across = Across.NEWEST


_PID: Final = re.compile(r"_(\d+)\.db$")
_declared: Final[dict[Callable[[], Iterable[Metric]], None]] = {}


class PrometheusRecorder:
    """Sets metrics of this process in `registry`; make a single recorder per registry. Thread-safe.

    A metric is created when it is registered, or else when its first value is recorded.
    """

    def __init__(self, registry: CollectorRegistry = REGISTRY) -> None:
        self._registry = registry
        self._lock = threading.Lock()
        self._counters: dict[Metric, Counter] = {}
        self._gauges: dict[Metric, Gauge] = {}

    def register(self, metrics: Iterable[Metric]) -> None:
        """Create metrics that do not exist yet. Those without labels begin at 0, the others without a value.

        Raises:
            ValueError: another metric has the same name.
        """
        with self._lock:
            for metric in metrics:
                if metric.kind is MetricKind.COUNTER and metric not in self._counters:
                    self._counters[metric] = Counter(
                        metric.name, metric.sentence, metric.labels, registry=self._registry
                    )
                if metric.kind is MetricKind.GAUGE and metric not in self._gauges:
                    self._gauges[metric] = Gauge(
                        metric.name,
                        metric.sentence,
                        metric.labels,
                        registry=self._registry,
                        multiprocess_mode=metric.across.value,
                    )

    def add(self, counter: Metric, amount: float, *labels: str) -> None:
        """Add `amount` to the counter's value for these label values."""
        if counter not in self._counters:
            self.register([counter])
        known = self._counters[counter]
        (known.labels(*labels) if labels else known).inc(amount)

    def set(self, gauge: Metric, value: float, *labels: str) -> None:
        """Set the gauge's value for these label values."""
        if gauge not in self._gauges:
            self.register([gauge])
        known = self._gauges[gauge]
        (known.labels(*labels) if labels else known).set(value)

    def show(self, gauge: Metric, values: Mapping[tuple[str, ...], float]) -> None:
        """Set a gauge for several sets of label values; its values for other label values stay."""
        for labels, value in values.items():
            self.set(gauge, value, *labels)


def declare(metrics: Callable[[], Iterable[Metric]]) -> None:
    """Make later calls of `process_recorder` register what `metrics` returns, so that it exists before it is recorded.

    `metrics` is not called before then, so a process that records nothing need not import the metrics of all packages.
    """
    _declared[metrics] = None


def process_recorder() -> PrometheusRecorder:
    """Return the recorder of this process with all declared metrics registered.

    The first call makes it, in prometheus-client's default registry.
    """
    recorder = _recorder_of_this_process()
    for metrics in tuple(_declared):
        recorder.register(metrics())
    return recorder


@cache
def _recorder_of_this_process() -> PrometheusRecorder:
    directory = os.environ.get("PROMETHEUS_MULTIPROC_DIR")
    if directory is not None:
        remove_files_of_ended_processes(Path(directory))
    return PrometheusRecorder()


def remove_files_of_ended_processes(directory: Path) -> None:
    """Remove the files of SUM and HIGHEST gauges that ended processes left in the multi-process directory.

    Files with the process id of this process are removed too: an ended process may have had the same id. So call it
    before this process makes its first metric.
    """
    for path in directory.glob("gauge_live*.db"):
        pid = _PID.search(path.name)
        if pid is not None and not _is_another_process(int(pid[1])):
            path.unlink(missing_ok=True)


def _is_another_process(pid: int) -> bool:
    return pid != os.getpid() and Path(f"/proc/{pid}").exists()


PERIOD_SECONDS: Final = 1.0


class MetricsPublisher:
    """Calls `publish` once a second until it returns False. Only one thread at a time calls it; it must not raise."""

    def __init__(self, publish: Callable[[], bool], name: str) -> None:
        self._publish = publish
        self._name = name
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def wake(self) -> None:
        """Start the publishing thread unless it runs in this process: a forked child gets a thread of its own."""
        with self._lock:
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                self._thread.start()

    def now(self) -> None:
        """Publish in the caller's thread."""
        with self._lock:
            self._publish()

    def _run(self) -> None:
        while True:
            time.sleep(PERIOD_SECONDS)
            with self._lock:
                if not self._publish():
                    self._thread = None
                    return


StepObserver = Callable[[Any, TopicIdPartition, int], None]
"""Receives each step of a protocol (a member of its `StrEnum`), the partition, and a number, usually an offset."""


def ignore(*_: object) -> None:
    """Do nothing: a callback that ignores its arguments."""
