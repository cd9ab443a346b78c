"""Metrics of deletions: segments that went or stayed."""

from prometheus_client import CollectorRegistry

from include.tiering.expiration.service import count_deleted
from include.tiering.telemetry.metrics import PrometheusRecorder


def test_segments_by_topic() -> None:
    registry = CollectorRegistry()
    count_deleted(PrometheusRecorder(registry), "orders", deleted=5, failed=1)
    assert registry.get_sample_value("RemoteDeleteRequestsPerSec_total", {"topic": "orders"}) == 6
    assert registry.get_sample_value("RemoteDeleteErrorsPerSec_total", {"topic": "orders"}) == 1
