"""A topic that was deleted and created again, on real brokers: until the next checkpoint, its leader's log directory
says of the new log what was replicated of the older one. No broker is asked; nothing that no follower has is copied."""

import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import NewTopic
from typer.testing import CliRunner

from include.tiering.cli.app import cli
from tests.doubles.kafka_lab.broker import KafkaBroker
from tests.doubles.kafka_lab.cluster import WAIT_SECONDS, KafkaCluster, client_configuration, kafka_cluster, wait_until
from tests.doubles.kafka_lab.requests import replicas, require_kafka

HIGH_WATERMARKS: Final = "replication-offset-checkpoint"
RECOVERY_POINTS: Final = "recovery-point-offset-checkpoint"
RECORDS: Final = 900
ABOVE_END: Final = (
    "high watermark above the log's end: the checkpoint belongs to another log, or the log's end is missing"
)
OLDER: Final = "checkpoint older than the log: it belongs to another log of this name"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    """A broker that is held still stays in sync for minutes; high watermarks are written down every 15 seconds."""
    require_kafka()
    config: dict[str, str | int] = {
        "replica.high.watermark.checkpoint.interval.ms": 15_000,
        "replica.lag.time.max.ms": 300_000,
        "broker.session.timeout.ms": 300_000,
    }
    with kafka_cluster(tmp_path_factory.mktemp("kafka"), brokers=2, config=config, heap_mib=256) as cluster:
        yield cluster


@pytest.fixture
def config(cluster: KafkaCluster, tmp_path: Path) -> Path:
    """Of a platform that knows log directories alone."""
    entries = "".join(f'  {{broker_id = {one.node_id}, path = "{one.log_dir}"}},\n' for one in cluster.brokers)
    path = tmp_path / "tiering.toml"
    path.write_text(
        f"""log_dirs = [\n{entries}]
[metadata]
url = "sqlite:///{tmp_path / "metadata.sqlite"}"
[remote_storage]
url = "{(tmp_path / "store").as_uri()}"
[topics]
include = ["created-again-*"]
"""
    )
    assert CliRunner().invoke(cli, ["--config", str(path), "migrate"]).exit_code == 0
    return path


def run(config: Path, *command: str) -> tuple[int, Any]:
    done = CliRunner().invoke(cli, ["--config", str(config), *command, "--json"], prog_name="./tiering")
    return done.exit_code, json.loads(done.stdout)


def create(cluster: KafkaCluster, topic: str) -> None:
    """Broker 1 leads, broker 2 follows."""
    asked = NewTopic(
        topic,
        num_partitions=1,
        replica_assignment=[[1, 2]],
        config={"retention.ms": "-1", "internal.segment.bytes": "16384"},
    )
    cluster.admin.create_topics([asked])[topic].result(WAIT_SECONDS)
    wait_until(lambda: replicas(cluster, topic, 0).leader == 1, "broker 1 leads")
    wait_until(lambda: replicas(cluster, topic, 0).in_sync == {1, 2}, "both are in sync")


def produce(cluster: KafkaCluster, topic: str, count: int, *, acks: str) -> None:
    producer = Producer({**client_configuration(cluster.bootstrap), "acks": acks, "batch.size": 4_096, "linger.ms": 5})
    for number in range(count):
        producer.produce(topic, os.urandom(100), str(number).encode(), partition=0)
        producer.poll(0)
    assert producer.flush(WAIT_SECONDS) == 0


def checkpointed(cluster: KafkaCluster, topic: str, name: str = HIGH_WATERMARKS) -> int:
    """The offset that the leader's directory has under this name; -1 if it has none."""
    lines = (cluster.broker.log_dir / name).read_text().splitlines()
    found = [line.rpartition(" ")[2] for line in lines if line.startswith(f"{topic} 0 ")]
    return int(found[0]) if found else -1


@contextmanager
def held_still(broker: KafkaBroker) -> Iterator[None]:
    pid = broker.pid
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


@pytest.mark.parametrize(("older", "reason"), [(3_000, ABOVE_END), (300, OLDER)])
def test_nothing_is_copied_by_the_high_watermark_of_an_older_topic(
    cluster: KafkaCluster, config: Path, older: int, reason: str
) -> None:
    topic = f"created-again-{older}"
    create(cluster, topic)
    produce(cluster, topic, older, acks="all")
    wait_until(lambda: checkpointed(cluster, topic) == older, "the older topic's high watermark is written down")
    cluster.admin.delete_topics([topic])[topic].result(WAIT_SECONDS)
    wait_until(lambda: not cluster.partition_dir(topic, 0).exists(), "it is deleted")
    create(cluster, topic)
    with held_still(cluster.brokers[1]):
        produce(cluster, topic, RECORDS, acks="1")
        wait_until(lambda: checkpointed(cluster, topic, RECOVERY_POINTS) > 300, "segments have rolled, and are flushed")
        code, copied = run(config, "copy", "--topic", topic)
        said = run(config, "doctor", topic)
        assert checkpointed(cluster, topic) == older, "the machine was too slow: a checkpoint was written meanwhile"
        assert cluster.latest(topic, 0) < RECORDS
    assert (code, copied["copied"]) == (1, [])
    assert [one["detail"] for one in copied["held_back"]] == [reason]
    assert len(copied["errors"]) == 1
    # The directory of the older topic may lie there still.
    assert (said[0], any(reason in one["finding"] for one in said[1]["partitions"])) == (1, True), said[1]
    wait_until(lambda: cluster.latest(topic, 0) == RECORDS, "the follower has all")
    wait_until(lambda: checkpointed(cluster, topic) == RECORDS, "the new high watermark is written down")
    wait_until(lambda: run(config, "plan", "--topic", topic)[1]["held_back"] == [], "so is the recovery point")
    code, copied = run(config, "copy", "--topic", topic)
    assert (code, copied["errors"]) == (0, [])
    assert copied["copied"][0]["start_offset"] == 0
    assert copied["copied"][-1]["end_offset"] + 1 == cluster.local_segments(topic, 0)[-1]
