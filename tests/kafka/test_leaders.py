"""The commands of a platform that has only bootstrap servers and a store, over a real broker."""

from collections.abc import Iterator

import pytest

from tests.doubles.broker_deployment import BrokerDeployment, broker_deployment
from tests.doubles.kafka_lab.cluster import KafkaCluster, kafka_cluster
from tests.doubles.kafka_lab.produce import Writer, mixed_records
from tests.doubles.kafka_lab.requests import require_kafka

pytestmark = pytest.mark.kafka

TOPIC, PARTITIONS = "remote-only", (0, 1, 2)
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
        yield broker_deployment(cluster, directory / "platform", topics=[TOPIC], reads_leaders=True)


def brokers_bytes(cluster: KafkaCluster, partition: int) -> bytes:
    logs = sorted(cluster.partition_dir(TOPIC, partition).glob("*.log"))
    return b"".join(log.read_bytes() for log in logs)


def stored_bytes(cluster: KafkaCluster, partition: int) -> bytes:
    """Of all `.log` objects; the name of each begins with its base offset."""
    directories = list(cluster.stored.glob(f"{TOPIC}-{partition}-*"))
    assert len(directories) == 1, directories
    return b"".join(log.read_bytes() for log in sorted(directories[0].glob("*.log")))


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
        stored, theirs = stored_bytes(cluster, partition), brokers_bytes(cluster, partition)
        assert len(stored) > SEGMENT_BYTES
        assert theirs.startswith(stored)
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
    for command in (["handover", TOPIC, "--dry-run"], ["log-dirs"]):
        done = deployment.command(*command)
        assert (done.returncode, "log_dirs is empty" in done.stderr) == (2, True), done.stderr
