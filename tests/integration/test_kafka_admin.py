"""A real broker is asked everything that `Brokers` can be asked: the contract that its model keeps too."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from include.tiering.cluster.kafka_admin import open_brokers
from include.tiering.model.ids import TopicIdPartition
from tests.contract.brokers_contract import BrokersContract
from tests.doubles.kafka_lab.brokers_world import RealWorld
from tests.doubles.kafka_lab.cluster import KafkaCluster, client_configuration, kafka_cluster, wait_until
from tests.doubles.kafka_lab.skipping import require_kafka

pytestmark = pytest.mark.kafka


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    require_kafka()
    directory = tmp_path_factory.mktemp("kafka")
    with kafka_cluster(directory / "brokers", remote_dir=directory / "remote") as cluster:
        yield cluster


@pytest.fixture
def world(cluster: KafkaCluster) -> Iterator[RealWorld]:
    with open_brokers(client_configuration(cluster.bootstrap)) as brokers:
        yield RealWorld(cluster, brokers)


class TestABroker(BrokersContract):
    def test_what_tiers_is_seen_as_latest_tiered_and_earliest_local(self, world: RealWorld, tmp_path: Path) -> None:
        name = world.new_name()
        partition = TopicIdPartition(world.create_topic(name), 0, name)
        world.brokers.alter_topic_configs(
            name, {"remote.storage.enable": "true", "local.retention.bytes": "1", "segment.ms": "500"}
        )
        world.append(name, 5)

        def is_tiered() -> bool:
            world.append(name, 1)
            offsets = world.brokers.partition_offsets([partition]).of(partition)
            return (offsets.latest_tiered or 0) >= 5 and (offsets.earliest_local or 0) >= 5 and offsets.earliest == 0

        wait_until(is_tiered, "closed segments are remote only")
