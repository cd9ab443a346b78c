"""Metrics of restores."""

from typing import Final

from include.tiering.telemetry.metrics import Metric, MetricKind

RESTORED_BYTES: Final = Metric(
    "tiering_restored_bytes",
    MetricKind.COUNTER,
    ("topic",),
    "Bytes of segments' logs that restores read, checked and wrote.",
)
FAILED_SEGMENTS: Final = Metric(
    "tiering_restore_failed_segments",
    MetricKind.COUNTER,
    ("topic",),
    "Segments that a restore could not restore, because they are damaged or absent in the store.",
)

RESTORE_METRICS: Final = (RESTORED_BYTES, FAILED_SEGMENTS)
