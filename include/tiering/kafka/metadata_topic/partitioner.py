"""Which partition of `__remote_log_metadata` has the records about a partition.

    h    = upper half xor lower half of a 64-bit number, as int32
    x    = 1;  x = 31 x + h(lower 8 bytes of the topic id);  x = 31 x + h(upper 8);  x = 31 x + partition    (mod 2^32)
    choice = murmur2(x as 4 bytes, big-endian) without its sign bit, modulo the number of metadata partitions

The topic's name has no part in it. Source: Kafka's RemoteLogMetadataTopicPartitioner; murmur2 is its producer's.
"""

from typing import Final

from include.tiering.model.ids import TopicIdPartition

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
