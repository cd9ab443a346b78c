"""The metrics of copying, by topic. `CopyService` counts a segment when it is copied, failures when a batch ends."""

from typing import Final

from include.tiering.telemetry.metrics import Metric, MetricKind

COPY_BYTES: Final = Metric(
    "RemoteCopyBytesPerSec",
    MetricKind.COUNTER,
    ("topic",),
    "Bytes of the `.log` of every segment that a batch sent and that became FINISHED.",
    mbean="kafka.server:type=BrokerTopicMetrics,name=RemoteCopyBytesPerSec,topic=T (Count)",
    by_minute=True,
)
COPY_REQUESTS: Final = Metric(
    "RemoteCopyRequestsPerSec",
    MetricKind.COUNTER,
    ("topic",),
    "Segments whose copy ended, with success or failure.",
    mbean="kafka.server:type=BrokerTopicMetrics,name=RemoteCopyRequestsPerSec,topic=T (Count)",
)
COPY_ERRORS: Final = Metric(
    "RemoteCopyErrorsPerSec",
    MetricKind.COUNTER,
    ("topic",),
    "Segments whose copy failed.",
    mbean="kafka.server:type=BrokerTopicMetrics,name=RemoteCopyErrorsPerSec,topic=T (Count)",
    by_minute=True,
)
COPY_ERRORS_BY_CLASS: Final = Metric(
    "tiering_copy_errors", MetricKind.COUNTER, ("topic", "error"), "Segments whose copy failed, by error class."
)
COPY_SENT_BYTES: Final = Metric(
    "tiering_copy_sent_bytes",
    MetricKind.COUNTER,
    ("topic",),
    "Bytes of all objects (log, indexes, manifest) of every segment that a batch sent and that became FINISHED.",
)

COPY_METRICS: Final = (COPY_BYTES, COPY_REQUESTS, COPY_ERRORS, COPY_ERRORS_BY_CLASS, COPY_SENT_BYTES)
