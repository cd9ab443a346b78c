"""`ServedRecords` over librdkafka, with a consumer that joins no group and commits nothing."""

from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Final

from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, Consumer, KafkaException, Message, TopicPartition

from include.tiering.clock import Clock, SystemClock
from include.tiering.errors import BrokersRefusedError, BrokersUnavailableError
from include.tiering.model.segments import SeenRecord, TopicIdPartition

CLIENT_ID: Final = "tiering-served-records"
DEFAULT_TIMEOUT_MS: Final = 60_000
_AT_ONCE: Final = 1_000
_POLL_SECONDS: Final = 0.2
_END: Final = "_PARTITION_EOF"
_PASSING: Final = frozenset({_END, "_TRANSPORT", "_ALL_BROKERS_DOWN", "_TIMED_OUT", "_RESOLVE"})


class Isolation(StrEnum):
    """Kafka's isolation.level. COMMITTED leaves out aborted records and all records from the last stable offset on."""

    UNCOMMITTED = "read_uncommitted"
    COMMITTED = "read_committed"


class KafkaServedRecords:
    """`ServedRecords` with one client per call, because ranges are read seldom.

    Args:
        config: configuration of a librdkafka client: addresses, TLS and SASL. It is never logged.
        isolation: UNCOMMITTED fulfils the contract of `ServedRecords`; COMMITTED leaves out records of aborted
            transactions.
        timeout_ms: the longest wait for the first record, and from one record to the next.
        clock: the clock for the timeout.
    """

    def __init__(
        self,
        config: Mapping[str, str | int],
        *,
        isolation: Isolation = Isolation.UNCOMMITTED,
        timeout_ms: int = DEFAULT_TIMEOUT_MS,
        clock: Clock | None = None,
    ) -> None:
        self._config = {**config, **_READING, "isolation.level": isolation.value}
        self._timeout_seconds = timeout_ms / 1000
        self._clock = clock or SystemClock()

    def read(self, partition: TopicIdPartition, start_offset: int, end_offset: int) -> Iterator[SeenRecord]:
        try:
            consumer = Consumer(self._config)
        except KafkaException as error:
            raise BrokersRefusedError(f"{partition}: {error.args[0]}") from error
        try:
            consumer.assign([TopicPartition(partition.topic, partition.partition, start_offset)])
            yield from self._read(consumer, partition, end_offset)
        except KafkaException as error:
            raise BrokersUnavailableError(f"{partition}: {error.args[0]}") from error
        finally:
            consumer.close()

    def _read(self, consumer: Consumer, partition: TopicIdPartition, end_offset: int) -> Iterator[SeenRecord]:
        deadline = self._clock.monotonic() + self._timeout_seconds
        while True:
            messages = consumer.consume(_AT_ONCE, timeout=_POLL_SECONDS)
            for message in messages:
                if _is_end_behind(message, end_offset):
                    return
                offset = _offset_of(message, partition)
                if offset is None:
                    continue
                deadline = self._clock.monotonic() + self._timeout_seconds
                if offset <= end_offset and message.error() is None:
                    yield _record_of(message, offset)
                if offset >= end_offset:
                    return
            if self._has_passed(consumer, partition, end_offset):
                return
            if self._clock.monotonic() > deadline:
                raise BrokersUnavailableError(f"{partition}: no record came for {self._timeout_seconds:g} s")

    def _has_passed(self, consumer: Consumer, partition: TopicIdPartition, end_offset: int) -> bool:
        """Return whether the consumer's position is above `end_offset`.

        This ends a range whose last offsets are transaction markers, which are never returned as records.
        """
        (position,) = consumer.position([TopicPartition(partition.topic, partition.partition)])
        return position.offset > end_offset


_READING: Final[Mapping[str, str | int]] = {
    "client.id": CLIENT_ID,
    "group.id": CLIENT_ID,
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "auto.offset.reset": "error",
    "enable.partition.eof": True,
    "check.crcs": True,
}


def _is_end_behind(message: Message, end_offset: int) -> bool:
    """Return whether the consumer reports the partition's end, or an error, at an offset above the range.

    The rest of the range then holds no record for this consumer.
    """
    offset = message.offset()
    return message.error() is not None and offset is not None and offset > end_offset


def _offset_of(message: Message, partition: TopicIdPartition) -> int | None:
    """Return the offset of a record; None for the report of the partition's end and for temporary errors.

    Raises:
        BrokersRefusedError: any other error.
    """
    error = message.error()
    if error is None:
        return message.offset()
    if error.retriable() or error.name() in _PASSING:
        return None
    raise BrokersRefusedError(f"{partition}: {error.str()}")


def _record_of(message: Message, offset: int) -> SeenRecord:
    kind, timestamp_ms = message.timestamp()
    found = message.headers() or []
    pairs = found.items() if isinstance(found, dict) else found
    headers = tuple((name.encode(), _bytes(value)) for name, value in pairs)
    return SeenRecord(
        offset, kind == TIMESTAMP_LOG_APPEND_TIME, timestamp_ms, _bytes(message.key()), _bytes(message.value()), headers
    )


def _bytes(content: str | bytes | None) -> bytes | None:
    return content.encode() if isinstance(content, str) else content
