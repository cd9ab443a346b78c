"""The topic `__remote_log_metadata` as a log of partitions: what a publisher appends to and an ingester reads.

Values are opaque here; `formats.remote_log_metadata` knows what is in them. Every call ends within a bounded time.

Which partition has the records about a partition, `metadata_partition_of` says:

    h    = upper half xor lower half of a 64-bit number, as int32
    x    = 1;  x = 31 x + h(lower 8 bytes of the topic id);  x = 31 x + h(upper 8);  x = 31 x + partition    (mod 2^32)
    choice = murmur2(x as 4 bytes, big-endian) without its sign bit, modulo the number of metadata partitions

The topic's name has no part in it. Source: Kafka's RemoteLogMetadataTopicPartitioner; murmur2 is its producer's.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

from include.tiering.model.segments import TopicIdPartition, Uuid

METADATA_TOPIC: Final = "__remote_log_metadata"


@dataclass(frozen=True, slots=True)
class MetadataTopicRecord:
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

    def read(self, partition: int, start_offset: int, *, end_offset: int) -> Iterator[MetadataTopicRecord]:
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


_WORD: Final = 0xFFFFFFFF
_SEED: Final = 0x9747B28C
_MULTIPLIER: Final = 0x5BD1E995


def metadata_partition_of(partition: TopicIdPartition, partition_count: int) -> int:
    """`partition_count` is how many partitions the metadata topic really has on the cluster.

    Raises:
        ValueError: it has none.
    """
    if partition_count < 1:
        raise ValueError(f"a metadata topic with {partition_count} partitions")
    upper = int.from_bytes(partition.topic_id.value[:8], "big")
    lower = int.from_bytes(partition.topic_id.value[8:], "big")
    key = 1
    for part in (_folded(lower), _folded(upper), partition.partition):
        key = (31 * key + part) & _WORD
    return (_murmur2_of_word(key.to_bytes(4, "big")) & 0x7FFFFFFF) % partition_count


def _folded(number: int) -> int:
    return (number ^ (number >> 32)) & _WORD


def _murmur2_of_word(key: bytes) -> int:
    """Kafka's 32-bit murmur2 of exactly four bytes."""
    block = int.from_bytes(key, "little") * _MULTIPLIER & _WORD
    block = (block ^ (block >> 24)) * _MULTIPLIER & _WORD
    mixed = (_SEED ^ len(key)) * _MULTIPLIER & _WORD ^ block
    mixed = (mixed ^ (mixed >> 13)) * _MULTIPLIER & _WORD
    return mixed ^ (mixed >> 15)
