"""Every metric, declared once, and the recorder through which tasks report.

A metric that means what a Kafka metric means carries Kafka's name; ours start with `tiering_`. Batches are short-lived
processes: where prometheus-client's PROMETHEUS_MULTIPROC_DIR names a directory that outlives them, all of them add to
the same values, and whatever serves that directory shows the sum.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import Final

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge

from include.tiering.model.sizes import PartitionSize


class MetricKind(StrEnum):
    """COUNTER only grows (prometheus-client adds `_total` to its name); GAUGE is the last value set."""

    COUNTER = "counter"
    GAUGE = "gauge"


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric: `sentence` says what is counted and in which unit."""

    name: str
    kind: MetricKind
    labels: tuple[str, ...]
    sentence: str


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
LOG_SIZE_BYTES: Final = Metric(
    "RemoteLogSizeBytes",
    MetricKind.GAUGE,
    ("topic",),
    "Bytes of FINISHED remote log segments; one that spans leader epochs counts once.",
)
LOG_SEGMENTS: Final = Metric(
    "tiering_remote_log_segments",
    MetricKind.GAUGE,
    ("topic",),
    "FINISHED remote log segments.",
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

METRICS: Final = (
    COPY_BYTES,
    COPY_REQUESTS,
    COPY_ERRORS,
    COPY_ERRORS_BY_CLASS,
    COPY_SENT_BYTES,
    LOG_SIZE_BYTES,
    LOG_SEGMENTS,
    TOPIC_BYTES_IN,
    TOPIC_RECORDS_IN,
)


class PrometheusRecorder:
    """Keeps the metrics of this process in `registry`; make one per registry."""

    def __init__(self, registry: CollectorRegistry = REGISTRY) -> None:
        self._counters = {m: Counter(m.name, m.sentence, m.labels, registry=registry) for m in _of(MetricKind.COUNTER)}
        self._gauges = {
            m: Gauge(m.name, m.sentence, m.labels, registry=registry, multiprocess_mode="mostrecent")
            for m in _of(MetricKind.GAUGE)
        }

    def segment_copied(self, topic: str, *, log_bytes: int, sent_bytes: int) -> None:
        """One segment became FINISHED; `sent_bytes` counts all of its objects."""
        self._counters[COPY_REQUESTS].labels(topic).inc()
        self._counters[COPY_BYTES].labels(topic).inc(log_bytes)
        self._counters[COPY_SENT_BYTES].labels(topic).inc(sent_bytes)

    def copy_failed(self, topic: str, error: str) -> None:
        """A segment could not be copied; `error` is the class name of a TieringError."""
        self._counters[COPY_REQUESTS].labels(topic).inc()
        self._counters[COPY_ERRORS].labels(topic).inc()
        self._counters[COPY_ERRORS_BY_CLASS].labels(topic, error).inc()

    def topic_brought_in(self, topic: str, meter: str, size_bytes: int, records: int) -> None:
        """One segment counted in one meter of topic quotas."""
        self._counters[TOPIC_BYTES_IN].labels(topic, meter).inc(size_bytes)
        self._counters[TOPIC_RECORDS_IN].labels(topic, meter).inc(records)

    def remote_log_sizes(self, sizes: Iterable[PartitionSize]) -> None:
        """FINISHED bytes and segments of all partitions that have any."""
        totals: dict[str, tuple[int, int]] = {}
        for size in sizes:
            topic = size.topic_id_partition.topic
            size_bytes, segments = totals.get(topic, (0, 0))
            totals[topic] = (size_bytes + size.size_bytes, segments + size.segments)
        for topic, (size_bytes, segments) in totals.items():
            self._gauges[LOG_SIZE_BYTES].labels(topic).set(size_bytes)
            self._gauges[LOG_SEGMENTS].labels(topic).set(segments)


@cache
def process_recorder() -> PrometheusRecorder:
    """The one recorder of this process, in prometheus-client's own registry."""
    return PrometheusRecorder()


def _of(kind: MetricKind) -> list[Metric]:
    return [metric for metric in METRICS if metric.kind is kind]
