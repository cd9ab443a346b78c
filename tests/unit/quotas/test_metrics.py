"""Metrics of quotas and of deletions: what limiters report, under the names that Prometheus shows."""

import pytest

from include.tiering.quotas.contract import UNITS_PER_REQUEST, UNLIMITED, QuotaKind, QuotaLevel, QuotaObserver, Scope
from include.tiering.quotas.metrics import QuotaMetrics
from tests.doubles.recorded_metrics import RecordedMetrics

COPY, FETCH, DELETE = QuotaKind.COPY, QuotaKind.FETCH, QuotaKind.DELETE
TOTAL = Scope(DELETE, QuotaLevel.TOTAL)


@pytest.fixture
def recorder() -> RecordedMetrics:
    return RecordedMetrics()


@pytest.fixture
def metrics(recorder: RecordedMetrics) -> QuotaObserver:
    return QuotaMetrics(recorder)


def test_grants_and_throttles_by_topic_and_kind(metrics: QuotaObserver, recorder: RecordedMetrics) -> None:
    metrics.granted(COPY, "orders", 3_000)
    metrics.granted(COPY, "orders", 1_000)
    metrics.throttled(COPY, "orders", 1_000, 0.25)
    metrics.granted(COPY, "payments", 4_000)
    metrics.throttled(COPY, "payments", 4_000, 0.75)
    metrics.held_back(COPY, 0.25)
    metrics.held_back(COPY, 0.75)
    metrics.granted(FETCH, "orders", 10)
    assert recorder.values() == {
        ("remote_copy_throttle_time_max",): 750.0,
        ("tiering_quota_held_back_seconds_total", "copy"): 1.0,
        ("tiering_quota_held_back_total", "copy"): 2,
        ("tiering_quota_granted_bytes_total", "copy", "orders"): 4_000,
        ("tiering_quota_granted_bytes_total", "copy", "payments"): 4_000,
        ("tiering_quota_granted_bytes_total", "fetch", "orders"): 10,
        ("tiering_quota_throttled_bytes_total", "copy", "orders"): 1_000,
        ("tiering_quota_throttled_bytes_total", "copy", "payments"): 4_000,
        ("tiering_quota_throttled_seconds_total", "copy", "orders"): 0.25,
        ("tiering_quota_throttled_seconds_total", "copy", "payments"): 0.75,
        ("tiering_quota_throttles_total", "copy", "orders"): 1,
        ("tiering_quota_throttles_total", "copy", "payments"): 1,
    }


def test_slices_say_nothing_about_throttle_times_and_refusals_are_apart(
    metrics: QuotaObserver, recorder: RecordedMetrics
) -> None:
    """Ten slices that waited 20 ms each are one answer that was held back for 200 ms; two others were refused."""
    for _ in range(10):
        metrics.throttled(FETCH, "orders", 100, 0.02)
    metrics.held_back(FETCH, 0.2)
    metrics.refused("orders", 5_000, 0.5)
    metrics.refused("orders", 3_000, 1.5)
    seen = recorder.values()
    assert seen["tiering_fetch_pacing_time_max",] == 200.0
    assert seen["remote_fetch_throttle_time_max",] == 1_500.0
    assert seen["tiering_quota_held_back_seconds_total", "fetch"] == 0.2
    assert seen["tiering_quota_throttled_seconds_total", "fetch", "orders"] == pytest.approx(0.2)
    assert seen["tiering_quota_refused_seconds_total", "orders"] == 2.0
    assert seen["tiering_quota_refused_bytes_total", "orders"] == 8_000
    assert seen["tiering_quota_refusals_total", "orders"] == 2


def test_quotas_in_force_by_scope(metrics: QuotaObserver, recorder: RecordedMetrics) -> None:
    total, of_brokers, of_2 = (
        Scope(COPY, QuotaLevel.TOTAL),
        Scope(COPY, QuotaLevel.BROKER),
        Scope(COPY, QuotaLevel.BROKER, "2"),
    )
    clients = {Scope(FETCH, QuotaLevel.CLIENT, "default"): 5, Scope(FETCH, QuotaLevel.CLIENT, "free"): UNLIMITED}
    metrics.in_force({total: 1_000, of_brokers: 500, of_2: 50, **clients})
    assert recorder.values()["tiering_quota_bytes_per_second", "copy", "broker", "2"] == 50
    metrics.in_force({total: 1_000, of_brokers: 500, **clients})
    assert recorder.values() == {
        ("tiering_quota_bytes_per_second", "copy", "total", ""): 1_000,
        ("tiering_quota_bytes_per_second", "copy", "broker", "<default>"): 500,
        ("tiering_quota_bytes_per_second", "fetch", "client", "default"): 5,
        ("tiering_quota_bytes_per_second", "fetch", "client", "free"): float("inf"),
        ("tiering_delete_max_requests_per_second",): float("inf"),
    }


def test_requests_are_counted_as_requests(metrics: QuotaObserver, recorder: RecordedMetrics) -> None:
    for _ in range(4):
        metrics.granted(DELETE, "orders", UNITS_PER_REQUEST // 2)
    metrics.throttled(DELETE, "orders", UNITS_PER_REQUEST // 2, 0.25)
    metrics.held_back(DELETE, 0.25)
    assert recorder.values() == {
        ("tiering_delete_requests_total", "orders"): 2,
        ("tiering_delete_throttled_seconds_total", "orders"): 0.25,
    }


@pytest.mark.parametrize(
    ("units", "shown"), [(5 * UNITS_PER_REQUEST, 5.0), (None, float("inf")), (UNLIMITED, float("inf"))]
)
def test_the_rate_in_force(metrics: QuotaObserver, recorder: RecordedMetrics, units: int | None, shown: float) -> None:
    metrics.in_force({} if units is None else {TOTAL: units})
    assert recorder.values() == {("tiering_delete_max_requests_per_second",): shown}
