"""The values of all metrics, as the endpoint and OpenTelemetry show them."""

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from include.tiering.clock import Clock
from include.tiering.quotas.contract import QuotaKind
from include.tiering.series.contract import Series, SeriesStore
from include.tiering.series.rules import (
    COMPUTED_FROM,
    TRAFFIC_FROM,
    Traffic,
    computed,
    newest_minute,
    traffic,
    window_minutes,
)
from include.tiering.telemetry.metrics import Labels, Metric, MetricKind

FRESH_SECONDS: Final = 5.0
"""How long values that were read are shown again without another read."""

_TRAFFIC_MINUTES: Final = (1, 60, 24 * 60)


@dataclass(frozen=True, slots=True)
class MetricValues:
    """A metric with its values; the values of its labels are in the order of `Metric.labels`."""

    metric: Metric
    values: tuple[tuple[Labels, float], ...]


class MonitoringService:
    """Reads what all processes recorded. Thread-safe.

    Args of the constructor:
        series: what was recorded.
        metrics: the metrics that are shown; others in the database, of another version, are not.
        windows: samples and milliseconds of a sample of the windows over which byte rates are measured.
        clock: the time; how long values are shown again.
    """

    def __init__(
        self,
        *,
        series: SeriesStore,
        metrics: Sequence[Metric],
        windows: Callable[[], Mapping[QuotaKind, tuple[int, int]]],
        clock: Clock,
    ) -> None:
        self._series = series
        self.metrics = metrics
        self._windows = windows
        self._clock = clock
        self._lock = threading.Lock()
        self._read: tuple[MetricValues, ...] = ()
        self._read_at: float | None = None

    def values(self) -> Sequence[MetricValues]:
        """Return the values of every metric, in the order of docs/metrics.md; at most `FRESH_SECONDS` old.

        Callers that come at the same time wait for one read.

        Raises:
            MetadataUnavailableError: the database is locked, unreachable, or without the tables.
        """
        with self._lock:
            if self._read_at is None or self._clock.monotonic() - self._read_at >= FRESH_SECONDS:
                self._read = tuple(self._all_values())
                self._read_at = self._clock.monotonic()
            return self._read

    def traffic(self) -> Sequence[Traffic]:
        """Return what all processes did in the newest whole minute, hour and day. Raises MetadataUnavailableError."""
        newest = newest_minute(self._clock.now_ms())
        minutes = self._series.minutes(TRAFFIC_FROM, since_minute=newest - max(_TRAFFIC_MINUTES) + 1)
        return [traffic(minutes, newest, of_minutes) for of_minutes in _TRAFFIC_MINUTES]

    def _all_values(self) -> list[MetricValues]:
        windows = {kind: window_minutes(*length) for kind, length in self._windows().items()}
        newest = newest_minute(self._clock.now_ms())
        longest = max(windows.values())
        shown = computed(self._series.minutes(COMPUTED_FROM, since_minute=newest - longest + 1), newest, windows)
        by_metric: dict[str, list[Series]] = {}
        for series in self._series.all():
            by_metric.setdefault(series.key.metric, []).append(series)
        return [
            MetricValues(metric, (((), shown[metric]),) if metric in shown else _values(metric, by_metric))
            for metric in self.metrics
        ]


def _values(metric: Metric, by_metric: Mapping[str, Sequence[Series]]) -> tuple[tuple[Labels, float], ...]:
    """Return the values of a metric; series that another version recorded with other labels are left out."""
    if metric.kind not in (MetricKind.COUNTER, MetricKind.GAUGE):
        return ()
    return tuple(
        (tuple(labels[name] for name in metric.labels), series.value)
        for series in by_metric.get(metric.name, ())
        if (labels := dict(series.key.labels)).keys() == set(metric.labels)
    )
