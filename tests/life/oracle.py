"""What consumers read of every partition while it was there, by topic id: a digest for each leader epoch of an offset.

A leader epoch has one leader that only appends, so partition, epoch and offset name one record for ever. An offset that
was replaced by an unclean election has several epochs.
"""

import time
from array import array
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, TopicPartition

from tests.doubles.kafka_lab.cluster import WAIT_SECONDS, client_configuration
from tests.life.cluster import LifeCluster
from tests.life.stored_records import digest_of

Place = tuple[str, int]
"""Topic id, partition."""
_BATCH: Final = 2_000


@dataclass(slots=True)
class Lineage:
    """The log as it was read last: `start` to `end` (exclusive, the high watermark), where the epochs begin."""

    start: int
    end: int
    epochs: "array[int]" = field(default_factory=lambda: array("q"))
    begins: "array[int]" = field(default_factory=lambda: array("q"))

    def epoch_at(self, offset: int) -> int | None:
        """Of the records that were read; None outside of the log, or before its first record."""
        if not self.start <= offset < self.end or not self.begins or offset < self.begins[0]:
            return None
        return self.epochs[bisect_right(self.begins, offset) - 1]


class Oracle:
    """Reads all of each log again each time: an election may have replaced any of it."""

    def __init__(self, cluster: LifeCluster) -> None:
        self._cluster = cluster
        self._read: dict[Place, dict[int, dict[int, bytes]]] = {}
        self.lineages: dict[Place, Lineage] = {}
        self.names: dict[str, str] = {}

    @property
    def records(self) -> int:
        """How many different ones were read."""
        return sum(len(epochs) for offsets in self._read.values() for epochs in offsets.values())

    def read(self, topics: Iterable[str]) -> None:
        """Every partition of them up to its high watermark of now. Raises AssertionError if that cannot be reached."""
        for topic in topics:
            topic_id = self._cluster.topic_id(topic)
            self.names[topic_id] = topic
            for partition in range(self._cluster.partitions(topic)):
                self._read_partition(topic, topic_id, partition)

    def forget_log(self, place: Place) -> None:
        """There is none any more; what was read of it is remembered."""
        self.lineages.pop(place, None)

    def knows(self, place: Place, offset: int, epoch: int) -> bytes | None:
        """The digest of the record that consumers had there."""
        return self._read.get(place, {}).get(offset, {}).get(epoch)

    def histories(self, place: Place, offset: int) -> list[int]:
        """Leader epochs under which a record was read there."""
        return sorted(self._read.get(place, {}).get(offset, {}))

    def _read_partition(self, topic: str, topic_id: str, partition: int) -> None:
        start, end = self._cluster.earliest(topic, partition), self._cluster.latest(topic, partition)
        offsets = self._read.setdefault((topic_id, partition), {})
        lineage = Lineage(start, end)
        self.lineages[topic_id, partition] = lineage
        consumer = Consumer(
            {
                **client_configuration(self._cluster.bootstrap),
                "group.id": "life",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_uncommitted",
                "check.crcs": True,
                "fetch.wait.max.ms": 20,
            }
        )
        try:
            consumer.assign([TopicPartition(topic, partition, start)])
            self._read_all(consumer, f"{topic}-{partition}", offsets, lineage)
        finally:
            consumer.close()

    def _read_all(self, consumer: Consumer, name: str, offsets: dict[int, dict[int, bytes]], lineage: Lineage) -> None:
        deadline = time.monotonic() + WAIT_SECONDS
        while lineage.start < lineage.end:
            assert time.monotonic() < deadline, f"{name} was not read to its end, {lineage.end}"
            message: Any
            for message in consumer.consume(_BATCH, 0.5):
                if (error := message.error()) is not None:
                    if error.code() == KafkaError._PARTITION_EOF:
                        # Behind the last record there may be a marker of a transaction, which nobody is given.
                        if message.offset() >= lineage.end:
                            return
                        continue
                    assert error.retriable() or error.code() in _PASSING, f"{name}: {error}"
                    continue
                if message.offset() < lineage.end:
                    _keep(message, offsets, lineage)


_PASSING: Final = (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._RESOLVE)


def _keep(message: Any, offsets: dict[int, dict[int, bytes]], lineage: Lineage) -> None:
    offset, epoch = message.offset(), message.leader_epoch()
    if not lineage.epochs or lineage.epochs[-1] != epoch:
        lineage.epochs.append(epoch)
        lineage.begins.append(offset)
    epochs = offsets.setdefault(offset, {})
    if epoch not in epochs:
        kind, timestamp = message.timestamp()
        epochs[epoch] = digest_of(kind, timestamp, message.key(), message.value(), message.headers() or [])
