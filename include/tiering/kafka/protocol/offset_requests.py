"""Offsets of partitions, asked from their leader.

ListOffsets 7 to 9: replica int32 (-1: a client) | isolation int8 | topics: (name string | partitions: (partition,
       leader epoch int32 | timestamp int64 | tags) | tags) | tags
    -> throttle ms int32 | topics: (name string | partitions: (partition int32 | error int16 | timestamp, offset int64 |
       leader epoch int32 | tags) | tags) | tags
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import ClassVar, Final, NamedTuple

from include.tiering.formats.flexible import Reader, Writer
from include.tiering.kafka.protocol.fields import read_int16

_CLIENT: Final = -1


class OffsetSpec(IntEnum):
    """Timestamps that ask for a bound instead of a time."""

    LATEST = -1
    EARLIEST = -2
    EARLIEST_LOCAL = -4
    LATEST_TIERED = -5

    @property
    def least_version(self) -> int:
        """The first version of ListOffsets in which brokers know it."""
        return {OffsetSpec.EARLIEST_LOCAL: 8, OffsetSpec.LATEST_TIERED: 9}.get(self, 7)


class TopicPartition(NamedTuple):
    """As the wire names it: a topic id has no place in these requests."""

    topic: str
    partition: int


class FoundOffset(NamedTuple):
    """`offset` is -1 where there is none."""

    error: int
    offset: int


@dataclass(frozen=True, slots=True)
class ListOffsets:
    """`leader_epochs`: the partitions, and in which epoch the broker must be their leader; -1: in any.

    `read_committed`: LATEST is the last stable offset, not the high watermark.
    """

    name: ClassVar[str] = "ListOffsets"
    api_key: ClassVar[int] = 2
    flexible_request: ClassVar[bool] = True
    flexible_answer: ClassVar[bool] = True

    spec: OffsetSpec
    leader_epochs: Mapping[TopicPartition, int]
    read_committed: bool = False

    @property
    def version(self) -> int:
        return self.spec.least_version

    def body(self) -> bytes:
        topics: dict[str, list[tuple[int, int]]] = {}
        for (topic, partition), epoch in self.leader_epochs.items():
            topics.setdefault(topic, []).append((partition, epoch))
        writer = Writer()
        writer.int32(_CLIENT)
        writer.int8(int(self.read_committed))
        writer.array(self._write_topic, list(topics.items()))
        writer.tags(())
        return writer.value()

    def answer(self, reader: Reader) -> Mapping[TopicPartition, FoundOffset]:
        reader.int32()
        found = reader.array(_topic, "topics")
        return {TopicPartition(topic, partition): offset for topic, rows in found for partition, offset in rows}

    def _write_topic(self, writer: Writer, topic: tuple[str, list[tuple[int, int]]]) -> None:
        name, partitions = topic
        writer.string(name)
        writer.array(self._write_partition, partitions)
        writer.tags(())

    def _write_partition(self, writer: Writer, partition: tuple[int, int]) -> None:
        number, leader_epoch = partition
        writer.int32(number)
        writer.int32(leader_epoch)
        writer.int64(self.spec)
        writer.tags(())


def _topic(reader: Reader) -> tuple[str, tuple[tuple[int, FoundOffset], ...]]:
    found = reader.string("topic"), reader.array(_partition, "partitions")
    reader.tags()
    return found


def _partition(reader: Reader) -> tuple[int, FoundOffset]:
    partition, error = reader.int32(), read_int16(reader)
    reader.int64()
    offset = reader.int64()
    reader.int32()
    reader.tags()
    return partition, FoundOffset(error, offset)
