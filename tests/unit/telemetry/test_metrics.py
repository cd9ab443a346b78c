"""The recorder sets every declared metric, and nothing else."""

from prometheus_client import CollectorRegistry

from include.tiering.telemetry.catalogue import METRICS, MetricKind
from include.tiering.telemetry.metrics import PrometheusRecorder, process_recorder
from include.tiering.telemetry.size_metrics import LOG_SIZE_BYTES


def test_values_after_a_copy_a_failure_and_a_size_run() -> None:
    registry = CollectorRegistry()
    recorder = PrometheusRecorder(registry)
    recorder.segment_copied("orders", log_bytes=100, sent_bytes=130)
    recorder.segment_copied("orders", log_bytes=50, sent_bytes=60)
    recorder.copy_failed("orders", "CorruptFileError")
    recorder.topic_brought_in("orders", "io", 150, 30)
    recorder.topic_brought_in("orders", "throttled", 50, 10)
    recorder.show(LOG_SIZE_BYTES, {("orders",): 150})
    values = {
        (sample.name, *sample.labels.values()): sample.value
        for family in registry.collect()
        for sample in family.samples
        if not sample.name.endswith("_created") and sample.labels
    }
    assert values == {
        ("RemoteCopyBytesPerSec_total", "orders"): 150,
        ("RemoteCopyRequestsPerSec_total", "orders"): 3,
        ("RemoteCopyErrorsPerSec_total", "orders"): 1,
        ("tiering_copy_errors_total", "orders", "CorruptFileError"): 1,
        ("tiering_copy_sent_bytes_total", "orders"): 190,
        ("RemoteLogSizeBytes", "orders"): 150,
        ("tiering_topic_bytes_in_total", "orders", "io"): 150,
        ("tiering_topic_bytes_in_total", "orders", "throttled"): 50,
        ("tiering_topic_records_in_total", "orders", "io"): 30,
        ("tiering_topic_records_in_total", "orders", "throttled"): 10,
    }


def test_every_declared_metric_is_registered() -> None:
    registry = CollectorRegistry()
    PrometheusRecorder(registry)
    kinds = {(family.name, family.type) for family in registry.collect()}
    assert kinds == {(metric.name, str(metric.kind)) for metric in METRICS}
    assert {metric.kind for metric in METRICS} == set(MetricKind)


def test_a_process_has_one_recorder_however_often_it_is_asked_for() -> None:
    assert process_recorder() is process_recorder()
