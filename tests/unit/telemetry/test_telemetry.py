"""Log records, and what is recorded of metrics."""

import logging
import threading

import pytest

from include.tiering.model.segments import TopicIdPartition, Uuid
from include.tiering.telemetry import for_partition, get_logger, redact
from include.tiering.telemetry.metrics import MINUTE_MS, Metric, MetricKind, MetricsRecorder
from tests.doubles.manual_clock import ManualClock

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


# The recorder: what was recorded since it was drained, by minute.

COPIES = Metric("copies", MetricKind.COUNTER, ("topic",), "Copies.")
RATE = Metric("rate", MetricKind.GAUGE, (), "Bytes a second.")
LAG = Metric("lag", MetricKind.GAUGE, ("topic",), "Lag.")
LONGEST = Metric("longest", MetricKind.PEAK, (), "Milliseconds.")
MINUTE = 1_700_000_000_000 // MINUTE_MS


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(1_700_000_000_000)


@pytest.fixture
def recorder(clock: ManualClock) -> MetricsRecorder:
    return MetricsRecorder(clock)


def test_a_counter_adds_up_within_a_minute_and_each_minute_is_apart(recorder: MetricsRecorder, clock: ManualClock):
    recorder.add(COPIES, 2, "orders")
    recorder.add(COPIES, 1, "orders")
    clock.advance(60)
    recorder.add(COPIES, 5, "orders")
    assert recorder.drain().added == {(COPIES, ("orders",), MINUTE): 3, (COPIES, ("orders",), MINUTE + 1): 5}
    assert not recorder.drain()


def test_a_peak_keeps_the_highest_value_and_a_gauge_the_last(recorder: MetricsRecorder, clock: ManualClock):
    for value in (2.0, 7.0, 3.0):
        recorder.raise_to(LONGEST, value)
        recorder.set(RATE, value)
        clock.advance(0.001)
    drained = recorder.drain()
    assert drained.highest == {(LONGEST, (), MINUTE): 7.0}
    assert drained.latest == {(RATE, ()): (3.0, 1_700_000_000_002)}


def test_what_replaces_a_gauge_forgets_its_other_labels(recorder: MetricsRecorder):
    recorder.show(LAG, {("orders",): 1.0, ("audit",): 2.0})
    recorder.show(LAG, {("orders",): 3.0})
    assert {labels for _, labels in recorder.drain().latest} == {("orders",), ("audit",)}
    recorder.show(LAG, {("orders",): 1.0, ("audit",): 2.0})
    recorder.replace(LAG, {("orders",): 3.0})
    drained = recorder.drain()
    assert ({labels for _, labels in drained.latest}, set(drained.replaced)) == ({("orders",)}, {LAG})


def test_what_could_not_be_written_counts_with_what_came_later(recorder: MetricsRecorder):
    recorder.add(COPIES, 2, "orders")
    recorder.set(RATE, 1)
    recorder.raise_to(LONGEST, 9)
    drained = recorder.drain()
    recorder.add(COPIES, 3, "orders")
    recorder.set(RATE, 2)
    recorder.raise_to(LONGEST, 4)
    recorder.put_back(drained)
    both = recorder.drain()
    assert list(both.added.values()) == [5]
    assert [value for value, _ in both.latest.values()] == [2]
    assert list(both.highest.values()) == [9]


def test_other_labels_than_declared_are_refused(recorder: MetricsRecorder):
    with pytest.raises(ValueError, match="copies"):
        recorder.add(COPIES, 1)
    with pytest.raises(ValueError, match="rate"):
        recorder.set(RATE, 1, "orders")


def test_each_value_wakes_the_writer(clock: ManualClock):
    woken: list[str] = []
    recorder = MetricsRecorder(clock, lambda: woken.append("woken"))
    recorder.add(COPIES, 1, "orders")
    recorder.set(RATE, 1)
    recorder.raise_to(LONGEST, 1)
    assert len(woken) == 3


def test_values_of_many_threads_add_up(recorder: MetricsRecorder):
    def report() -> None:
        for _ in range(500):
            recorder.add(COPIES, 3, "orders")

    threads = [threading.Thread(target=report) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert list(recorder.drain().added.values()) == [6_000]
