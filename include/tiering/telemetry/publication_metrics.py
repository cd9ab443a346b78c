"""Metrics of what is published to the brokers' metadata topic. A part of the catalogue."""

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from include.tiering.metadata_sync.publication_contract import PublicationTotal
from include.tiering.telemetry.metric import Metric, MetricKind

if TYPE_CHECKING:
    from include.tiering.telemetry.metrics import PrometheusRecorder

PUBLISHED_SEGMENTS: Final = Metric(
    "tiering_published_segments",
    MetricKind.GAUGE,
    ("topic",),
    "Segments of the platform that `__remote_log_metadata` has as finished.",
)
UNPUBLISHED_SEGMENTS: Final = Metric(
    "tiering_unpublished_segments",
    MetricKind.GAUGE,
    ("topic",),
    "Finished segments of a topic that is being handed over, above all that is published of their partition.",
)
UNPUBLISHED_BYTES: Final = Metric(
    "tiering_unpublished_bytes",
    MetricKind.GAUGE,
    ("topic",),
    "Bytes of their logs.",
)

PUBLICATION_METRICS: Final = (PUBLISHED_SEGMENTS, UNPUBLISHED_SEGMENTS, UNPUBLISHED_BYTES)


def show_publication(
    recorder: "PrometheusRecorder", totals: Iterable[PublicationTotal], waiting: Iterable[tuple[str, int, int]]
) -> None:
    """`waiting`: topic, segments and bytes, of each partition."""
    published: Counter[str] = Counter()
    for total in totals:
        published[total.topic_id_partition.topic] += total.live_segments
    segments: Counter[str] = Counter(dict.fromkeys(published, 0))
    size_bytes: Counter[str] = Counter(dict.fromkeys(published, 0))
    for topic, number, size in waiting:
        segments[topic] += number
        size_bytes[topic] += size
    for metric, counted in zip(PUBLICATION_METRICS, (published, segments, size_bytes), strict=True):
        recorder.show(metric, {(topic,): float(number) for topic, number in counted.items()})
