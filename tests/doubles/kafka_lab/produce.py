"""Producers of the lab, all of them librdkafka: every codec, every kind of writer, records with and without parts.

Contents follow from a seed; nothing here is random from run to run but timestamps.
"""

import random
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from confluent_kafka import IsolationLevel, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from tests.doubles.kafka_lab.cluster import client_configuration, wait_until

CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
PRODUCE_SECONDS: Final = 240


@dataclass
class Writer:
    """Sends to one cluster. `transactional_id` empty: no transactions. Raises AssertionError for what was refused."""

    bootstrap: str
    codec: str = "none"
    idempotent: bool = True
    transactional_id: str = ""
    seed: int = 0
    batch_bytes: int = 8_192
    refused: list[str] = field(default_factory=list)
    sent: int = 0

    def __post_init__(self) -> None:
        configuration: dict[str, Any] = {
            **client_configuration(self.bootstrap),
            "compression.type": self.codec,
            "enable.idempotence": self.idempotent or bool(self.transactional_id),
            "batch.size": self.batch_bytes,
            "linger.ms": 5,
            "acks": "all",
            "message.timeout.ms": PRODUCE_SECONDS * 1000,
        }
        if self.transactional_id:
            configuration |= {"transactional.id": self.transactional_id, "transaction.timeout.ms": 3_600_000}
        self._random = random.Random(f"{self.seed}/{self.codec}/{self.transactional_id}")
        self._producer = Producer(configuration)
        if self.transactional_id:
            self._producer.init_transactions(PRODUCE_SECONDS)

    def send(self, topic: str, partitions: Sequence[int], count: int, *, value_bytes: int = 200) -> None:
        """`count` records to each partition, and waits until the broker has them."""
        for _ in range(count):
            for partition in partitions:
                self._send_one(topic, partition, value_bytes)
        self.flush()

    def transaction(
        self, topic: str, partitions: Sequence[int], count: int, *, abort: bool, value_bytes: int = 200
    ) -> None:
        self.begin(topic, partitions, count, value_bytes=value_bytes)
        self.end(abort=abort)

    def begin(self, topic: str, partitions: Sequence[int], count: int, *, value_bytes: int = 200) -> None:
        """A transaction that stays open."""
        self._producer.begin_transaction()
        self.send(topic, partitions, count, value_bytes=value_bytes)

    def end(self, *, abort: bool) -> None:
        if abort:
            self._producer.abort_transaction(PRODUCE_SECONDS)
        else:
            self._producer.commit_transaction(PRODUCE_SECONDS)

    def flush(self) -> None:
        left = self._producer.flush(PRODUCE_SECONDS)
        assert left == 0, f"{left} records were not delivered within {PRODUCE_SECONDS} s"
        assert not self.refused, self.refused[:3]

    def _send_one(self, topic: str, partition: int, value_bytes: int) -> None:
        content = self._random
        key = None if content.random() < 0.2 else b"key-%d" % content.randrange(50)
        # Half of it repeats, so that codecs have something to do.
        size = content.randrange(value_bytes // 2, value_bytes * 3 // 2 + 1)
        value = None if content.random() < 0.05 else content.randbytes(size // 2) + b"x" * (size - size // 2)
        headers: list[tuple[str, str | bytes | None]] = [("source", b"lab"), ("empty", b""), ("none", None)]
        headers = headers[: content.randrange(4)]
        while True:
            try:
                self._producer.produce(
                    topic, value, key, partition=partition, headers=headers, on_delivery=self._delivered
                )
                break
            except BufferError:
                self._producer.poll(0.1)
        self._producer.poll(0)

    def _delivered(self, error: object, message: object) -> None:
        if error is None:
            self.sent += 1
        else:
            self.refused.append(str(error))


def mixed_records(
    bootstrap: str, topic: str, partitions: Sequence[int], *, rounds: int = 1, count: int = 40, seed: int = 0
) -> None:
    """Each round: a plain and an idempotent writer for each codec, then a transaction that commits and one that aborts.

    About 90 KB of records to each partition and round with the default `count`. A broker answers that a transaction
    has ended before its marker is in the log (KIP-890), so the markers are waited for: behind this the log stands.
    """
    for number in range(rounds):
        for codec in CODECS:
            for idempotent in (False, True):
                writer = Writer(bootstrap, codec, idempotent, seed=seed * 1000 + number)
                writer.send(topic, partitions, count)
            writer = Writer(bootstrap, codec, transactional_id=f"tx-{topic}-{codec}", seed=seed * 1000 + number)
            writer.transaction(topic, partitions, count // 2, abort=False)
            writer.transaction(topic, partitions, count // 2, abort=True)
    admin = AdminClient({**client_configuration(bootstrap)})
    wait_until(lambda: _no_transaction_is_open(admin, topic, partitions), "the markers of all transactions are written")


def _no_transaction_is_open(admin: AdminClient, topic: str, partitions: Sequence[int]) -> bool:
    """No record lies between the last stable offset and the high watermark of any of the partitions."""
    asked = {TopicPartition(topic, partition): OffsetSpec.latest() for partition in partitions}

    def ends(isolation: IsolationLevel) -> dict[tuple[str, int], int]:
        answer = admin.list_offsets(asked, isolation_level=isolation, request_timeout=PRODUCE_SECONDS)
        return {(one.topic, one.partition): int(found.result().offset) for one, found in answer.items()}

    return ends(IsolationLevel.READ_COMMITTED) == ends(IsolationLevel.READ_UNCOMMITTED)


@dataclass
class Background:
    """Writers that go on by themselves. `problem` is what ended one too early."""

    sent: int = 0
    problem: str = ""


@contextmanager
def running_producers(
    bootstrap: str, topic: str, partitions: Sequence[int], *, pause_seconds: float = 0.02, seed: int = 77
) -> Iterator[Background]:
    """A plain and a transactional writer (every third transaction aborts) send a little all the time until the block
    ends; then everything of theirs is complete.

    Raises:
        AssertionError: when the block ends, if something was refused meanwhile.
    """
    done, told = threading.Event(), Background()
    plain = Writer(bootstrap, "lz4", seed=seed)
    transactional = Writer(bootstrap, "zstd", transactional_id=f"running-{topic}-{seed}", seed=seed)

    def go_on() -> None:
        turn = 0
        try:
            while not done.wait(pause_seconds):
                plain.send(topic, partitions, 5)
                transactional.transaction(topic, partitions, 3, abort=turn % 3 == 2)
                turn += 1
                told.sent = plain.sent + transactional.sent
        except (AssertionError, KafkaException) as error:
            told.problem = f"after {turn} turns: {error}"

    thread = threading.Thread(target=go_on, name="lab-producers")
    thread.start()
    try:
        yield told
    finally:
        done.set()
        thread.join(PRODUCE_SECONDS + 30)
    assert not thread.is_alive(), "a producer did not end"
    assert not told.problem, told.problem
