"""Requests for the log itself: batches as the leader stores them, and where a leader epoch ends.

Fetch 15 to 18: max wait ms, min bytes, max bytes int32 | isolation int8 | session id, session epoch int32 | topics:
       (topic id uuid | partitions: (partition, leader epoch int32 | offset int64 | last fetched epoch int32 | log start
       int64 | max bytes int32 | tags) | tags) | forgotten topics array | rack string | tags
    -> throttle ms int32 | error int16 | session id int32 | topics: (topic id uuid | partitions: (partition int32 |
       error int16 | high watermark, last stable offset, log start offset int64 | aborted transactions nullable: (
       producer id, first offset int64 | tags) | preferred replica int32 | records nullable bytes | tags) | tags) | tags
OffsetForLeaderEpoch 4: replica int32 (-1: a client) | topics: (name string | partitions: (partition, current leader
       epoch, leader epoch int32 | tags) | tags) | tags
    -> throttle ms int32 | topics: (name string | partitions: (error int16 | partition, leader epoch int32 | end offset
       int64 | tags) | tags) | tags

The versions of Fetch differ only in tagged fields, which a client neither sends nor needs. Kafka 3.6 has version 15.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

from include.tiering.formats.primitive_types import Buffer, Reader, Writer
from include.tiering.kafka.protocol.messages import read_int16
from include.tiering.kafka.protocol.partition_requests import TopicPartition
from include.tiering.model.segments import Uuid

_CLIENT: Final = -1
_NONE: Final = -1
_READ_UNCOMMITTED: Final = 0
_NO_SESSION: Final = (0, -1)
_LEAST_VERSION: Final = 15
_NEWEST_VERSION: Final = 18


@dataclass(frozen=True, slots=True)
class FetchedPartition:
    """The answer for one partition; offsets are exclusive ends, except `log_start_offset`.

    `records` are bytes of the leader's log. They may begin with a batch that starts below the requested offset, and
    may end with an incomplete batch. Nothing of them was checked. They are not copied from the response.
    """

    error: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    records: Buffer


@dataclass(frozen=True, slots=True)
class FetchAnswer:
    """The answer to the whole request, with `partitions` by topic id and number.

    A broker that throttles a client sends no partition, and expects the same request again after `throttle_ms`.
    """

    throttle_ms: int
    error: int
    partitions: Mapping[tuple[Uuid, int], FetchedPartition]


@dataclass(frozen=True, slots=True)
class Fetch:
    """Request the batches of one partition from an offset (inclusive) on, without a fetch session.

    The broker answers with an error unless it leads the partition in `leader_epoch`. If the first batch is larger than
    `max_bytes`, it is sent nevertheless.
    """

    name: ClassVar[str] = "Fetch"
    api_key: ClassVar[int] = 1
    flexible_request: ClassVar[bool] = True
    flexible_answer: ClassVar[bool] = True
    has_throttle_time: ClassVar[bool] = True

    topic_id: Uuid
    partition: int
    leader_epoch: int
    offset: int
    max_bytes: int
    max_wait_ms: int
    version: int = _LEAST_VERSION

    @classmethod
    def newest_version(cls, apis: Mapping[int, tuple[int, int]]) -> int:
        """Return the newest version that both sides know, but at least version 15.

        Args:
            apis: the broker's lowest and highest versions by API key, see `ApiVersionsAnswer`.
        """
        _, greatest = apis.get(cls.api_key, (0, _LEAST_VERSION))
        return max(_LEAST_VERSION, min(greatest, _NEWEST_VERSION))

    def body(self) -> bytes:
        writer = Writer()
        for number in (self.max_wait_ms, 1, self.max_bytes):
            writer.int32(number)
        writer.int8(_READ_UNCOMMITTED)
        for number in _NO_SESSION:
            writer.int32(number)
        writer.array(_write_topic, [self])
        writer.array(_write_topic, ())
        writer.string("")
        writer.tags(())
        return writer.value()

    def answer(self, reader: Reader) -> FetchAnswer:
        throttle_ms = reader.int32()
        error = read_int16(reader)
        reader.int32()
        topics = reader.array(_fetched_topic, "topics")
        partitions = {(topic_id, number): found for topic_id, rows in topics for number, found in rows}
        return FetchAnswer(throttle_ms, error, partitions)


def _write_topic(writer: Writer, request: Fetch) -> None:
    writer.uuid(request.topic_id)
    writer.array(_write_partition, [request])
    writer.tags(())


def _write_partition(writer: Writer, request: Fetch) -> None:
    writer.int32(request.partition)
    writer.int32(request.leader_epoch)
    writer.int64(request.offset)
    writer.int32(_NONE)
    writer.int64(_NONE)
    writer.int32(request.max_bytes)
    writer.tags(())


def _fetched_topic(reader: Reader) -> tuple[Uuid, tuple[tuple[int, FetchedPartition], ...]]:
    found = reader.uuid(), reader.array(_fetched_partition, "partitions")
    reader.tags()
    return found


def _fetched_partition(reader: Reader) -> tuple[int, FetchedPartition]:
    partition, error = reader.int32(), read_int16(reader)
    high_watermark, last_stable_offset, log_start_offset = reader.int64(), reader.int64(), reader.int64()
    reader.nullable_array(_aborted, "aborted transactions")
    reader.int32()
    records = reader.nullable_view("records") or b""
    reader.tags()
    return partition, FetchedPartition(error, high_watermark, last_stable_offset, log_start_offset, records)


def _aborted(reader: Reader) -> None:
    reader.int64()
    reader.int64()
    reader.tags()


@dataclass(frozen=True, slots=True)
class EpochEnd:
    """Where the leader's log leaves the requested epoch.

    `leader_epoch` is the largest epoch in the leader's history that is not above the requested one, and `end_offset`
    (exclusive) is where that epoch ends. Both are -1 if the leader does not know.
    """

    error: int
    leader_epoch: int
    end_offset: int


@dataclass(frozen=True, slots=True)
class OffsetForLeaderEpoch:
    """Request the end of one leader epoch of one partition from the leader in `current_leader_epoch`."""

    name: ClassVar[str] = "OffsetForLeaderEpoch"
    api_key: ClassVar[int] = 23
    flexible_request: ClassVar[bool] = True
    flexible_answer: ClassVar[bool] = True
    has_throttle_time: ClassVar[bool] = True
    version: ClassVar[int] = 4

    partition: TopicPartition
    current_leader_epoch: int
    leader_epoch: int

    def body(self) -> bytes:
        writer = Writer()
        writer.int32(_CLIENT)
        writer.array(_write_epoch_topic, [self])
        writer.tags(())
        return writer.value()

    def answer(self, reader: Reader) -> Mapping[TopicPartition, EpochEnd]:
        reader.int32()
        topics: Sequence[tuple[str, tuple[tuple[int, EpochEnd], ...]]] = reader.array(_ends_of_topic, "topics")
        return {TopicPartition(topic, number): end for topic, rows in topics for number, end in rows}


def _write_epoch_topic(writer: Writer, request: OffsetForLeaderEpoch) -> None:
    writer.string(request.partition.topic)
    writer.array(_write_epoch, [request])
    writer.tags(())


def _write_epoch(writer: Writer, request: OffsetForLeaderEpoch) -> None:
    writer.int32(request.partition.partition)
    writer.int32(request.current_leader_epoch)
    writer.int32(request.leader_epoch)
    writer.tags(())


def _ends_of_topic(reader: Reader) -> tuple[str, tuple[tuple[int, EpochEnd], ...]]:
    found = reader.string("topic"), reader.array(_end_of_partition, "partitions")
    reader.tags()
    return found


def _end_of_partition(reader: Reader) -> tuple[int, EpochEnd]:
    error, partition = read_int16(reader), reader.int32()
    end = EpochEnd(error, reader.int32(), reader.int64())
    reader.tags()
    return partition, end
