"""Series: the values of a metric for one set of labels, over all processes, and their minutes of the last 14 days.

`MetricSeries` is their store. A writer first takes a lock of the cluster's series, then reads what it changes: counters
can be added up and minutes can be merged in this process, by the same statements on both databases, and two writers
never wait for each other's rows. A transaction takes a few milliseconds, once a minute in each process.

`MetricsWriter` writes what a process recorded: just after each minute, and when the app closes. A process that is
killed loses what it recorded since the last write, about a minute. If a write fails, what it held is written with the
next one; a process that ends without the database loses it. No work fails by a write, and none waits for it, except for
at most a few seconds at its end.
"""

import json
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Connection, bindparam, delete, insert, select, update

from include.tiering.clock import Clock
from include.tiering.database.schema import metric_hours, metric_series
from include.tiering.database.transactions import ClusterStore, insert_for, reading, serialise_writers
from include.tiering.errors import TieringError
from include.tiering.telemetry import get_logger
from include.tiering.telemetry.metrics import MINUTE_MS, Labels, Metric, MetricKind, MetricsRecorder, Recorded

_log: Final = get_logger(__name__)
KEPT_HOURS: Final = 14 * 24
"""How long minutes are kept, and series of a topic that nothing was recorded for."""

MOST_SERIES: Final = 2_000
"""Most series of one metric."""

OTHER_TOPICS: Final = "<other>"
"""The topic of counters beyond `MOST_SERIES`. No topic of Kafka can have this name."""

TOPIC_LABEL: Final = "topic"


SETTLED_MS: Final = 15_000
"""So long after a minute every process that was not held up has written what it recorded in it."""

_HOUR_MINUTES: Final = 60
_HOUR_MS: Final = _HOUR_MINUTES * MINUTE_MS

_KNOWN: Final = select(
    metric_series.c.series_id,
    metric_series.c.metric,
    metric_series.c.labels,
    metric_series.c.value,
    metric_series.c.updated_at_ms,
).where(
    metric_series.c.cluster_id == bindparam("of_cluster"),
    metric_series.c.metric.in_(bindparam("metrics", expanding=True)),
)
_UPDATE: Final = (
    update(metric_series)
    .where(metric_series.c.series_id == bindparam("of_series"))
    .values(value=bindparam("new_value"), updated_at_ms=bindparam("at_ms"))
)
_HOURS: Final = (
    select(metric_hours.c.series_id, metric_hours.c.hour, metric_hours.c.minutes)
    .join(metric_series, metric_series.c.series_id == metric_hours.c.series_id)
    .where(
        metric_series.c.cluster_id == bindparam("of_cluster"),
        metric_series.c.metric.in_(bindparam("metrics", expanding=True)),
        metric_hours.c.hour.in_(bindparam("hours", expanding=True)),
    )
)


@dataclass(frozen=True, slots=True)
class SeriesKey:
    """A metric's name, and its labels with their values, sorted by name."""

    metric: str
    labels: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Series:
    """A series: the total of a counter, or the latest value of a gauge, and when it was recorded last."""

    key: SeriesKey
    value: float
    updated_at_ms: int


class MetricSeries(ClusterStore):
    """Store of one cluster's series. Every process of the platform writes to it."""

    def write(self, recorded: Recorded) -> None:
        """Add what a process recorded, in one transaction. Not idempotent: what it raised for was not written.

        A gauge keeps the value with the latest time, whatever the order in which processes write. Counters of a new
        series beyond `MOST_SERIES` of their metric are added up under `OTHER_TOPICS`; other new series beyond that are
        left out. Minutes older than `KEPT_HOURS` are deleted, and series with a topic that were last recorded before.

        The database's time decides what is old. What was recorded by a clock that is ahead of it counts as recorded
        now, and a gauge with a later time gives way to any other value.

        Raises:
            MetadataUnavailableError: the database is locked, unreachable, or without the tables.
        """
        with self._writing(durable=False) as (connection, now_ms):
            serialise_writers(connection, f"metrics of {self._cluster_id}")
            self._forget(connection, now_ms)
            recorded = recorded.until(now_ms)
            rows = _Rows(connection, self._cluster_id, recorded, now_ms)
            rows.remove_replaced(recorded.replaced)
            for (metric, labels, minute), amount in recorded.added.items():
                rows.add(metric, labels, minute, amount)
            for (metric, labels, minute), value in recorded.highest.items():
                rows.raise_to(metric, labels, minute, value)
            for (metric, labels), (value, at_ms) in recorded.latest.items():
                rows.set(metric, labels, value, at_ms)
            rows.store()

    def all(self) -> Sequence[Series]:
        """Return every series, by metric and labels. Raises MetadataUnavailableError."""
        statement = (
            select(metric_series)
            .where(metric_series.c.cluster_id == self._cluster_id)
            .order_by(metric_series.c.metric, metric_series.c.labels)
        )
        with reading(self._engine) as connection:
            return [
                Series(_key(row.metric, row.labels), row.value, row.updated_at_ms)
                for row in connection.execute(statement)
            ]

    def latest(self, metrics: Collection[str]) -> Mapping[str, Sequence[Series]]:
        """Return the series of these metrics, by metric, each by labels. Raises MetadataUnavailableError."""
        statement = (
            select(metric_series)
            .where(metric_series.c.cluster_id == self._cluster_id, metric_series.c.metric.in_(metrics))
            .order_by(metric_series.c.metric, metric_series.c.labels)
        )
        found: dict[str, list[Series]] = {}
        with reading(self._engine) as connection:
            for row in connection.execute(statement):
                series = Series(_key(row.metric, row.labels), row.value, row.updated_at_ms)
                found.setdefault(row.metric, []).append(series)
        return found

    def minutes(
        self, metrics: Collection[str], *, since_minute: int, labels: Mapping[str, str] | None = None
    ) -> Mapping[SeriesKey, Mapping[int, float]]:
        """Return the values of these metrics by series and minute since 1970, from `since_minute` on (inclusive).

        Minutes without a value are left out, and so are series without any. With `labels` only series with exactly
        these are read. Raises MetadataUnavailableError.
        """
        statement = (
            select(metric_series.c.metric, metric_series.c.labels, metric_hours.c.hour, metric_hours.c.minutes)
            .join(metric_series, metric_series.c.series_id == metric_hours.c.series_id)
            .where(metric_series.c.cluster_id == self._cluster_id, metric_series.c.metric.in_(metrics))
            .where(metric_hours.c.hour >= since_minute // _HOUR_MINUTES)
            .order_by(metric_series.c.metric, metric_series.c.labels, metric_hours.c.hour)
        )
        if labels is not None:
            statement = statement.where(metric_series.c.labels == _text_of(labels))
        found: dict[SeriesKey, dict[int, float]] = {}
        with reading(self._engine) as connection:
            for row in connection.execute(statement):
                for minute, value in _minutes_of(row.hour, row.minutes):
                    if minute >= since_minute:
                        found.setdefault(_key(row.metric, row.labels), {})[minute] = value
        return found

    def _forget(self, connection: Connection, now_ms: int) -> None:
        """Delete minutes and series of topics that are too old; see `write`."""
        oldest_hour = now_ms // _HOUR_MS - KEPT_HOURS
        connection.execute(
            delete(metric_hours).where(metric_hours.c.cluster_id == self._cluster_id, metric_hours.c.hour < oldest_hour)
        )
        # A series has no minute after it was last recorded, so none of the rows below is referred to any more.
        connection.execute(
            delete(metric_series)
            .where(metric_series.c.cluster_id == self._cluster_id)
            .where(metric_series.c.updated_at_ms < oldest_hour * _HOUR_MS)
            .where(metric_series.c.labels.contains(f'"{TOPIC_LABEL}":', autoescape=True))
        )


class _Row:
    """A row of `metric_series`, with the rows of its hours that are changed."""

    def __init__(self, series_id: int | None, value: float, updated_at_ms: int) -> None:
        self.series_id = series_id
        self.value = value
        self.updated_at_ms = updated_at_ms
        self.is_changed = False
        self.hours: dict[int, dict[str, float]] = {}

    def minute(self, minute: int) -> tuple[dict[str, float], str]:
        """Return the minutes of an hour, to be changed, and the key of this minute in them."""
        hour, of_hour = divmod(minute, _HOUR_MINUTES)
        return self.hours.setdefault(hour, {}), str(of_hour)

    def change(self, value: float, at_ms: int) -> None:
        self.value, self.is_changed = value, True
        self.updated_at_ms = max(self.updated_at_ms, at_ms)


class _Rows:
    """The rows of the recorded metrics: read at once, changed in memory, stored at once."""

    def __init__(self, connection: Connection, cluster_id: str, recorded: Recorded, now_ms: int) -> None:
        self._connection = connection
        self._cluster_id = cluster_id
        of_counters = {metric.name for metric, _, _ in (*recorded.added, *recorded.highest)}
        of_gauges = {metric.name for metric in (*recorded.replaced, *(metric for metric, _ in recorded.latest))}
        metrics = sorted(of_counters | of_gauges)
        self._rows: dict[tuple[str, str], _Row] = {}
        by_id: dict[int, _Row] = {}
        parameters: dict[str, Any] = {"of_cluster": cluster_id, "metrics": metrics}
        for known in connection.execute(_KNOWN, parameters):
            is_ahead = known.updated_at_ms > now_ms
            row = _Row(known.series_id, known.value, 0 if is_ahead else known.updated_at_ms)
            self._rows[known.metric, known.labels] = by_id[known.series_id] = row
        self._number = Counter(metric for metric, _ in self._rows)
        self._set = {(metric.name, _text_of(_named(metric, labels))) for metric, labels in recorded.latest}
        hours = {minute // _HOUR_MINUTES for _, _, minute in (*recorded.added, *recorded.highest)}
        hours |= {at_ms // _HOUR_MS for _, at_ms in recorded.latest.values()}
        for known_hour in connection.execute(_HOURS, parameters | {"hours": sorted(hours)}):
            by_id[known_hour.series_id].hours[known_hour.hour] = json.loads(known_hour.minutes)

    def remove_replaced(self, replaced: Mapping[Metric, int]) -> None:
        """Delete the values of these gauges that are older than the time at which all of them were set."""
        for metric, at_ms in replaced.items():
            gone = [
                key
                for key, row in self._rows.items()
                if key[0] == metric.name and key not in self._set and row.updated_at_ms < at_ms
            ]
            ids = [self._rows.pop(key).series_id for key in gone]
            self._connection.execute(delete(metric_hours).where(metric_hours.c.series_id.in_(ids)))
            self._connection.execute(delete(metric_series).where(metric_series.c.series_id.in_(ids)))
            self._number[metric.name] -= len(gone)

    def add(self, metric: Metric, labels: Labels, minute: int, amount: float) -> None:
        """Add to a counter."""
        row = self._row(metric, labels)
        if row is None:
            return
        row.change(row.value + amount, minute * MINUTE_MS)
        if metric.by_minute:
            minutes, of_hour = row.minute(minute)
            minutes[of_hour] = minutes.get(of_hour, 0.0) + amount

    def raise_to(self, metric: Metric, labels: Labels, minute: int, value: float) -> None:
        """Raise the peak of a minute."""
        row = self._row(metric, labels)
        if row is None:
            return
        minutes, of_hour = row.minute(minute)
        minutes[of_hour] = max(minutes.get(of_hour, value), value)
        row.change(value, minute * MINUTE_MS)

    def set(self, metric: Metric, labels: Labels, value: float, at_ms: int) -> None:
        """Set a gauge, unless another process set it later."""
        row = self._row(metric, labels)
        if row is None or row.updated_at_ms > at_ms:
            return
        row.change(value, at_ms)
        if metric.by_minute:
            minutes, of_hour = row.minute(at_ms // MINUTE_MS)
            minutes[of_hour] = value

    def store(self) -> None:
        """Write the rows that were changed."""
        for (metric, labels), row in self._rows.items():
            if row.series_id is None:
                values = {"value": row.value, "updated_at_ms": row.updated_at_ms}
                inserted = insert(metric_series).values(
                    cluster_id=self._cluster_id, metric=metric, labels=labels, **values
                )
                row.series_id = self._connection.execute(inserted.returning(metric_series.c.series_id)).scalar_one()
                row.is_changed = bool(row.hours)
        changed = [row for row in self._rows.values() if row.is_changed]
        if not changed:
            return
        self._connection.execute(_UPDATE, [_updated(row) for row in changed])
        hours = [
            {
                "cluster_id": self._cluster_id,
                "series_id": row.series_id,
                "hour": hour,
                "minutes": json.dumps(minutes, separators=(",", ":")),
            }
            for row in changed
            for hour, minutes in row.hours.items()
        ]
        if hours:
            upserted = insert_for(self._connection.dialect.name, metric_hours)
            set_minutes = {"minutes": upserted.excluded.minutes}
            key = list(metric_hours.primary_key)
            self._connection.execute(upserted.on_conflict_do_update(index_elements=key, set_=set_minutes), hours)

    def _row(self, metric: Metric, labels: Labels) -> _Row | None:
        """Return the row of a series; None if there are too many of this metric."""
        named = _named(metric, labels)
        key = (metric.name, _text_of(named))
        if key in self._rows:
            return self._rows[key]
        if self._number[metric.name] >= MOST_SERIES:
            if self._number[metric.name] == MOST_SERIES:
                _log.warning("metric %s has %d series: further topics are not kept apart", metric.name, MOST_SERIES)
            if TOPIC_LABEL not in named or metric.kind is not MetricKind.COUNTER:
                return None
            return self._row_of_others(metric, named)
        return self._new(key)

    def _row_of_others(self, metric: Metric, named: Mapping[str, str]) -> _Row:
        key = (metric.name, _text_of({**named, TOPIC_LABEL: OTHER_TOPICS}))
        return self._rows.get(key) or self._new(key)

    def _new(self, key: tuple[str, str]) -> _Row:
        self._rows[key] = row = _Row(None, 0.0, 0)
        self._number[key[0]] += 1
        return row


def _updated(row: _Row) -> dict[str, Any]:
    return {"of_series": row.series_id, "new_value": row.value, "at_ms": row.updated_at_ms}


def _named(metric: Metric, labels: Labels) -> dict[str, str]:
    return dict(zip(metric.labels, labels, strict=True))


def _text_of(labels: Mapping[str, str]) -> str:
    return json.dumps(dict(sorted(labels.items())), separators=(",", ":"))


def _key(metric: str, labels: str) -> SeriesKey:
    return SeriesKey(metric, tuple(json.loads(labels).items()))


def _minutes_of(hour: int, minutes: str) -> Iterator[tuple[int, float]]:
    values: Iterable[tuple[str, float]] = json.loads(minutes).items()
    for of_hour, value in values:
        yield hour * _HOUR_MINUTES + int(of_hour), value


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
        """End the thread, and write what is left, unless the thread cannot write at this moment. Raises nothing."""
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

        A host at its limit of processes refuses one. The next value that is recorded tries again, and `close` writes
        what is left: what is measured must not fail by it.
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

    The moments of processes differ, so that not all write at once; all are well within `SETTLED_MS`.
    """
    phase = 1.0 + process_id % _PHASES / _PHASES * _LONGEST_PHASE_SECONDS
    minute_seconds = MINUTE_MS / 1000
    return minute_seconds - (now_seconds - phase) % minute_seconds
