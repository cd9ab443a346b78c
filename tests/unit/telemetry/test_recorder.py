"""The recorder: a metric is there once it is registered or recorded, and one process has one recorder."""

import pytest
from prometheus_client import CollectorRegistry

from include.tiering.telemetry.metrics import Metric, MetricKind, PrometheusRecorder, process_recorder

COPIES = Metric("copies", MetricKind.COUNTER, ("topic",), "Copies.")
RATE = Metric("rate", MetricKind.GAUGE, (), "Bytes a second.")


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


@pytest.fixture
def recorder(registry: CollectorRegistry) -> PrometheusRecorder:
    return PrometheusRecorder(registry)


def test_a_registered_metric_without_labels_is_0(recorder: PrometheusRecorder, registry: CollectorRegistry) -> None:
    recorder.register([COPIES, RATE])
    assert registry.get_sample_value("rate") == 0
    assert {family.name for family in registry.collect()} == {"copies", "rate"}


def test_registering_again_keeps_what_was_recorded(recorder: PrometheusRecorder, registry: CollectorRegistry) -> None:
    recorder.add(COPIES, 2, "orders")
    recorder.set(RATE, 5)
    recorder.register([COPIES, RATE])
    recorder.add(COPIES, 1, "orders")
    assert registry.get_sample_value("copies_total", {"topic": "orders"}) == 3
    assert registry.get_sample_value("rate") == 5


def test_two_metrics_of_one_name_are_refused(recorder: PrometheusRecorder) -> None:
    recorder.register([RATE])
    with pytest.raises(ValueError, match="rate"):
        recorder.register([Metric("rate", MetricKind.GAUGE, (), "Another.")])


def test_a_process_has_one_recorder_however_often_it_is_asked_for() -> None:
    assert process_recorder() is process_recorder()
