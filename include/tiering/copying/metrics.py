"""Metrics of copies."""

from typing import Final

from include.tiering.telemetry.metrics import Metric, MetricKind, PrometheusRecorder

COPY_BYTES: Final = Metric(
    "RemoteCopyBytesPerSec",
    MetricKind.COUNTER,
    ("topic",),
    "Bytes of the `.log` of every segment that became FINISHED.",
)
COPY_REQUESTS: Final = Metric(
    "RemoteCopyRequestsPerSec",
    MetricKind.COUNTER,
    ("topic",),
    "Segments whose copy ended, well or not.",
)
COPY_ERRORS: Final = Metric(
    "RemoteCopyErrorsPerSec",
    MetricKind.COUNTER,
    ("topic",),
    "Segments whose copy failed.",
)
COPY_ERRORS_BY_CLASS: Final = Metric(
    "tiering_copy_errors",
    MetricKind.COUNTER,
    ("topic", "error"),
    "Segments whose copy failed, by error class.",
)
COPY_SENT_BYTES: Final = Metric(
    "tiering_copy_sent_bytes",
    MetricKind.COUNTER,
    ("topic",),
    "Bytes of all objects (log, indexes, manifest) of every segment that became FINISHED.",
)

COPY_METRICS: Final = (COPY_BYTES, COPY_REQUESTS, COPY_ERRORS, COPY_ERRORS_BY_CLASS, COPY_SENT_BYTES)


def count_copied(recorder: PrometheusRecorder, topic: str, *, log_bytes: int, sent_bytes: int) -> None:
    """Count one segment that became FINISHED; `sent_bytes` counts all of its objects."""
    recorder.add(COPY_REQUESTS, 1, topic)
    recorder.add(COPY_BYTES, log_bytes, topic)
    recorder.add(COPY_SENT_BYTES, sent_bytes, topic)


def count_failed(recorder: PrometheusRecorder, topic: str, error: str) -> None:
    """Count one segment that could not be copied; `error` is the class name of a TieringError."""
    recorder.add(COPY_REQUESTS, 1, topic)
    recorder.add(COPY_ERRORS, 1, topic)
    recorder.add(COPY_ERRORS_BY_CLASS, 1, topic, error)
