"""What a metric is, and the recorder in which this process collects values until they are written into the database.

Batches, tasks and commands end soon, so no value stays in a process: `database.metrics_writer` writes what was recorded
once a minute and when the app closes, and `./tiering metrics serve` shows the values of all processes.
"""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from include.tiering.clock import Clock
from include.tiering.model.segments import TopicIdPartition


class MetricKind(StrEnum):
    """How a metric gets its value.

    A COUNTER only increases; Prometheus shows it with `_total` behind its name. A GAUGE has the value that was set
    last, by whatever process. A PEAK is a gauge whose highest value of each minute counts, over all processes. A
    COMPUTED gauge is calculated, when it is shown, from values of other metrics that are kept by minute; nothing
    records it.
    """

    COUNTER = "counter"
    GAUGE = "gauge"
    PEAK = "peak"
    COMPUTED = "computed"


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric.

    Attributes:
        name: in Prometheus; of a counter without `_total`.
        labels: names of its labels.
        sentence: what it measures, and in which unit.
        mbean: Kafka's MBean and attribute with this meaning; empty if Kafka has none.
        by_minute: whether the values of single minutes are kept for 14 days; of a counter what was added in a minute.
    """

    name: str
    kind: MetricKind
    labels: tuple[str, ...]
    sentence: str
    mbean: str = ""
    by_minute: bool = False

    @property
    def shown_name(self) -> str:
        """The name of its samples."""
        return f"{self.name}_total" if self.kind is MetricKind.COUNTER else self.name


class RunKind(StrEnum):
    """Kinds of work; the metric `LAST_RUN` has, for each kind, the time at which such work ended last."""

    COPY = "copy"
    EXPIRATION = "expiration"
    SIZES = "sizes"
    VERIFICATION = "verification"
    AUDIT = "audit"
    INGEST = "ingest"
    HANDOVER_WATCH = "handover-watch"


LAST_RUN: Final = Metric(
    "tiering_last_run_timestamp_seconds",
    MetricKind.GAUGE,
    ("kind",),
    "When work of this kind last ended, in seconds since 1970: a plan or a batch of `copy` and `expiration`, a size run"
    " or `./tiering sizes` of all topics (`sizes`), a `verification`, an `audit`, an `ingest`, or a look for forgotten"
    " handovers (`handover-watch`). It says nothing about success.",
)

MINUTE_MS: Final = 60_000

Labels = tuple[str, ...]
"""The values of a metric's labels, in the order of `Metric.labels`."""


@dataclass(slots=True)
class Recorded:
    """What a process recorded since it was last drained.

    Attributes:
        added: what was added to counters, by metric, labels and minute since 1970.
        highest: the highest values of peaks, by metric, labels and minute.
        latest: the values of gauges, by metric and labels, each with its time in UTC milliseconds.
        replaced: gauges that were set by `MetricsRecorder.replace`, with the time. Their values for labels that are not
            in `latest`, from before that time, are to be removed.
    """

    added: dict[tuple[Metric, Labels, int], float] = field(default_factory=dict)
    highest: dict[tuple[Metric, Labels, int], float] = field(default_factory=dict)
    latest: dict[tuple[Metric, Labels], tuple[float, int]] = field(default_factory=dict)
    replaced: dict[Metric, int] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.added or self.highest or self.latest or self.replaced)

    def merge(self, later: "Recorded") -> None:
        """Add `later`, which was recorded after what this object has."""
        for key, amount in later.added.items():
            self.added[key] = self.added.get(key, 0.0) + amount
        for key, value in later.highest.items():
            self.highest[key] = max(self.highest.get(key, value), value)
        for metric in later.replaced:
            self.latest = {key: value for key, value in self.latest.items() if key[0] != metric}
        self.latest |= later.latest
        self.replaced |= later.replaced

    def until(self, now_ms: int) -> "Recorded":
        """Return this with each time after `now_ms` replaced by `now_ms`, which is the database's time in UTC ms.

        Otherwise values of a host whose clock is ahead would hide later values of other hosts.
        """
        found = Recorded()
        for (metric, labels, minute), amount in self.added.items():
            key = (metric, labels, min(minute, now_ms // MINUTE_MS))
            found.added[key] = found.added.get(key, 0.0) + amount
        for (metric, labels, minute), value in self.highest.items():
            key = (metric, labels, min(minute, now_ms // MINUTE_MS))
            found.highest[key] = max(found.highest.get(key, value), value)
        found.latest = {key: (value, min(at_ms, now_ms)) for key, (value, at_ms) in self.latest.items()}
        found.replaced = {metric: min(at_ms, now_ms) for metric, at_ms in self.replaced.items()}
        return found


class MetricsRecorder:
    """Collects metrics of this process. Thread-safe, and cheap enough to be called some hundred times a second.

    `wake` is called after each value, to start what writes the values: it must be cheap, and must not raise.
    """

    def __init__(self, clock: Clock, wake: Callable[[], None] | None = None) -> None:
        self._clock = clock
        self._wake = wake or ignore
        self._lock = threading.Lock()
        self._recorded = Recorded()

    def add(self, counter: Metric, amount: float, *labels: str) -> None:
        """Add `amount` to the counter's value for these label values."""
        _require_labels(counter, labels)
        key = (counter, labels, self._clock.now_ms() // MINUTE_MS)
        with self._lock:
            self._recorded.added[key] = self._recorded.added.get(key, 0.0) + amount
        self._wake()

    def raise_to(self, peak: Metric, value: float, *labels: str) -> None:
        """Record a value of a peak, of which the highest of a minute counts."""
        _require_labels(peak, labels)
        key = (peak, labels, self._clock.now_ms() // MINUTE_MS)
        with self._lock:
            self._recorded.highest[key] = max(self._recorded.highest.get(key, value), value)
        self._wake()

    def set(self, gauge: Metric, value: float, *labels: str) -> None:
        """Set the gauge's value for these label values."""
        self.show(gauge, {labels: value})

    def show(self, gauge: Metric, values: Mapping[tuple[str, ...], float]) -> None:
        """Set a gauge for several sets of label values; its values for other label values stay."""
        for labels in values:
            _require_labels(gauge, labels)
        now_ms = self._clock.now_ms()
        self._merge(Recorded(latest={(gauge, labels): (value, now_ms) for labels, value in values.items()}))

    def replace(self, gauge: Metric, values: Mapping[tuple[str, ...], float]) -> None:
        """Set a gauge for these sets of label values, and remove its values for all others."""
        for labels in values:
            _require_labels(gauge, labels)
        now_ms = self._clock.now_ms()
        latest = {(gauge, labels): (value, now_ms) for labels, value in values.items()}
        self._merge(Recorded(latest=latest, replaced={gauge: now_ms}))

    def ended(self, kind: RunKind) -> None:
        """Record that work of this kind ended now."""
        self.set(LAST_RUN, self._clock.now_ms() / 1000, kind.value)

    def drain(self) -> Recorded:
        """Return what was recorded since the last call, and forget it."""
        with self._lock:
            drained, self._recorded = self._recorded, Recorded()
            return drained

    def put_back(self, drained: Recorded) -> None:
        """Take back the result of a `drain`, if none of it was written; later records are kept."""
        with self._lock:
            drained.merge(self._recorded)
            self._recorded = drained

    def _merge(self, recorded: Recorded) -> None:
        if not recorded:
            return
        with self._lock:
            self._recorded.merge(recorded)
        self._wake()


def _require_labels(metric: Metric, labels: Labels) -> None:
    if len(labels) != len(metric.labels):
        raise ValueError(f"metric {metric.name} has the labels {metric.labels}, not {len(labels)} values")


StepObserver = Callable[[Any, TopicIdPartition, int], None]
"""Is called after each step of a protocol with crash safety, for logs and for tests that end the process there.

Arguments: the step (a member of the protocol's `StrEnum`), the partition, and a number, which the protocol chooses:
often an offset, or a number of segments."""


def ignore(*_: object) -> None:
    """Do nothing: a callback that ignores its arguments."""
