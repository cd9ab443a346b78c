"""What is written to the brokers: topics, and records through librdkafka."""

import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from confluent_kafka import IsolationLevel, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
TIMEOUT_SECONDS: Final = 60.0
FIRST_TIMESTAMP_MS: Final = 1_704_067_200_000

# Kafka refuses small segments but for this internal name; old timestamps would be expired at once without the others.
_SMALL_SEGMENTS: Final = {"internal.segment.bytes": "24576", "retention.ms": "-1", "retention.bytes": "-1"}


def admin_client(servers: str) -> AdminClient:
    """Silent: brokers go away on purpose here, and librdkafka would say so many times a second."""
    return AdminClient({"bootstrap.servers": servers, "log_level": 0})


def create_topic(
    admin: AdminClient, name: str, replicas: Sequence[Sequence[int]], configs: Mapping[str, str] | None = None
) -> None:
    """`replicas` lists, per partition, its brokers; the first is the preferred leader."""
    assignment = [list(of_partition) for of_partition in replicas]
    topic = NewTopic(
        name,
        num_partitions=len(assignment),
        replica_assignment=assignment,
        config={**_SMALL_SEGMENTS, **(configs or {})},
    )
    admin.create_topics([topic])[name].result(TIMEOUT_SECONDS)


def producer(servers: str, **options: Any) -> Producer:
    named = {name.replace("_", "."): value for name, value in options.items()}
    return Producer({"bootstrap.servers": servers, "linger.ms": 5, "log_level": 0, **named})


def write(to: Producer, topic: str, partition: int, numbers: range, *, keys: int = 50, headers: bool = True) -> None:
    """One record per number: its key, size and headers follow from it. Waits until all are acknowledged."""
    for number in numbers:
        to.produce(
            topic,
            value=(f"{topic} {number} ".encode() * (1 + number % 13))[: 20 + number % 400],
            key=f"key-{number % keys}".encode(),
            partition=partition,
            timestamp=FIRST_TIMESTAMP_MS + number * 500,
            headers=[("trace", str(number).encode()), ("none", None)] if headers and number % 3 == 0 else None,
        )
        if number % 20 == 19:
            to.flush(TIMEOUT_SECONDS)
    left = to.flush(TIMEOUT_SECONDS)
    if left:
        raise RuntimeError(f"{left} records of {topic}-{partition} were not acknowledged")


def transaction(to: Producer, topic: str, numbers: range, *, commit: bool | None) -> None:
    """Write the numbers in one transaction; None leaves it open."""
    to.begin_transaction()
    write(to, topic, 0, numbers)
    if commit is not None:
        (to.commit_transaction if commit else to.abort_transaction)(TIMEOUT_SECONDS)


def transactional(servers: str, name: str) -> Producer:
    made = producer(servers, transactional_id=name, transaction_timeout_ms=3_600_000, compression_type="zstd")
    made.init_transactions(TIMEOUT_SECONDS)
    return made


def delete_records(admin: AdminClient, topic: str, partition: int, before_offset: int) -> None:
    where = TopicPartition(topic, partition, before_offset)
    for answer in admin.delete_records([where]).values():
        answer.result(TIMEOUT_SECONDS)


def offsets(servers: str, partitions: Sequence[tuple[str, int]]) -> dict[str, dict[str, int]]:
    """What the brokers answer, once every partition has a leader: log start, high watermark, last stable offset.

    A new client for each try: librdkafka keeps the leader epochs of before a restart, which brokers refuse.
    """
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while True:
        try:
            return _offsets(admin_client(servers), partitions)
        except KafkaException:
            if time.monotonic() >= deadline:
                raise
            time.sleep(0.5)


def _offsets(admin: AdminClient, partitions: Sequence[tuple[str, int]]) -> dict[str, dict[str, int]]:
    asked = {
        "earliest": (OffsetSpec.earliest(), IsolationLevel.READ_UNCOMMITTED),
        "latest": (OffsetSpec.latest(), IsolationLevel.READ_UNCOMMITTED),
        "latest_read_committed": (OffsetSpec.latest(), IsolationLevel.READ_COMMITTED),
    }
    found: dict[str, dict[str, int]] = {f"{topic}-{partition}": {} for topic, partition in partitions}
    for name, (spec, isolation) in asked.items():
        request = {TopicPartition(topic, partition): spec for topic, partition in partitions}
        answers = admin.list_offsets(request, isolation_level=isolation, request_timeout=TIMEOUT_SECONDS)
        for where, answer in answers.items():
            found[f"{where.topic}-{where.partition}"][name] = answer.result(TIMEOUT_SECONDS).offset
    return found
