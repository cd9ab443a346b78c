"""The values of all metrics, as the endpoint, OpenTelemetry and `status` show them.

Rates, throttle times and peaks are computed from minutes: sums over processes exist only for whole minutes in which
every process has written what it recorded. The newest of these is `newest_minute`; it ended 15 to 75 seconds ago.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from include.tiering.clock import Clock
from include.tiering.database.metric_series import SETTLED_MS, MetricSeries, Series, SeriesKey
from include.tiering.errors import TieringError
from include.tiering.quotas.contract import QuotaKind
from include.tiering.quotas.metrics import (
    COPY_BYTE_RATE,
    COPY_THROTTLE_AVG,
    COPY_THROTTLE_MAX,
    DELETE_CALLS,
    DELETE_RATE,
    FETCH_BYTE_RATE,
    FETCH_PACING_AVG,
    FETCH_PACING_MAX,
    FETCH_THROTTLE_AVG,
    FETCH_THROTTLE_MAX,
    GRANTED_BYTES,
    HELD,
    HELD_SECONDS,
    REFUSALS,
    REFUSED_SECONDS,
    THROTTLED_SECONDS,
)
from include.tiering.telemetry.metrics import MINUTE_MS, Labels, Metric, MetricKind

Minutes = Mapping[SeriesKey, Mapping[int, float]]
"""Values by series and minute since 1970."""

COMPUTED_FROM: Final = tuple(
    metric.name
    for metric in (
        GRANTED_BYTES,
        HELD,
        HELD_SECONDS,
        REFUSALS,
        REFUSED_SECONDS,
        DELETE_CALLS,
        COPY_THROTTLE_MAX,
        FETCH_PACING_MAX,
        FETCH_THROTTLE_MAX,
    )
)
"""Names of the metrics that `computed` needs."""

TRAFFIC_FROM: Final = tuple(metric.name for metric in (GRANTED_BYTES, THROTTLED_SECONDS, DELETE_CALLS))
"""Names of the metrics that `traffic` needs."""


def newest_minute(now_ms: int) -> int:
    """Return the newest whole minute, since 1970, that every process has written."""
    return (now_ms - SETTLED_MS) // MINUTE_MS - 1


def window_minutes(samples: int, sample_ms: int) -> int:
    """Return the length of a quota's window in whole minutes, at least one."""
    return max(1, round(samples * sample_ms / MINUTE_MS))


def computed(minutes: Minutes, newest: int, windows: Mapping[QuotaKind, int]) -> dict[Metric, float]:
    """Return the values of the computed metrics and of the peaks.

    Args:
        minutes: of the metrics `COMPUTED_FROM`.
        newest: the newest whole minute.
        windows: over how many minutes the byte rate of a kind is measured.
    """

    def total(metric: Metric, kind: QuotaKind | None = None, of_minutes: int = 1) -> float:
        return total_of(minutes, metric, newest, of_minutes, kind)

    def ratio(sums: Metric, numbers: Metric, kind: QuotaKind | None = None) -> float:
        number = total(numbers, kind)
        return 1000 * total(sums, kind) / number if number else 0.0

    def rate(kind: QuotaKind) -> float:
        of_minutes = windows[kind]
        return total(GRANTED_BYTES, kind, of_minutes) / (of_minutes * 60)

    return {
        COPY_BYTE_RATE: rate(QuotaKind.COPY),
        FETCH_BYTE_RATE: rate(QuotaKind.FETCH),
        DELETE_RATE: total(DELETE_CALLS) / 60,
        COPY_THROTTLE_AVG: ratio(HELD_SECONDS, HELD, QuotaKind.COPY),
        FETCH_PACING_AVG: ratio(HELD_SECONDS, HELD, QuotaKind.FETCH),
        FETCH_THROTTLE_AVG: ratio(REFUSED_SECONDS, REFUSALS),
        COPY_THROTTLE_MAX: total(COPY_THROTTLE_MAX),
        FETCH_PACING_MAX: total(FETCH_PACING_MAX),
        FETCH_THROTTLE_MAX: total(FETCH_THROTTLE_MAX),
    }


def total_of(minutes: Minutes, metric: Metric, newest: int, of_minutes: int, kind: QuotaKind | None = None) -> float:
    """Return the sum of a metric over the newest minutes and all of its series, or those of one kind of traffic."""
    return sum(
        value
        for key, values in minutes.items()
        if key.metric == metric.name and (kind is None or ("kind", kind.value) in key.labels)
        for minute, value in values.items()
        if newest - of_minutes < minute <= newest
    )


@dataclass(frozen=True, slots=True)
class Traffic:
    """What all processes did in the newest `minutes` whole minutes."""

    minutes: int
    copied_bytes: int
    copy_throttled_seconds: float
    fetched_bytes: int
    fetch_throttled_seconds: float
    delete_requests: int


def traffic(minutes: Minutes, newest: int, of_minutes: int) -> Traffic:
    """Return what all processes did in the newest `of_minutes` minutes. `minutes` are of `TRAFFIC_FROM`."""

    def total(metric: Metric, kind: QuotaKind | None = None) -> float:
        return total_of(minutes, metric, newest, of_minutes, kind)

    return Traffic(
        of_minutes,
        round(total(GRANTED_BYTES, QuotaKind.COPY)),
        total(THROTTLED_SECONDS, QuotaKind.COPY),
        round(total(GRANTED_BYTES, QuotaKind.FETCH)),
        total(THROTTLED_SECONDS, QuotaKind.FETCH),
        round(total(DELETE_CALLS)),
    )


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
        windows: for each kind of quota, the number of samples in the window over which its byte rate is measured, and
            the milliseconds of a sample.
        clock: tells which minutes are whole, and how old the values are that were read last.
    """

    def __init__(
        self,
        *,
        series: MetricSeries,
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
        self._error: TieringError | None = None
        self._read_at: float | None = None

    def values(self) -> Sequence[MetricValues]:
        """Return the values of every metric, in the order of docs/metrics.md; at most `FRESH_SECONDS` old.

        Callers that come at the same time wait for one read. An error is raised again for `FRESH_SECONDS`, too.

        Raises:
            MetadataUnavailableError: the database is locked, unreachable, or without the tables.
        """
        with self._lock:
            if self._read_at is None or self._clock.monotonic() - self._read_at >= FRESH_SECONDS:
                self._error = None
                try:
                    self._read = tuple(self._all_values())
                except TieringError as error:
                    self._error = error
                self._read_at = self._clock.monotonic()
            if self._error is not None:
                raise self._error.with_traceback(None)
            return self._read

    def traffic(self) -> Sequence[Traffic]:
        """Return what all processes did in the newest whole minute, hour and day. Raises MetadataUnavailableError."""
        newest = newest_minute(self._clock.now_ms())
        minutes = self._series.minutes(TRAFFIC_FROM, since_minute=newest - max(_TRAFFIC_MINUTES) + 1)
        return [traffic(minutes, newest, of_minutes) for of_minutes in _TRAFFIC_MINUTES]

    def _all_values(self) -> list[MetricValues]:
        by_metric: dict[str, list[Series]] = {}
        for series in self._series.all():  # First: it waits least for a database that does not answer.
            by_metric.setdefault(series.key.metric, []).append(series)
        windows = {kind: window_minutes(*length) for kind, length in self._windows().items()}
        newest = newest_minute(self._clock.now_ms())
        longest = max(windows.values())
        shown = computed(self._series.minutes(COMPUTED_FROM, since_minute=newest - longest + 1), newest, windows)
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
