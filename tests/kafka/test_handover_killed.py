"""`./tiering handover` killed with -9 as it begins each of its steps, against a real broker: the next one goes on."""

import json
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from include.tiering.handover.rules import STEPS
from tests.doubles.broker_deployment import BrokerDeployment, broker_deployment
from tests.doubles.kafka_lab.cluster import KafkaCluster, kafka_cluster, wait_until
from tests.doubles.kafka_lab.consume import both_digests
from tests.doubles.kafka_lab.produce import Writer, mixed_records
from tests.doubles.kafka_lab.requests import require_kafka
from tests.doubles.seeded_topics import has_left_the_disk
from tests.doubles.source_tree import ROOT

TOPIC, PARTITIONS = "orders", (0, 1)
LIMIT = "900000000"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[KafkaCluster]:
    require_kafka()
    with kafka_cluster(tmp_path / "kafka", remote_dir=tmp_path / "remote") as started:
        yield started


@pytest.mark.timeout(2_400)
@pytest.mark.parametrize("reads_leaders", [False, True], ids=["log-dirs", "leaders"])
def test_killed_at_each_step_it_ends_as_if_nothing_had_happened(
    cluster: KafkaCluster, tmp_path: Path, reads_leaders: bool
) -> None:
    deployment = broker_deployment(cluster, tmp_path / "platform", reads_leaders=reads_leaders)
    rolled_at = {"segment.bytes": str(1 << 20)} if reads_leaders else {}
    cluster.create_topic(
        TOPIC,
        partitions=len(PARTITIONS),
        segment_bytes=None if reads_leaders else 65_536,
        config={"retention.bytes": LIMIT, **rolled_at},
    )
    mixed_records(cluster.bootstrap, TOPIC, PARTITIONS)
    if reads_leaders:
        Writer(cluster.bootstrap).send(TOPIC, PARTITIONS, 600, value_bytes=5_000)
    cluster.restart()
    mixed_records(cluster.bootstrap, TOPIC, PARTITIONS, seed=1, count=10)
    before = {partition: both_digests(cluster.bootstrap, TOPIC, partition) for partition in PARTITIONS}

    wanted = ("--local-retention-bytes", "1", "--approve")
    for number, step in enumerate(STEPS, 1):
        how = () if number == 1 else ("--resume",)
        assert _killed_at(deployment, f"step {number} of {len(STEPS)}, {step}", TOPIC, *how, *wanted), step
    done = deployment.command("handover", TOPIC, "--resume", "--json", *wanted, seconds=900)
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout)
    assert found["state"] == "done"
    assert all(guard["restored"] for guard in found["guards"])

    configs = cluster.topic_config(TOPIC)
    assert (configs["retention.bytes"], configs["remote.storage.enable"]) == (LIMIT, "true")
    for partition in PARTITIONS:
        wait_until(partial(has_left_the_disk, cluster, TOPIC, partition), "the first segment left the disk")
        assert both_digests(cluster.bootstrap, TOPIC, partition) == before[partition]
        assert cluster.earliest(TOPIC, partition) == 0
        bases = [base for base, _ in cluster.remote_segments(TOPIC, partition)]
        assert len(set(bases)) == len(bases), "an offset was copied twice"
    assert cluster.errors() == []


def _killed_at(deployment: BrokerDeployment, line: str, *arguments: str) -> bool:
    """Whether it said that line; it was killed then."""
    command = [str(ROOT / "tiering"), "--config", str(deployment.config), "handover", *arguments]
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) as process:
        assert process.stderr is not None
        for said in process.stderr:
            if said.startswith(line):
                process.kill()
                return True
        return False
