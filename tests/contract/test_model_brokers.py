"""The model of a cluster keeps the contract that a cluster keeps."""

import itertools
from collections.abc import Callable

import pytest

from include.tiering.errors import BrokersUnavailableError
from include.tiering.kafka.cluster.contract import OpenTransaction
from include.tiering.model.segments import TopicIdPartition, Uuid
from tests.contract.brokers_contract import BrokersContract
from tests.doubles.model_brokers import CLUSTER_ID, ModelBrokers, ModelPartition


class ModelWorld:
    """`BrokersWorld` in memory."""

    def __init__(self) -> None:
        self.brokers = ModelBrokers()
        self.cluster_id = CLUSTER_ID
        self._numbers = itertools.count()
        self._ids: dict[str, Uuid] = {}

    def new_name(self) -> str:
        return f"topic-{next(self._numbers)}"

    def create_topic(self, name: str, partitions: int = 1) -> Uuid:
        self._ids[name] = self.brokers.create_topic(name, partitions=partitions)
        return self._ids[name]

    def delete_topic(self, name: str) -> None:
        self.brokers.delete_topic(name)

    def append(self, topic: str, records: int) -> None:
        self._partition(topic).high_watermark += records
        self._partition(topic).log_bytes += 70 * records

    def begin(self, topic: str) -> Callable[[], None]:
        partition = self._partition(topic)
        partition.open_transactions.append(OpenTransaction(7, 0, partition.high_watermark, 1, "tx", 2, 60_000))
        partition.high_watermark += 1

        def abort() -> None:
            partition.open_transactions.clear()
            partition.high_watermark += 1

        return abort

    def _partition(self, topic: str) -> ModelPartition:
        return self.brokers.partition(self._ids[topic], 0)


@pytest.fixture
def world() -> ModelWorld:
    return ModelWorld()


class TestTheModel(BrokersContract):
    def test_faults_come_as_often_as_scripted(self, world: ModelWorld) -> None:
        name = world.new_name()
        partition = TopicIdPartition(world.create_topic(name), 0, name)
        gone = BrokersUnavailableError("no answer")
        world.brokers.fail("partition_offsets", gone, times=2)
        for _ in range(2):
            with pytest.raises(BrokersUnavailableError):
                world.brokers.partition_offsets([partition])
        assert world.brokers.partition_offsets([partition]).refused == {}
        world.brokers.refuse_partition(partition.topic_id, 0, gone)
        assert world.brokers.partition_offsets([partition]).refused == {partition: gone}
        world.brokers.heal()
        assert world.brokers.partition_offsets([partition]).refused == {}
