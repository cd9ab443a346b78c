"""Work that waits: what is to be copied, or to be deleted, and is not yet."""

from dataclasses import dataclass

from include.tiering.model.ids import TopicIdPartition


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """What of a partition waits. `seconds`: how long the oldest of it has; 0 if that is not known.

    A copy has waited since the segment's newest record was written, a delete since it was decided.
    """

    topic_id_partition: TopicIdPartition
    size_bytes: int
    segments: int
    seconds: float
