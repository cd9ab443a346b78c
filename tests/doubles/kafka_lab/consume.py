"""What a consumer gets of a partition, from a given offset to the end, as one SHA-256."""

import hashlib
import struct
import time
from dataclasses import dataclass
from typing import Any, Final, Literal

from confluent_kafka import Consumer, KafkaError, TopicPartition

from tests.doubles.kafka_lab.cluster import client_configuration

DIGEST_SECONDS: Final = 300
Isolation = Literal["read_uncommitted", "read_committed"]
_ABSENT: Final = b"\xff\xff\xff\xff"


@dataclass(frozen=True, slots=True)
class Digest:
    """`sha256` covers offset, timestamp type and value, key, value and headers of every record in order; equal
    digests mean equal records. `first_offset` and `last_offset` are inclusive, -1 if there was no record."""

    records: int
    first_offset: int
    last_offset: int
    sha256: str


def digest(
    bootstrap: str,
    topic: str,
    partition: int,
    *,
    isolation: Isolation = "read_uncommitted",
    start: int = 0,
    end: int | None = None,
    seconds: float = DIGEST_SECONDS,
) -> Digest:
    """Reads from `start` up to but without `end` (None: to the high watermark or last stable offset as it is met).

    Raises:
        AssertionError: the end was not reached within `seconds`, or the broker answered with an error, an offset out
            of range among them.
    """
    configuration = {
        **client_configuration(bootstrap),
        "group.id": "lab-digest",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "auto.offset.reset": "error",
        "isolation.level": isolation,
        "check.crcs": True,
        "fetch.wait.max.ms": 50,
    }
    consumer = Consumer(configuration)
    consumer.assign([TopicPartition(topic, partition, start)])
    sums, records, first, last = hashlib.sha256(), 0, -1, -1
    deadline = time.monotonic() + seconds
    try:
        while end is None or last < end - 1:
            if time.monotonic() > deadline:
                raise AssertionError(f"{topic}-{partition}: not read within {seconds} s, got to offset {last}")
            message: Any = consumer.poll(0.5)
            if message is None:
                continue
            if (error := message.error()) is not None:
                if error.code() == KafkaError._PARTITION_EOF:
                    break
                if error.retriable() or error.code() in (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN):
                    continue
                raise AssertionError(f"{topic}-{partition}: after offset {last}: {error}")
            if end is not None and message.offset() >= end:
                break
            sums.update(record_bytes(message))
            first = message.offset() if first < 0 else first
            last = message.offset()
            records += 1
    finally:
        consumer.close()
    return Digest(records, first, last, sums.hexdigest())


def both_digests(
    bootstrap: str, topic: str, partition: int, *, start: int = 0, end: int | None = None
) -> tuple[Digest, Digest]:
    """(plain, read_committed)."""
    return (
        digest(bootstrap, topic, partition, start=start, end=end),
        digest(bootstrap, topic, partition, isolation="read_committed", start=start, end=end),
    )


def record_bytes(message: Any) -> bytes:
    """Everything of a record that a consumer can see, unambiguously: lengths before contents, absent is not empty."""
    kind, timestamp = message.timestamp()
    headers = message.headers() or []
    head = struct.pack(">qbqI", message.offset(), kind, timestamp, len(headers))
    parts = [_sized(message.key()), _sized(message.value())]
    parts += [_sized(part) for name, value in headers for part in (name.encode(), value)]
    return head + b"".join(parts)


def _sized(content: bytes | None) -> bytes:
    return _ABSENT if content is None else struct.pack(">I", len(content)) + content
