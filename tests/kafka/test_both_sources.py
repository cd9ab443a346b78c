"""A platform with the log directory of one of two brokers: copied and handed over from the disk and from the leader."""

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

from tests.doubles.broker_deployment import BrokerDeployment, broker_deployment
from tests.doubles.kafka_lab.cluster import KafkaCluster, kafka_cluster, wait_until
from tests.doubles.kafka_lab.consume import Digest, both_digests
from tests.doubles.kafka_lab.produce import Writer, mixed_records
from tests.doubles.kafka_lab.requests import move, replicas, require_kafka

pytestmark = pytest.mark.kafka

TOPIC: Final = "halves"
PARTITIONS: Final = (0, 1)
SEGMENT_BYTES: Final = 1 << 20


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[KafkaCluster]:
    """Partition 0 is on broker 1, partition 1 on broker 2."""
    require_kafka()
    with kafka_cluster(tmp_path / "kafka", brokers=2, remote_dir=tmp_path / "remote", heap_mib=256) as started:
        config = {"segment.bytes": str(SEGMENT_BYTES)}
        started.create_topic(TOPIC, partitions=len(PARTITIONS), segment_bytes=None, config=config)
        for partition in PARTITIONS:
            move(started, TOPIC, partition, [partition + 1])
            wait_until(
                lambda partition=partition: replicas(started, TOPIC, partition).all == (partition + 1,),  # type: ignore[misc]
                "the replica is where it belongs",
            )
        for seed in range(2):
            mixed_records(started.bootstrap, TOPIC, PARTITIONS, count=20, seed=seed)
            Writer(started.bootstrap, seed=seed).send(TOPIC, PARTITIONS, 440, value_bytes=5_000)
        yield started


@pytest.fixture
def deployment(cluster: KafkaCluster, tmp_path: Path) -> BrokerDeployment:
    made = broker_deployment(cluster, tmp_path / "platform", topics=[TOPIC], reads_leaders=True)
    with made.config.open("a") as config:
        config.write(f'\n[[log_dirs]]\nbroker_id = 1\npath = "{cluster.broker.log_dir}"\n')
    return made


def _stored(cluster: KafkaCluster, partition: int) -> bytes:
    (directory,) = cluster.stored.glob(f"{TOPIC}-{partition}-*")
    return b"".join(log.read_bytes() for log in sorted(directory.glob("*.log")))


def _digests(cluster: KafkaCluster, ends: dict[int, int]) -> dict[int, tuple[Digest, Digest]]:
    return {partition: both_digests(cluster.bootstrap, TOPIC, partition, end=end) for partition, end in ends.items()}


def _scanned(deployment: BrokerDeployment) -> list[dict[str, Any]]:
    return list(deployment.document("scan", "--topic", TOPIC)["partitions"])


def _is_remote(cluster: KafkaCluster, partition: int, end_offset: int) -> bool:
    return cluster.local_segments(TOPIC, partition, node_id=partition + 1)[0] > end_offset


@pytest.mark.timeout(1_500)
def test_a_topic_is_copied_and_handed_over_from_both(cluster: KafkaCluster, deployment: BrokerDeployment) -> None:
    stable = {partition: cluster.last_stable(TOPIC, partition) for partition in PARTITIONS}
    before = _digests(cluster, stable)
    copied = deployment.document("copy")
    assert copied["failed"] == []
    chosen = {one["partition"]: one for one in _scanned(deployment) if one["chosen"]}
    assert ["unread_offsets" in chosen[partition] for partition in PARTITIONS] == [False, True]
    for partition in PARTITIONS:
        logs = sorted(cluster.partition_dir(TOPIC, partition, node_id=partition + 1).glob("*.log"))
        assert b"".join(log.read_bytes() for log in logs).startswith(_stored(cluster, partition))
        assert len(_stored(cluster, partition)) > 2 * SEGMENT_BYTES
    assert "read from" in deployment.command("scan", "--topic", TOPIC).stdout

    wanted = ("--local-retention-bytes", "1", "--approve", "--json")
    done = deployment.command("handover", TOPIC, *wanted, seconds=900)
    assert done.returncode == 0, f"{done.stdout[-3000:]}{done.stderr[-3000:]}"
    ended = json.loads(done.stdout)
    assert ended["state"] == "done"
    # So the brokers roll the segments in which the seed ends.
    Writer(cluster.bootstrap, seed=9).send(TOPIC, PARTITIONS, 400, value_bytes=5_000)
    ends = {found["partition"]: found["end_offset"] for found in ended["partitions"]}
    for partition in PARTITIONS:
        wait_until(partial(_is_remote, cluster, partition, ends[partition]), "what was handed over left the disk")
        assert cluster.earliest(TOPIC, partition) == 0
    assert _digests(cluster, stable) == before
    # A broker that gets a replica says that it does not have it yet.
    assert [line for line in cluster.errors() if "state.change.logger" not in line] == []
