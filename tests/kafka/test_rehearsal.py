"""`./tiering handover --rehearse`: real brokers' bytes on a throw-away broker, nothing of the deployment touched."""

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.doubles.broker_data import broker_data
from tests.doubles.broker_deployment import BrokerDeployment, broker_deployment
from tests.doubles.handover_evidence import rehearsed
from tests.doubles.kafka_lab.artifacts import VERSIONS, jars
from tests.doubles.kafka_lab.cluster import KafkaCluster, kafka_cluster, wait_until
from tests.doubles.kafka_lab.produce import Writer, mixed_records
from tests.doubles.kafka_lab.requests import require_kafka
from tests.doubles.source_tree import ROOT

TOPIC, PARTITIONS = "orders", (0, 1, 2)
LONG_SECONDS = 700


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    """Three partitions with all codecs and kinds of writer, several leader epochs, and a transaction left open."""
    require_kafka()
    directory = tmp_path_factory.mktemp("kafka")
    with kafka_cluster(directory / "kafka", remote_dir=directory / "remote") as started:
        started.create_topic(TOPIC, partitions=len(PARTITIONS), config={"retention.bytes": "90000000"})
        for round_ in range(2):
            mixed_records(started.bootstrap, TOPIC, PARTITIONS, seed=round_)
            started.restart()
        yield started


@pytest.fixture(scope="module")
def deployment(cluster: KafkaCluster, tmp_path_factory: pytest.TempPathFactory) -> BrokerDeployment:
    made = broker_deployment(cluster, tmp_path_factory.mktemp("platform"))
    made.copy_all(TOPIC)
    return made


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where a rehearsal makes its directory."""
    made = tmp_path / "scratch"
    made.mkdir()
    monkeypatch.setenv("TMPDIR", str(made))
    return made


@pytest.mark.timeout(1_500)
def test_a_topic_of_running_brokers_is_rehearsed_and_stays_as_it_is(
    cluster: KafkaCluster, deployment: BrokerDeployment, scratch: Path
) -> None:
    held = Writer(cluster.bootstrap, transactional_id="held")
    held.begin(TOPIC, PARTITIONS, 5)
    before = _everything(cluster, deployment)

    arguments = ("handover", TOPIC, "--rehearse", "--kafka-home", str(jars("4.3.1")), "--json")
    done = deployment.command(*arguments, seconds=LONG_SECONDS)

    assert done.returncode == 0, f"{done.stdout[-3000:]}{done.stderr[-3000:]}"
    found = json.loads(done.stdout)
    assert (found["equal"], found["handover"]["state"], found["kafka_version"]) == (True, "done", "4.3.1")
    assert found["broker_errors"] == []
    assert "retention.bytes: 90000000 -> -1" in done.stderr, "the topic's own configs are rehearsed"
    assert "retention.bytes is 90000000 again" in done.stderr
    for sample, one in zip(found["samples"], found["partitions"], strict=True):
        assert sample["log_end_offset"] >= cluster.last_stable(TOPIC, sample["partition"])
        assert len(sample["leader_epochs"]) >= 2
        assert one["remote_only_below"] > 0
        assert one["plain"]["records"] > one["read_committed"]["records"] > 0
    assert list(scratch.iterdir()) == []
    assert _everything(cluster, deployment) == before
    held.end(abort=True)


@pytest.mark.timeout(1_500)
def test_ctrl_c_leaves_neither_broker_nor_files(deployment: BrokerDeployment, scratch: Path) -> None:
    command = [str(ROOT / "tiering"), "--config", str(deployment.config), "handover", TOPIC, "--rehearse"]
    command += ["--kafka-home", str(jars("4.3.1"))]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=dict(os.environ)) as process:
        assert process.stderr is not None
        lines: list[str] = []
        while not any("pid " in line for line in lines):
            line = process.stderr.readline()
            assert line, f"it ended: {lines}"
            lines.append(line)
        pid = int(lines[-1].rpartition("pid ")[2])
        assert _runs(pid)
        assert len(list(scratch.iterdir())) == 1
        process.send_signal(signal.SIGINT)
        rest = process.stderr.read()
    assert process.returncode == 130, rest
    assert "stopped: the throw-away broker was ended, its files were removed" in rest
    wait_until(lambda: not _runs(pid), "the broker is gone")
    assert list(scratch.iterdir()) == []


@pytest.mark.timeout(1_500)
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("part", "brokers", "topic"),
    [
        ("stopped", ("broker-1", "broker-2"), "orders"),  # one log start lies within a segment, one partition is empty
        ("running", ("broker-1", "broker-2"), "payments.v1-eu"),  # an open transaction
        ("stopped", ("broker-1", "broker-2"), "replicated"),  # a follower became the leader
    ],
)
def test_directories_of_brokers_that_are_gone_are_rehearsed_on_every_release(
    tmp_path: Path, scratch: Path, version: str, part: str, brokers: tuple[str, ...], topic: str
) -> None:
    require_kafka(version)
    found = rehearsed(tmp_path, [broker_data("public") / part / one for one in brokers], topic, version)
    assert (found["equal"], found["kafka_version"]) == (True, version)
    assert list(scratch.iterdir()) == []


@pytest.mark.timeout(1_500)
def test_the_directory_of_a_killed_broker_isrehearsed(tmp_path: Path, scratch: Path) -> None:
    """Its active segment is preallocated, with a transaction open and the checkpoints old."""
    require_kafka()
    found = rehearsed(tmp_path, [broker_data("crash") / "killed"], "prealloc", "4.3.1", "--rehearse-bytes", "1")
    assert found["equal"]
    (sample,) = found["samples"]
    assert (sample["segments"], sample["log_start_offset"] > 0) == (2, True)


def _everything(cluster: KafkaCluster, deployment: BrokerDeployment) -> dict[str, object]:
    """What a rehearsal must not change: the topic's files and configs, what is remote, the database, the settings."""
    database = deployment.config.parent
    return {
        "logs": {partition: _content(cluster.partition_dir(TOPIC, partition)) for partition in PARTITIONS},
        "configs": cluster.topic_config(TOPIC),
        "metadata topic": [cluster.latest("__remote_log_metadata", partition) for partition in range(3)],
        "store": _content(cluster.stored),
        "platform": _content(database),
    }


def _content(directory: Path) -> dict[str, bytes]:
    files = (path for path in directory.rglob("*") if path.is_file() and not path.name.endswith("-shm"))
    return {str(path): path.read_bytes() for path in files}


def _runs(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()
