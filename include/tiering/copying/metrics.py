"""The metrics of copying, by topic. `CopyService` counts a segment when it is copied, failures when a batch ends.

A plan of all configured topics sets how many partitions wait, and why.
"""

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from include.tiering.telemetry.metrics import Metric, MetricKind

if TYPE_CHECKING:
    from include.tiering.copying.plan import HeldBackPartition
    from include.tiering.telemetry.metrics import MetricsRecorder

COPY_BYTES: Final = Metric(
    "RemoteCopyBytesPerSec",
    MetricKind.COUNTER,
    ("topic",),
    "Bytes of the `.log` of every segment that a batch sent and that became FINISHED.",
    mbean="kafka.server:type=BrokerTopicMetrics,name=RemoteCopyBytesPerSec,topic=T (Count)",
    by_minute=True,
)
COPY_REQUESTS: Final = Metric(
    "RemoteCopyRequestsPerSec",
    MetricKind.COUNTER,
    ("topic",),
    "Segments whose copy ended, with success or failure.",
    mbean="kafka.server:type=BrokerTopicMetrics,name=RemoteCopyRequestsPerSec,topic=T (Count)",
)
COPY_ERRORS: Final = Metric(
    "RemoteCopyErrorsPerSec",
    MetricKind.COUNTER,
    ("topic",),
    "Segments whose copy failed.",
    mbean="kafka.server:type=BrokerTopicMetrics,name=RemoteCopyErrorsPerSec,topic=T (Count)",
    by_minute=True,
)
COPY_ERRORS_BY_CLASS: Final = Metric(
    "tiering_copy_errors", MetricKind.COUNTER, ("topic", "error"), "Segments whose copy failed, by error class."
)
COPY_SENT_BYTES: Final = Metric(
    "tiering_copy_sent_bytes",
    MetricKind.COUNTER,
    ("topic",),
    "Bytes of all objects (log, indexes, manifest) of every segment that a batch sent and that became FINISHED.",
)
LEADER_THROTTLED_SECONDS: Final = Metric(
    "tiering_leader_throttled_seconds",
    MetricKind.COUNTER,
    ("topic",),
    "Seconds that reads of leaders' logs waited, summed over all reads, because a broker throttled them by a client "
    "quota of its own.",
)
HELD_BACK: Final = Metric(
    "tiering_copy_held_back_partitions",
    MetricKind.GAUGE,
    ("topic", "reason"),
    "Partitions that the last plan of all configured topics held back, as a whole or in part, by the code of the first "
    "reason. Topics that are never copied, and what another owner copies, do not count.",
)

COPY_METRICS: Final = (
    COPY_BYTES,
    COPY_REQUESTS,
    COPY_ERRORS,
    COPY_ERRORS_BY_CLASS,
    COPY_SENT_BYTES,
    LEADER_THROTTLED_SECONDS,
    HELD_BACK,
)


def publish_held_back(recorder: "MetricsRecorder", held_back: "Iterable[HeldBackPartition]") -> None:
    """Set the number of partitions that wait, by topic and reason; remove all earlier numbers."""
    counted = Counter((held.topic_id_partition.topic, held.words.code) for held in held_back if held.waits_for_a_copy)
    recorder.replace(HELD_BACK, {labels: float(number) for labels, number in counted.items()})
