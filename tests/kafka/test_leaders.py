"""A platform that has only bootstrap servers and a store, over a real broker: its commands, and its DAGs."""

from collections.abc import Iterator

import pytest

from local.runs import errors_of, trigger, wait_for_dag, wait_for_run
from tests.doubles.airflow_home import WAIT_SECONDS, platform_with
from tests.doubles.broker_deployment import BrokerDeployment, broker_deployment
from tests.doubles.kafka_lab.cluster import KafkaCluster, kafka_cluster
from tests.doubles.kafka_lab.produce import Writer, mixed_records
from tests.doubles.kafka_lab.requests import require_kafka

pytestmark = pytest.mark.kafka

TOPIC, PARTITIONS = "remote-only", (0, 1, 2)
BY_DAG = "copied-by-dag"
COPY = "tiering_copy"
SEGMENT_BYTES = 1 << 20


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerDeployment]:
    """All codecs, transactions, aborts, and records of up to 600 kB under three leader epochs."""
    require_kafka()
    directory = tmp_path_factory.mktemp("leaders")
    with kafka_cluster(directory / "kafka", remote_dir=directory / "remote") as cluster:
        cluster.create_topic(
            TOPIC, partitions=len(PARTITIONS), segment_bytes=None, config={"segment.bytes": str(SEGMENT_BYTES)}
        )
        for seed in range(2):
            mixed_records(cluster.bootstrap, TOPIC, PARTITIONS, count=500, seed=seed)
            cluster.restart()
        Writer(cluster.bootstrap, "zstd").send(TOPIC, PARTITIONS, 9, value_bytes=600_000)
        yield broker_deployment(cluster, directory / "platform", topics=[TOPIC, BY_DAG], reads_leaders=True)


def require_same_bytes(cluster: KafkaCluster, topic: str, partition: int) -> None:
    """All `.log` objects, whose names begin with their base offsets, are the beginning of the broker's log."""
    (directory,) = cluster.stored.glob(f"{topic}-{partition}-*")
    stored = b"".join(log.read_bytes() for log in sorted(directory.glob("*.log")))
    theirs = b"".join(log.read_bytes() for log in sorted(cluster.partition_dir(topic, partition).glob("*.log")))
    assert len(stored) > SEGMENT_BYTES
    assert theirs.startswith(stored)


def test_from_a_scan_to_an_audit(deployment: BrokerDeployment) -> None:
    cluster = deployment.cluster
    scanned = deployment.document("scan", "--topic", TOPIC)["partitions"]
    assert [one["segments"] for one in scanned] == [[]] * len(PARTITIONS)
    assert all(one["unread_offsets"] == one["high_watermark"] for one in scanned)
    assert deployment.document("ready")["ready"]
    (first, *_) = deployment.document("doctor", TOPIC)["partitions"]
    assert "are not read yet" in first["finding"]

    planned = deployment.document("plan")
    assert {one["partition"] for one in planned["partitions"]} == set(PARTITIONS)
    copied = deployment.document("copy")
    assert copied["failed"] == []
    assert copied["bytes"] >= len(PARTITIONS) * 4 * SEGMENT_BYTES // 2

    for partition in PARTITIONS:
        require_same_bytes(cluster, TOPIC, partition)
    deployment.document("status")
    (scanned, *_) = deployment.document("scan", "--topic", TOPIC)["partitions"]
    assert scanned["unread_offsets"] == 0
    assert [one["active"] for one in scanned["segments"]] == [False] * (len(scanned["segments"]) - 1) + [True]
    verified = deployment.document("verify", "--all", "--depth", "deep")
    assert (verified["segments"], verified["failed"]) == (len(copied["copied"]), [])
    assert deployment.document("audit")["findings"] == []
    assert deployment.document("copy")["copied"] == []
    assert cluster.errors() == []


def test_what_needs_log_dirs_says_so(deployment: BrokerDeployment) -> None:
    done = deployment.command("log-dirs")
    assert (done.returncode, "log_dirs is empty" in done.stderr) == (2, True), done.stderr


@pytest.mark.timeout(1_200)
def test_the_dag_copies_on_any_worker(deployment: BrokerDeployment, tmp_path_factory: pytest.TempPathFactory) -> None:
    cluster = deployment.cluster
    cluster.create_topic(BY_DAG, segment_bytes=None, config={"segment.bytes": str(SEGMENT_BYTES)})
    Writer(cluster.bootstrap, "lz4").send(BY_DAG, [0], 20_000, value_bytes=1_000)
    with platform_with(tmp_path_factory.mktemp("airflow"), deployment.config.read_text()) as running:
        wait_for_dag(running.api, COPY, seconds=WAIT_SECONDS)
        run_id = trigger(running.api, COPY, {"topics": [BY_DAG]})
        ended = wait_for_run(running.api, COPY, run_id, seconds=WAIT_SECONDS, on_change=print)
        assert ended.state == "success", list(errors_of(running.layout.airflow_home / "logs", ended))
        tasks = running.api.get(f"/dags/{COPY}/dagRuns/{run_id}/taskInstances")["task_instances"]
        assert {one["queue"] for one in tasks if one["task_id"] == "copy"} == {"default"}
    require_same_bytes(cluster, BY_DAG, 0)
    (size,) = (one for one in deployment.document("sizes")["partitions"] if one["topic"] == BY_DAG)
    assert size["segments"] >= 2
    assert cluster.errors() == []
