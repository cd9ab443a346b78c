"""A topic handed over to a real broker, in short; `make test-kafka` is the long way."""

from collections.abc import Iterator

import pytest

from tests.doubles.broker_deployment import BrokerDeployment, broker_deployment
from tests.doubles.kafka_lab.cluster import kafka_cluster
from tests.doubles.kafka_lab.consume import both_digests
from tests.doubles.kafka_lab.produce import mixed_records
from tests.doubles.kafka_lab.requests import require_kafka

pytestmark = pytest.mark.kafka
TOPIC, PARTITIONS = "orders", (0, 1)


@pytest.fixture
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerDeployment]:
    require_kafka()
    directory = tmp_path_factory.mktemp("kafka")
    with kafka_cluster(directory / "kafka", remote_dir=directory / "remote") as cluster:
        yield broker_deployment(cluster, directory / "platform")


def test_handed_over_and_served_from_our_objects(deployment: BrokerDeployment) -> None:
    cluster = deployment.cluster
    cluster.create_topic(TOPIC, partitions=len(PARTITIONS))
    mixed_records(cluster.bootstrap, TOPIC, PARTITIONS)
    cluster.restart()
    mixed_records(cluster.bootstrap, TOPIC, PARTITIONS, seed=1, count=10)
    before = [both_digests(cluster.bootstrap, TOPIC, partition) for partition in PARTITIONS]

    done = deployment.document("handover", TOPIC, "--approve", "--local-retention-bytes", "1")
    seed = {found["partition"]: found for found in done["partitions"]}
    assert [seed[partition]["start_offset"] for partition in PARTITIONS] == [0, 0]

    for partition in PARTITIONS:
        assert both_digests(cluster.bootstrap, TOPIC, partition) == before[partition]
        assert cluster.earliest(TOPIC, partition) == 0
        assert cluster.local_segments(TOPIC, partition)[0] > 0
        bases = [base for base, _ in cluster.remote_segments(TOPIC, partition)]
        assert len(set(bases)) == len(bases), "an offset that was handed over was copied again"
    assert cluster.topic_config(TOPIC)["retention.bytes"] == "-1"
    assert cluster.errors() == []
