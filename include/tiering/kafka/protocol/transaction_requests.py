"""Producers of a partition, asked from its leader, and transactions, asked from their coordinators (KIP-664).

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

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from include.tiering.formats.flexible import Reader, Writer
from include.tiering.kafka.protocol.fields import read_int16, read_int32s, read_text


@dataclass(frozen=True, slots=True)
class ProducerState:
    """`transaction_start_offset` is -1 while no transaction of it is open in the partition."""

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
    """Of one partition."""

    name: ClassVar[str] = "DescribeProducers"
    api_key: ClassVar[int] = 61
    flexible_request: ClassVar[bool] = True
    flexible_answer: ClassVar[bool] = True
    version: ClassVar[int] = 0

    topic: str
    partition: int

    def body(self) -> bytes:
        writer = Writer()
        writer.array(_write_topic, [self])
        writer.tags(())
        return writer.value()

    def answer(self, reader: Reader) -> Sequence[ProducersAnswer]:
        """One, unless the broker answers something else."""
        reader.int32()
        return [one for topic in reader.array(_producers_of_topic, "topics") for one in topic]


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
    """Those of some producers, as far as the broker coordinates them."""

    name: ClassVar[str] = "ListTransactions"
    api_key: ClassVar[int] = 66
    flexible_request: ClassVar[bool] = True
    flexible_answer: ClassVar[bool] = True
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
        reader.array(lambda one: one.string("state"), "unknown states")
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
    """Asked from the broker that listed them."""

    name: ClassVar[str] = "DescribeTransactions"
    api_key: ClassVar[int] = 65
    flexible_request: ClassVar[bool] = True
    flexible_answer: ClassVar[bool] = True
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


def _write_topic(writer: Writer, asked: DescribeProducers) -> None:
    writer.string(asked.topic)
    writer.array(Writer.int32, [asked.partition])
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
