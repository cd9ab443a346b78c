"""Metrics of restores."""

from typing import Final

from include.tiering.telemetry.metrics import Metric, MetricKind, MetricsRecorder

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


class RestoreMetrics:
    """Records what restores did."""

    def __init__(self, recorder: MetricsRecorder) -> None:
        self._recorder = recorder

    def restored(self, topic: str, log_bytes: int) -> None:
        self._recorder.add(RESTORED_BYTES, log_bytes, topic)

    def failed(self, topic: str) -> None:
        self._recorder.add(FAILED_SEGMENTS, 1, topic)
