"""The metrics of expiration, by topic. `quotas/metrics.py` declares those of the requests that delete objects."""

from collections import Counter
from typing import TYPE_CHECKING, Final

from include.tiering.telemetry.metrics import Metric, MetricKind, PrometheusRecorder, process_recorder

if TYPE_CHECKING:
    from include.tiering.expiration.delete_segments import DeleteResult


DELETE_REQUESTS: Final = Metric(
    "RemoteDeleteRequestsPerSec",
    MetricKind.COUNTER,
    ("topic",),
    "Remote log segments whose deletion ended, with success or failure.",
)
DELETE_ERRORS: Final = Metric(
    "RemoteDeleteErrorsPerSec",
    MetricKind.COUNTER,
    ("topic",),
    "Remote log segments whose deletion failed. Another attempt or the next run tries again.",
)
SUPERSEDED_HELD: Final = Metric(
    "tiering_superseded_held",
    MetricKind.COUNTER,
    ("topic",),
    "Superseded segments and abandoned copies that expiration kept, counted by each batch that keeps them. They are "
    "kept if nothing proves that they are not needed, such as another copy of their offsets that is whole and correct "
    "and has passed verification.",
)

EXPIRATION_METRICS: Final = (DELETE_REQUESTS, DELETE_ERRORS, SUPERSEDED_HELD)


def count_deleted(recorder: PrometheusRecorder, topic: str, *, deleted: int, failed: int) -> None:
    """Count deleted segments, and segments that could not be deleted."""
    recorder.add(DELETE_REQUESTS, deleted + failed, topic)
    recorder.add(DELETE_ERRORS, failed, topic)


def count_held(recorder: PrometheusRecorder, topic: str, segments: int) -> None:
    """Count superseded segments and abandoned copies that a batch kept."""
    recorder.add(SUPERSEDED_HELD, segments, topic)


def count_batch(result: "DeleteResult") -> None:
    """Count what a batch deleted, could not delete and held, in the metrics of this process."""
    deleted = [deletion.segment_id.topic_id_partition.topic for deletion in result.deleted]
    failed = [failure.item.planned.segment_id.topic_id_partition.topic for failure in result.failed]
    for topic in {*deleted, *failed}:
        count_deleted(process_recorder(), topic, deleted=deleted.count(topic), failed=failed.count(topic))
    for topic, segments in Counter(item.planned.segment_id.topic_id_partition.topic for item in result.held).items():
        count_held(process_recorder(), topic, segments)
