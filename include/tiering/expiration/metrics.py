"""Metrics of deletions. Those of how fast their requests go are declared with the quotas."""

from typing import Final

from include.tiering.telemetry.metric import Metric, MetricKind
from include.tiering.telemetry.recorder import PrometheusRecorder

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

EXPIRATION_METRICS: Final = (DELETE_REQUESTS, DELETE_ERRORS, SUPERSEDED_HELD)


def count_deleted(recorder: PrometheusRecorder, topic: str, *, deleted: int, failed: int) -> None:
    """Count segments that are gone, and those that could not be deleted."""
    recorder.add(DELETE_REQUESTS, deleted + failed, topic)
    recorder.add(DELETE_ERRORS, failed, topic)


def count_held(recorder: PrometheusRecorder, topic: str, segments: int) -> None:
    """Count superseded segments that stay because the copy in their place is not proved."""
    recorder.add(SUPERSEDED_HELD, segments, topic)
