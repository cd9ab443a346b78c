"""Log records and the metrics registry."""

import logging

import pytest
from prometheus_client import CollectorRegistry

from include.tiering.model.segments import TopicIdPartition, Uuid
from include.tiering.telemetry import for_partition, get_logger, redact
from include.tiering.telemetry.metrics import Metric, MetricKind, PrometheusRecorder, process_recorder

# Lines name their partition and hold no secret.


@pytest.mark.parametrize(
    ("text", "redacted"),
    [
        ("postgresql+psycopg://tiering:p@ss/w@db/x is locked", "postgresql+psycopg://tiering:***@db/x is locked"),
        ("password=hunter2, host=db", "password=***, host=db"),
        ('{"secret_access_key": "abc", "region": "x"}', '{"secret_access_key": "***", "region": "x"}'),
        ("GET /o?X-Amz-Signature=abcdef&part=2", "GET /o?X-Amz-Signature=***&part=2"),
        ("AWS_SESSION_TOKEN: abc", "AWS_SESSION_TOKEN: ***"),
        ("http://127.0.0.1:7070/bucket/key", "http://127.0.0.1:7070/bucket/key"),
        ("3 segments of orders-0, 42 bytes", "3 segments of orders-0, 42 bytes"),
    ],
)
def test_redaction(text: str, redacted: str) -> None:
    assert redact(text) == redacted


@pytest.mark.parametrize("unit", ["a", "token", "password_", "a://", "a://b:", "x:y@", "s3://k:", "secret ", "-="])
def test_redaction_takes_time_that_grows_with_the_text_alone(unit: str) -> None:
    """A broker or a server decides how long its error is, and every line is redacted."""
    redact(unit * (300_000 // len(unit)))  # In quadratic time this takes hours.


@pytest.mark.parametrize(
    ("text", "redacted"),
    [
        ("a://u:p@h and b://v:q@i", "a://u:***@h and b://v:***@i"),
        ("see a://h/x, mail me@there", "see a://h/x, mail me@there"),
        ("my-token-of-orders = 'x'", "my-token-of-orders = '***'"),
        ("token token: x", "token token: ***"),
    ],
)
def test_redaction_of_what_stands_close_together(text: str, redacted: str) -> None:
    assert redact(text) == redacted


def test_a_partition_line_starts_with_its_name_and_arguments_are_redacted_too(caplog: pytest.LogCaptureFixture) -> None:
    logger = for_partition(get_logger("tests.observability"), TopicIdPartition(Uuid(bytes(16)), 3, "orders"))
    with caplog.at_level(logging.INFO):
        logger.info("copied %d bytes to %s", 7, "s3://key:hunter2@bucket")
    assert caplog.messages == ["[orders-3] copied 7 bytes to s3://key:***@bucket"]


def test_a_logger_is_redacted_once_however_often_it_is_asked_for() -> None:
    assert (
        len(get_logger("tests.observability.twice").filters)
        == len(get_logger("tests.observability.twice").filters)
        == 1
    )


# The recorder: a metric is there once it is registered or recorded, and one process has one recorder.

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
