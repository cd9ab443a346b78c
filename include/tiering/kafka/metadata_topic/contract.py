"""The topic `__remote_log_metadata` as a log of partitions: what a publisher appends to and an ingester reads.

Values are opaque here; `formats.remote_log_metadata` knows what is in them, `partitioner` which partition they go to.
Every call ends within a bounded time.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

from include.tiering.model.ids import Uuid

METADATA_TOPIC: Final = "__remote_log_metadata"


@dataclass(frozen=True, slots=True)
class TopicRecord:
    """One record of one partition of the topic. A record without a value has an empty one: no decoder takes either."""

    partition: int
    offset: int
    timestamp_ms: int
    value: bytes


class OffsetBounds(NamedTuple):
    """What a partition holds: from `begin` (inclusive) to `end` (exclusive: the high watermark)."""

    begin: int
    end: int


class MetadataTopic(Protocol):
    """The metadata topic of one cluster.

    Raises, from every call:
        MetadataTopicUnavailableError: no answer in time, or no leader; worth trying again.
        MetadataTopicRefusedError: the cluster knows no such topic or partition, or does not let this principal in.
    """

    def topic_id(self) -> Uuid:
        """The topic's id on the cluster, asked anew: one that was created again has another."""
        ...

    def partition_count(self) -> int:
        """How many partitions the topic has on the cluster, asked anew."""
        ...

    def offsets(self, partition: int) -> OffsetBounds:
        """What the partition holds now, read uncommitted: aborted transactions count, as brokers read them."""
        ...

    def read(self, partition: int, start_offset: int, *, end_offset: int) -> Iterator[TopicRecord]:
        """Records with `start_offset <= offset < end_offset`, ascending, each once. Equal bounds give none.

        After the last one, everything below `end_offset` was read: an offset in between that did not come holds no
        record (a transaction's marker) and never will. Repeating the call gives the same records.

        Raises:
            MetadataTopicRangeError: `start_offset` lies below what the partition still holds, or `end_offset` above its
                end. Records were removed, or the topic was created anew; nothing is read.
            MetadataTopicUnavailableError: before the first record or after any of them.
        """
        ...

    def append(self, partition: int, value: bytes) -> int:
        """Append one record without key and headers; returns its offset once all in-sync replicas have it.

        One call, one record: the transport's own retries never make it two. Records of one caller follow each other.

        Raises:
            MetadataTopicUnavailableError: whether the record arrived, or still will, is unknown. Only reading can tell.
            MetadataTopicRefusedError: it did not arrive.
        """
        ...

    def close(self) -> None:
        """Give connections back; a later call connects anew. Raises nothing."""
        ...
