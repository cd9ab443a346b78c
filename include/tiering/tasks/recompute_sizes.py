"""Compare recounted remote log sizes with the counters. A difference is a finding; nothing is corrected here.

Segments change state while they are counted, so a first difference is only a suspicion: the partition is read again
between two looks at its counters, and believed if the counters stood still.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from include.tiering.model.ids import TopicIdPartition
from include.tiering.model.sizes import PartitionSize, partition_size
from include.tiering.remote_metadata.contract import RemoteLogMetadata

SETTLE_ATTEMPTS: Final = 3


@dataclass(frozen=True, slots=True)
class SizeDifference:
    """A partition whose counters are not what its segments add up to."""

    counters: PartitionSize
    recounted: PartitionSize


@dataclass(frozen=True, slots=True)
class SizeComparison:
    """`unsettled`: partitions that changed at every look; they are for the next run."""

    partitions: int
    differences: tuple[SizeDifference, ...]
    unsettled: tuple[TopicIdPartition, ...]


def compare_sizes(recounted: Iterable[PartitionSize], metadata: RemoteLogMetadata) -> SizeComparison:
    """`recounted` holds every partition with FINISHED segments once, in any order."""
    counters = {size.topic_id_partition: size for size in metadata.partition_sizes() if size.segments}
    seen = 0
    suspects: list[TopicIdPartition] = []
    for size in recounted:
        seen += 1
        if counters.pop(size.topic_id_partition, None) != size:
            suspects.append(size.topic_id_partition)
    suspects += counters
    differences, unsettled = [], []
    for partition in suspects:
        settled = _settle(partition, metadata)
        if settled is None:
            unsettled.append(partition)
        elif settled.counters != settled.recounted:
            differences.append(settled)
    return SizeComparison(seen, tuple(differences), tuple(unsettled))


def _settle(partition: TopicIdPartition, metadata: RemoteLogMetadata) -> SizeDifference | None:
    """Counters and a recount of the same moment, perhaps equal; None if there was no such moment."""
    before = _counters_of(partition, metadata)
    for _ in range(SETTLE_ATTEMPTS):
        recounted = partition_size(partition, (row.metadata for row in metadata.list_segments(partition)))
        after = _counters_of(partition, metadata)
        if after == before:
            return SizeDifference(after, recounted)
        before = after
    return None


def _counters_of(partition: TopicIdPartition, metadata: RemoteLogMetadata) -> PartitionSize:
    return next(iter(metadata.partition_sizes(partition)), partition_size(partition, ()))
