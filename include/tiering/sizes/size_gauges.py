"""Sizes, lags and costs as gauges, by topic. A topic that has nothing left is shown as 0, not as it was."""

from collections import defaultdict
from collections.abc import Iterable, Mapping

from include.tiering.model.cost import CostEstimate
from include.tiering.model.ids import TopicIdPartition
from include.tiering.model.lag import PartitionLag
from include.tiering.model.sizes import PartitionStates
from include.tiering.telemetry.metric import Metric
from include.tiering.telemetry.metrics import PrometheusRecorder
from include.tiering.telemetry.size_metrics import (
    COMPUTATION_TIME,
    COPY_LAG_BYTES,
    COPY_LAG_SECONDS,
    COPY_LAG_SEGMENTS,
    DELETE_LAG_BYTES,
    DELETE_LAG_SECONDS,
    DELETE_LAG_SEGMENTS,
    DUPLICATE_BYTES,
    LOG_SEGMENTS,
    LOG_SIZE_BYTES,
    METADATA_COUNT,
    OUT_OF_SIGHT,
    SIZE_DIFFERENCES,
    STORAGE_COST,
)


class SizeGauges:
    """Publishes through `recorder`."""

    def __init__(self, recorder: PrometheusRecorder) -> None:
        self._show = recorder.show

    def sizes(self, partitions: Iterable[PartitionStates]) -> None:
        """Every partition that ever had a segment."""
        known = list(partitions)
        finished = [one.finished for one in known]
        self._show(LOG_SIZE_BYTES, _summed((one.topic_id_partition, one.size_bytes) for one in finished))
        self._show(LOG_SEGMENTS, _summed((one.topic_id_partition, one.segments) for one in finished))
        self._show(METADATA_COUNT, _summed((one.topic_id_partition, one.segments) for one in known))

    def copy_lags(self, lags: Iterable[PartitionLag], out_of_sight: Iterable[TopicIdPartition] = ()) -> None:
        """Every partition that is copied, waiting or not, and those of which nothing can be read."""
        known = list(lags)
        self._lags(known, COPY_LAG_BYTES, COPY_LAG_SEGMENTS, COPY_LAG_SECONDS)
        nothing = ((lag.topic_id_partition, 0) for lag in known)
        self._show(OUT_OF_SIGHT, _summed((*nothing, *((partition, 1) for partition in out_of_sight))))

    def delete_lags(self, lags: Iterable[PartitionLag], topics: Iterable[str]) -> None:
        """`topics` are all that may have one: those without are shown as 0."""
        self._lags(lags, DELETE_LAG_BYTES, DELETE_LAG_SEGMENTS, DELETE_LAG_SECONDS, topics)

    def duplicates(self, held: str, by_topic: Mapping[str, int]) -> None:
        """`held` is `local` or `remote`: where the second copy is."""
        self._show(DUPLICATE_BYTES, {(topic, held): size_bytes for topic, size_bytes in by_topic.items()})

    def cost(self, cost: CostEstimate | None) -> None:
        """Nothing without a price of storage."""
        if cost is not None and cost.storage_per_month is not None:
            self._show(STORAGE_COST, {(cost.currency,): float(cost.storage_per_month)})

    def recount(self, *, milliseconds: float, differences: int) -> None:
        """What a size run took and found."""
        self._show(COMPUTATION_TIME, {(): milliseconds})
        self._show(SIZE_DIFFERENCES, {(): differences})

    def _lags(
        self,
        lags: Iterable[PartitionLag],
        size_bytes: Metric,
        segments: Metric,
        seconds: Metric,
        topics: Iterable[str] = (),
    ) -> None:
        known = list(lags)
        nothing: dict[tuple[str, ...], float] = {(topic,): 0.0 for topic in topics}
        self._show(size_bytes, {**nothing, **_summed((lag.topic_id_partition, lag.size_bytes) for lag in known)})
        self._show(segments, {**nothing, **_summed((lag.topic_id_partition, lag.segments) for lag in known)})
        longest = dict(nothing)
        for lag in known:
            topic = (lag.topic_id_partition.topic,)
            longest[topic] = max(longest.get(topic, 0.0), lag.seconds)
        self._show(seconds, longest)


def _summed(values: Iterable[tuple[TopicIdPartition, int]]) -> dict[tuple[str, ...], float]:
    by_topic: dict[tuple[str, ...], float] = defaultdict(float)
    for partition, value in values:
        by_topic[(partition.topic,)] += value
    return dict(by_topic)
