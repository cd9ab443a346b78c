"""What a restore has written, loaded by real brokers of three releases: every record, in both isolation levels.

The records of real brokers' log directories, which consumers read when the directories were made.
"""

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from include.tiering.broker_process.kafka_home import java
from include.tiering.broker_process.throw_away import create_topic, last_leader_epoch
from include.tiering.formats import checkpoints
from include.tiering.kafka.cluster.kafka_records import Isolation, KafkaServedRecords
from include.tiering.model.segments import TopicIdPartition
from include.tiering.restoring.plan import RestoreRequest
from include.tiering.restoring.restore_segments import HIGH_WATERMARKS, LOG_STARTS, RECOVERY_POINTS
from tests.doubles.kafka_lab.artifacts import VERSIONS, class_path
from tests.doubles.kafka_lab.cluster import KafkaCluster, client_configuration, prepared_cluster, wait_until
from tests.doubles.kafka_lab.requests import lead, move, replicas, require_kafka
from tests.doubles.whole_logs import WholeLogs, consumed, digest_of_records, public_logs

CHECKPOINTS = (LOG_STARTS, RECOVERY_POINTS, HIGH_WATERMARKS)
FOLLOWED = ("orders", "payments.v1-eu", "trimmed")
DUMP_VERSION = "3.9.2"
"""The last release whose broker brings DumpLogSegments with it."""


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WholeLogs]:
    with public_logs(tmp_path_factory.mktemp("public")) as found:
        yield found


@pytest.fixture(scope="module")
def target(logs: WholeLogs, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a restore of each topic that is not compacted."""
    directory = tmp_path_factory.mktemp("restored")
    for topic in _topics(logs):
        request = RestoreRequest(logs.app.restoring.partitions_of(topic))
        assert logs.app.restoring.run(request, directory / topic).is_complete
    return directory


def _topics(logs: WholeLogs) -> list[str]:
    return sorted({each.topic for each in logs.logs} - {"state-compacted", "both-policies"})


@pytest.mark.timeout(900)
@pytest.mark.parametrize("version", VERSIONS)
def test_brokers_serve_every_record_and_an_empty_replica_follows(
    logs: WholeLogs, target: Path, tmp_path: Path, version: str
) -> None:
    require_kafka(version)
    with _brokers(tmp_path / "kafka", target, _topics(logs), logs, version) as cluster:
        partitions = [each for each in logs.logs if each.topic in _topics(logs)]
        assert len(partitions) >= 11
        _require_records(cluster, partitions)
        for topic in FOLLOWED:
            move(cluster, topic, 0, [2, 1])
        for topic in FOLLOWED:
            wait_until(partial(_is_in_sync, cluster, topic), f"{topic} is in sync")
            lead(cluster, topic, 0)
            wait_until(partial(_is_led_by, cluster, topic, 2), f"{topic} is led by the replica")
        _require_records(cluster, [each for each in partitions if each.topic in FOLLOWED and not each.partition])
        for topic in FOLLOWED:
            first, second = (cluster.partition_dir(topic, 0, node_id=node) for node in (1, 2))
            assert _log(second).endswith(_log(first)[-1000:])
        assert cluster.broker.errors() == []
        restarted = cluster.brokers[0]
        restarted.kill()
        restarted.start()
        wait_until(partial(_is_led_by, cluster, "bigrecs", 1), "the first broker leads again")
        # A client of its own: the old one asks under the leader epochs from before the kill.
        _require_records(replace(cluster), [each for each in partitions if each.topic not in FOLLOWED])


@pytest.mark.timeout(900)
def test_kafkas_own_tool_finds_no_fault(logs: WholeLogs, target: Path) -> None:
    require_kafka(DUMP_VERSION)
    files = [path for topic in _topics(logs) for path in sorted((target / topic).rglob("0*.*"))]
    indexes = [path for path in files if path.suffix in (".index", ".timeindex")]
    others = [path for path in files if path.suffix not in (".index", ".timeindex")]
    assert len(indexes) >= 100
    assert {path.suffix for path in others} == {".log", ".snapshot", ".txnindex"}
    for path in (*indexes, *others):
        if not path.stat().st_size:
            indexes = [each for each in indexes if each != path]
    said = _dump(indexes, "--index-sanity-check")
    assert said.count("passed sanity check") == len(indexes), said[-2000:]
    said = _dump(indexes, "--verify-index-only")
    assert not [line for line in said.splitlines() if "ismatch" in line or "not found" in line.lower()], said[-2000:]
    said = _dump(others, "--deep-iteration")
    assert "isvalid: true" in said
    assert not [line for line in said.splitlines() if "isvalid: false" in line or "rror" in line], said[-2000:]


def _dump(files: list[Path], *options: str) -> str:
    command = [java(), "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", class_path(DUMP_VERSION)]
    command += ["kafka.tools.DumpLogSegments", *options, "--files", ",".join(map(str, files))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "Exception" not in done.stderr, done.stderr[-3000:]
    return done.stdout


def _is_in_sync(cluster: KafkaCluster, topic: str) -> bool:
    return replicas(cluster, topic, 0).in_sync == {1, 2}


def _is_led_by(cluster: KafkaCluster, topic: str, node_id: int) -> bool:
    return replicas(cluster, topic, 0).leader == node_id


def _require_records(cluster: KafkaCluster, partitions: list[TopicIdPartition]) -> None:
    for partition in partitions:
        for isolation in Isolation:
            committed = isolation is Isolation.COMMITTED
            topic, number = partition.topic, partition.partition
            start = cluster.earliest(topic, number)
            end = (cluster.last_stable if committed else cluster.latest)(topic, number)
            served = KafkaServedRecords(client_configuration(cluster.bootstrap), isolation=isolation)
            records = served.read(partition, start, end - 1) if end > start else ()
            assert digest_of_records(records) == consumed("public", partition, committed=committed), partition


@contextmanager
def _brokers(directory: Path, target: Path, topics: list[str], logs: WholeLogs, version: str) -> Iterator[KafkaCluster]:
    """Two brokers, the first of which finds the restored directories in its log directory when it first starts."""
    config = {"log.retention.ms": -1, "log.retention.bytes": -1}
    cluster = prepared_cluster(directory, version, 2, None, config)
    first = cluster.brokers[0]
    try:
        for broker in cluster.brokers:
            broker.heap_mib = 256
            broker.format(cluster.cluster_id)
        offsets: dict[str, dict[tuple[str, int], int]] = {name: {} for name in CHECKPOINTS}
        for topic in topics:
            partitions = [each for each in logs.logs if each.topic == topic]
            epochs = {each.partition: last_leader_epoch(target / topic / str(each)) for each in partitions}
            create_topic(first.log_dir, topic, partitions[0].topic_id, epochs, now_ms=1_800_000_000_000)
            for each in partitions:
                shutil.copytree(target / topic / str(each), first.log_dir / str(each))
            for name in CHECKPOINTS:
                offsets[name] |= checkpoints.parse_offset_checkpoint((target / topic / name).read_bytes())
        for name, found in offsets.items():
            (first.log_dir / name).write_bytes(checkpoints.serialize_offset_checkpoint(found))
        for broker in cluster.brokers:
            broker.start()
        yield cluster
    finally:
        for broker in cluster.brokers:
            broker.kill()


def _log(directory: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(directory.glob("*.log")))
