"""What is shown of what was recorded: windows of whole minutes over all processes, read once in five seconds."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, event

from include.tiering.app.metrics import METRICS
from include.tiering.database.engine import open_engine
from include.tiering.database.metric_series import SETTLED_MS, MetricSeries
from include.tiering.database.migrations import upgrade
from include.tiering.errors import MetadataUnavailableError
from include.tiering.operations.monitoring import FRESH_SECONDS, MonitoringService
from include.tiering.quotas.contract import UNITS_PER_REQUEST, QuotaKind
from include.tiering.quotas.metrics import QuotaMetrics
from include.tiering.telemetry.metrics import Metric, MetricKind, MetricsRecorder
from tests.doubles.manual_clock import ManualClock

COPY, FETCH, DELETE = QuotaKind.COPY, QuotaKind.FETCH, QuotaKind.DELETE
IDLE = {
    "RLMCopy_byte_rate": 0,
    "RLMFetch_byte_rate": 0,
    "tiering_delete_request_rate": 0,
    "remote_copy_throttle_time_avg": 0,
    "remote_copy_throttle_time_max": 0,
    "remote_fetch_throttle_time_avg": 0,
    "remote_fetch_throttle_time_max": 0,
    "tiering_fetch_pacing_time_avg": 0,
    "tiering_fetch_pacing_time_max": 0,
}


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    engine = open_engine(f"sqlite:///{tmp_path / 'tiering.sqlite'}")
    upgrade(engine)
    yield engine
    engine.dispose()


class Platform:
    """Processes that record at the times of one clock, and what is shown of them."""

    def __init__(self, engine: Engine, windows: dict[QuotaKind, tuple[int, int]]) -> None:
        self.clock = ManualClock(now_ms=1_700_000_040_000 // 60_000 * 60_000)
        self.series = MetricSeries(engine, "cluster-1", now_ms=lambda _: self.clock.now_ms())
        self.service = MonitoringService(series=self.series, metrics=METRICS, windows=lambda: windows, clock=self.clock)

    def process(self) -> tuple[QuotaMetrics, MetricsRecorder]:
        recorder = MetricsRecorder(self.clock)
        return QuotaMetrics(recorder), recorder

    def write(self, recorder: MetricsRecorder) -> None:
        self.series.write(recorder.drain())

    def shown(self) -> dict[str, float]:
        self.clock.advance(FRESH_SECONDS)
        kinds = (MetricKind.COMPUTED, MetricKind.PEAK)
        return {one.metric.name: one.values[0][1] for one in self.service.values() if one.metric.kind in kinds}


@pytest.fixture
def platform(engine: Engine) -> Platform:
    return Platform(engine, {COPY: (61, 1_000), FETCH: (11, 1_000)})


def test_rates_and_throttle_times_are_of_all_processes_in_the_newest_whole_minute(platform: Platform) -> None:
    assert platform.shown() == IDLE
    for number in (1, 2, 3):
        quotas, recorder = platform.process()
        quotas.granted(COPY, "orders", 60_000 * number)
        quotas.granted(COPY, "audit", 60_000)
        quotas.held_back(COPY, 0.1 * number)
        quotas.held_back(FETCH, 0.5)
        quotas.granted(FETCH, "orders", 6_000)
        quotas.refused("orders", 100, 1.0 * number)
        quotas.granted(DELETE, "orders", 20 * UNITS_PER_REQUEST)
        platform.write(recorder)
    assert platform.shown() == IDLE, "the minute is not over"
    platform.clock.advance(60 + SETTLED_MS / 1000)
    assert platform.shown() == {
        "RLMCopy_byte_rate": 9_000,
        "RLMFetch_byte_rate": 300,
        "tiering_delete_request_rate": 1,
        "remote_copy_throttle_time_avg": pytest.approx(200),
        "remote_copy_throttle_time_max": pytest.approx(300),
        "remote_fetch_throttle_time_avg": pytest.approx(2_000),
        "remote_fetch_throttle_time_max": pytest.approx(3_000),
        "tiering_fetch_pacing_time_avg": pytest.approx(500),
        "tiering_fetch_pacing_time_max": pytest.approx(500),
    }
    platform.clock.advance(60)
    assert platform.shown() == IDLE


def test_rates_are_measured_over_the_windows_that_are_set(engine: Engine) -> None:
    platform = Platform(engine, {COPY: (10, 60_000), FETCH: (1, 1_000)})
    quotas, recorder = platform.process()
    quotas.granted(COPY, "orders", 600_000)
    quotas.granted(FETCH, "orders", 600)
    platform.write(recorder)
    platform.clock.advance(60 + SETTLED_MS / 1000)
    assert [platform.shown()[name] for name in ("RLMCopy_byte_rate", "RLMFetch_byte_rate")] == [1_000, 10]
    platform.clock.advance(9 * 60 - FRESH_SECONDS)
    assert [platform.shown()[name] for name in ("RLMCopy_byte_rate", "RLMFetch_byte_rate")] == [1_000, 0]
    platform.clock.advance(60)
    assert platform.shown()["RLMCopy_byte_rate"] == 0


def test_the_throttle_time_follows_the_quota(platform: Platform) -> None:
    """A segment is held back for the time that its bytes take at the quota."""
    segment_bytes = 1_000_000
    for quota in (100_000, 200_000, 500_000):
        quotas, recorder = platform.process()
        quotas.held_back(COPY, segment_bytes / quota)
        platform.write(recorder)
        platform.clock.advance(60 + SETTLED_MS / 1000)
        assert platform.shown()["remote_copy_throttle_time_avg"] == pytest.approx(1000 * segment_bytes / quota)


def test_scrapes_within_five_seconds_are_one_read_of_two_statements(platform: Platform, engine: Engine) -> None:
    statements: list[str] = []
    event.listen(engine, "before_cursor_execute", lambda *call: statements.append(call[2]))
    platform.service.values()
    platform.service.values()
    assert len([statement for statement in statements if statement.startswith("SELECT")]) == 2
    platform.clock.advance(FRESH_SECONDS)
    platform.service.values()
    assert len([statement for statement in statements if statement.startswith("SELECT")]) == 4


def test_an_error_is_kept_as_long_as_values_are(platform: Platform, monkeypatch: pytest.MonkeyPatch) -> None:
    reads = 0

    def fails() -> Any:
        nonlocal reads
        reads += 1
        platform.clock.advance(30)
        raise MetadataUnavailableError("away")

    with monkeypatch.context() as patch:
        patch.setattr(platform.series, "all", fails)
        for _ in range(3):
            with pytest.raises(MetadataUnavailableError):
                platform.service.values()
        assert reads == 1
        platform.clock.advance(FRESH_SECONDS)
        with pytest.raises(MetadataUnavailableError):
            platform.service.values()
        assert reads == 2
    platform.clock.advance(FRESH_SECONDS)
    assert platform.service.values()


def test_what_another_version_recorded_is_not_shown(platform: Platform) -> None:
    known = next(metric for metric in METRICS if metric.name == "RemoteCopyErrorsPerSec")
    recorder = MetricsRecorder(platform.clock)
    recorder.add(Metric(known.name, known.kind, ("topic", "broker"), ""), 5, "orders", "1")
    recorder.add(Metric("tiering_unheard_of", known.kind, ("topic",), ""), 5, "orders")
    platform.write(recorder)
    shown = {one.metric.name: one.values for one in platform.service.values()}
    assert shown.keys() == {metric.name for metric in METRICS}
    assert shown[known.name] == ()


def test_the_traffic_of_a_minute_an_hour_and_a_day(platform: Platform) -> None:
    for _ in range(3):
        quotas, recorder = platform.process()
        quotas.granted(COPY, "orders", 1_000)
        quotas.throttled(COPY, "orders", 1_000, 0.5)
        quotas.granted(FETCH, "audit", 10)
        quotas.granted(DELETE, "orders", 2 * UNITS_PER_REQUEST)
        platform.write(recorder)
        platform.clock.advance(45 * 60)
    platform.clock.advance(-44 * 60 + SETTLED_MS / 1000)
    traffic = platform.service.traffic()
    assert [one.minutes for one in traffic] == [1, 60, 1440]
    assert [one.copied_bytes for one in traffic] == [1_000, 2_000, 3_000]
    assert [one.copy_throttled_seconds for one in traffic] == [0.5, 1.0, 1.5]
    assert [one.fetched_bytes for one in traffic] == [10, 20, 30]
    assert [one.delete_requests for one in traffic] == [2, 4, 6]
