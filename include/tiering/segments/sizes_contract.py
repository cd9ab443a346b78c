"""What sizes are made of: counters, rows in bulk, and deletes that wait. Read only."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from include.tiering.model.ids import TopicIdPartition, Uuid
from include.tiering.model.lag import PartitionLag
from include.tiering.model.sizes import PartitionStates

SizeRow = tuple[str, int, int, int, int, int, str, str]
"""topic id, partition, state, size in bytes, start offset, end offset (inclusive), leader epochs, segment id.

Ids as Kafka prints them, the state as on Kafka's wire, leader epochs as `epoch:start,epoch:start`.
"""


@dataclass(frozen=True, slots=True)
class KeyRange:
    """Segment keys, both ends inclusive. Keys ascend in order of arrival and may have gaps."""

    first_key: int
    last_key: int


class RemoteLogSizes(Protocol):
    """Sizes of one cluster's remote log.

    Every method may raise `MetadataUnavailableError`.
    """

    def partition_states(self, partition: TopicIdPartition | None = None) -> Sequence[PartitionStates]:
        """From the counters, by topic and partition.

        A partition whose segments have all gone is there, with no state: its size is known to be 0.
        """
        ...

    def topic_names(self) -> Mapping[Uuid, str]:
        """Every topic that the platform has dealt with."""
        ...

    def delete_lags(self) -> Sequence[PartitionLag]:
        """Segments whose delete has begun, or that the newest expiration plan may delete and has not, by partition.

        A plan that waits for an approval deletes nothing and counts for nothing.
        """
        ...

    def split(self, ranges: int) -> Sequence[KeyRange]:
        """At most `ranges` ranges that hold every segment of now once; none without segments.

        Raises:
            ValueError: fewer than one range.
        """
        ...

    def export(self, key_range: KeyRange) -> Iterator[Sequence[SizeRow]]:
        """Segments of the range that are not tombstones, in pages. Each page is a transaction of its own."""
        ...
