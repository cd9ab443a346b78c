"""The oldest and the newest release are asked all that `Brokers` can be asked, and once more after they came back."""

from collections.abc import Iterator

import pytest

from include.tiering.errors import BrokersUnavailableError
from include.tiering.kafka.cluster.contract import release_of
from include.tiering.model.segments import TopicIdPartition
from tests.contract.brokers_contract import BrokersContract
from tests.doubles.kafka_lab.brokers_world import RealWorld, open_brokers
from tests.doubles.kafka_lab.cluster import KafkaCluster, client_configuration, kafka_cluster, wait_until
from tests.doubles.kafka_lab.requests import require_kafka

pytestmark = pytest.mark.kafka


@pytest.fixture(scope="module", params=["3.9.2", "4.4.0"])
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    require_kafka(request.param)
    directory = tmp_path_factory.mktemp("kafka")
    with kafka_cluster(directory / "brokers", remote_dir=directory / "remote", version=request.param) as cluster:
        yield cluster


@pytest.fixture
def world(cluster: KafkaCluster) -> Iterator[RealWorld]:
    with open_brokers(client_configuration(cluster.bootstrap)) as brokers:
        yield RealWorld(cluster, brokers)


class TestAnOldAndANewBroker(BrokersContract):
    def test_its_release_is_known(self, world: RealWorld, cluster: KafkaCluster) -> None:
        (broker,) = world.brokers.describe().brokers
        assert release_of(broker) == "Kafka " + cluster.version.rpartition(".")[0]

    def test_a_broker_that_comes_back_is_asked_again(self, world: RealWorld, cluster: KafkaCluster) -> None:
        name = world.new_name()
        partition = TopicIdPartition(world.create_topic(name), 0, name)
        before = world.brokers.partition_offsets([partition]).of(partition)
        cluster.broker.stop()
        with pytest.raises(BrokersUnavailableError, match=f"broker {cluster.broker.bootstrap}: connection refused"):
            world.brokers.cluster_id()
        cluster.broker.start()
        wait_until(lambda: partition in world.brokers.partition_offsets([partition]).offsets, "it leads again")
        assert world.brokers.partition_offsets([partition]).of(partition).leader_epoch > before.leader_epoch
