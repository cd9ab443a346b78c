"""Every metric, declared once.

A metric that means what a Kafka metric means carries Kafka's name, with underscores where Prometheus allows no dash;
ours start with `tiering_`.
"""

from typing import Final

from include.tiering.audit.metrics import AUDIT_METRICS
from include.tiering.telemetry.failed_copy_metrics import FAILED_COPY_METRICS
from include.tiering.telemetry.handover_metrics import HANDOVER_METRICS
from include.tiering.telemetry.ingest_metrics import INGEST_METRICS
from include.tiering.telemetry.metric import Across as Across
from include.tiering.telemetry.metric import Metric as Metric
from include.tiering.telemetry.metric import MetricKind as MetricKind
from include.tiering.telemetry.publication_metrics import PUBLICATION_METRICS
from include.tiering.telemetry.size_metrics import SIZE_METRICS
from include.tiering.telemetry.verdict_metrics import VERDICT_METRICS

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
TOPIC_BYTES_IN: Final = Metric(
    "tiering_topic_bytes_in",
    MetricKind.COUNTER,
    ("topic", "meter"),
    "Bytes of the `.log` of segments that asked topic quotas for admission (meter io), by what became of them: "
    "accepted, error, throttled.",
)
TOPIC_RECORDS_IN: Final = Metric(
    "tiering_topic_records_in",
    MetricKind.COUNTER,
    ("topic", "meter"),
    "Offsets that those segments span, end - base + 1.",
)

COPY_BYTE_RATE: Final = Metric(
    "RLMCopy_byte_rate",
    MetricKind.GAUGE,
    (),
    "Bytes a second that uploads were granted, over the copy quota's window; the sum of all processes.",
    Across.SUM,
)
FETCH_BYTE_RATE: Final = Metric(
    "RLMFetch_byte_rate",
    MetricKind.GAUGE,
    (),
    "Bytes a second that reads were granted, over the fetch quota's window; the sum of all processes.",
    Across.SUM,
)
COPY_THROTTLE_AVG: Final = Metric(
    "remote_copy_throttle_time_avg",
    MetricKind.GAUGE,
    (),
    "Milliseconds that a throttled grant of a copy waited, on average over 30 to 60 s; 0 if none did. Of several "
    "processes the highest.",
    Across.HIGHEST,
)
COPY_THROTTLE_MAX: Final = Metric(
    "remote_copy_throttle_time_max",
    MetricKind.GAUGE,
    (),
    "The longest such wait.",
    Across.HIGHEST,
)
FETCH_THROTTLE_AVG: Final = Metric(
    "remote_fetch_throttle_time_avg",
    MetricKind.GAUGE,
    (),
    "Milliseconds that a throttled grant of a fetch waited, on average over 30 to 60 s; 0 if none did. Of several "
    "processes the highest.",
    Across.HIGHEST,
)
FETCH_THROTTLE_MAX: Final = Metric(
    "remote_fetch_throttle_time_max",
    MetricKind.GAUGE,
    (),
    "The longest such wait.",
    Across.HIGHEST,
)
QUOTA: Final = Metric(
    "tiering_quota_bytes_per_second",
    MetricKind.GAUGE,
    ("kind", "level", "entity"),
    "Quota in force of a scope, +Inf without a limit: `copy` or `fetch`, of `total`, or of one `broker`, `topic` or "
    "`client`, or of every other one (`<default>`).",
)
GRANTED_BYTES: Final = Metric(
    "tiering_quota_granted_bytes",
    MetricKind.COUNTER,
    ("kind", "topic"),
    "Bytes that were charged to the quotas, retries included.",
)
THROTTLED_BYTES: Final = Metric(
    "tiering_quota_throttled_bytes",
    MetricKind.COUNTER,
    ("kind", "topic"),
    "Those of them that had to wait for a quota.",
)
THROTTLED_SECONDS: Final = Metric(
    "tiering_quota_throttled_seconds",
    MetricKind.COUNTER,
    ("kind", "topic"),
    "Seconds that they waited, added up over all streams.",
)
THROTTLES: Final = Metric(
    "tiering_quota_throttles",
    MetricKind.COUNTER,
    ("kind", "topic"),
    "Grants that had to wait: seconds by grants is the average wait of all processes, over any time.",
)

DELETE_REQUESTS: Final = Metric(
    "RemoteDeleteRequestsPerSec",
    MetricKind.COUNTER,
    ("topic",),
    "Remote log segments whose deletion ended, well or not.",
)
DELETE_ERRORS: Final = Metric(
    "RemoteDeleteErrorsPerSec",
    MetricKind.COUNTER,
    ("topic",),
    "Those of them that could not be deleted and are left to the next run.",
)
SUPERSEDED_HELD: Final = Metric(
    "tiering_superseded_held",
    MetricKind.COUNTER,
    ("topic",),
    "Superseded segments that expiration kept, each time that it met them, because the copy in their place is not "
    "proved to be there, whole, right and passed.",
)
DELETE_CALLS: Final = Metric(
    "tiering_delete_requests",
    MetricKind.COUNTER,
    ("topic",),
    "Requests of expiration that delete objects, up to 999 each.",
)
DELETE_THROTTLED_SECONDS: Final = Metric(
    "tiering_delete_throttled_seconds",
    MetricKind.COUNTER,
    ("topic",),
    "Seconds that they waited for `tiering.delete.max.requests.per.second`.",
)
DELETE_RATE: Final = Metric(
    "tiering_delete_request_rate",
    MetricKind.GAUGE,
    (),
    "Such requests a second, over eleven seconds; the sum of all processes.",
    Across.SUM,
)
DELETE_MAX_RATE: Final = Metric(
    "tiering_delete_max_requests_per_second",
    MetricKind.GAUGE,
    (),
    "The most of them that are in force, +Inf without a limit.",
)

METRICS: Final = (
    COPY_BYTES,
    COPY_REQUESTS,
    COPY_ERRORS,
    COPY_ERRORS_BY_CLASS,
    COPY_SENT_BYTES,
    *SIZE_METRICS,
    *VERDICT_METRICS,
    *FAILED_COPY_METRICS,
    *AUDIT_METRICS,
    *INGEST_METRICS,
    *PUBLICATION_METRICS,
    *HANDOVER_METRICS,
    TOPIC_BYTES_IN,
    TOPIC_RECORDS_IN,
    COPY_BYTE_RATE,
    FETCH_BYTE_RATE,
    COPY_THROTTLE_AVG,
    COPY_THROTTLE_MAX,
    FETCH_THROTTLE_AVG,
    FETCH_THROTTLE_MAX,
    QUOTA,
    GRANTED_BYTES,
    THROTTLED_BYTES,
    THROTTLED_SECONDS,
    THROTTLES,
    DELETE_REQUESTS,
    DELETE_ERRORS,
    SUPERSEDED_HELD,
    DELETE_CALLS,
    DELETE_THROTTLED_SECONDS,
    DELETE_RATE,
    DELETE_MAX_RATE,
)
