"""Metrics of the rate at which requests delete objects."""

import pytest
from prometheus_client import CollectorRegistry

from include.tiering.quotas.contract import UNITS_PER_REQUEST, UNLIMITED, QuotaKind, QuotaLevel, Scope
from include.tiering.quotas.metrics import QuotaMetrics
from include.tiering.telemetry.metrics import PrometheusRecorder
from tests.doubles.manual_clock import ManualClock
from tests.doubles.present import present

DELETE = QuotaKind.DELETE
TOTAL = Scope(DELETE, QuotaLevel.TOTAL)


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


@pytest.fixture
def metrics(registry: CollectorRegistry) -> QuotaMetrics:
    return QuotaMetrics(PrometheusRecorder(registry), ManualClock())


def test_requests_are_counted_as_requests(metrics: QuotaMetrics, registry: CollectorRegistry) -> None:
    for _ in range(4):
        metrics.granted(DELETE, "orders", UNITS_PER_REQUEST // 2)
    metrics.throttled(DELETE, "orders", UNITS_PER_REQUEST // 2, 0.25)
    metrics.publisher.now()
    assert registry.get_sample_value("tiering_delete_requests_total", {"topic": "orders"}) == 2
    assert registry.get_sample_value("tiering_delete_throttled_seconds_total", {"topic": "orders"}) == 0.25
    assert present(registry.get_sample_value("tiering_delete_request_rate")) > 0
    labels = {"kind": "delete", "topic": "orders"}
    assert registry.get_sample_value("tiering_quota_granted_bytes_total", labels) is None


@pytest.mark.parametrize(
    ("units", "shown"), [(5 * UNITS_PER_REQUEST, 5.0), (None, float("inf")), (UNLIMITED, float("inf"))]
)
def test_the_rate_in_force(metrics: QuotaMetrics, registry: CollectorRegistry, units: int | None, shown: float) -> None:
    metrics.in_force(TOTAL, units)
    assert registry.get_sample_value("tiering_delete_max_requests_per_second") == shown
