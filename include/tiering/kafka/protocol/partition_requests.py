"""Requests about partitions: offsets and producers from leaders, and transactions from coordinators (KIP-664).

ListOffsets 7 to 9: replica int32 (-1: a client) | isolation int8 | topics: (name string | partitions: (partition,
       leader epoch int32 | timestamp int64 | tags) | tags) | tags
    -> throttle ms int32 | topics: (name string | partitions: (partition int32 | error int16 | timestamp, offset int64 |
       leader epoch int32 | tags) | tags) | tags
DescribeProducers 0: topics: (name string | partitions int32 array | tags) | tags
    -> throttle ms int32 | topics: (name string | partitions: (partition int32 | error int16 | message nullable string |
       producers: (producer id int64 | producer epoch, last sequence int32 | last timestamp int64 | coordinator epoch
       int32 | transaction start offset int64 | tags) | tags) | tags) | tags
ListTransactions 0: states string array | producer ids int64 array | tags
    -> throttle ms int32 | error int16 | unknown states string array | transactions: (transactional id string |
       producer id int64 | state string | tags) | tags
DescribeTransactions 0: transactional ids string array | tags
    -> throttle ms int32 | transactions: (error int16 | transactional id, state string | timeout ms int32 | start ms
       int64 | producer id int64 | producer epoch int16 | topics: (name string | partitions int32 array | tags) | tags)
       | tags
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import ClassVar, Final, NamedTuple

from include.tiering.formats.primitive_types import Reader, Writer
from include.tiering.kafka.protocol.messages import read_int16, read_int32s, read_text

_CLIENT: Final = -1


class OffsetSpec(IntEnum):
    """Special timestamps of ListOffsets, which request a bound instead of a time."""

    LATEST = -1
    EARLIEST = -2
    EARLIEST_LOCAL = -4
    LATEST_TIERED = -5

    @property
    def min_version(self) -> int:
        """The version of ListOffsets that requests this bound: the first that supports the bound, but at least 7."""
        return {OffsetSpec.EARLIEST_LOCAL: 8, OffsetSpec.LATEST_TIERED: 9}.get(self, 7)


class TopicPartition(NamedTuple):
    """A partition by topic name, because these requests have no topic ids."""

    topic: str
    partition: int


class FoundOffset(NamedTuple):
    """The result for one partition: `error` is Kafka's error code, `offset` is -1 if there is no such offset.

    `leader_epoch` is that of the offset in the leader's checkpoint, -1 if it has none there.
    """

    error: int
    offset: int
    leader_epoch: int = -1


@dataclass(frozen=True, slots=True)
class ListOffsets:
    """Request one offset of each partition.

    `leader_epochs` has the partitions with the epoch in which the broker must lead them; -1 accepts any epoch. With
    `read_committed`, LATEST is the last stable offset instead of the high watermark.
    """

    name: ClassVar[str] = "ListOffsets"
    api_key: ClassVar[int] = 2
    flexible_request: ClassVar[bool] = True
    flexible_answer: ClassVar[bool] = True
    has_throttle_time: ClassVar[bool] = True

    spec: OffsetSpec
    leader_epochs: Mapping[TopicPartition, int]
    read_committed: bool = False

    @property
    def version(self) -> int:
        return self.spec.min_version

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
        found = reader.array(_offsets_of_topic, "topics")
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


def _offsets_of_topic(reader: Reader) -> tuple[str, tuple[tuple[int, FoundOffset], ...]]:
    found = reader.string("topic"), reader.array(_offset_of_partition, "partitions")
    reader.tags()
    return found


def _offset_of_partition(reader: Reader) -> tuple[int, FoundOffset]:
    partition, error = reader.int32(), read_int16(reader)
    reader.int64()
    offset, leader_epoch = reader.int64(), reader.int32()
    reader.tags()
    return partition, FoundOffset(error, offset, leader_epoch)


@dataclass(frozen=True, slots=True)
class ProducerState:
    """A producer of a partition. `transaction_start_offset` is -1 if it has no open transaction there."""

    producer_id: int
    producer_epoch: int
    last_timestamp_ms: int
    transaction_start_offset: int


@dataclass(frozen=True, slots=True)
class ProducersAnswer:
    error: int
    message: str | None
    producers: tuple[ProducerState, ...]


@dataclass(frozen=True, slots=True)
class DescribeProducers:
    """Request the active producers of one partition."""

    name: ClassVar[str] = "DescribeProducers"
    api_key: ClassVar[int] = 61
    flexible_request: ClassVar[bool] = True
    flexible_answer: ClassVar[bool] = True
    has_throttle_time: ClassVar[bool] = True
    version: ClassVar[int] = 0

    topic: str
    partition: int

    def body(self) -> bytes:
        writer = Writer()
        writer.array(_write_topic, [self])
        writer.tags(())
        return writer.value()

    def answer(self, reader: Reader) -> Sequence[ProducersAnswer]:
        """Parse the results; there is one, unless the broker violates the protocol."""
        reader.int32()
        return [answer for topic in reader.array(_producers_of_topic, "topics") for answer in topic]


@dataclass(frozen=True, slots=True)
class ListedTransaction:
    transactional_id: str
    producer_id: int


@dataclass(frozen=True, slots=True)
class ListTransactionsAnswer:
    error: int
    transactions: tuple[ListedTransaction, ...]


@dataclass(frozen=True, slots=True)
class ListTransactions:
    """Request those transactions of the given producers that the broker coordinates."""

    name: ClassVar[str] = "ListTransactions"
    api_key: ClassVar[int] = 66
    flexible_request: ClassVar[bool] = True
    flexible_answer: ClassVar[bool] = True
    has_throttle_time: ClassVar[bool] = True
    version: ClassVar[int] = 0

    producer_ids: Sequence[int]

    def body(self) -> bytes:
        writer = Writer()
        writer.array(Writer.string, ())
        writer.array(Writer.int64, self.producer_ids)
        writer.tags(())
        return writer.value()

    def answer(self, reader: Reader) -> ListTransactionsAnswer:
        reader.int32()
        error = read_int16(reader)
        reader.array(lambda element: element.string("state"), "unknown states")
        return ListTransactionsAnswer(error, reader.array(_listed, "transactions"))


@dataclass(frozen=True, slots=True)
class DescribedTransaction:
    error: int
    transactional_id: str
    timeout_ms: int
    started_at_ms: int
    producer_id: int
    producer_epoch: int


@dataclass(frozen=True, slots=True)
class DescribeTransactions:
    """Request details of transactions. Send it to the broker whose ListTransactions response has them."""

    name: ClassVar[str] = "DescribeTransactions"
    api_key: ClassVar[int] = 65
    flexible_request: ClassVar[bool] = True
    flexible_answer: ClassVar[bool] = True
    has_throttle_time: ClassVar[bool] = True
    version: ClassVar[int] = 0

    transactional_ids: Sequence[str]

    def body(self) -> bytes:
        writer = Writer()
        writer.array(Writer.string, self.transactional_ids)
        writer.tags(())
        return writer.value()

    def answer(self, reader: Reader) -> Sequence[DescribedTransaction]:
        reader.int32()
        return reader.array(_described, "transactions")


def _write_topic(writer: Writer, request: DescribeProducers) -> None:
    writer.string(request.topic)
    writer.array(Writer.int32, [request.partition])
    writer.tags(())


def _producers_of_topic(reader: Reader) -> tuple[ProducersAnswer, ...]:
    reader.string("topic")
    found = reader.array(_producers_of_partition, "partitions")
    reader.tags()
    return found


def _producers_of_partition(reader: Reader) -> ProducersAnswer:
    reader.int32()
    found = ProducersAnswer(read_int16(reader), read_text(reader, "message"), reader.array(_producer, "producers"))
    reader.tags()
    return found


def _producer(reader: Reader) -> ProducerState:
    producer_id, epoch = reader.int64(), reader.int32()
    reader.int32()
    last_timestamp_ms = reader.int64()
    reader.int32()
    found = ProducerState(producer_id, epoch, last_timestamp_ms, reader.int64())
    reader.tags()
    return found


def _listed(reader: Reader) -> ListedTransaction:
    found = ListedTransaction(reader.string("transactional id"), reader.int64())
    reader.string("state")
    reader.tags()
    return found


def _described(reader: Reader) -> DescribedTransaction:
    error, transactional_id = read_int16(reader), reader.string("transactional id")
    reader.string("state")
    found = DescribedTransaction(
        error,
        transactional_id,
        timeout_ms=reader.int32(),
        started_at_ms=reader.int64(),
        producer_id=reader.int64(),
        producer_epoch=read_int16(reader),
    )
    reader.array(_partitions_of_topic, "topics")
    reader.tags()
    return found


def _partitions_of_topic(reader: Reader) -> None:
    reader.string("topic")
    read_int32s(reader, "partitions")
    reader.tags()
