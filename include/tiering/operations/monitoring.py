"""The values of all metrics, as the metrics endpoint, OpenTelemetry and `status` show them.

Rates, throttle times and peaks are computed from minutes: sums over processes exist only for whole minutes in which
every process has written what it recorded. The newest of these is `newest_minute`; it ended 15 to 75 seconds ago.

How fast the disks of log directories fill, and which log directories cannot be read, is found out here, too.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypedDict

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
    """Return the length of a quota's window in minutes, rounded to a whole number, at least one."""
    return max(1, round(samples * sample_ms / MINUTE_MS))


def computed(minutes: Minutes, newest: int, windows: Mapping[QuotaKind, int]) -> dict[Metric, float]:
    """Return the values of the computed metrics and of the peaks.

    Args:
        minutes: of the metrics `COMPUTED_FROM`.
        newest: the newest whole minute.
        windows: over how many minutes the byte rate of each kind of quota is averaged.
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
"""For how long the values of a read, or its error, are returned again without another read."""

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
        """Return what all processes did in the newest whole minute, and in the newest 60 and 1,440 whole minutes.

        Raises:
            MetadataUnavailableError: as `values`.
        """
        newest = newest_minute(self._clock.now_ms())
        minutes = self._series.minutes(TRAFFIC_FROM, since_minute=newest - max(_TRAFFIC_MINUTES) + 1)
        return [traffic(minutes, newest, of_minutes) for of_minutes in _TRAFFIC_MINUTES]

    def _all_values(self) -> list[MetricValues]:
        by_metric: dict[str, list[Series]] = {}
        # This read comes first because it fails soonest if the database does not answer.
        for series in self._series.all():
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


# Log directories, as size runs saw them on their hosts.

FREE: Final = "tiering_log_dir_free_bytes"
UNREADABLE: Final = "tiering_log_dir_unreadable"
COMPARED_MINUTES: Final = 24 * 60
_LEAST_MINUTES: Final = 60
"""No rate is computed from two readings of free bytes that are less than this apart: it would say little."""


@dataclass(frozen=True, slots=True)
class DiskOfLogDir:
    """The disk of a log directory, as size runs saw it on the directory's host.

    Attributes:
        broker: id of the broker that owns the directory.
        path: of the directory.
        free_bytes: as of `as_of_ms`.
        as_of_ms: when a size run last read the free bytes.
        filled_per_second: by how many bytes a second the free space shrank on average from the first to the last size
            run of the last 24 hours, negative if it grew; None if these two are less than an hour apart.
        over_seconds: the time between these two size runs; None without a rate.
    """

    broker: str
    path: str
    free_bytes: int
    as_of_ms: int
    filled_per_second: float | None = None
    over_seconds: float | None = None

    @property
    def seconds_left(self) -> float | None:
        """In how many seconds the disk is full at this rate; None if it does not fill, or the rate is not known."""
        rate = self.filled_per_second
        return self.free_bytes / rate if rate is not None and rate > 0 else None


@dataclass(frozen=True, slots=True)
class UnreadableLogDir:
    """A log directory of the settings that the size run at `as_of_ms` could not read."""

    broker_id: int
    path: str
    as_of_ms: int


def disks(free: Sequence[Series], minutes: Minutes) -> tuple[DiskOfLogDir, ...]:
    """Return the disks of log directories, ordered by broker and path.

    Args:
        free: the last known free bytes.
        minutes: free bytes by minute.
    """
    found = []
    for series in free:
        labels, read = dict(series.key.labels), sorted(minutes.get(series.key, {}).items())
        filled = over = None
        if read and read[-1][0] - read[0][0] >= _LEAST_MINUTES:
            over = (read[-1][0] - read[0][0]) * 60.0
            filled = (read[0][1] - read[-1][1]) / over
        found.append(
            DiskOfLogDir(labels["broker"], labels["log_dir"], round(series.value), series.updated_at_ms, filled, over)
        )
    return tuple(sorted(found, key=lambda disk: (disk.broker, disk.path)))


def unreadable(found: Sequence[Series]) -> tuple[UnreadableLogDir, ...]:
    """Return the log directories of the series whose value is not 0, ordered by broker and path."""
    log_dirs = [
        UnreadableLogDir(int(series.key.label("broker")), series.key.label("log_dir"), series.updated_at_ms)
        for series in found
        if series.value
    ]
    return tuple(sorted(log_dirs, key=lambda log_dir: (log_dir.broker_id, log_dir.path)))


class DiskOfLogDirDocument(TypedDict):
    """The disk of a log directory, as size runs saw it on the directory's host.

    `filled_bytes_per_second` is the average over the `over_seconds` from the first to the last size run of the last 24
    hours, below 0 if the disk gets emptier; both are null if these two are less than an hour apart. `seconds_left` is
    the time until the disk is full at this rate; null if it does not fill, or the rate is not known.
    """

    broker_id: int
    log_dir: str
    free_bytes: int
    as_of_ms: int
    filled_bytes_per_second: float | None
    over_seconds: float | None
    seconds_left: float | None


class UnreadableLogDirDocument(TypedDict):
    """A log directory of the settings that the last size run could not read, such as one whose disk is not mounted."""

    broker_id: int
    log_dir: str
    as_of_ms: int


def disk_document(disk: DiskOfLogDir) -> DiskOfLogDirDocument:
    """Return the JSON of a disk."""
    return {
        "broker_id": int(disk.broker),
        "log_dir": disk.path,
        "free_bytes": disk.free_bytes,
        "as_of_ms": disk.as_of_ms,
        "filled_bytes_per_second": disk.filled_per_second,
        "over_seconds": disk.over_seconds,
        "seconds_left": disk.seconds_left,
    }


def unreadable_document(log_dir: UnreadableLogDir) -> UnreadableLogDirDocument:
    """Return the JSON of a log directory that cannot be read."""
    return {"broker_id": log_dir.broker_id, "log_dir": log_dir.path, "as_of_ms": log_dir.as_of_ms}
