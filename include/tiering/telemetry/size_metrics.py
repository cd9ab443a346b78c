"""Metrics of what is remote, what waits, and what it costs. A part of the catalogue."""

from typing import Final

from include.tiering.telemetry.metric import Metric, MetricKind

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
METADATA_COUNT: Final = Metric(
    "RemoteLogMetadataCount",
    MetricKind.GAUGE,
    ("topic",),
    "Remote log segments in any state but DELETE_SEGMENT_FINISHED.",
)
COMPUTATION_TIME: Final = Metric(
    "RemoteLogSizeComputationTime",
    MetricKind.GAUGE,
    (),
    "Milliseconds that the last size run took to recount all sizes.",
)
SIZE_DIFFERENCES: Final = Metric(
    "tiering_remote_log_size_differences",
    MetricKind.GAUGE,
    (),
    "Findings of the last size run: partitions whose counters, rows or objects do not agree.",
)
COPY_LAG_BYTES: Final = Metric(
    "RemoteCopyLagBytes",
    MetricKind.GAUGE,
    ("topic",),
    "Bytes of rolled segments that are not remote yet, by the log dirs and the rows.",
)
COPY_LAG_SEGMENTS: Final = Metric(
    "RemoteCopyLagSegments",
    MetricKind.GAUGE,
    ("topic",),
    "Rolled segments that are not remote yet.",
)
COPY_LAG_SECONDS: Final = Metric(
    "tiering_remote_copy_lag_seconds",
    MetricKind.GAUGE,
    ("topic",),
    "Age of the oldest of them, by its newest record; 0 if nothing waits.",
)
OUT_OF_SIGHT: Final = Metric(
    "tiering_remote_copy_out_of_sight_partitions",
    MetricKind.GAUGE,
    ("topic",),
    "Partitions of included topics whose leader's replica no readable log directory shows: what waits of them is in no"
    " other metric.",
)
DELETE_LAG_BYTES: Final = Metric(
    "RemoteDeleteLagBytes",
    MetricKind.GAUGE,
    ("topic",),
    "Bytes of remote segments whose deletion is decided or has begun.",
)
DELETE_LAG_SEGMENTS: Final = Metric(
    "RemoteDeleteLagSegments",
    MetricKind.GAUGE,
    ("topic",),
    "Remote segments whose deletion is decided or has begun.",
)
DELETE_LAG_SECONDS: Final = Metric(
    "tiering_remote_delete_lag_seconds",
    MetricKind.GAUGE,
    ("topic",),
    "Time since the first of these decisions; 0 if nothing waits.",
)
DUPLICATE_BYTES: Final = Metric(
    "tiering_duplicate_bytes",
    MetricKind.GAUGE,
    ("topic", "held"),
    "Bytes that are stored more than once: `local`, also in the replica that copies read; `remote`, also in another "
    "FINISHED segment (as of the last size run, by the share of offsets that both hold).",
)
STORAGE_COST: Final = Metric(
    "tiering_storage_cost_per_month",
    MetricKind.GAUGE,
    ("currency",),
    "Estimated price of RemoteLogSizeBytes for a month; absent without `prices.gib_month`.",
)

SIZE_METRICS: Final = (
    LOG_SIZE_BYTES,
    LOG_SEGMENTS,
    METADATA_COUNT,
    COMPUTATION_TIME,
    SIZE_DIFFERENCES,
    COPY_LAG_BYTES,
    COPY_LAG_SEGMENTS,
    COPY_LAG_SECONDS,
    OUT_OF_SIGHT,
    DELETE_LAG_BYTES,
    DELETE_LAG_SEGMENTS,
    DELETE_LAG_SECONDS,
    DUPLICATE_BYTES,
    STORAGE_COST,
)
