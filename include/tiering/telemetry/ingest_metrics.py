"""Metrics of what is read of the brokers' metadata topic. A part of the catalogue."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from include.tiering.segments.ingestion_contract import IngestPosition, RecordOutcome
from include.tiering.telemetry.metric import Metric, MetricKind

if TYPE_CHECKING:
    from include.tiering.telemetry.metrics import PrometheusRecorder

INGEST_LAG: Final = Metric(
    "tiering_ingest_lag_records",
    MetricKind.GAUGE,
    ("metadata_partition",),
    "Records of `__remote_log_metadata` that are not read yet, by what the cluster last said.",
)
INGEST_STOPPED: Final = Metric(
    "tiering_ingest_stopped",
    MetricKind.GAUGE,
    ("metadata_partition",),
    "1 where reading stopped and a person has to look.",
)
INGEST_LOOKED: Final = Metric(
    "tiering_ingest_looked_timestamp_seconds",
    MetricKind.GAUGE,
    (),
    "When the cluster was last asked what its metadata topic holds, in seconds since 1970.",
)
INGEST_RECORDS: Final = Metric(
    "tiering_ingest_records",
    MetricKind.GAUGE,
    ("outcome",),
    "Records by what they did, since the topic was read from its beginning: applied, or dropped as brokers drop them.",
)

INGEST_METRICS: Final = (INGEST_LAG, INGEST_STOPPED, INGEST_LOOKED, INGEST_RECORDS)


def publish_ingest(
    recorder: "PrometheusRecorder",
    positions: Iterable[IngestPosition],
    outcomes: Mapping[int, Mapping[RecordOutcome, int]],
) -> None:
    """Every partition of the topic, and every outcome, those without any too."""
    known = list(positions)
    lag: dict[tuple[str, ...], float] = {(str(one.metadata_partition),): float(one.lag_records) for one in known}
    stopped: dict[tuple[str, ...], float] = {
        (str(one.metadata_partition),): float(one.stopped is not None) for one in known
    }
    recorder.show(INGEST_LAG, lag)
    recorder.show(INGEST_STOPPED, stopped)
    recorder.show(INGEST_LOOKED, {(): max((one.looked_at_ms for one in known), default=0) / 1000})
    totals: dict[tuple[str, ...], float] = {(outcome.value,): 0.0 for outcome in RecordOutcome}
    for counted in outcomes.values():
        for outcome, records in counted.items():
            totals[outcome.value,] += records
    recorder.show(INGEST_RECORDS, totals)
