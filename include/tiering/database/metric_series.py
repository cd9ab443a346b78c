"""Series: the value of a metric for one set of labels, over all processes, and its values minute by minute for 14 days.

`MetricSeries` stores them. A writer locks all series of its cluster, and then reads the rows that it will change. So it
adds up counters and merges minutes in Python, with the same SQL on SQLite and PostgreSQL, and this one lock is all that
writers wait for. A write takes a few milliseconds, and each process writes once a minute.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import groupby
from operator import attrgetter
from typing import Any, Final, NamedTuple

from sqlalchemy import (
    ColumnElement,
    CompoundSelect,
    Connection,
    FromClause,
    Select,
    and_,
    bindparam,
    delete,
    func,
    select,
    union_all,
)

from include.tiering.database.metric_rows import HOUR_MINUTES, HOUR_MS, TOPIC_LABEL, RecordedRows, text_of
from include.tiering.database.schema import metric_hours, metric_series
from include.tiering.database.transactions import ClusterStore, reading, serialise_writers
from include.tiering.telemetry.metrics import Recorded

KEPT_HOURS: Final = 14 * 24
"""How long the value of a minute is kept, and a series with the label `topic` after it was last recorded."""

SETTLED_MS: Final = 15_000
"""How long after a minute all processes that were not held up have written what they recorded in that minute."""


_OF_METRICS: Final = (
    metric_series.c.cluster_id == bindparam("of_cluster"),
    metric_series.c.metric.in_(bindparam("of_metrics", expanding=True)),
)
_LATEST: Final = (
    select(metric_series.c.metric, metric_series.c.labels, metric_series.c.value, metric_series.c.updated_at_ms)
    .where(*_OF_METRICS)
    .order_by(metric_series.c.metric, metric_series.c.labels)
)
_LABELS: Final = select(metric_series.c.labels).where(
    metric_series.c.cluster_id == bindparam("of_cluster"), metric_series.c.metric == bindparam("of_metric")
)
_LATEST_WITH_LABELS: Final = _LATEST.where(metric_series.c.labels.in_(bindparam("of_labels", expanding=True)))
_SUMS: Final = (
    select(
        metric_series.c.metric,
        func.sum(metric_series.c.value),
        func.max(metric_series.c.value),
        func.min(metric_series.c.updated_at_ms),
    )
    .where(*_OF_METRICS)
    .group_by(metric_series.c.metric)
)
_HOURS: Final = (
    select(metric_series.c.metric, metric_series.c.labels, metric_hours.c.hour, metric_hours.c.minutes)
    .join(metric_series, metric_series.c.series_id == metric_hours.c.series_id)
    .where(*_OF_METRICS, metric_hours.c.hour >= bindparam("since_hour"))
    .order_by(metric_series.c.metric, metric_series.c.labels, metric_hours.c.hour)
)
_HOURS_OF_SERIES: Final = _HOURS.where(metric_series.c.labels == bindparam("of_labels"))


@dataclass(frozen=True, slots=True)
class SeriesKey:
    """A metric's name, and its labels with their values, sorted by name."""

    metric: str
    labels: tuple[tuple[str, str], ...]

    def label(self, name: str) -> str:
        """Return the value of a label; empty without such a label."""
        for known, value in self.labels:
            if known == name:
                return value
        return ""


class Series(NamedTuple):
    """A series: the total of a counter, or the latest value of a gauge, and when it was recorded last."""

    key: SeriesKey
    value: float
    updated_at_ms: int


class TopicValues(NamedTuple):
    """A metric's value for a topic, and the values of other metrics for the same topic; None for a missing one.

    `updated_at_ms` is when `value` was recorded last.
    """

    topic: str
    value: float
    others: tuple[float | None, ...]
    updated_at_ms: int


@dataclass(frozen=True, slots=True)
class SeriesSum:
    """All series of a metric together.

    `total` is the sum of their values, `highest` the highest value, and `oldest_at_ms` the earliest of the times at
    which each series was last recorded.
    """

    total: float
    highest: float
    oldest_at_ms: int


@dataclass(frozen=True, slots=True)
class Above:
    """The series of a metric with the highest values above a limit, in descending order of value.

    `found` is the number of all series above the limit.
    """

    series: Sequence[Series]
    found: int


class MetricSeries(ClusterStore):
    """Store of one cluster's series. Every process of the platform writes to it.

    Every method raises MetadataUnavailableError if the database is locked, unreachable, or without the tables.
    """

    _forgot_at_ms: int | None = None

    def write(self, recorded: Recorded) -> None:
        """Add what a process recorded, in one transaction. Not idempotent.

        If this raises an error, nothing was written, except if the commit succeeded and only its answer was lost: then
        another try adds to counters twice.

        A gauge keeps the value with the latest time, whatever the order in which processes write. Once a metric has
        `MOST_SERIES` series, what it counts for further topics is added up under the topic `OTHER_TOPICS`; other new
        series are left out. The first write of a process, and then one in an hour, deletes minutes older than
        `KEPT_HOURS`, and each series with the label `topic` that was not recorded for so long.

        The database's time decides what is old. What was recorded by a clock that is ahead of it counts as recorded
        now. A stored gauge whose time is in the future gives way to any other value.
        """
        with self._writing(durable=False) as (connection, now_ms):
            serialise_writers(connection, f"metrics of {self._cluster_id}")
            if self._forgot_at_ms is None or abs(now_ms - self._forgot_at_ms) >= HOUR_MS:
                self._forget(connection, now_ms)
                self._forgot_at_ms = now_ms
            recorded = recorded.until(now_ms)
            rows = RecordedRows(connection, self._cluster_id, recorded, now_ms)
            rows.remove_replaced(recorded.replaced)
            rows.count_new()
            for (metric, labels, minute), amount in recorded.added.items():
                rows.add(metric, labels, minute, amount)
            for (metric, labels, minute), value in recorded.highest.items():
                rows.raise_to(metric, labels, minute, value)
            # Gauges that are not 0 come first: there may be more series than are kept.
            for (metric, labels), (value, at_ms) in sorted(recorded.latest.items(), key=lambda item: not item[1][0]):
                rows.set(metric, labels, value, at_ms)
            rows.store()

    def all(self) -> Sequence[Series]:
        """Return every series, ordered by metric and labels."""
        statement = (
            select(metric_series)
            .where(metric_series.c.cluster_id == self._cluster_id)
            .order_by(metric_series.c.metric, metric_series.c.labels)
        )
        with reading(self._engine) as connection:
            rows = connection.execute(statement).all()
        return [Series(_key(row.metric, row.labels), row.value, row.updated_at_ms) for row in rows]

    def latest(
        self, metrics: Collection[str], *, labels: Collection[Mapping[str, str]] | None = None
    ) -> Mapping[str, Sequence[Series]]:
        """Return a mapping from each metric to its series, ordered by labels; metrics without a series are absent.

        With `labels`, a series is read only if all its labels together are equal to one of the given mappings.
        """
        asked: dict[str, Any] = {"of_cluster": self._cluster_id, "of_metrics": list(metrics)}
        statement = _LATEST
        if labels is not None:
            statement, asked["of_labels"] = _LATEST_WITH_LABELS, list(map(text_of, labels))
        found: dict[str, list[Series]] = {}
        with reading(self._engine) as connection:
            rows = connection.execute(statement, asked).all()
        for metric, text, value, updated_at_ms in rows:
            found.setdefault(metric, []).append(Series(_key(metric, text), value, updated_at_ms))
        return found

    def by_topic(self, metric: str, others: Sequence[str]) -> Sequence[TopicValues]:
        """Return, for each topic with a value of `metric` above 0, this value and those of `others`, in no order.

        All these metrics must have the label `topic` and no other.
        """
        asked = {"of_cluster": self._cluster_id, "of_metric": metric}
        asked |= {f"metric_{place}": other for place, other in enumerate(others)}
        with reading(self._engine) as connection:
            rows = connection.execute(_beside(len(others)), asked).all()
        return [TopicValues(_topic(row[0]), row[1], row[3:], row[2]) for row in map(tuple, rows)]

    def topics(self, metric: str) -> frozenset[str]:
        """Return the topics of which the metric has a series, whatever its value."""
        with reading(self._engine) as connection:
            texts = connection.execute(_LABELS, {"of_cluster": self._cluster_id, "of_metric": metric}).scalars().all()
        return frozenset(map(_topic, texts))

    def sums(self, metrics: Collection[str]) -> Mapping[str, SeriesSum]:
        """Return a mapping from each metric to its `SeriesSum`; metrics without a series are absent."""
        asked = {"of_cluster": self._cluster_id, "of_metrics": list(metrics)}
        with reading(self._engine) as connection:
            return {metric: SeriesSum(*found) for metric, *found in connection.execute(_SUMS, asked)}

    def above(
        self, values: Mapping[str, float], *, labels: Mapping[str, tuple[str, str]], at_most: int
    ) -> Mapping[str, Above]:
        """Return, for each metric in `values`, its series with the highest values above a limit.

        A metric without such a series is absent from the result.

        Args:
            values: from each metric to its limit (exclusive).
            labels: from a metric to a label and the value that its series must have. If a metric is absent here, its
                series need no label.
            at_most: how many series are returned for a metric at most; 1 or more.
        """
        if not values:
            return {}
        asked: dict[str, Any] = {"of_cluster": self._cluster_id, "at_most": at_most}
        for place, (metric, value) in enumerate(values.items()):
            asked |= {f"metric_{place}": metric, f"value_{place}": value}
            if metric in labels:
                asked[f"label_{place}"] = f"%{text_of(dict([labels[metric]]))[1:-1]}%"
        found: dict[str, Above] = {}
        with reading(self._engine) as connection:
            rows = connection.execute(_highest_of(tuple(metric in labels for metric in values)), asked).all()
        for name, of_metric in groupby(rows, key=attrgetter("metric")):
            highest = list(of_metric)
            series = [Series(_key(name, row.labels), row.value, row.updated_at_ms) for row in highest]
            found[name] = Above(series, highest[0].found)
        return found

    def minutes(
        self, metrics: Collection[str], *, since_minute: int, labels: Mapping[str, str] | None = None
    ) -> Mapping[SeriesKey, Mapping[int, float]]:
        """Return the values of each series of these metrics by minute since 1970, from `since_minute` on (inclusive).

        Minutes without a value are left out, and so are series without any. With `labels`, only the series of each
        metric that has exactly these labels is read.
        """
        found: dict[SeriesKey, dict[int, float]] = {}
        with reading(self._engine) as connection:
            rows = connection.execute(*self._hours(metrics, since_minute, labels)).all()
        for metric, text, hour, minutes in rows:
            values = _minutes_of(hour, minutes, since_minute)
            if values:
                found.setdefault(_key(metric, text), {}).update(values)
        return found

    def minute_sums(
        self, metrics: Collection[str], *, by: str, since_minute: int
    ) -> Mapping[tuple[str, str | None], Mapping[int, float]]:
        """Return the values of each metric by minute, summed over all its series with the same value of the label `by`.

        The key has None in place of this value for series without the label. Minutes are as in `minutes`.
        """
        hours: dict[tuple[str, str | None, int], dict[str, float]] = {}
        with reading(self._engine) as connection:
            rows = connection.execute(*self._hours(metrics, since_minute)).all()
        for metric, text, hour, minutes in rows:
            value_of_label = next((value for name, value in _key(metric, text).labels if name == by), None)
            sums = hours.setdefault((metric, value_of_label, hour), {})
            for minute, value in _values(minutes).items():
                sums[minute] = sums.get(minute, 0.0) + value
        found: dict[tuple[str, str | None], dict[int, float]] = {}
        for (metric, value_of_label, hour), sums in hours.items():
            minutes_of_hour = {hour * HOUR_MINUTES + int(minute): value for minute, value in sums.items()}
            kept = {minute: value for minute, value in minutes_of_hour.items() if minute >= since_minute}
            found.setdefault((metric, value_of_label), {}).update(kept)
        return found

    def _hours(
        self, metrics: Collection[str], since_minute: int, labels: Mapping[str, str] | None = None
    ) -> tuple[Select[Any], dict[str, Any]]:
        """Return the statement that reads the hours with these minutes, and its parameters."""
        asked = {
            "of_cluster": self._cluster_id,
            "of_metrics": list(metrics),
            "since_hour": since_minute // HOUR_MINUTES,
        }
        return (_HOURS, asked) if labels is None else (_HOURS_OF_SERIES, {**asked, "of_labels": text_of(labels)})

    def _forget(self, connection: Connection, now_ms: int) -> None:
        """Delete minutes that are too old, and series with the label `topic` that were not recorded for too long."""
        oldest_hour = now_ms // HOUR_MS - KEPT_HOURS
        connection.execute(
            delete(metric_hours).where(metric_hours.c.cluster_id == self._cluster_id, metric_hours.c.hour < oldest_hour)
        )
        # No minute of a series is after its last recording. So no hour is left of the series that are deleted here.
        connection.execute(
            delete(metric_series)
            .where(metric_series.c.cluster_id == self._cluster_id)
            .where(metric_series.c.updated_at_ms < oldest_hour * HOUR_MS)
            .where(metric_series.c.labels.contains(f'"{TOPIC_LABEL}":', autoescape=True))
        )


@cache
def _beside(others: int) -> Select[Any]:
    """Return the statement of `MetricSeries.by_topic` for this number of `others`."""
    columns = metric_series.c
    source: FromClause = metric_series
    beside = [metric_series.alias(f"beside_{place}") for place in range(others)]
    for place, other in enumerate(beside):
        is_of_topic = (
            other.c.cluster_id == columns.cluster_id,
            other.c.metric == bindparam(f"metric_{place}"),
            other.c.labels == columns.labels,
        )
        source = source.outerjoin(other, and_(*is_of_topic))
    return (
        select(columns.labels, columns.value, columns.updated_at_ms, *(other.c.value for other in beside))
        .select_from(source)
        .where(columns.cluster_id == bindparam("of_cluster"), columns.metric == bindparam("of_metric"))
        .where(columns.value > 0)
    )


@cache
def _highest_of(have_labels: tuple[bool, ...]) -> CompoundSelect[Any]:
    """Return the statement of `MetricSeries.above` for metrics of which these have a condition on a label."""
    return union_all(*(_highest(place, has_label) for place, has_label in enumerate(have_labels)))


def _highest(place: int, has_label: bool) -> Select[Any]:
    def above(table: FromClause) -> tuple[ColumnElement[bool], ...]:
        return (
            table.c.cluster_id == bindparam("of_cluster"),
            table.c.metric == bindparam(f"metric_{place}"),
            table.c.value > bindparam(f"value_{place}"),
            *([table.c.labels.like(bindparam(f"label_{place}"))] if has_label else []),
        )

    counted, columns = metric_series.alias("counted"), metric_series.c
    found = select(func.count()).select_from(counted).where(*above(counted)).scalar_subquery()
    highest = (
        select(columns.metric, columns.labels, columns.value, columns.updated_at_ms, found.label("found"))
        .where(*above(metric_series))
        .order_by(columns.value.desc(), columns.labels)
        .limit(bindparam("at_most"))
    )
    return select(highest.subquery(f"highest_{place}"))


@lru_cache(maxsize=20_000)
def _key(metric: str, labels: str) -> SeriesKey:
    return SeriesKey(metric, tuple(json.loads(labels).items()))


@lru_cache(maxsize=20_000)
def _topic(labels: str) -> str:
    topic: str = json.loads(labels).get(TOPIC_LABEL, "")
    return topic


@lru_cache(maxsize=2_000)
def _values(minutes: str) -> Mapping[str, float]:
    """Parse the stored minutes of an hour. They are cached, as hours that are over are read often and never change."""
    values: Mapping[str, float] = json.loads(minutes)
    return values


def _minutes_of(hour: int, minutes: str, since_minute: int) -> dict[int, float]:
    begin, values = hour * HOUR_MINUTES, _values(minutes)
    if begin >= since_minute:
        return {begin + int(of_hour): value for of_hour, value in values.items()}
    rest = range(since_minute - begin, HOUR_MINUTES)
    return {begin + of_hour: values[text] for of_hour in rest if (text := str(of_hour)) in values}
