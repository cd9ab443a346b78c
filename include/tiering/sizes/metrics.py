"""Metrics of remote sizes, lags and costs.

Sizes and numbers of segments of a topic without remote segments are published as 0, so that the last values do not
stay.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Final

from include.tiering.telemetry.metrics import Metric, MetricKind, MetricsRecorder

if TYPE_CHECKING:
    from include.tiering.model.segments import TopicIdPartition
    from include.tiering.model.sizes import CostEstimate, PartitionLag, PartitionStates


LOG_SIZE_BYTES: Final = Metric(
    "RemoteLogSizeBytes",
    MetricKind.GAUGE,
    ("topic",),
    "Bytes of remote log segments that are stored and paid for, as brokers count them: FINISHED ones, and those whose"
    " objects are not deleted yet, also replaced ones that are held. A segment that spans leader epochs counts once.",
    mbean="kafka.server:type=BrokerTopicMetrics,name=RemoteLogSizeBytes,topic=T (Value)",
    by_minute=True,
)
FINISHED_BYTES: Final = Metric(
    "tiering_remote_log_finished_bytes",
    MetricKind.GAUGE,
    ("topic",),
    "Bytes of FINISHED remote log segments, the only ones that reads are served from.",
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
    "Remote log segments in any state except DELETE_SEGMENT_FINISHED.",
    mbean="kafka.server:type=BrokerTopicMetrics,name=RemoteLogMetadataCount,topic=T (Value)",
)
COMPUTATION_TIME: Final = Metric(
    "RemoteLogSizeComputationTime",
    MetricKind.GAUGE,
    (),
    "Milliseconds that the last size run took to recount all sizes.",
    mbean="kafka.server:type=BrokerTopicMetrics,name=RemoteLogSizeComputationTime (Value)",
)
SIZE_DIFFERENCES: Final = Metric(
    "tiering_remote_log_size_differences",
    MetricKind.GAUGE,
    (),
    "Findings of the last size run: differences between counters, rows and objects.",
)
COPY_LAG_BYTES: Final = Metric(
    "RemoteCopyLagBytes",
    MetricKind.GAUGE,
    ("topic",),
    "Bytes of rolled segments that wait for a copy, computed from the log dirs and the rows.",
    mbean="kafka.server:type=BrokerTopicMetrics,name=RemoteCopyLagBytes,topic=T (Value)",
    by_minute=True,
)
COPY_LAG_SEGMENTS: Final = Metric(
    "RemoteCopyLagSegments",
    MetricKind.GAUGE,
    ("topic",),
    "Rolled segments that wait for a copy.",
    mbean="kafka.server:type=BrokerTopicMetrics,name=RemoteCopyLagSegments,topic=T (Value)",
    by_minute=True,
)
COPY_LAG_SECONDS: Final = Metric(
    "tiering_remote_copy_lag_seconds",
    MetricKind.GAUGE,
    ("topic",),
    "Seconds since the newest record of the first rolled segment that waits for a copy; 0 if none waits or unknown.",
    by_minute=True,
)
OUT_OF_SIGHT: Final = Metric(
    "tiering_remote_copy_out_of_sight_partitions",
    MetricKind.GAUGE,
    ("topic",),
    "Partitions of included topics whose leader's replica is in no readable log directory; the copy lag metrics lack"
    " them.",
)
DELETE_LAG_BYTES: Final = Metric(
    "RemoteDeleteLagBytes",
    MetricKind.GAUGE,
    ("topic",),
    "Bytes of remote segments that wait for their deletion: those in the newest expiration plan, if it is permitted,"
    " and those whose deletion has begun. A superseded segment counts only if it is in that plan.",
    mbean="kafka.server:type=BrokerTopicMetrics,name=RemoteDeleteLagBytes,topic=T (Value)",
)
DELETE_LAG_SEGMENTS: Final = Metric(
    "RemoteDeleteLagSegments",
    MetricKind.GAUGE,
    ("topic",),
    "Remote segments that wait for their deletion, as in `RemoteDeleteLagBytes`.",
    mbean="kafka.server:type=BrokerTopicMetrics,name=RemoteDeleteLagSegments,topic=T (Value)",
)
DELETE_LAG_SECONDS: Final = Metric(
    "tiering_remote_delete_lag_seconds",
    MetricKind.GAUGE,
    ("topic",),
    "Seconds since the oldest waiting deletion was planned or, if it has begun, since it began; 0 without any.",
)
DUPLICATE_BYTES: Final = Metric(
    "tiering_duplicate_bytes",
    MetricKind.GAUGE,
    ("topic", "held"),
    "Bytes that are stored more than once: `local`, also in the replica that copies read; `remote`, also in another "
    "FINISHED segment (as of the last size run, by the share of offsets that both hold).",
)
LOG_DIR_FREE: Final = Metric(
    "tiering_log_dir_free_bytes",
    MetricKind.GAUGE,
    ("broker", "log_dir"),
    "Bytes that are free on the disk of a log directory, as the last size run saw it that could read the directory on "
    "its own host.",
    by_minute=True,
)
LOG_DIR_UNREADABLE: Final = Metric(
    "tiering_log_dir_unreadable",
    MetricKind.GAUGE,
    ("broker", "log_dir"),
    "1 if the last size run could not read a log directory, as without its disk, and 0 if it could; without those that "
    "only workers of a queue read.",
)
STORAGE_COST: Final = Metric(
    "tiering_storage_cost_per_month",
    MetricKind.GAUGE,
    ("currency",),
    "Estimated price of storing RemoteLogSizeBytes for a month; absent without `prices.gib_month`.",
)

SIZE_METRICS: Final = (
    LOG_SIZE_BYTES,
    FINISHED_BYTES,
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
    LOG_DIR_FREE,
    LOG_DIR_UNREADABLE,
    STORAGE_COST,
)


class SizeGauges:
    """Publishes the gauges through `recorder`."""

    def __init__(self, recorder: MetricsRecorder) -> None:
        self._show = recorder.show
        self._replace = recorder.replace

    def sizes(self, partitions: "Iterable[PartitionStates]") -> None:
        """Publish these sizes and numbers of segments, summed by topic."""
        known = list(partitions)
        finished = [partition_sizes.finished for partition_sizes in known]
        self._show(LOG_SIZE_BYTES, _summed((states.topic_id_partition, states.stored_bytes) for states in known))
        self._show(FINISHED_BYTES, _summed((size.topic_id_partition, size.size_bytes) for size in finished))
        self._show(LOG_SEGMENTS, _summed((partition.topic_id_partition, partition.segments) for partition in finished))
        self._show(
            METADATA_COUNT,
            _summed((partition_sizes.topic_id_partition, partition_sizes.segments) for partition_sizes in known),
        )

    def copy_lags(
        self, lags: "Iterable[PartitionLag]", out_of_sight: "Iterable[TopicIdPartition]" = (), *, are_all: bool = True
    ) -> None:
        """Publish the copy lags, and the number of partitions without a readable replica; both by topic.

        The values of other topics, which are no longer copied, are removed. If `are_all` is False they stay, because
        other topics may exist whose logs could not be read.
        """
        known = list(lags)
        publish = self._replace if are_all else self._show
        self._lags(publish, known, COPY_LAG_BYTES, COPY_LAG_SEGMENTS, COPY_LAG_SECONDS)
        nothing = ((lag.topic_id_partition, 0) for lag in known)
        publish(OUT_OF_SIGHT, _summed((*nothing, *((partition, 1) for partition in out_of_sight))))

    def delete_lags(self, lags: "Iterable[PartitionLag]", topics: Iterable[str]) -> None:
        """Publish the delete lags; `topics` without a lag are published as 0, the values of others are removed."""
        self._lags(self._replace, lags, DELETE_LAG_BYTES, DELETE_LAG_SEGMENTS, DELETE_LAG_SECONDS, topics)

    def duplicates(self, held: str, by_topic: Mapping[str, int]) -> None:
        """Publish duplicate bytes; `held` is the place of the second copy, `local` or `remote`."""
        self._show(DUPLICATE_BYTES, {(topic, held): size_bytes for topic, size_bytes in by_topic.items()})

    def log_dirs(self, free: Mapping[tuple[int, str], int | None]) -> None:
        """Publish the free bytes of log directories, by broker and path, and which of them cannot be read (None)."""
        by_labels = {(str(broker), path): size_bytes for (broker, path), size_bytes in free.items()}
        self._show(
            LOG_DIR_FREE, {labels: size_bytes for labels, size_bytes in by_labels.items() if size_bytes is not None}
        )
        self._replace(
            LOG_DIR_UNREADABLE, {labels: float(size_bytes is None) for labels, size_bytes in by_labels.items()}
        )

    def cost(self, cost: "CostEstimate | None") -> None:
        """Publish the storage cost of a month; without a price of storage, remove it."""
        values: dict[tuple[str, ...], float] = {}
        if cost is not None and cost.storage_per_month is not None:
            values[cost.currency,] = float(cost.storage_per_month)
        self._replace(STORAGE_COST, values)

    def recount(self, *, milliseconds: float, differences: int) -> None:
        """Publish how long the recount of a size run took, and how many differences the run found."""
        self._show(COMPUTATION_TIME, {(): milliseconds})
        self._show(SIZE_DIFFERENCES, {(): differences})

    def _lags(
        self,
        publish: Callable[[Metric, Mapping[tuple[str, ...], float]], None],
        lags: "Iterable[PartitionLag]",
        size_bytes: Metric,
        segments: Metric,
        seconds: Metric,
        topics: Iterable[str] = (),
    ) -> None:
        known = list(lags)
        nothing: dict[tuple[str, ...], float] = {(topic,): 0.0 for topic in topics}
        publish(size_bytes, {**nothing, **_summed((lag.topic_id_partition, lag.size_bytes) for lag in known)})
        publish(segments, {**nothing, **_summed((lag.topic_id_partition, lag.segments) for lag in known)})
        longest = dict(nothing)
        for lag in known:
            topic = (lag.topic_id_partition.topic,)
            longest[topic] = max(longest.get(topic, 0.0), lag.seconds)
        publish(seconds, longest)


def _summed(values: "Iterable[tuple[TopicIdPartition, int]]") -> dict[tuple[str, ...], float]:
    by_topic: dict[tuple[str, ...], float] = defaultdict(float)
    for partition, value in values:
        by_topic[(partition.topic,)] += value
    return dict(by_topic)
