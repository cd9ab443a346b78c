"""Topics handed over by `./tiering handover` to a real broker, while producers go on."""

import json
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from include.tiering.errors import BrokersRefusedError, UnknownTopicError
from include.tiering.handover.drive import OFF
from include.tiering.handover.retention_overrides import OVERRIDES, RETENTION_OVERRIDES
from include.tiering.kafka.cluster.kafka_admin import KafkaBrokers
from tests.doubles.broker_deployment import BrokerDeployment, broker_deployment
from tests.doubles.kafka_lab.cluster import KafkaCluster, kafka_cluster, wait_until
from tests.doubles.kafka_lab.consume import Digest, both_digests
from tests.doubles.kafka_lab.produce import Writer, mixed_records, running_producers
from tests.doubles.kafka_lab.requests import require_kafka
from tests.doubles.seeded_topics import has_left_the_disk

LONG_SECONDS = 700
SWITCH = {"remote.storage.enable": "true"}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    require_kafka()
    directory = tmp_path_factory.mktemp("kafka")
    with kafka_cluster(directory / "kafka", remote_dir=directory / "remote") as started:
        yield started


@pytest.fixture(scope="module")
def deployment(cluster: KafkaCluster, tmp_path_factory: pytest.TempPathFactory) -> BrokerDeployment:
    return broker_deployment(cluster, tmp_path_factory.mktemp("platform"))


@pytest.mark.timeout(1_500)
def test_everything_is_served_from_offset_0_while_producers_go_on(
    cluster: KafkaCluster, deployment: BrokerDeployment
) -> None:
    topic, partitions = "orders", (0, 1, 2)
    cluster.create_topic(topic, partitions=len(partitions))
    for round_ in range(3):
        mixed_records(cluster.bootstrap, topic, partitions, seed=round_)
        cluster.restart()
    with running_producers(cluster.bootstrap, topic, partitions, pause_seconds=0.2):
        asked = deployment.command("handover", topic, "--local-retention-bytes", "1", "--json", seconds=LONG_SECONDS)
        assert asked.returncode == 1, asked.stderr
        plan = json.loads(asked.stdout)
        assert (plan["step"], plan["refusal"] is None) == ("approval", False)
        ends = {partition: cluster.last_stable(topic, partition) for partition in partitions}
        before = _digests(cluster, topic, ends)
        assert all(cluster.local_segments(topic, partition)[0] == 0 for partition in partitions)

        agreed = ("--resume", "--approve-plan", plan["plan_hash"])
        done = json.loads(
            _succeeds(deployment, "handover", topic, *agreed, "--local-retention-bytes", "1", seconds=LONG_SECONDS)
        )
        assert done["state"] == "done"
    epochs = (cluster.partition_dir(topic, 0) / "leader-epoch-checkpoint").read_text().splitlines()[2:]
    assert len(epochs) >= 3

    for found in done["partitions"]:
        partition = found["partition"]
        wait_until(partial(has_left_the_disk, cluster, topic, partition), "the first segment left the disk")
        assert (found["start_offset"], cluster.earliest(topic, partition)) == (0, 0)
    assert _digests(cluster, topic, ends) == before
    _require_no_second_copy(cluster, topic, partitions)
    assert cluster.errors() == []
    _require_expiration_by_the_broker(cluster, topic)


@pytest.mark.timeout(600)
def test_the_controller_tells_by_a_change_that_it_only_checks(cluster: KafkaCluster) -> None:
    """Is remote storage on, is there such a topic, would it take these values? One request sets all of it."""
    topic = "asked"
    cluster.create_topic(topic)
    with closing(KafkaBrokers({"bootstrap.servers": cluster.bootstrap})) as brokers:
        brokers.alter_topic_configs(topic, {"retention.bytes": "900000", "local.retention.bytes": "5000"})
        brokers.alter_topic_configs(topic, OFF, dry_run=True)
        for local in ("-1", "900001"):
            brokers.alter_topic_configs(topic, {"local.retention.bytes": local}, dry_run=True)
            with pytest.raises(BrokersRefusedError, match=r"local\.retention\.bytes: Value must not be"):
                brokers.alter_topic_configs(topic, {"local.retention.bytes": local, **SWITCH}, dry_run=True)
        brokers.alter_topic_configs(topic, SWITCH, dry_run=True)
        brokers.alter_topic_configs(topic, OVERRIDES | SWITCH)
        brokers.alter_topic_configs(topic, {"remote.log.delete.on.disable": "true"})
        with pytest.raises(BrokersRefusedError, match="invalid to disable remote storage"):
            brokers.alter_topic_configs(topic, OFF, dry_run=True)
        with pytest.raises(UnknownTopicError):
            brokers.alter_topic_configs("no-such-topic", RETENTION_OVERRIDES, dry_run=True)
        assert brokers.topic_configs(topic)["remote.storage.enable"].value == "true"


def _require_expiration_by_the_broker(cluster: KafkaCluster, topic: str) -> None:
    """What we copied goes with the end of retention, as if the broker had copied it."""
    (_, oldest), *_ = cluster.remote_segments(topic, 0)
    cluster.alter_topic(topic, retention_bytes="200000")
    wait_until(lambda: cluster.earliest(topic, 0) > 0, "the log start was raised")
    wait_until(
        lambda: oldest not in {id_ for _, id_ in cluster.remote_segments(topic, 0)}, "the oldest segment was deleted"
    )
    assert not list(cluster.stored.glob(f"{topic}-0-*/*{oldest}*"))
    start = cluster.earliest(topic, 0)
    assert both_digests(cluster.bootstrap, topic, 0, start=start)[0].first_offset >= start


@pytest.mark.timeout(1_500)
def test_limited_retention_loses_nothing(cluster: KafkaCluster, deployment: BrokerDeployment) -> None:
    """Without the handover's override this broker loses the oldest segments of some of these partitions. So it does
    when
    it is started again while local segments and remote ones together exceed the limit: the switch is not the end."""
    topic, partitions = "limited", tuple(range(20))
    cluster.create_topic(topic, partitions=len(partitions))
    Writer(cluster.bootstrap).send(topic, partitions, 190, value_bytes=3_800)
    largest = max(_log_bytes(cluster.partition_dir(topic, partition)) for partition in partitions)
    limit = str(largest * 100 // 81)
    cluster.alter_topic(topic, retention_bytes=limit)

    done = json.loads(
        _succeeds(deployment, "handover", topic, "--approve", "--local-retention-bytes", "1", seconds=LONG_SECONDS)
    )
    assert done["state"] == "done"
    assert cluster.topic_config(topic)["retention.bytes"] == limit
    assert {cluster.earliest(topic, partition) for partition in partitions} == {0}

    for partition in partitions:
        wait_until(partial(has_left_the_disk, cluster, topic, partition), "closed segments left the disk")
    cluster.restart()
    assert {cluster.earliest(topic, partition) for partition in partitions} == {0}
    _require_no_second_copy(cluster, topic, partitions)
    assert both_digests(cluster.bootstrap, topic, 7)[0].records == 190


def _succeeds(deployment: BrokerDeployment, *arguments: str, seconds: float) -> str:
    done = deployment.command(*arguments, "--json", seconds=seconds)
    assert done.returncode == 0, f"{done.stdout[-3000:]}{done.stderr[-3000:]}"
    return done.stdout


def _require_no_second_copy(cluster: KafkaCluster, topic: str, partitions: tuple[int, ...]) -> None:
    for partition in partitions:
        bases = [base for base, _ in cluster.remote_segments(topic, partition)]
        assert len(set(bases)) == len(bases), f"{topic}-{partition}: an offset was copied twice"


def _digests(cluster: KafkaCluster, topic: str, ends: dict[int, int]) -> dict[int, tuple[Digest, Digest]]:
    """Of every partition up to its end, exclusive."""
    return {partition: both_digests(cluster.bootstrap, topic, partition, end=end) for partition, end in ends.items()}


def _log_bytes(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.glob("*.log"))
