"""Metrics of recovery drills: when the last one of each topic ended, how, and how long it took."""

from typing import Final

from include.tiering.telemetry.metrics import Metric, MetricKind

DRILL_TIME: Final = Metric(
    "tiering_recovery_drill_timestamp_seconds",
    MetricKind.GAUGE,
    ("topic",),
    "When the last recovery drill of the topic ended, in seconds since 1970.",
)
DRILL_FAILED: Final = Metric(
    "tiering_recovery_drill_failed",
    MetricKind.GAUGE,
    ("topic",),
    "1 if the last recovery drill of the topic found something wrong, 0 if all records were equal.",
)
DRILL_SECONDS: Final = Metric(
    "tiering_recovery_drill_seconds",
    MetricKind.GAUGE,
    ("topic",),
    "How long the last recovery drill of the topic took.",
)

DRILL_METRICS: Final = (DRILL_TIME, DRILL_FAILED, DRILL_SECONDS)
