"""An empty replica builds itself from objects of ours alone: it joins the ISR, leads, and serves every record."""

from collections.abc import Iterator

import pytest

from tests.doubles.broker_deployment import BrokerDeployment, broker_deployment
from tests.doubles.kafka_lab.cluster import kafka_cluster, wait_until
from tests.doubles.kafka_lab.consume import both_digests
from tests.doubles.kafka_lab.produce import mixed_records
from tests.doubles.kafka_lab.requests import lead, move, replicas, require_kafka
from tests.doubles.seeded_topics import seed, switch_on

TOPIC = "moves"


@pytest.fixture
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerDeployment]:
    require_kafka()
    directory = tmp_path_factory.mktemp("kafka")
    with kafka_cluster(directory / "kafka", brokers=2, remote_dir=directory / "remote", heap_mib=256) as cluster:
        yield broker_deployment(cluster, directory / "platform")


def test_an_empty_replica_joins_the_isr_and_leads(deployment: BrokerDeployment) -> None:
    cluster = deployment.cluster
    cluster.create_topic(TOPIC)
    first = replicas(cluster, TOPIC, 0).leader
    second = 3 - first
    mixed_records(cluster.bootstrap, TOPIC, [0])
    cluster.brokers[first - 1].restart()
    mixed_records(cluster.bootstrap, TOPIC, [0], seed=1)
    before = both_digests(cluster.bootstrap, TOPIC, 0)
    seeded = seed(deployment, TOPIC)
    assert len(seeded) >= 2
    switch_on(cluster, TOPIC, [0], node_id=first)
    wait_until(lambda: cluster.local_segments(TOPIC, 0, node_id=first)[0] > seeded[-1].end_offset, "all of it left")
    kept_from = cluster.local_segments(TOPIC, 0, node_id=first)[0]

    move(cluster, TOPIC, 0, [second, first])
    wait_until(lambda: replicas(cluster, TOPIC, 0).in_sync == {1, 2}, "the new replica is in sync")
    assert cluster.local_segments(TOPIC, 0, node_id=second)[0] >= min(kept_from, seeded[-1].end_offset + 1)
    histories = [
        (cluster.partition_dir(TOPIC, 0, node_id=node) / "leader-epoch-checkpoint").read_text() for node in (1, 2)
    ]
    assert histories[0] == histories[1]

    lead(cluster, TOPIC, 0)
    wait_until(lambda: replicas(cluster, TOPIC, 0).leader == second, "the new replica leads")
    assert both_digests(cluster.bootstrap, TOPIC, 0) == before
    stored = cluster.remote_segments(TOPIC, 0)
    assert [id_ for _, id_ in stored][: len(seeded)] == [segment.segment_id for segment in seeded]
    assert len({base for base, _ in stored}) == len(stored)
