"""Bytes and segments of a partition's remote log, in all and by leader epoch."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from include.tiering.model.ids import TopicIdPartition
from include.tiering.model.segment_metadata import RemoteLogSegmentMetadata


@dataclass(frozen=True, slots=True)
class EpochSize:
    """FINISHED bytes and segments of one leader epoch; a segment that spans epochs counts in each of them."""

    leader_epoch: int
    size_bytes: int
    segments: int


@dataclass(frozen=True, slots=True)
class PartitionSize:
    """FINISHED bytes and segments of a partition; a segment that spans epochs counts once."""

    topic_id_partition: TopicIdPartition
    size_bytes: int
    segments: int
    leader_epochs: tuple[EpochSize, ...]


def partition_size(topic_id_partition: TopicIdPartition, segments: Iterable[RemoteLogSegmentMetadata]) -> PartitionSize:
    """Sizes recounted from the segments of one partition; those that are not FINISHED do not count."""
    size_bytes = count = 0
    by_epoch: dict[int, tuple[int, int]] = defaultdict(lambda: (0, 0))
    for segment in segments:
        if not segment.is_finished:
            continue
        size_bytes += segment.segment_size_bytes
        count += 1
        for entry in segment.segment_leader_epochs:
            epoch_bytes, epoch_segments = by_epoch[entry.epoch]
            by_epoch[entry.epoch] = (epoch_bytes + segment.segment_size_bytes, epoch_segments + 1)
    epochs = tuple(EpochSize(epoch, *counted) for epoch, counted in sorted(by_epoch.items()))
    return PartitionSize(topic_id_partition, size_bytes, count, epochs)
