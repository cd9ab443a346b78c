"""A handover that was given up after its publication: the topic is archived again, and remote storage comes on later.

Brokers never lower the highest offset that they read in `__remote_log_metadata`. So every published segment has
to be there at the switch, unless no broker has its offsets any more.
"""

import json
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition

from include.tiering.handover.contract import LocalRetention
from include.tiering.handover.rules import HandoverState, HandoverStep
from include.tiering.model.ownership import TopicOwner
from tests.doubles.broker_deployment import BrokerDeployment, broker_deployment
from tests.doubles.kafka_lab.cluster import WAIT_SECONDS, KafkaCluster, wait_until
from tests.doubles.kafka_lab.consume import both_digests
from tests.doubles.kafka_lab.produce import Writer
from tests.doubles.seeded_topics import has_left_the_disk

PARTITIONS = (0, 1, 2)
BEFORE, MEANWHILE, VALUE_BYTES = 190, 60, 3_800
LONG_SECONDS = 700


@pytest.fixture
def deployment(cluster: KafkaCluster, tmp_path: Path) -> BrokerDeployment:
    return broker_deployment(cluster, tmp_path / "platform")


@pytest.mark.timeout(1_500)
@pytest.mark.parametrize("by_hand", [True, False], ids=["switched by hand", "handed over"])
def test_consumers_get_every_record_after_a_later_switch(
    cluster: KafkaCluster, deployment: BrokerDeployment, by_hand: bool
) -> None:
    topic = "back"
    _parked_and_archived_again(cluster, deployment, topic)
    Writer(cluster.bootstrap).send(topic, PARTITIONS, MEANWHILE, value_bytes=VALUE_BYTES)
    _succeeds(deployment, "copy", "--topic", topic)
    _expires_nothing(deployment, topic)
    records = _records(cluster, topic)
    assert set(records.values()) == {BEFORE + MEANWHILE}
    if by_hand:
        cluster.alter_topic(topic, remote_storage_enable="true", local_retention_bytes="1")
    else:
        _succeeds(deployment, "handover", topic, "--approve", "--local-retention-bytes", "1")
    for partition in PARTITIONS:
        wait_until(partial(has_left_the_disk, cluster, topic, partition), "rolled segments left the disk")
    assert {cluster.earliest(topic, partition) for partition in PARTITIONS} == {0}
    assert _records(cluster, topic) == records
    cluster.restart()
    assert _records(cluster, topic) == records


@pytest.mark.timeout(1_500)
def test_what_is_below_the_log_start_is_withdrawn_and_stays_in_the_archive(
    cluster: KafkaCluster, deployment: BrokerDeployment
) -> None:
    topic = "withdrawn"
    _parked_and_archived_again(cluster, deployment, topic)
    with deployment.library() as app:
        partition = next(one for one in app.adapters.stores.metadata.partitions() if one.partition == 0)
        first, *_, last = app.adapters.stores.metadata.list_segments(partition)
    start = TopicPartition(topic, 0, first.metadata.end_offset + 1)
    (deleted,) = cluster.admin.delete_records([start]).values()
    deleted.result(WAIT_SECONDS)
    _succeeds(deployment, "publish", topic)
    with deployment.library() as app:
        held = app.adapters.stores.publications.held_segments(partition)
        assert first.metadata.remote_log_segment_id.id not in held
        assert last.metadata.remote_log_segment_id.id in held
    cluster.alter_topic(topic, remote_storage_enable="true", local_retention_bytes="1")
    wait_until(partial(has_left_the_disk, cluster, topic, 0), "rolled segments left the disk")
    assert cluster.earliest(topic, 0) == first.metadata.end_offset + 1
    with deployment.library() as app:
        app.ingestion.run()
        row = app.adapters.stores.metadata.segment(first.metadata.remote_log_segment_id)
        assert row is not None
        assert row.metadata.is_finished, "no broker deletes what it does not know"
        assert app.adapters.storage.stat_log_segment(row.metadata)


def _parked_and_archived_again(cluster: KafkaCluster, deployment: BrokerDeployment, topic: str) -> None:
    cluster.create_topic(topic, partitions=len(PARTITIONS))
    Writer(cluster.bootstrap).send(topic, PARTITIONS, BEFORE, value_bytes=VALUE_BYTES)
    with deployment.library() as app:
        begun = app.handover.begin(topic, LocalRetention(None, 1), author="lab").handover_id
        asked = app.handover.carry_on(begun)
        assert asked.plan_hash is not None, asked.detail
        app.handover.approve(begun, asked.plan_hash, author="lab")
        app.handover.carry_on(begun, until=HandoverStep.PUBLISH)
        app.handover.undo(begun, app.handover.possible_undo(app.adapters.stores.handovers.handover(begun)))
        assert app.adapters.stores.handovers.handover(begun).state is HandoverState.PARKED
    ended = json.loads(_succeeds(deployment, "handover", topic, "--archive-again", "--approve"))
    assert ended["state"] == "undone"
    with deployment.library() as app:
        found = app.handover.latest_of(topic)
        assert found is not None
        assert app.adapters.stores.registry.owner(found.topic_id) is TopicOwner.PLATFORM


def _expires_nothing(deployment: BrokerDeployment, topic: str) -> None:
    """Our retention would delete everything but the last segment, and the published segments hold all of it."""
    deployment.command(
        "configs", "--alter", "--entity-type", "topics", "--entity-name", topic, "--add-config", "retention.bytes=1"
    )
    planned = json.loads(deployment.command("expire", "--topic", topic, "--dry-run", "--json", seconds=60).stdout)
    assert planned["decisions"] == []


def _records(cluster: KafkaCluster, topic: str) -> dict[int, int]:
    return {partition: both_digests(cluster.bootstrap, topic, partition)[0].records for partition in PARTITIONS}


def _succeeds(deployment: BrokerDeployment, *arguments: str) -> str:
    done = deployment.command(*arguments, "--json", seconds=LONG_SECONDS)
    assert done.returncode == 0, f"{done.stdout[-3000:]}{done.stderr[-3000:]}"
    return str(done.stdout)
