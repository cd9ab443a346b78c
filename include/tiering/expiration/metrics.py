"""The metrics of expiration, by topic. `quotas/metrics.py` declares those of the requests that delete objects."""

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from include.tiering.telemetry.metrics import Metric, MetricKind, MetricsRecorder

if TYPE_CHECKING:
    from include.tiering.expiration.delete_segments import DeleteResult
    from include.tiering.runs.deletion_run import PlannedDeletion


DELETE_REQUESTS: Final = Metric(
    "RemoteDeleteRequestsPerSec",
    MetricKind.COUNTER,
    ("topic",),
    "Remote log segments whose deletion ended, with success or failure.",
    mbean="kafka.server:type=BrokerTopicMetrics,name=RemoteDeleteRequestsPerSec,topic=T (Count)",
)
DELETE_ERRORS: Final = Metric(
    "RemoteDeleteErrorsPerSec",
    MetricKind.COUNTER,
    ("topic",),
    "Remote log segments whose deletion failed. Another attempt or the next run tries again.",
    mbean="kafka.server:type=BrokerTopicMetrics,name=RemoteDeleteErrorsPerSec,topic=T (Count)",
    by_minute=True,
)
SUPERSEDED_HELD: Final = Metric(
    "tiering_superseded_held",
    MetricKind.COUNTER,
    ("topic",),
    "Superseded segments and abandoned copies that expiration kept, counted by each batch that keeps them. They are "
    "kept if nothing proves that they are not needed, such as another copy of their offsets that is whole and correct "
    "and has passed verification.",
)

EXPIRED_BYTES: Final = Metric(
    "tiering_expired_bytes",
    MetricKind.COUNTER,
    ("topic",),
    "Bytes of the `.log` of remote log segments that were deleted.",
    by_minute=True,
)

EXPIRATION_METRICS: Final = (DELETE_REQUESTS, DELETE_ERRORS, SUPERSEDED_HELD, EXPIRED_BYTES)


def count_deleted(recorder: MetricsRecorder, deleted: "Iterable[PlannedDeletion]") -> None:
    """Count segments that were deleted."""
    for deletion in deleted:
        topic = deletion.segment_id.topic_id_partition.topic
        recorder.add(DELETE_REQUESTS, 1, topic)
        recorder.add(DELETE_ERRORS, 0, topic)  # So that the counter is there, and the first error is an increase.
        recorder.add(EXPIRED_BYTES, deletion.size_bytes, topic)


def count_batch(recorder: MetricsRecorder, result: "DeleteResult") -> None:
    """Count what a batch could not delete, and what it held."""
    for failure in result.failed:
        topic = failure.item.planned.segment_id.topic_id_partition.topic
        recorder.add(DELETE_REQUESTS, 1, topic)
        recorder.add(DELETE_ERRORS, 1, topic)
    for topic, segments in Counter(item.planned.segment_id.topic_id_partition.topic for item in result.held).items():
        recorder.add(SUPERSEDED_HELD, segments, topic)
