"""What a foreign client does between the plan of a handover and its approval, on a real broker: it writes into the
metadata topic about our partition or about a topic of another cluster, deletes the topic and makes it again, or writes
what no broker can read. Nothing of ours is published where it could hide a record, and nothing is switched on."""

import json
from collections.abc import Iterator
from typing import Any, Final

import pytest

from include.tiering.formats.remote_log_metadata import encode
from include.tiering.formats.remote_log_metadata_records import segment_record
from include.tiering.kafka.metadata_topic.contract import metadata_partition_of
from include.tiering.kafka.metadata_topic.kafka import KafkaMetadataTopic
from include.tiering.model.segments import TopicIdPartition, Uuid
from tests.doubles.broker_deployment import BrokerDeployment, broker_deployment
from tests.doubles.kafka_lab.cluster import KafkaCluster, client_configuration, kafka_cluster
from tests.doubles.kafka_lab.produce import mixed_records
from tests.doubles.kafka_lab.requests import require_kafka
from tests.doubles.segments import segment_of
from tests.doubles.tiered_topic import records_about

SECONDS: Final = 700
TOPICS: Final = ("other-cluster", "claimed", "created-again", "poisoned")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    """Each topic has rolled segments."""
    require_kafka()
    directory = tmp_path_factory.mktemp("kafka")
    with kafka_cluster(directory / "kafka", remote_dir=directory / "remote") as started:
        for topic in TOPICS:
            started.create_topic(topic)
        for seed in range(2):
            for topic in TOPICS:
                mixed_records(started.bootstrap, topic, (0,), seed=seed)
            started.restart()
        yield started


@pytest.fixture(scope="module")
def metadata_topic(cluster: KafkaCluster) -> Iterator[KafkaMetadataTopic]:
    with KafkaMetadataTopic(client_configuration(cluster.bootstrap)) as topic:
        yield topic


@pytest.fixture(scope="module")
def deployment(cluster: KafkaCluster, tmp_path_factory: pytest.TempPathFactory) -> BrokerDeployment:
    return broker_deployment(cluster, tmp_path_factory.mktemp("platform"))


def partition_of(cluster: KafkaCluster, topic: str) -> TopicIdPartition:
    return TopicIdPartition(Uuid.parse(cluster.topic_id(topic)), 0, topic)


def planned(deployment: BrokerDeployment, topic: str) -> str:
    """The handover waits for its approval; the hash of what it would do."""
    asked = deployment.command("handover", topic, "--local-retention-bytes", "1", "--json", seconds=SECONDS)
    plan = json.loads(asked.stdout)
    assert (asked.returncode, plan["step"]) == (1, "approval"), asked.stderr
    return str(plan["plan_hash"])


def approved(deployment: BrokerDeployment, topic: str, plan_hash: str) -> tuple[int, Any, str]:
    agreed = ("--resume", "--approve-plan", plan_hash, "--local-retention-bytes", "1", "--json")
    done = deployment.command("handover", topic, *agreed, seconds=SECONDS)
    return done.returncode, json.loads(done.stdout) if done.stdout.strip() else None, done.stderr


def written(topic: KafkaMetadataTopic, about: TopicIdPartition, value: bytes) -> int:
    """By a client that knows where brokers look; the offset."""
    return topic.append(metadata_partition_of(about, topic.partition_count()), value)


def require_nothing_published(
    cluster: KafkaCluster, topic: KafkaMetadataTopic, partition: TopicIdPartition, *, theirs: int = 0
) -> None:
    assert len(records_about(topic, partition)) == theirs
    assert cluster.topic_config(partition.topic).get("remote.storage.enable") == "false"


@pytest.mark.timeout(1_500)
def test_a_record_of_another_cluster_does_not_matter(
    cluster: KafkaCluster, deployment: BrokerDeployment, metadata_topic: KafkaMetadataTopic
) -> None:
    partition = partition_of(cluster, "other-cluster")
    plan_hash = planned(deployment, "other-cluster")
    theirs = TopicIdPartition(Uuid(b"of-other-cluster"), 0, "other-cluster")
    assert written(metadata_topic, partition, encode(segment_record(segment_of(theirs, 77, 0, 99)))) >= 0
    code, done, said = approved(deployment, "other-cluster", plan_hash)
    assert (code, done["state"]) == (0, "done"), said
    assert cluster.topic_config("other-cluster")["remote.storage.enable"] == "true"


@pytest.mark.timeout(1_500)
def test_a_record_about_our_partition_stops_it(
    cluster: KafkaCluster, deployment: BrokerDeployment, metadata_topic: KafkaMetadataTopic
) -> None:
    partition = partition_of(cluster, "claimed")
    plan_hash = planned(deployment, "claimed")
    written(metadata_topic, partition, encode(segment_record(segment_of(partition, 77, 0, 99))))
    code, done, said = approved(deployment, "claimed", plan_hash)
    assert (code, done["step"], done["state"]) == (1, "recheck", "stopped"), said
    require_nothing_published(cluster, metadata_topic, partition, theirs=1)


@pytest.mark.timeout(1_500)
def test_a_topic_that_was_created_again_is_not_handed_over(
    cluster: KafkaCluster, deployment: BrokerDeployment, metadata_topic: KafkaMetadataTopic
) -> None:
    before = partition_of(cluster, "created-again")
    plan_hash = planned(deployment, "created-again")
    cluster.admin.delete_topics(["created-again"])["created-again"].result(60)
    cluster.create_topic("created-again")
    after = partition_of(cluster, "created-again")
    assert after != before
    code, done, said = approved(deployment, "created-again", plan_hash)
    assert (code, done["step"]) == (1, "approval"), said
    assert "and not the approved one" in done["refusal"]
    for partition in (before, after):
        require_nothing_published(cluster, metadata_topic, partition)


@pytest.mark.timeout(1_500)
def test_a_record_that_no_broker_reads_stops_it(
    cluster: KafkaCluster, deployment: BrokerDeployment, metadata_topic: KafkaMetadataTopic
) -> None:
    """The last one: from now on the broker follows this partition of the metadata topic no more."""
    partition = partition_of(cluster, "poisoned")
    plan_hash = planned(deployment, "poisoned")
    poison = written(metadata_topic, partition, b"\x01\x00\x00")
    code, done, said = approved(deployment, "poisoned", plan_hash)
    assert (code, done["step"], done["state"]) == (1, "recheck", "stopped"), said
    assert metadata_topic.offsets(metadata_partition_of(partition, metadata_topic.partition_count())).end == poison + 1
    assert cluster.topic_config("poisoned")["remote.storage.enable"] == "false"
