"""Metrics of deletion: requests of the rate, segments that went or stayed."""

import pytest
from prometheus_client import CollectorRegistry

from include.tiering.quotas.contract import UNLIMITED
from include.tiering.quotas.scopes import UNITS_PER_REQUEST, QuotaKind, QuotaLevel, Scope
from include.tiering.telemetry.metrics import PrometheusRecorder
from tests.doubles.manual_clock import ManualClock

DELETE = QuotaKind.DELETE
TOTAL = Scope(DELETE, QuotaLevel.TOTAL)


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


@pytest.fixture
def recorder(registry: CollectorRegistry) -> PrometheusRecorder:
    return PrometheusRecorder(registry, clock=ManualClock())


def test_requests_are_counted_as_requests(recorder: PrometheusRecorder, registry: CollectorRegistry) -> None:
    for _ in range(4):
        recorder.granted(DELETE, "orders", UNITS_PER_REQUEST // 2)
    recorder.throttled(DELETE, "orders", UNITS_PER_REQUEST // 2, 0.25)
    recorder.publish()
    assert registry.get_sample_value("tiering_delete_requests_total", {"topic": "orders"}) == 2
    assert registry.get_sample_value("tiering_delete_throttled_seconds_total", {"topic": "orders"}) == 0.25
    assert registry.get_sample_value("tiering_delete_request_rate") > 0
    labels = {"kind": "delete", "topic": "orders"}
    assert registry.get_sample_value("tiering_quota_granted_bytes_total", labels) is None


@pytest.mark.parametrize(
    ("units", "shown"), [(5 * UNITS_PER_REQUEST, 5.0), (None, float("inf")), (UNLIMITED, float("inf"))]
)
def test_the_rate_in_force(
    recorder: PrometheusRecorder, registry: CollectorRegistry, units: int | None, shown: float
) -> None:
    recorder.in_force(TOTAL, units)
    assert registry.get_sample_value("tiering_delete_max_requests_per_second") == shown


def test_segments_by_topic(recorder: PrometheusRecorder, registry: CollectorRegistry) -> None:
    recorder.segments_deleted("orders", deleted=5, failed=1)
    assert registry.get_sample_value("RemoteDeleteRequestsPerSec_total", {"topic": "orders"}) == 6
    assert registry.get_sample_value("RemoteDeleteErrorsPerSec_total", {"topic": "orders"}) == 1
