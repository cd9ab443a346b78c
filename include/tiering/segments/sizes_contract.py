"""Contract of the sizes of the remote log: counters, and the rows from which they are counted again. Read only."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from include.tiering.model.ownership import TopicOwner
from include.tiering.model.segments import TopicIdPartition, Uuid
from include.tiering.model.sizes import PartitionLag, PartitionStates

SizeRow = tuple[str, int, int, int, int, int, str, str]
"""Topic id, partition, state, size in bytes, start offset, end offset (inclusive), leader epochs, id of a segment.

The ids have the form in which Kafka prints them. The state is its number in Kafka's records. The leader epochs have the
form `epoch:start,epoch:start`."""


@dataclass(frozen=True, slots=True)
class KeyRange:
    """A range of the keys of rows (`segments.segment_key`, a number; not object keys), both ends inclusive.

    Keys ascend in the order in which segments were recorded, and may have gaps.
    """

    first_key: int
    last_key: int


@dataclass(frozen=True, slots=True)
class TopicTotal:
    """A topic's FINISHED bytes and segments, and the bytes of its segments whose objects are not deleted yet.

    The latter, `stored_bytes`, are those of FINISHED and of DELETE_SEGMENT_STARTED segments. `partitions` is the number
    of partitions of which anything was ever copied.
    """

    topic_id: Uuid
    topic: str
    owner: TopicOwner
    partitions: int
    segments: int
    finished_bytes: int
    stored_bytes: int


@dataclass(frozen=True, slots=True)
class ArchiveSize:
    """The sums of `TopicTotal` over all topics; `topics` counts those with FINISHED segments."""

    topics: int
    segments: int
    finished_bytes: int
    stored_bytes: int


class RemoteLogSizes(Protocol):
    """Sizes of one cluster's remote log.

    Every method may raise `MetadataUnavailableError`.
    """

    def partition_states(self, partition: TopicIdPartition | None = None) -> Sequence[PartitionStates]:
        """Return sizes by state from the counters, ordered by topic and partition.

        A partition whose segments are all deleted is included without any state: its size is known to be 0.
        """
        ...

    def topic_states(self, topic: str) -> Sequence[PartitionStates]:
        """Return what `partition_states` has of the topics with this name."""
        ...

    def archive_size(self) -> ArchiveSize:
        """Return the sizes of all topics together. One statement, which reads one row of each partition and state."""
        ...

    def listed_topics(self) -> Mapping[Uuid, str]:
        """Return the names of the topics that `topic_totals` has, by topic id. One statement."""
        ...

    def topic_totals(self, names: Collection[str] | None = None) -> Sequence[TopicTotal]:
        """Return the sizes of all topics, or of those with these names, from the counters, ordered by name and id.

        These are the topics of which anything was ever copied, and those that the platform owns, with 0 bytes at first.
        One statement, which reads no segment, and with `names` no counter of other topics.
        """
        ...

    def recount(self, partition: TopicIdPartition) -> PartitionStates:
        """Count the sizes of one partition from its segments, as they are at one moment.

        Memory does not grow with the number of segments.
        """
        ...

    def topic_names(self) -> Mapping[Uuid, str]:
        """Return the names of all topics in the database, by topic id."""
        ...

    def delete_lags(self) -> Sequence[PartitionLag]:
        """Return, for each partition, number, bytes and waiting time of the segments that wait for their deletion.

        These are segments whose deletion has begun, and those that the newest expiration plan has and has not deleted;
        none of the latter if that plan waits for an approval. A superseded segment, which is DELETE_SEGMENT_STARTED
        from the moment when a new copy replaces it, counts only if that plan has it.
        """
        ...

    def split(self, ranges: int) -> Sequence[KeyRange]:
        """Return at most `ranges` key ranges that together contain each segment once; none without segments.

        Raises:
            ValueError: `ranges` is below 1.
        """
        ...

    def export(self, key_range: KeyRange) -> Iterator[Sequence[SizeRow]]:
        """Yield the segments of the range except tombstones, in pages. Each page is read in its own transaction."""
        ...
