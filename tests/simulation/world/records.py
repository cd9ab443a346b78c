"""Records as numbers: what a record is follows from where it was written, so exact bytes need no storing.

In Kafka a leader epoch has one leader, which only appends: (partition, epoch, offset) names a record for ever, whatever
branch of history it is on.
"""

from collections.abc import Collection, Iterable, Sequence
from functools import lru_cache
from typing import Final

import google_crc32c

from include.tiering.model.leader_epochs import LeaderEpochs
from include.tiering.model.segments import TopicIdPartition

SNAPSHOT: Final = bytes.fromhex("000148674bc700000000")

Record = tuple[int, int]
"""(leader epoch, offset)"""


@lru_cache(maxsize=100_000)
def record_bytes(topic_id: bytes, partition: int, epoch: int, offset: int) -> bytes:
    """10 to 16 bytes that no other record has."""
    return b"%s:%d:%d:%d;" % (topic_id[:4].hex().encode(), partition, epoch, offset)


def bytes_of(partition: TopicIdPartition, records: Iterable[Record]) -> bytes:
    """As a `.log` holds them."""
    topic_id, number = partition.topic_id.value, partition.partition
    return b"".join([record_bytes(topic_id, number, epoch, offset) for epoch, offset in records])


def size_of(partition: TopicIdPartition, records: Iterable[Record]) -> int:
    topic_id, number = partition.topic_id.value, partition.partition
    return sum([len(record_bytes(topic_id, number, epoch, offset)) for epoch, offset in records])


def records_of(
    start_offset: int, end_offset: int, epochs: Sequence[tuple[int, int]], known: Collection[Record]
) -> list[Record] | None:
    """The records that a segment of these offsets (inclusive) holds under these epochs; None if some cannot be.

    Below the first epoch (a log start fell into the segment) it is the newest known one of an epoch that is not later.
    """
    records = []
    for offset in range(start_offset, end_offset + 1):
        epoch = max((candidate for candidate, start in epochs if start <= offset), default=None)
        if epoch is None:
            older = [candidate for candidate in range(epochs[0][0] + 1) if (candidate, offset) in known]
            epoch = max(older, default=None)
        if epoch is None:
            return None
        records.append((epoch, offset))
    return records


def index_bytes(what: str, records: Sequence[Record]) -> bytes:
    """Stands in for an offset or time index."""
    return f"{what}:{records[0][1]}:{records[-1][1]}".encode()


def epoch_text(epochs: LeaderEpochs) -> bytes:
    """A leader-epoch-checkpoint."""
    lines = ["0", str(len(epochs)), *(f"{epoch} {start}" for epoch, start in epochs)]
    return ("\n".join(lines) + "\n").encode()


def crc32c(content: bytes) -> int:
    return google_crc32c.value(content)
