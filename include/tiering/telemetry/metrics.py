"""What a metric is, the recorder through which metrics are set, and a thread that publishes once a second.

The recorder sets them in prometheus-client's registry. Batches are short-lived processes: where prometheus-client's
PROMETHEUS_MULTIPROC_DIR names a directory of this host that outlives them, all of them add to the same values, and
whatever serves that directory shows the sum, or what `Across` says of a gauge.
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
    """COUNTER only grows (prometheus-client adds `_total` to its name); GAUGE is the last value set."""

    COUNTER = "counter"
    GAUGE = "gauge"


class Across(StrEnum):
    """What a gauge shows that several processes have set; a process that ended counts only in NEWEST."""

    NEWEST = "mostrecent"
    SUM = "livesum"
    HIGHEST = "livemax"


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric: `sentence` says what is counted and in which unit. `across` is for gauges."""

    name: str
    kind: MetricKind
    labels: tuple[str, ...]
    sentence: str
    across: Across = Across.NEWEST


_PID: Final = re.compile(r"_(\d+)\.db$")
_declared: Final[dict[Metric, None]] = {}


class PrometheusRecorder:
    """Keeps metrics of this process in `registry`; make one per registry. Thread-safe.

    A metric is there from the first time that it is registered or recorded.
    """

    def __init__(self, registry: CollectorRegistry = REGISTRY) -> None:
        self._registry = registry
        self._lock = threading.Lock()
        self._counters: dict[Metric, Counter] = {}
        self._gauges: dict[Metric, Gauge] = {}

    def register(self, metrics: Iterable[Metric]) -> None:
        """Show these from now on, one without labels as 0. Those that are there already stay as they are.

        Raises:
            ValueError: another metric has the name of one of them.
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
        """Add to a counter, at these values of its labels."""
        if counter not in self._counters:
            self.register([counter])
        known = self._counters[counter]
        (known.labels(*labels) if labels else known).inc(amount)

    def set(self, gauge: Metric, value: float, *labels: str) -> None:
        """Set a gauge, at these values of its labels."""
        if gauge not in self._gauges:
            self.register([gauge])
        known = self._gauges[gauge]
        (known.labels(*labels) if labels else known).set(value)

    def show(self, gauge: Metric, values: Mapping[tuple[str, ...], float]) -> None:
        """Set a gauge at several values of its labels; what it shows at others stays."""
        for labels, value in values.items():
            self.set(gauge, value, *labels)


def declare(metrics: Iterable[Metric]) -> None:
    """Have the recorder of this process show these as soon as there is one, before any of them is recorded."""
    _declared.update(dict.fromkeys(metrics))


def process_recorder() -> PrometheusRecorder:
    """The one recorder of this process, in prometheus-client's own registry. Made when it is first asked for."""
    recorder = _recorder_of_this_process()
    recorder.register(tuple(_declared))
    return recorder


@cache
def _recorder_of_this_process() -> PrometheusRecorder:
    directory = os.environ.get("PROMETHEUS_MULTIPROC_DIR")
    if directory is not None:
        forget_ended_processes(Path(directory))
    return PrometheusRecorder()


def forget_ended_processes(directory: Path) -> None:
    """Take what processes of this host left in their live gauges out of the multi-process directory.

    Call it before the first metric is made: the process id of this one may have been another's.
    """
    for path in directory.glob("gauge_live*.db"):
        pid = _PID.search(path.name)
        if pid is not None and not _is_another_process(int(pid[1])):
            path.unlink(missing_ok=True)


def _is_another_process(pid: int) -> bool:
    return pid != os.getpid() and Path(f"/proc/{pid}").exists()


PERIOD_SECONDS: Final = 1.0


class MetricsPublisher:
    """`publish` returns whether it has to be called again. It is called by one thread at a time, and must not raise."""

    def __init__(self, publish: Callable[[], bool], name: str) -> None:
        self._publish = publish
        self._name = name
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def wake(self) -> None:
        """There is something to publish; returns at once. A forked child gets a thread of its own."""
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
"""Is told each step of a protocol (a member of its `StrEnum`), the partition, and an offset."""


def ignore(*_: object) -> None:
    """Do nothing, with whatever a callback is told."""
