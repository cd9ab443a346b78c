"""Metrics of ingestion, which reads the brokers' metadata topic, and of publication, which writes to it."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from include.tiering.telemetry.metrics import Metric, MetricKind, MetricsRecorder

if TYPE_CHECKING:
    from include.tiering.metadata_sync.publication_contract import PublicationTotal
    from include.tiering.segments.ingestion_contract import IngestPosition, RecordOutcome


INGEST_LAG: Final = Metric(
    "tiering_ingest_lag_records",
    MetricKind.GAUGE,
    ("metadata_partition",),
    "Offsets of `__remote_log_metadata` that are not applied yet, up to the last end read; a few may have no record.",
)
INGEST_STOPPED: Final = Metric(
    "tiering_ingest_stopped",
    MetricKind.GAUGE,
    ("metadata_partition",),
    "1 if reading of the metadata partition has stopped and a person has to act, otherwise 0.",
)
INGEST_BOUNDS_READ: Final = Metric(
    "tiering_ingest_looked_timestamp_seconds",
    MetricKind.GAUGE,
    (),
    "When the offsets of the metadata topic were last read from the cluster, in seconds since 1970.",
)
INGEST_RECORDS: Final = Metric(
    "tiering_ingest_records",
    MetricKind.GAUGE,
    ("outcome",),
    "Records by effect since the topic was last read from its beginning: applied, dropped as by brokers, or unusable.",
)

INGEST_METRICS: Final = (INGEST_LAG, INGEST_STOPPED, INGEST_BOUNDS_READ, INGEST_RECORDS)

PUBLISHED_SEGMENTS: Final = Metric(
    "tiering_published_segments",
    MetricKind.GAUGE,
    ("topic",),
    "Segments of the platform whose last published record in `__remote_log_metadata` says that they are finished.",
)
UNPUBLISHED_SEGMENTS: Final = Metric(
    "tiering_unpublished_segments",
    MetricKind.GAUGE,
    ("topic",),
    "Finished segments of the platform that end above the published segments of their partition, in a topic that is "
    "being handed over; partitions whose publication has not begun do not count.",
)
UNPUBLISHED_BYTES: Final = Metric(
    "tiering_unpublished_bytes",
    MetricKind.GAUGE,
    ("topic",),
    "Log bytes of the segments that `tiering_unpublished_segments` counts.",
)

PUBLICATION_METRICS: Final = (PUBLISHED_SEGMENTS, UNPUBLISHED_SEGMENTS, UNPUBLISHED_BYTES)


def publish_ingest(
    recorder: MetricsRecorder,
    positions: "Iterable[IngestPosition]",
    outcomes: "Mapping[int, Mapping[RecordOutcome, int]]",
) -> None:
    """Set the metrics of ingestion.

    `positions` say how far each metadata partition was read; `outcomes` count, by metadata partition, the records that
    were read by what became of them (applied, dropped, unusable). An outcome that no record had is set to 0.
    """
    from include.tiering.segments.ingestion_contract import RecordOutcome

    known = list(positions)
    lag: dict[tuple[str, ...], float] = {
        (str(position.metadata_partition),): float(position.lag_records) for position in known
    }
    stopped: dict[tuple[str, ...], float] = {
        (str(position.metadata_partition),): float(position.stopped is not None) for position in known
    }
    recorder.show(INGEST_LAG, lag)
    recorder.show(INGEST_STOPPED, stopped)
    recorder.show(INGEST_BOUNDS_READ, {(): max((position.bounds_read_at_ms for position in known), default=0) / 1000})
    totals: dict[tuple[str, ...], float] = {(outcome.value,): 0.0 for outcome in RecordOutcome}
    for counted in outcomes.values():
        for outcome, records in counted.items():
            totals[outcome.value,] += records
    recorder.show(INGEST_RECORDS, totals)


def show_publication(
    recorder: MetricsRecorder, totals: "Iterable[PublicationTotal]", waiting: Iterable[tuple[str, int, int]]
) -> None:
    """Set the metrics of publication, which are sums over the partitions of a topic.

    `totals` are the published segments of each partition. `waiting` has one entry for each partition with segments that
    are to be published: its topic, the number of these segments, and their bytes.
    """
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
