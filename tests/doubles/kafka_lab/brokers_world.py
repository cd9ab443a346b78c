"""A real cluster as the contract of `Brokers` wants it."""

import itertools
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field

from confluent_kafka import Producer

from include.tiering.kafka.cluster.contract import Brokers
from include.tiering.kafka.cluster.kafka_admin import KafkaBrokers
from include.tiering.model.segments import Uuid
from tests.doubles.kafka_lab.cluster import WAIT_SECONDS, KafkaCluster, client_configuration, wait_until

_numbers = itertools.count()


@contextmanager
def open_brokers(config: Mapping[str, str | int]) -> Iterator[KafkaBrokers]:
    """Closed when the block ends."""
    with closing(KafkaBrokers(config)) as brokers:
        yield brokers


@dataclass
class RealWorld:
    """`BrokersWorld` over a broker of the lab."""

    cluster: KafkaCluster
    brokers: Brokers
    _producers: list[Producer] = field(default_factory=list)

    @property
    def cluster_id(self) -> str:
        return self.cluster.cluster_id

    def new_name(self) -> str:
        return f"asked-{next(_numbers)}"

    def create_topic(self, name: str, partitions: int = 1) -> Uuid:
        return Uuid.parse(self.cluster.create_topic(name, partitions=partitions))

    def delete_topic(self, name: str) -> None:
        self.cluster.admin.delete_topics([name])[name].result(WAIT_SECONDS)
        wait_until(lambda: name not in self.brokers.topics([name]), f"topic {name} is gone")

    def append(self, topic: str, records: int) -> None:
        producer = self._producer({})
        for number in range(records):
            producer.produce(topic, str(number).encode(), partition=0)
        assert producer.flush(WAIT_SECONDS) == 0

    def begin(self, topic: str) -> Callable[[], None]:
        producer = self._producer({"transactional.id": f"tx-{next(_numbers)}", "transaction.timeout.ms": 900_000})
        producer.init_transactions(WAIT_SECONDS)
        producer.begin_transaction()
        producer.produce(topic, b"open", partition=0)
        assert producer.flush(WAIT_SECONDS) == 0
        return lambda: producer.abort_transaction(WAIT_SECONDS)

    def _producer(self, more: Mapping[str, str | int]) -> Producer:
        producer = Producer({**client_configuration(self.cluster.bootstrap), **more})
        self._producers.append(producer)
        return producer
