"""A real broker is asked everything that `Brokers` can be asked: the contract that its model keeps too."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from include.tiering.app import open_app
from include.tiering.kafka.log_dirs.contract import BoundsQuality, IneligibleReason
from include.tiering.model.segments import TopicIdPartition
from include.tiering.settings import TieringSettings, load_settings
from tests.contract.brokers_contract import BrokersContract
from tests.doubles.kafka_lab.brokers_world import RealWorld, open_brokers
from tests.doubles.kafka_lab.cluster import KafkaCluster, client_configuration, kafka_cluster, wait_until
from tests.doubles.kafka_lab.produce import mixed_records
from tests.doubles.kafka_lab.requests import require_kafka

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


def _settings(cluster: KafkaCluster, log_dir: Path, state: Path) -> TieringSettings:
    return load_settings(
        environ={
            "TIERING_CLUSTER__BOOTSTRAP_SERVERS": cluster.bootstrap,
            "TIERING_CLUSTER__REQUEST_TIMEOUT_MS": "60000",
            "TIERING_LOG_DIRS": f"1:{log_dir}",
            "TIERING_METADATA__URL": f"sqlite:///{state / 'tiering.db'}",
            "TIERING_REMOTE_STORAGE__URL": f"file://{state / 'remote'}",
        }
    )


def test_a_deployment_scans_with_exact_bounds_and_refuses_an_old_copy_of_the_directory(
    world: RealWorld, cluster: KafkaCluster, tmp_path: Path
) -> None:
    name = world.new_name()
    partition = TopicIdPartition(world.create_topic(name), 0, name)
    mixed_records(cluster.bootstrap, name, [0])
    copy = tmp_path / "copy"
    copy.mkdir()
    shutil.copy(cluster.broker.log_dir / "meta.properties", copy)
    shutil.copytree(cluster.partition_dir(name, 0), copy / f"{name}-0")
    with open_app(_settings(cluster, cluster.broker.log_dir, tmp_path)) as app:

        def is_flushed() -> bool:
            (replica,) = app.log_dirs.scan_all(topics=[name]).replicas
            return all(segment.eligible or segment.active for segment in replica.segments)

        wait_until(is_flushed, "all that has rolled may be copied")
        (replica,) = app.log_dirs.scan_all(topics=[name]).replicas
        said = world.brokers.partition_offsets([partition]).of(partition)
        assert replica.bounds is BoundsQuality.EXACT
        assert (replica.high_watermark, replica.last_stable_offset) == (said.high_watermark, said.last_stable_offset)
        assert len(replica.segments) >= 2
    world.append(name, 1)
    with open_app(_settings(cluster, copy, tmp_path)) as app:
        report = app.log_dirs.scan_all(topics=[name])
        assert {one.reason for one in report.replicas[0].segments} == {IneligibleReason.STALE_LOG_DIR}
        assert f"has replicated up to {said.high_watermark + 1}" in report.errors[0].message
