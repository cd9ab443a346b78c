"""How far what is published is behind what could be."""

from collections.abc import Iterable
from dataclasses import dataclass

from include.tiering.metadata_sync.publication_contract import PublicationTotal
from include.tiering.model.ids import TopicIdPartition
from include.tiering.model.ownership import SegmentOrigin, TopicOwner
from include.tiering.segments.contract import RemoteLogMetadata, TopicRegistry


@dataclass(frozen=True, slots=True)
class Unpublished:
    """FINISHED segments of ours that end above all that is published of their partition."""

    topic_id_partition: TopicIdPartition
    segments: int
    size_bytes: int


def unpublished_segments(
    metadata: RemoteLogMetadata, registry: TopicRegistry, totals: Iterable[PublicationTotal]
) -> tuple[Unpublished, ...]:
    """Of partitions that were begun to be published; none of a topic that is not being handed over (any more)."""
    return tuple(
        _unpublished(metadata, total)
        if registry.owner(total.topic_id_partition.topic_id) is TopicOwner.HANDING_OVER
        else Unpublished(total.topic_id_partition, 0, 0)
        for total in totals
    )


def _unpublished(metadata: RemoteLogMetadata, total: PublicationTotal) -> Unpublished:
    published_to = -1 if total.end_offset is None else total.end_offset
    sizes = [
        row.metadata.segment_size_bytes
        for row in metadata.list_segments(total.topic_id_partition)
        if row.metadata.is_finished and row.origin is SegmentOrigin.PLATFORM and row.metadata.end_offset > published_to
    ]
    return Unpublished(total.topic_id_partition, len(sizes), sum(sizes))
