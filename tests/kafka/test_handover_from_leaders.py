"""A topic handed over by a platform that has no path to the brokers' disks, while producers go on.

Its segments end elsewhere than the broker's own. So each partition has one segment of the broker that overlaps them.
"""

import json
import shutil
from collections.abc import Iterator
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.doubles.broker_deployment import BrokerDeployment, broker_deployment
from tests.doubles.kafka_lab.artifacts import VERSIONS, jars
from tests.doubles.kafka_lab.cluster import KafkaCluster, kafka_cluster, wait_until
from tests.doubles.kafka_lab.consume import Digest, both_digests
from tests.doubles.kafka_lab.produce import Writer, mixed_records, running_producers
from tests.doubles.kafka_lab.requests import lead, move, replicas, require_kafka
from tests.doubles.leader_logs import headers_of

pytestmark = pytest.mark.kafka

TOPIC, PARTITIONS = "orders", (0, 1)
LONG_SECONDS = 900
SEGMENT_BYTES = 1 << 20
OTHER_SEGMENT_BYTES = SEGMENT_BYTES * 5 // 4
"""By which the platform cuts, after the broker has rolled its segments."""


@pytest.fixture(params=VERSIONS)
def deployment(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerDeployment]:
    require_kafka(request.param)
    directory = tmp_path_factory.mktemp("kafka")
    with kafka_cluster(
        directory / "kafka", version=request.param, brokers=2, remote_dir=directory / "remote", heap_mib=256
    ) as cluster:
        yield broker_deployment(cluster, directory / "platform", topics=[TOPIC], reads_leaders=True)


@pytest.mark.timeout(2_400)
def test_everything_is_served_from_what_was_fetched(deployment: BrokerDeployment) -> None:
    cluster = deployment.cluster
    config = {"segment.bytes": str(SEGMENT_BYTES)}
    cluster.create_topic(TOPIC, partitions=len(PARTITIONS), segment_bytes=None, config=config)
    Writer(cluster.bootstrap, "zstd").send(TOPIC, PARTITIONS, 3, value_bytes=600_000)
    _fill(cluster)
    cluster.alter_topic(TOPIC, segment_bytes=str(OTHER_SEGMENT_BYTES))
    dry = deployment.command("handover", TOPIC, "--dry-run", "--json", seconds=LONG_SECONDS)
    assert dry.returncode == 0, f"{dry.stdout[-3000:]}{dry.stderr[-3000:]}"

    with running_producers(cluster.bootstrap, TOPIC, PARTITIONS, pause_seconds=0.3):
        asked = deployment.command("handover", TOPIC, "--local-retention-bytes", "1", "--json", seconds=LONG_SECONDS)
        assert asked.returncode == 1, f"{asked.stdout[-3000:]}{asked.stderr[-3000:]}"
        plan = json.loads(asked.stdout)
        assert (plan["step"], plan["refusal"] is None) == ("approval", False)
        vars(cluster).pop("admin", None)  # A client that knew two brokers before their restart may ask in vain.
        ends = {partition: cluster.last_stable(TOPIC, partition) for partition in PARTITIONS}
        before = _digests(cluster, ends)
        agreed = ("--resume", "--approve-plan", plan["plan_hash"], "--local-retention-bytes", "1", "--json")
        ended = deployment.command("handover", TOPIC, *agreed, seconds=LONG_SECONDS)
        assert ended.returncode == 0, f"{ended.stdout[-3000:]}{ended.stderr[-3000:]}"
        done = json.loads(ended.stdout)
    assert done["state"] == "done"
    # So the brokers roll the segments in which the seed ends.
    Writer(cluster.bootstrap, seed=9).send(TOPIC, PARTITIONS, 400, value_bytes=5_000)

    for found in done["partitions"]:
        partition, leader = found["partition"], replicas(cluster, TOPIC, found["partition"]).leader
        assert (found["start_offset"], cluster.earliest(TOPIC, partition)) == (0, 0)
        wait_until(
            partial(_is_remote, cluster, partition, leader, found["end_offset"]),
            "all that was handed over left the disk",
        )
    assert _digests(cluster, ends) == before
    copied, ended_at = _copied(deployment), {found["partition"]: found["end_offset"] for found in done["partitions"]}
    twice = {
        partition: _uploaded_again(cluster, partition, found, copied[partition])
        for partition, found in ended_at.items()
    }
    assert max(map(len, twice.values())) == 1, f"the segment in which a seed ends, and no other: {twice}"
    assert cluster.errors() == []

    _require_an_empty_replica_leads(cluster)
    assert _digests(cluster, ends) == before
    _require_expiration_by_the_broker(cluster, copied[1])
    # A broker that gets a replica says that it does not have it yet, and may ask before it knows what is remote.
    known = ("state.change.logger", "ReplicaFetcherThread")
    assert [line for line in cluster.errors() if not any(one in line for one in known)] == []


@pytest.mark.timeout(1_500)
def test_the_newest_part_of_leaders_logs_is_rehearsed(
    cluster: KafkaCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a log that is larger, with a transaction left open; neither brokers nor platform have anything of it after."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setenv("TMPDIR", str(scratch))
    config = {"segment.bytes": str(SEGMENT_BYTES), "retention.bytes": "90000000"}
    cluster.create_topic(TOPIC, partitions=len(PARTITIONS), segment_bytes=None, config=config)
    _fill(cluster)
    held = Writer(cluster.bootstrap, transactional_id="held")
    held.begin(TOPIC, PARTITIONS, 5)
    deployment = broker_deployment(cluster, tmp_path / "platform", topics=[TOPIC], reads_leaders=True)
    before = cluster.topic_config(TOPIC), [cluster.latest("__remote_log_metadata", number) for number in range(3)]

    home = ("--kafka-home", str(jars(cluster.version)))
    # The rehearsal's files have 3/4 of a segment: three of them and the active one. So its second segment ends in the
    # third file, which is rolled, whatever the active one has.
    limit = ("--rehearse-bytes", str(SEGMENT_BYTES * 3))
    arguments = ("handover", TOPIC, "--rehearse", *limit, *home, "--keep", "--json")
    done = deployment.command(*arguments, seconds=LONG_SECONDS)

    assert done.returncode == 0, f"{done.stdout[-3000:]}{done.stderr[-3000:]}"
    found = json.loads(done.stdout)
    assert (found["equal"], found["handover"]["state"], found["broker_errors"]) == (True, "done", [])
    kept = Path(found["kept"])
    overlaps = [_overlaps(kept / "remote" / "kafka-tiered-storage", partition) for partition in PARTITIONS]
    assert any(overlaps), "the broker copies on in the middle of one of its files"
    shutil.rmtree(kept)
    for sample, one in zip(found["samples"], found["partitions"], strict=True):
        assert sample["log_start_offset"] > 0
        assert sample["log_end_offset"] >= cluster.last_stable(TOPIC, sample["partition"])
        assert one["remote_only_below"] > 0
        assert one["plain"]["records"] > one["read_committed"]["records"] > 0
    assert list(scratch.iterdir()) == []
    assert cluster.remote_segments(TOPIC, 0) == []
    assert before == (
        cluster.topic_config(TOPIC),
        [cluster.latest("__remote_log_metadata", number) for number in range(3)],
    )
    held.end(abort=True)


@pytest.mark.timeout(1_500)
def test_a_limit_by_size_comes_back_when_followers_have_deleted_too(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Remote and local copies of a follower alone are more than the limit, on a release that counts both."""
    require_kafka("4.3.1")
    directory = tmp_path_factory.mktemp("kafka")
    with kafka_cluster(directory / "kafka", brokers=2, remote_dir=directory / "remote", heap_mib=256) as cluster:
        limit = "6000000"
        config = {"segment.bytes": str(SEGMENT_BYTES), "retention.bytes": limit, "min.insync.replicas": "2"}
        cluster.create_topic(TOPIC, partitions=len(PARTITIONS), replicas=2, segment_bytes=None, config=config)
        Writer(cluster.bootstrap).send(TOPIC, PARTITIONS, 880, value_bytes=5_000)
        deployment = broker_deployment(cluster, tmp_path / "platform", topics=[TOPIC], reads_leaders=True)
        before = {partition: cluster.latest(TOPIC, partition) for partition in PARTITIONS}

        wanted = ("--local-retention-bytes", "1", "--approve", "--json")
        ended = deployment.command("handover", TOPIC, *wanted, seconds=LONG_SECONDS)
        assert ended.returncode == 0, f"{ended.stdout[-3000:]}{ended.stderr[-3000:]}"
        assert json.loads(ended.stdout)["state"] == "done"
        assert cluster.topic_config(TOPIC)["retention.bytes"] == limit
        for partition in PARTITIONS:
            assert [cluster.local_segments(TOPIC, partition, node_id=node)[0] > 0 for node in (1, 2)] == [True, True]
        cluster.restart()
        vars(cluster).pop("admin", None)
        for partition, end in before.items():
            assert (cluster.earliest(TOPIC, partition), cluster.latest(TOPIC, partition)) == (0, end)


def _overlaps(stored: Path, partition: int) -> int:
    """How many offsets are in more than one of the partition's objects."""
    spans = []
    for log in sorted(stored.glob(f"{TOPIC}-{partition}-*/*.log")):
        headers = [header for _, header in headers_of(log.read_bytes())]
        spans.append((headers[0].base_offset, headers[-1].last_offset))
    return sum(max(0, end - begin + 1) for (_, end), (begin, _) in pairwise(spans))


def _fill(cluster: KafkaCluster) -> None:
    """Four segments of each partition under two leader epochs, and a third epoch that has no record yet."""
    for seed in range(2):
        mixed_records(cluster.bootstrap, TOPIC, PARTITIONS, count=20, seed=seed)
        Writer(cluster.bootstrap, seed=seed).send(TOPIC, PARTITIONS, 440, value_bytes=5_000)
        cluster.restart()


def _digests(cluster: KafkaCluster, ends: dict[int, int]) -> dict[int, tuple[Digest, Digest]]:
    """Of every partition up to its end, exclusive, in both isolation levels."""
    return {partition: both_digests(cluster.bootstrap, TOPIC, partition, end=end) for partition, end in ends.items()}


def _is_remote(cluster: KafkaCluster, partition: int, leader: int, end_offset: int) -> bool:
    return cluster.local_segments(TOPIC, partition, node_id=leader)[0] > end_offset


def _copied(deployment: BrokerDeployment) -> dict[int, list[str]]:
    """The ids of the segments that the platform copied, by partition and offset."""
    found: dict[int, list[Any]] = {partition: [] for partition in PARTITIONS}
    with deployment.library() as app:
        metadata = app.adapters.stores.metadata
        for partition in metadata.partitions():
            found[partition.partition] += [row.metadata for row in metadata.list_segments(partition)]
    return {
        partition: [str(one.remote_log_segment_id.id) for one in sorted(rows, key=lambda one: one.start_offset)]
        for partition, rows in found.items()
    }


def _uploaded_again(cluster: KafkaCluster, partition: int, end_offset: int, copied: list[str]) -> list[int]:
    """The first offsets of the broker's own objects that begin at or below the end of what was handed over."""
    return [base for base, id_ in cluster.remote_segments(TOPIC, partition) if id_ not in copied and base <= end_offset]


def _require_an_empty_replica_leads(cluster: KafkaCluster) -> None:
    """It has nothing to begin with but objects, most of them the platform's."""
    first = replicas(cluster, TOPIC, 0).leader
    second = 3 - first
    move(cluster, TOPIC, 0, [second, first])
    wait_until(lambda: replicas(cluster, TOPIC, 0).in_sync == {1, 2}, "the new replica is in sync")
    lead(cluster, TOPIC, 0)
    wait_until(lambda: replicas(cluster, TOPIC, 0).leader == second, "the new replica leads")


def _require_expiration_by_the_broker(cluster: KafkaCluster, copied: list[str]) -> None:
    cluster.alter_topic(TOPIC, retention_bytes=str(2 * SEGMENT_BYTES))
    wait_until(lambda: cluster.earliest(TOPIC, 1) > 0, "the log start was raised")
    wait_until(
        lambda: copied[0] not in {id_ for _, id_ in cluster.remote_segments(TOPIC, 1)}, "the oldest segment was deleted"
    )
    start = cluster.earliest(TOPIC, 1)
    assert both_digests(cluster.bootstrap, TOPIC, 1, start=start)[0].first_offset >= start
