"""Series of metrics, on every database."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from sqlalchemy import Engine, event, func, select

from include.tiering.database import metric_rows as module
from include.tiering.database.metric_rows import OTHER_TOPICS
from include.tiering.database.metric_series import KEPT_HOURS, MetricSeries, SeriesKey, SeriesSum
from include.tiering.database.schema import metric_hours, metric_series
from include.tiering.database.transactions import reading
from include.tiering.telemetry.metrics import MINUTE_MS, Metric, MetricKind, MetricsRecorder
from tests.doubles.databases import SHARED, each_database
from tests.doubles.manual_clock import ManualClock

CLUSTER_ID = "cluster-1"
COPIED = Metric("copied", MetricKind.COUNTER, ("kind", "topic"), "Bytes.", by_minute=True)
ERRORS = Metric("errors", MetricKind.COUNTER, ("topic",), "Errors.")
LAG = Metric("lag", MetricKind.GAUGE, ("topic",), "Lag.", by_minute=True)
LIMIT = Metric("limit", MetricKind.GAUGE, (), "Limit.")
STEPS = Metric("steps", MetricKind.GAUGE, ("step",), "Handovers.")
LONGEST = Metric("longest", MetricKind.PEAK, (), "Milliseconds.", by_minute=True)
HOUR_MS = 60 * MINUTE_MS
BEGIN_MS = 472_000 * HOUR_MS
MINUTE = BEGIN_MS // MINUTE_MS


database_kind = each_database(SHARED)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(BEGIN_MS)


@pytest.fixture
def series(engine: Engine, clock: ManualClock) -> MetricSeries:
    """The database's time is that of `clock`."""
    return MetricSeries(engine, CLUSTER_ID, now_ms=lambda _: clock.now_ms())


class Process:
    """A process of the platform, with its recorder."""

    def __init__(self, series: MetricSeries, clock: ManualClock) -> None:
        self.recorder = MetricsRecorder(clock)
        self._series = series

    def write(self) -> None:
        self._series.write(self.recorder.drain())


@pytest.fixture
def process(series: MetricSeries, clock: ManualClock) -> Process:
    return Process(series, clock)


def values(series: MetricSeries) -> dict[tuple[str, ...], float]:
    return {(one.key.metric, *(value for _, value in one.key.labels)): one.value for one in series.all()}


def minutes(series: MetricSeries, metric: Metric, since: int = 0) -> dict[tuple[str, ...], dict[int, float]]:
    found = series.minutes([metric.name], since_minute=MINUTE + since)
    return {
        tuple(value for _, value in key.labels): {m - MINUTE: v for m, v in of.items()} for key, of in found.items()
    }


def rows(engine: Engine) -> tuple[int, int]:
    with reading(engine) as connection:
        counted = [
            connection.execute(select(func.count()).select_from(table)).scalar_one()
            for table in (metric_series, metric_hours)
        ]
    return counted[0], counted[1]


def test_counters_of_all_processes_add_up_in_total_and_by_minute(series: MetricSeries, clock: ManualClock) -> None:
    processes = [Process(series, clock) for _ in range(3)]
    for number, process in enumerate(processes):
        process.recorder.add(COPIED, 10 * (number + 1), "copy", "orders")
        process.recorder.add(ERRORS, 1, "orders")
    clock.advance(60)
    processes[0].recorder.add(COPIED, 5, "copy", "orders")
    for process in processes:
        process.write()
    assert values(series) == {("copied", "copy", "orders"): 65, ("errors", "orders"): 3}
    assert minutes(series, COPIED) == {("copy", "orders"): {0: 60, 1: 5}}
    assert minutes(series, COPIED, since=1) == {("copy", "orders"): {1: 5}}
    assert minutes(series, ERRORS) == {}


def test_labels_are_named_and_sorted(series: MetricSeries, process: Process) -> None:
    process.recorder.add(COPIED, 1, "fetch", 'a"b\\')
    process.write()
    (one,) = series.all()
    assert one.key == SeriesKey("copied", (("kind", "fetch"), ("topic", 'a"b\\')))


def test_a_gauge_has_the_value_that_was_set_last_whoever_writes_first(series: MetricSeries, clock: ManualClock) -> None:
    earlier, later = Process(series, clock), Process(series, clock)
    earlier.recorder.set(LAG, 1, "orders")
    clock.advance(1)
    later.recorder.set(LAG, 2, "orders")
    later.write()
    earlier.write()
    assert values(series) == {("lag", "orders"): 2}
    clock.advance(59)
    earlier.recorder.set(LAG, 3, "orders")
    earlier.write()
    assert values(series) == {("lag", "orders"): 3}
    assert minutes(series, LAG) == {("orders",): {0: 2, 1: 3}}


def test_no_limit_is_a_value(series: MetricSeries, process: Process) -> None:
    process.recorder.set(LIMIT, float("inf"))
    process.write()
    assert values(series) == {("limit",): float("inf")}


def test_a_peak_is_the_highest_of_all_processes_in_a_minute(series: MetricSeries, clock: ManualClock) -> None:
    for value in (3.0, 9.0, 4.0):
        process = Process(series, clock)
        process.recorder.raise_to(LONGEST, value)
        process.write()
    clock.advance(60)
    process.recorder.raise_to(LONGEST, 1.0)
    process.write()
    assert minutes(series, LONGEST) == {(): {0: 9.0, 1: 1.0}}


def test_what_replaces_a_gauge_removes_its_other_values(
    series: MetricSeries, process: Process, clock: ManualClock
) -> None:
    process.recorder.replace(STEPS, {("fence",): 1, ("publish",): 2})
    process.write()
    clock.advance(1)
    process.recorder.replace(STEPS, {("publish",): 1})
    process.write()
    assert values(series) == {("steps", "publish"): 1}
    clock.advance(1)
    process.recorder.replace(STEPS, {})
    process.write()
    assert values(series) == {}


def test_an_hour_is_one_row_and_two_weeks_are_kept(
    engine: Engine, series: MetricSeries, process: Process, clock: ManualClock
) -> None:
    for _ in range(120):
        process.recorder.add(COPIED, 1, "copy", "orders")
        process.write()
        clock.advance(60)
    assert rows(engine) == (1, 2)
    clock.advance((KEPT_HOURS - 2) * 3600)
    process.recorder.set(LIMIT, 1)
    process.write()
    assert sum(minutes(series, COPIED)["copy", "orders"].values()) == 120
    clock.advance(3600)
    process.recorder.set(LIMIT, 1)
    process.write()
    assert sum(minutes(series, COPIED)["copy", "orders"].values()) == 60
    assert rows(engine) == (2, 1)


def test_a_topic_that_nothing_is_recorded_of_is_gone_after_two_weeks_and_what_has_no_topic_stays(
    engine: Engine, series: MetricSeries, process: Process, clock: ManualClock
) -> None:
    process.recorder.set(LIMIT, 1)
    process.recorder.set(LAG, 1, "gone")
    process.recorder.set(STEPS, 1, "topic")
    process.recorder.add(COPIED, 1, "copy", "gone")
    process.recorder.add(COPIED, 1, "copy", "there")
    process.write()
    clock.advance((KEPT_HOURS + 1) * 3600)
    process.recorder.add(COPIED, 1, "copy", "there")
    process.write()
    assert values(series) == {("limit",): 1, ("steps", "topic"): 1, ("copied", "copy", "there"): 1}
    assert rows(engine) == (3, 1)


def test_of_too_many_topics_counters_are_added_up_and_gauges_left_out(
    series: MetricSeries, process: Process, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "MOST_SERIES", 3)
    for number in range(6):
        process.recorder.add(ERRORS, number, f"topic-{number}")
        process.recorder.set(LAG, number, f"topic-{number}")
    process.write()
    process.recorder.add(ERRORS, 100, "topic-9")
    process.recorder.add(ERRORS, 100, "topic-1")
    process.write()
    assert values(series) == {
        ("errors", "topic-0"): 0,
        ("errors", "topic-1"): 101,
        ("errors", "topic-2"): 2,
        ("errors", OTHER_TOPICS): 3 + 4 + 5 + 100,
        ("lag", "topic-1"): 1,
        ("lag", "topic-2"): 2,
        ("lag", "topic-3"): 3,
    }
    assert caplog.text.count("metric errors has 4 series") == 2, "once in each write"
    assert caplog.text.count("metric lag has 3 series: 3 further") == 1


def test_of_too_many_gauges_those_that_are_not_0_come_first(
    series: MetricSeries, process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_SERIES", 2)
    process.recorder.show(LAG, {("a",): 0, ("b",): 0, ("c",): 5, ("d",): 7})
    process.write()
    assert values(series) == {("lag", "c"): 5, ("lag", "d"): 7}


def test_a_write_reads_what_it_changes_and_inserts_many_rows_at_once(
    engine: Engine, series: MetricSeries, process: Process
) -> None:
    topics = [f"topic-{number}" for number in range(1_200)]
    process.recorder.show(LAG, {(topic,): 1 for topic in topics})
    statements: list[str] = []

    def note(_1: object, _2: object, statement: str, *_: object) -> None:
        statements.append(statement)

    event.listen(engine, "before_cursor_execute", note)
    process.write()
    event.remove(engine, "before_cursor_execute", note)
    assert len(statements) < 20
    process.recorder.add(ERRORS, 1, topics[0])
    process.recorder.set(LAG, 2, topics[1])
    original = module._Row.__init__
    made: list[int] = []

    def counted(self: Any, *values: Any) -> None:
        made.append(1)
        original(self, *values)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module._Row, "__init__", counted)
        process.write()
    assert len(made) < 5


def test_clusters_are_apart(engine: Engine, series: MetricSeries, process: Process, clock: ManualClock) -> None:
    other = Process(MetricSeries(engine, "cluster-2", now_ms=lambda _: clock.now_ms()), clock)
    other.recorder.add(ERRORS, 5, "orders")
    process.recorder.add(ERRORS, 1, "orders")
    other.write()
    process.write()
    assert values(series) == {("errors", "orders"): 1}


def test_processes_that_write_at_the_same_time_lose_nothing(
    engine: Engine, series: MetricSeries, clock: ManualClock
) -> None:
    def work(_: int) -> None:
        process = Process(series, clock)
        for topic in ("orders", "audit", "payments"):
            for _ in range(5):
                process.recorder.add(COPIED, 1, "copy", topic)
                process.recorder.raise_to(LONGEST, 1)
                process.write()

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(8)))
    assert {values(series)["copied", "copy", topic] for topic in ("orders", "audit", "payments")} == {40}
    assert minutes(series, COPIED)["copy", "orders"] == {0: 40}


def test_the_latest_values_of_some_metrics(series: MetricSeries, process: Process) -> None:
    process.recorder.set(LAG, 5, "orders")
    process.recorder.set(LAG, 6, "pay")
    process.recorder.set(LIMIT, 7)
    process.write()
    found = series.latest(["lag", "nothing"])
    assert [(metric, [one.value for one in each]) for metric, each in found.items()] == [("lag", [5, 6])]
    assert found["lag"][0].updated_at_ms == BEGIN_MS


def test_the_latest_values_of_some_labels(series: MetricSeries, process: Process) -> None:
    for topic in ("orders", "pay", 'a"b'):
        process.recorder.set(LAG, len(topic), topic)
    process.write()
    found = series.latest(["lag"], labels=[{"topic": "pay"}, {"topic": 'a"b'}, {"topic": "nothing"}])
    assert {one.key.labels[0][1]: one.value for one in found["lag"]} == {"pay": 3, 'a"b': 3}
    assert series.latest(["lag"], labels=[]) == {}


def test_values_by_topic(series: MetricSeries, process: Process) -> None:
    for topic in ("pay", 'a"b'):
        process.recorder.set(LAG, len(topic), topic)
    process.recorder.set(LAG, 0, "nothing-waits")
    process.recorder.add(ERRORS, 7, "pay")
    process.write()
    found = series.by_topic("lag", ["nothing", "errors"])
    assert sorted(found) == [('a"b', 3, (None, None), BEGIN_MS), ("pay", 3, (None, 7), BEGIN_MS)]
    assert sorted(series.by_topic("lag", [])) == [('a"b', 3, (), BEGIN_MS), ("pay", 3, (), BEGIN_MS)]
    assert series.by_topic("nothing", ["lag"]) == []
    assert series.topics("lag") == {"pay", 'a"b', "nothing-waits"}
    assert series.topics("nothing") == frozenset()


def test_sums_of_all_series_of_a_metric(series: MetricSeries, process: Process, clock: ManualClock) -> None:
    process.recorder.set(LAG, 5, "orders")
    process.write()
    clock.advance(1)
    process.recorder.set(LAG, 7, "pay")
    process.write()
    assert series.sums(["lag", "nothing"]) == {"lag": SeriesSum(12, 7, BEGIN_MS)}


def test_the_highest_series_above_a_value_and_how_many_there_are(series: MetricSeries, process: Process) -> None:
    for number, topic in enumerate(("a", "b", "c", "d")):
        process.recorder.set(LAG, number, topic)
    process.recorder.set(STEPS, 9, "fence")
    process.recorder.set(STEPS, 8, "publish")
    process.recorder.set(LIMIT, 1)
    process.write()
    found = series.above({"lag": 0, "steps": 0, "limit": 1}, labels={"steps": ("step", "publish")}, at_most=2)
    assert {metric: ([one.value for one in above.series], above.found) for metric, above in found.items()} == {
        "lag": ([3, 2], 3),
        "steps": ([8], 1),
    }
    assert series.above({"limit": 0}, labels={}, at_most=1)["limit"].found == 1


def test_minutes_are_added_up_by_a_label(series: MetricSeries, process: Process, clock: ManualClock) -> None:
    process.recorder.add(COPIED, 1, "copy", "orders")
    process.recorder.add(COPIED, 2, "copy", "pay")
    process.recorder.add(COPIED, 4, "fetch", "pay")
    clock.advance(60)
    process.recorder.add(COPIED, 8, "copy", "pay")
    process.recorder.set(LAG, 3, "orders")
    process.write()
    assert series.minute_sums(["copied"], by="kind", since_minute=MINUTE) == {
        ("copied", "copy"): {MINUTE: 3, MINUTE + 1: 8},
        ("copied", "fetch"): {MINUTE: 4},
    }
    later = series.minute_sums(["copied", "lag"], by="kind", since_minute=MINUTE + 1)
    assert {key: values for key, values in later.items() if values} == {
        ("copied", "copy"): {MINUTE + 1: 8},
        ("lag", None): {MINUTE + 1: 3},
    }


def test_a_host_whose_clock_is_days_ahead_deletes_nothing_and_dates_nothing(
    series: MetricSeries, process: Process, clock: ManualClock
) -> None:
    process.recorder.add(COPIED, 5, "copy", "orders")
    process.recorder.set(LAG, 1, "orders")
    process.write()
    ahead = Process(series, ManualClock(BEGIN_MS + 15 * 24 * HOUR_MS))
    ahead.recorder.add(COPIED, 7, "copy", "orders")
    ahead.recorder.raise_to(LONGEST, 9)
    ahead.recorder.set(LAG, 2, "orders")
    ahead.recorder.replace(STEPS, {("fence",): 1})
    ahead.write()
    assert minutes(series, COPIED) == {("copy", "orders"): {0: 12}}
    assert minutes(series, LONGEST) == {(): {0: 9}}
    clock.advance(60)
    process.recorder.set(LAG, 3, "orders")
    process.recorder.replace(STEPS, {("publish",): 1})
    process.write()
    assert values(series)["lag", "orders"] == 3
    assert [key for key in values(series) if key[0] == "steps"] == [("steps", "publish")]


def test_a_gauge_with_a_time_to_come_loses_it_to_any_other_value(
    engine: Engine, series: MetricSeries, process: Process, clock: ManualClock
) -> None:
    later = Process(
        MetricSeries(engine, CLUSTER_ID, now_ms=lambda _: BEGIN_MS + HOUR_MS), ManualClock(BEGIN_MS + HOUR_MS)
    )
    later.recorder.set(LAG, 2, "orders")
    later.write()
    process.recorder.set(LAG, 3, "orders")
    clock.advance(5)
    process.write()
    assert values(series) == {("lag", "orders"): 3}
