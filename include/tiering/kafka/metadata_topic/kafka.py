"""`MetadataTopic` over librdkafka, with an idempotent producer without transactions.

There are no transactions because the marker of a transaction has an offset. If that is the last offset of a metadata
partition, brokers wait for a record at that offset, and their remote log metadata never becomes ready. So each record
is one idempotent produce request with an explicit partition, without key and headers, acknowledged by all in-sync
replicas. At most one request is in flight. The consumer joins no group: partitions are assigned, and nothing is
committed.
"""

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Final, Self

from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient

from include.tiering.clock import Clock, SystemClock
from include.tiering.errors import (
    MetadataTopicError,
    MetadataTopicRangeError,
    MetadataTopicRefusedError,
    MetadataTopicUnavailableError,
)
from include.tiering.kafka.metadata_topic.contract import METADATA_TOPIC, MetadataTopicRecord, OffsetBounds
from include.tiering.model.segments import Uuid

CLIENT_ID: Final = "tiering-metadata-topic"
DEFAULT_TIMEOUT_MS: Final = 30_000

_LOG: Final = logging.getLogger(__name__)
_POLL_SECONDS: Final = 0.1
_RECORDS_AT_ONCE: Final = 1_000
_TOPIC_APPEARS_MS: Final = 3_000
"""Milliseconds after which a topic that the brokers do not return counts as missing."""
_FETCH_WAIT_MS: Final = 50
"""Longest time in ms that a broker holds a fetch for new records. It is short, because an assignment of the consumer
takes effect only when the previous fetch returns."""
_HALF: Final = (1 << 64) - 1
_GRACE_SECONDS: Final = 5.0
"""Seconds to wait after the message timeout, because the client reports a delivery a little later."""


class KafkaMetadataTopic:
    """`MetadataTopic` for one thread at a time. The caller must call `close`, or use a `with` block.

    Args:
        config: configuration of a librdkafka client: addresses, TLS and SASL. It is never logged.
        topic: the topic's name.
        timeout_ms: the longest wait for one response, for the next record, and for the acknowledgement of a record. A
            call may take longer: it may wait for several of these, and `_GRACE_SECONDS` more until librdkafka reports
            that a record was delivered.
        clock: the clock for timeouts.
    """

    def __init__(
        self,
        config: Mapping[str, str | int],
        *,
        topic: str = METADATA_TOPIC,
        timeout_ms: int = DEFAULT_TIMEOUT_MS,
        clock: Clock | None = None,
    ) -> None:
        self._config = dict(config)
        self._topic = topic
        self._timeout_seconds = timeout_ms / 1000
        self._clock = clock or SystemClock()
        self._consumer: Consumer | None = None
        self._producer: Producer | None = None
        self._admin: AdminClient | None = None
        self._next: tuple[int, int] | None = None
        self._client_error: KafkaError | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections and drop records that were not acknowledged; a later call connects again."""
        consumer, self._consumer, self._next, self._admin = self._consumer, None, None, None
        if consumer is not None:
            consumer.close()
        self._producer = None

    def topic_id(self) -> Uuid:
        what = "its id"
        with self._typed_errors(what):
            if self._admin is None:
                self._admin = AdminClient(self._client_config())
            futures = self._admin.describe_topics(TopicCollection([self._topic]), request_timeout=self._timeout_seconds)
            found = futures[self._topic].result(self._timeout_seconds + _GRACE_SECONDS).topic_id
        halves = (found.get_most_significant_bits(), found.get_least_significant_bits())
        return Uuid(b"".join((half & _HALF).to_bytes(8, "big") for half in halves))

    def partition_count(self) -> int:
        with self._typed_errors("its partitions"):
            found = self._reader().list_topics(self._topic, timeout=self._timeout_seconds).topics.get(self._topic)
        if found is None or found.error is not None:
            raise self._error("its partitions", None if found is None else found.error)
        return len(found.partitions)

    def offsets(self, partition: int, *, wait: bool = True) -> OffsetBounds:
        deadline = self._clock.monotonic() + (self._timeout_seconds if wait else 0.0)
        while True:
            try:
                return self._offsets(partition)
            except MetadataTopicUnavailableError:
                if self._clock.monotonic() >= deadline:
                    raise
                self._clock.sleep(_POLL_SECONDS)

    def read(self, partition: int, start_offset: int, *, end_offset: int) -> Iterator[MetadataTopicRecord]:
        begin, end = self.offsets(partition)
        if start_offset < begin or end_offset > end:
            raise MetadataTopicRangeError(
                f"{self._topic}-{partition} holds offsets from {begin} to before {end}, not from {start_offset} to"
                f" before {end_offset}"
            )
        return self._read(partition, start_offset, end_offset)

    def append(self, partition: int, value: bytes) -> int:
        try:
            return self._append(partition, value)
        except MetadataTopicError:
            # A record that was not acknowledged must not be sent later: the queue is dropped with the client.
            self._producer = None
            raise

    def _append(self, partition: int, value: bytes) -> int:
        what = f"a record for partition {partition}"
        delivered: list[tuple[KafkaError | None, Message]] = []
        with self._typed_errors(what):
            producer = self._writer()
            producer.produce(
                self._topic,
                value=value,
                partition=partition,
                on_delivery=lambda error, message: delivered.append((error, message)),
            )
            deadline = self._clock.monotonic() + self._timeout_seconds + _GRACE_SECONDS
            while not delivered and self._clock.monotonic() < deadline:
                producer.poll(_POLL_SECONDS)
        error, message = delivered[0] if delivered else (None, None)
        offset = None if message is None else message.offset()
        if error is not None or offset is None:
            raise self._error(what, error)
        return offset

    def _offsets(self, partition: int) -> OffsetBounds:
        what = f"offsets of partition {partition}"
        with self._typed_errors(what):
            try:
                bounds = self._reader().get_watermark_offsets(
                    TopicPartition(self._topic, partition), timeout=self._timeout_seconds, cached=False
                )
            except KafkaException as error:
                # A client without connections to brokers reports this error, too.
                if error.args[0].name() != UNKNOWN_PARTITION or partition >= self.partition_count():
                    raise
                raise MetadataTopicUnavailableError(f"{self._topic}: {what}: it has no leader just now") from error
        if bounds is None:
            raise self._error(what, None)
        return OffsetBounds(*bounds)

    def _read(self, partition: int, start_offset: int, end_offset: int) -> Iterator[MetadataTopicRecord]:
        what = f"partition {partition} from offset {start_offset}"
        position = start_offset
        deadline = self._clock.monotonic() + self._timeout_seconds
        while position < end_offset:
            with self._typed_errors(what):
                consumer = self._reader()
                if self._next != (partition, position):
                    consumer.assign([TopicPartition(self._topic, partition, position)])
                self._next = None
                first = consumer.poll(_POLL_SECONDS)
                messages = [] if first is None else [first, *consumer.consume(_RECORDS_AT_ONCE, timeout=0)]
            for message in messages:
                position = self._position_after(message, what, position)
                if position > end_offset:
                    return
                if message.error() is None:
                    yield _record_from(message)
            self._next = (partition, position)
            if messages:
                deadline = self._clock.monotonic() + self._timeout_seconds
            elif self._clock.monotonic() > deadline:
                self._next = None
                raise self._error(f"{what}: no record came from offset {position} on", None)

    def _position_after(self, message: Message, what: str, position: int) -> int:
        """Return the offset to read next, after a message, which is a record or the partition's end.

        librdkafka reports the end of the partition as an error with the offset of the end. Any other error is raised.
        """
        error, offset = message.error(), message.offset()
        if error is not None and error.name() != END_OF_PARTITION:
            raise self._error(what, error)
        if offset is None:
            return position
        return max(position, offset if error is not None else offset + 1)

    def _reader(self) -> Consumer:
        if self._consumer is None:
            self._consumer = Consumer(
                self._client_config()
                | {
                    "group.id": CLIENT_ID,
                    "enable.auto.commit": False,
                    "enable.auto.offset.store": False,
                    "auto.offset.reset": "error",
                    "isolation.level": "read_uncommitted",
                    "enable.partition.eof": True,
                    "allow.auto.create.topics": False,
                    "check.crcs": True,
                    "fetch.wait.max.ms": _FETCH_WAIT_MS,
                }
            )
        return self._consumer

    def _writer(self) -> Producer:
        if self._producer is None:
            self._producer = Producer(
                self._client_config()
                | {
                    "enable.idempotence": True,
                    "acks": "all",
                    "max.in.flight.requests.per.connection": 1,
                    "linger.ms": 0,
                    "message.timeout.ms": int(self._timeout_seconds * 1000),
                    "topic.metadata.propagation.max.ms": _TOPIC_APPEARS_MS,
                }
            )
        return self._producer

    def _client_config(self) -> dict[str, Any]:
        on_error: Callable[[KafkaError], None] = self._note
        return self._config | {"client.id": CLIENT_ID, "logger": _LOG, "error_cb": on_error}

    def _note(self, error: KafkaError) -> None:
        if self._client_error is None or error.name() in LOGIN:
            self._client_error = error

    @contextmanager
    def _typed_errors(self, what: str) -> Iterator[None]:
        self._client_error = None
        try:
            yield
        except KafkaException as error:
            raise self._error(what, error.args[0]) from error
        except TimeoutError as error:
            raise self._error(what, None) from error
        except BufferError as error:
            raise MetadataTopicUnavailableError(f"{self._topic}: {what}: the client's queue is full") from error

    def _error(self, what: str, error: KafkaError | None) -> MetadataTopicError:
        return error_for(f"{self._topic}: {what}", error, self._client_error)


def _record_from(message: Message) -> MetadataTopicRecord:
    partition, offset, value = message.partition(), message.offset(), message.value()
    if partition is None or offset is None or isinstance(value, str):
        raise TypeError("a received record must have a partition, an offset and bytes")
    return MetadataTopicRecord(partition, offset, message.timestamp()[1], value or b"")


END_OF_PARTITION: Final = "_PARTITION_EOF"
UNKNOWN_PARTITION: Final = "_UNKNOWN_PARTITION"
LOGIN: Final = frozenset({"_AUTHENTICATION", "_SSL", "SASL_AUTHENTICATION_FAILED"})
_REFUSALS: Final = LOGIN | {
    "CLUSTER_AUTHORIZATION_FAILED",
    "INVALID_RECORD",
    "MSG_SIZE_TOO_LARGE",
    "POLICY_VIOLATION",
    "TOPIC_AUTHORIZATION_FAILED",
    "TOPIC_EXCEPTION",
    "UNKNOWN_TOPIC_OR_PART",
    "_INVALID_ARG",
    "_UNKNOWN_TOPIC",
    UNKNOWN_PARTITION,
}
_OUT_OF_RANGE: Final = frozenset({"OFFSET_OUT_OF_RANGE", "_AUTO_OFFSET_RESET"})


def error_for(what: str, error: KafkaError | None, client_error: KafkaError | None = None) -> MetadataTopicError:
    """Return the error to raise for a failed call: refused, out of range, or otherwise unavailable.

    Args:
        what: the subject of the call.
        error: the error of the call; None if the call failed without an error, for example at its timeout.
        client_error: an error that the client reported about its connections during the call: the newest login error,
            or else the first error. A wrong password is reported only here.
    """
    for found in (error, client_error):
        if found is not None and found.name() in _REFUSALS:
            return MetadataTopicRefusedError(f"{what}: {found.str()}")
    if error is not None and error.name() in _OUT_OF_RANGE:
        return MetadataTopicRangeError(f"{what}: {error.str()}")
    cause = error or client_error
    return MetadataTopicUnavailableError(f"{what}: {'no answer in time' if cause is None else cause.str()}")
