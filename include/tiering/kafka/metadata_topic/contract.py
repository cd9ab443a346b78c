"""The contract for the topic `__remote_log_metadata`, to which publication appends and from which ingestion reads.

Values are opaque here; `formats.remote_log_metadata` encodes and decodes them. Every call ends in bounded time.

`metadata_partition_of` computes which partition of this topic has the records about a partition of any topic:

    h    = upper half xor lower half of a 64-bit number, as int32
    x    = 1;  x = 31 x + h(lower 8 bytes of the topic id);  x = 31 x + h(upper 8);  x = 31 x + partition    (mod 2^32)
    choice = murmur2(x as 4 bytes, big-endian) without its sign bit, modulo the number of metadata partitions

The name of the partition's topic is not part of the hash. Source: Kafka's RemoteLogMetadataTopicPartitioner; murmur2 is
the hash of Kafka's producer.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

from include.tiering.model.segments import TopicIdPartition, Uuid

METADATA_TOPIC: Final = "__remote_log_metadata"


@dataclass(frozen=True, slots=True)
class MetadataTopicRecord:
    """One record of the topic. `value` is empty for a record without a value: decoders reject either."""

    partition: int
    offset: int
    timestamp_ms: int
    value: bytes


class OffsetBounds(NamedTuple):
    """The offsets of a partition: from `begin` (inclusive) to `end` (exclusive: the high watermark)."""

    begin: int
    end: int


class MetadataTopic(Protocol):
    """The metadata topic of one cluster.

    Every method except `close` may raise:
        MetadataTopicUnavailableError: no answer arrived in time, or there is no leader. Retriable.
        MetadataTopicRefusedError: the topic or partition does not exist, this principal is not authorised, or the
            brokers do not accept the record.
    """

    def topic_id(self) -> Uuid:
        """Request the topic's id, without a cache; a re-created topic has another id."""
        ...

    def partition_count(self) -> int:
        """Request the number of partitions, without a cache."""
        ...

    def offsets(self, partition: int, *, wait: bool = True) -> OffsetBounds:
        """Return the partition's current offsets. The end is the high watermark, not the last stable offset.

        With `wait`, a partition without a leader is tried again for the time that a request may take.
        """
        ...

    def read(self, partition: int, start_offset: int, *, end_offset: int) -> Iterator[MetadataTopicRecord]:
        """Read records in ascending offset order, each once.

        When the iterator ends, everything below `end_offset` was read: an offset that had no record (for example, that
        of a transaction's marker) will never have one. Records of aborted transactions are returned, too.

        Args:
            partition: the partition of the metadata topic.
            start_offset: first offset, inclusive.
            end_offset: last offset, exclusive; if it equals `start_offset`, no record is returned.

        Raises:
            MetadataTopicRangeError: `start_offset` is below the partition's first offset, or `end_offset` is above its
                end. Records were removed, or the topic was re-created.
            MetadataTopicUnavailableError: may be raised before the first record or after any record.
        """
        ...

    def append(self, partition: int, value: bytes) -> int:
        """Append one record without key and headers, and wait until all in-sync replicas have it.

        Not idempotent across calls. Retries of the client within a call never append a second record. Records of one
        caller keep their order.

        Returns:
            The offset of the record.

        Raises:
            MetadataTopicUnavailableError: it is unknown whether the record was or will still be appended; read the
                partition to find out.
            MetadataTopicRefusedError: the record was not appended; after a failed login that is unknown, too.
        """
        ...

    def close(self) -> None:
        """Close the connections; a later call connects again. Raises nothing."""
        ...


_WORD: Final = 0xFFFFFFFF
_SEED: Final = 0x9747B28C
_MULTIPLIER: Final = 0x5BD1E995


def metadata_partition_of(partition: TopicIdPartition, partition_count: int) -> int:
    """Return the partition of the metadata topic for a partition.

    Args:
        partition: the partition that the records are about.
        partition_count: the actual number of partitions of the metadata topic on the cluster.

    Raises:
        ValueError: `partition_count` is not positive.
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
    """Return Kafka's 32-bit murmur2 of exactly four bytes."""
    block = int.from_bytes(key, "little") * _MULTIPLIER & _WORD
    block = (block ^ (block >> 24)) * _MULTIPLIER & _WORD
    mixed = (_SEED ^ len(key)) * _MULTIPLIER & _WORD ^ block
    mixed = (mixed ^ (mixed >> 13)) * _MULTIPLIER & _WORD
    return mixed ^ (mixed >> 15)
