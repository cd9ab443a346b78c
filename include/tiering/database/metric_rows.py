"""The rows of series and of their hours. What a process recorded is merged into them; see `metric_series`."""

import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final, TypeVar

from sqlalchemy import Connection, bindparam, delete, func, insert, select, update

from include.tiering.database.schema import metric_hours, metric_series
from include.tiering.database.transactions import insert_for
from include.tiering.telemetry import get_logger
from include.tiering.telemetry.metrics import MINUTE_MS, Labels, Metric, MetricKind, Recorded

_log: Final = get_logger(__name__)
MOST_SERIES: Final = 2_000
"""The highest number of series of one metric."""

OTHER_TOPICS: Final = "<other>"
"""The topic of counters beyond `MOST_SERIES`. No topic of Kafka can have this name."""

TOPIC_LABEL: Final = "topic"
HOUR_MINUTES: Final = 60
HOUR_MS: Final = HOUR_MINUTES * MINUTE_MS

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
_KNOWN_WITH_LABELS: Final = _KNOWN.where(metric_series.c.labels.in_(bindparam("texts", expanding=True)))
_NUMBERS: Final = (
    select(metric_series.c.metric, func.count().label("number"))
    .where(
        metric_series.c.cluster_id == bindparam("of_cluster"),
        metric_series.c.metric.in_(bindparam("metrics", expanding=True)),
    )
    .group_by(metric_series.c.metric)
)
_UPDATE: Final = (
    update(metric_series)
    .where(metric_series.c.series_id == bindparam("of_series"))
    .values(value=bindparam("new_value"), updated_at_ms=bindparam("at_ms"))
)
_HOURS: Final = select(metric_hours.c.series_id, metric_hours.c.hour, metric_hours.c.minutes).where(
    metric_hours.c.series_id.in_(bindparam("ids", expanding=True)),
    metric_hours.c.hour.in_(bindparam("hours", expanding=True)),
)
_AT_ONCE: Final = 500
_T = TypeVar("_T")


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
        hour, of_hour = divmod(minute, HOUR_MINUTES)
        return self.hours.setdefault(hour, {}), str(of_hour)

    def change(self, value: float, at_ms: int) -> None:
        self.value, self.is_changed = value, True
        self.updated_at_ms = max(self.updated_at_ms, at_ms)


class RecordedRows:
    """The rows of the recorded metrics: read at once, changed in memory, stored at once."""

    def __init__(self, connection: Connection, cluster_id: str, recorded: Recorded, now_ms: int) -> None:
        self._connection = connection
        self._cluster_id = cluster_id
        self._rows: dict[tuple[str, str], _Row] = {}
        self._number: Counter[str] = Counter()
        self._beyond: Counter[str] = Counter()
        self._set = {_key_of(metric, labels) for metric, labels in recorded.latest}
        counted = [(metric, labels) for metric, labels, _ in (*recorded.added, *recorded.highest)]
        self._wanted = self._set | {_key_of(*one) for one in counted}
        of_others = {_key_of_others(metric, labels) for metric, labels in counted if TOPIC_LABEL in metric.labels}
        by_minute = {metric.name for metric, _ in (*counted, *recorded.latest) if metric.by_minute}
        hours = {minute // HOUR_MINUTES for _, _, minute in (*recorded.added, *recorded.highest)}
        hours |= {at_ms // HOUR_MS for _, at_ms in recorded.latest.values()}
        self._read(self._wanted | of_others, [metric.name for metric in recorded.replaced], now_ms)
        self._read_hours(by_minute, sorted(hours))

    def _read(self, keys: set[tuple[str, str]], whole: Sequence[str], now_ms: int) -> None:
        """Read the rows with these keys, and all of the metrics in `whole`."""
        of_cluster: dict[str, Any] = {"of_cluster": self._cluster_id}
        metrics, texts = sorted({metric for metric, _ in keys}), sorted({text for _, text in keys})
        statements = [
            (_KNOWN_WITH_LABELS, of_cluster | {"metrics": metrics, "texts": chunk}) for chunk in _chunks(texts)
        ]
        if whole:
            statements.append((_KNOWN, of_cluster | {"metrics": whole}))
        for statement, parameters in statements:
            for known in self._connection.execute(statement, parameters):
                is_ahead = known.updated_at_ms > now_ms
                row = _Row(known.series_id, known.value, 0 if is_ahead else known.updated_at_ms)
                self._rows[known.metric, known.labels] = row

    def _read_hours(self, by_minute: Collection[str], hours: Sequence[int]) -> None:
        by_id = {row.series_id: row for key, row in self._rows.items() if key in self._wanted and key[0] in by_minute}
        for ids in _chunks(by_id):
            for known in self._connection.execute(_HOURS, {"ids": ids, "hours": hours}):
                by_id[known.series_id].hours[known.hour] = json.loads(known.minutes)

    def remove_replaced(self, replaced: Mapping[Metric, int]) -> None:
        """Delete the values of these gauges that are older than the time at which all of them were set."""
        for metric, at_ms in replaced.items():
            gone = [
                key
                for key, row in self._rows.items()
                if key[0] == metric.name and key not in self._set and row.updated_at_ms < at_ms
            ]
            for ids in _chunks([self._rows.pop(key).series_id for key in gone]):
                self._connection.execute(delete(metric_hours).where(metric_hours.c.series_id.in_(ids)))
                self._connection.execute(delete(metric_series).where(metric_series.c.series_id.in_(ids)))

    def count_new(self) -> None:
        """Count the stored series of each metric that gets new series."""
        metrics = sorted({metric for metric, text in self._wanted if (metric, text) not in self._rows})
        if metrics:
            found = self._connection.execute(_NUMBERS, {"of_cluster": self._cluster_id, "metrics": metrics})
            self._number.update({row.metric: row.number for row in found})

    def add(self, metric: Metric, labels: Labels, minute: int, amount: float) -> None:
        """Add to a counter. With an amount of 0, create the series if it is absent, and write no minute."""
        row = self._row(metric, labels)
        if row is None:
            return
        row.change(row.value + amount, minute * MINUTE_MS)
        if metric.by_minute and amount:
            minutes, of_hour = row.minute(minute)
            minutes[of_hour] = minutes.get(of_hour, 0.0) + amount

    def raise_to(self, metric: Metric, labels: Labels, minute: int, value: float) -> None:
        """Raise the value of a minute to `value` if it is lower; set the value of the series to `value` in any case."""
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
        for metric, number in self._beyond.items():
            _log.warning(
                "metric %s has %d series: %d further ones are not kept apart", metric, self._number[metric], number
            )
        changed = {key: row for key, row in self._rows.items() if row.is_changed}
        if updated := [_updated(row) for row in changed.values() if row.series_id is not None]:
            self._connection.execute(_UPDATE, updated)
        inserted = [
            {"cluster_id": self._cluster_id, "metric": metric, "labels": labels}
            | {"value": row.value, "updated_at_ms": row.updated_at_ms}
            for (metric, labels), row in changed.items()
            if row.series_id is None
        ]
        if inserted:
            columns = (metric_series.c.series_id, metric_series.c.metric, metric_series.c.labels)
            for new in self._connection.execute(insert(metric_series).returning(*columns), inserted):
                changed[new.metric, new.labels].series_id = new.series_id
        hours = [
            {
                "cluster_id": self._cluster_id,
                "series_id": row.series_id,
                "hour": hour,
                "minutes": json.dumps(minutes, separators=(",", ":")),
            }
            for row in changed.values()
            for hour, minutes in row.hours.items()
        ]
        if hours:
            upserted = insert_for(self._connection.dialect.name, metric_hours)
            set_minutes = {"minutes": upserted.excluded.minutes}
            key = list(metric_hours.primary_key)
            self._connection.execute(upserted.on_conflict_do_update(index_elements=key, set_=set_minutes), hours)

    def _row(self, metric: Metric, labels: Labels) -> _Row | None:
        """Return the row of a series; None if there are too many of this metric."""
        key = _key_of(metric, labels)
        if key in self._rows:
            return self._rows[key]
        if self._number[metric.name] < MOST_SERIES:
            return self._new(key)
        self._beyond[metric.name] += 1
        if TOPIC_LABEL not in metric.labels or metric.kind is not MetricKind.COUNTER:
            return None
        key = _key_of_others(metric, labels)
        return self._rows.get(key) or self._new(key)

    def _new(self, key: tuple[str, str]) -> _Row:
        self._rows[key] = row = _Row(None, 0.0, 0)
        self._number[key[0]] += 1
        return row


def _chunks(values: Iterable[_T]) -> Iterator[list[_T]]:
    """Return the values in lists that fit into a statement."""
    rest = iter(values)
    while chunk := list(islice(rest, _AT_ONCE)):
        yield chunk


def _updated(row: _Row) -> dict[str, Any]:
    return {"of_series": row.series_id, "new_value": row.value, "at_ms": row.updated_at_ms}


def _named(metric: Metric, labels: Labels) -> dict[str, str]:
    return dict(zip(metric.labels, labels, strict=True))


def _key_of(metric: Metric, labels: Labels) -> tuple[str, str]:
    return metric.name, text_of(_named(metric, labels))


def _key_of_others(metric: Metric, labels: Labels) -> tuple[str, str]:
    return metric.name, text_of({**_named(metric, labels), TOPIC_LABEL: OTHER_TOPICS})


def text_of(labels: Mapping[str, str]) -> str:
    """Return labels with their values as they are stored."""
    return json.dumps(dict(sorted(labels.items())), separators=(",", ":"))
