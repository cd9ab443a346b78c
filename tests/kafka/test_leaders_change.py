"""What happens to real brokers, and to the connection to one, while segments are copied from leaders.

Whatever changes and whatever is answered: nothing becomes FINISHED with other bytes than the broker's, and the work is
done in the end.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import TopicPartition

from include.tiering.app import App, open_app
from include.tiering.copying.copy_segment import CopyStep
from include.tiering.copying.plan import CopyPlan
from include.tiering.errors import TieringError
from include.tiering.model.segments import RemoteLogSegmentMetadata, TopicIdPartition
from include.tiering.settings import load_settings
from tests.doubles.broker_deployment import leaders_settings, new_deployment
from tests.doubles.copied_state import fetched
from tests.doubles.kafka_lab.cluster import WAIT_SECONDS, KafkaCluster, kafka_cluster, wait_until
from tests.doubles.kafka_lab.produce import Writer
from tests.doubles.kafka_lab.proxy import FetchProxy, fetch_proxy
from tests.doubles.kafka_lab.requests import lead, move, replicas, require_kafka
from tests.doubles.leader_logs import headers_of

pytestmark = pytest.mark.kafka

SEGMENT_BYTES: Final = 1 << 20


@dataclass(frozen=True)
class Platform:
    """A deployment for one topic, one transfer at a time."""

    cluster: KafkaCluster
    topic: str
    config: Path

    def copy(
        self, run_id: str, change: Callable[[], None] | None = None, step: CopyStep = CopyStep.VERIFIED
    ) -> CopyPlan:
        """Plan and copy; `change` happens when the second segment has come to `step`."""
        second: list[int] = []

        def observe(reached: CopyStep, _partition: TopicIdPartition, base_offset: int) -> None:
            if change is not None and reached is step and [base_offset] == second:
                second.clear()
                change()

        with open_app(load_settings(self.config), observe=observe) as app:
            planned = app.copying.plan(run_id)
            second += [segment.base_offset for found in planned.partitions for segment in found.segments][1:2]
            app.copying.run_batch(run_id, f"{run_id}.0")
            assert change is None or not second, "nothing was changed"
            return planned

    def finished(self, log: bytes | None = None) -> list[tuple[int, int]]:
        """Of what is FINISHED of the topic of this name, all of which has the bytes of a log: of the broker's now."""
        log = self.log() if log is None else log
        with open_app(load_settings(self.config)) as app:
            rows = self._rows(app, self.cluster.topic_id(self.topic))
            for row in rows:
                assert fetched(app, row) == _bytes_between(log, row.start_offset, row.end_offset)
        return [(row.start_offset, row.end_offset) for row in rows]

    def finished_of(self, topic_id: str) -> list[tuple[int, int]]:
        """The same of a topic with this id, which no broker has any more."""
        with open_app(load_settings(self.config)) as app:
            return [(row.start_offset, row.end_offset) for row in self._rows(app, topic_id)]

    def log(self) -> bytes:
        """What the leader has on its disk."""
        leader = replicas(self.cluster, self.topic, 0).leader
        directory = self.cluster.partition_dir(self.topic, 0, node_id=leader)
        return b"".join(path.read_bytes() for path in sorted(directory.glob("*.log")))

    def _rows(self, app: App, topic_id: str) -> list[RemoteLogSegmentMetadata]:
        metadata = app.adapters.stores.metadata
        partitions = [partition for partition in metadata.partitions() if str(partition.topic_id) == topic_id]
        rows = [row.metadata for partition in partitions for row in metadata.list_segments(partition)]
        return [row for row in rows if row.is_finished]


def _bytes_between(log: bytes, base: int, end: int) -> bytes:
    return b"".join(
        log[position : position + header.size_bytes]
        for position, header in headers_of(log)
        if base <= header.base_offset and header.last_offset <= end
    )


def platform_of(cluster: KafkaCluster, topic: str, directory: Path, bootstrap: str) -> Platform:
    settings = *leaders_settings(directory), "tiering.copier.max.transfers = 1"
    config = new_deployment(directory, [topic], bootstrap, directory / "store", *settings)
    return Platform(cluster, topic, config)


def fill(cluster: KafkaCluster, topic: str, *, replicas: int = 1, seed: int = 0) -> None:
    """A new topic of three segments and a part of one."""
    config = {"segment.bytes": str(SEGMENT_BYTES), "min.insync.replicas": str(replicas)}
    cluster.create_topic(topic, replicas=replicas, segment_bytes=None, config=config)
    Writer(cluster.bootstrap, seed=seed).send(topic, [0], 750, value_bytes=5_000)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    require_kafka()
    with kafka_cluster(tmp_path_factory.mktemp("changes") / "kafka", brokers=2, heap_mib=256) as started:
        yield started


@pytest.mark.parametrize("step", [CopyStep.OPENED, CopyStep.VERIFIED], ids=str)
def test_another_broker_is_elected(cluster: KafkaCluster, tmp_path: Path, step: CopyStep) -> None:
    topic = f"elected-{step}"
    fill(cluster, topic, replicas=2)
    platform = platform_of(cluster, topic, tmp_path, cluster.bootstrap)
    first = replicas(cluster, topic, 0).leader

    def elect() -> None:
        move(cluster, topic, 0, [3 - first, first])
        wait_until(lambda: replicas(cluster, topic, 0).all[0] == 3 - first, "the order of the replicas")
        lead(cluster, topic, 0)
        wait_until(lambda: replicas(cluster, topic, 0).leader == 3 - first, "the other broker leads")

    platform.copy("one", elect, step)
    assert len(platform.finished()) == 1
    platform.copy("two")
    assert len(platform.finished()) == 3


@pytest.mark.parametrize("how", ["restarted", "killed"])
def test_the_leader_is_started_again(cluster: KafkaCluster, tmp_path: Path, how: str) -> None:
    fill(cluster, how)
    platform = platform_of(cluster, how, tmp_path, cluster.bootstrap)
    leader = cluster.brokers[replicas(cluster, how, 0).leader - 1]

    def start_again() -> None:
        if how == "killed":
            leader.kill()
            leader.start()
        else:
            leader.restart()
        vars(cluster).pop("admin", None)  # A client that knew both brokers before may ask in vain.
        wait_until(lambda: cluster.latest(how, 0) > 0, "the partition has its leader")

    platform.copy("one", start_again)
    assert len(platform.finished()) == 1
    platform.copy("two")
    assert len(platform.finished()) == 3


@pytest.mark.parametrize("step", [CopyStep.OPENED, CopyStep.VERIFIED], ids=str)
def test_the_topic_is_created_again(cluster: KafkaCluster, tmp_path: Path, step: CopyStep) -> None:
    topic = f"again-{step}"
    fill(cluster, topic)
    old_id = cluster.topic_id(topic)
    platform = platform_of(cluster, topic, tmp_path, cluster.bootstrap)

    def create_again() -> None:
        cluster.admin.delete_topics([topic], request_timeout=WAIT_SECONDS)[topic].result(WAIT_SECONDS)
        wait_until(lambda: topic not in cluster.admin.list_topics(timeout=WAIT_SECONDS).topics, "the topic is gone")
        fill(cluster, topic, seed=1)

    platform.copy("one", create_again, step)
    assert len(platform.finished_of(old_id)) == 1
    platform.copy("two")
    assert len(platform.finished()) == 3
    assert len(platform.finished_of(old_id)) == 1


def test_the_log_start_is_raised_above_the_segment(cluster: KafkaCluster, tmp_path: Path) -> None:
    topic = "raised"
    fill(cluster, topic)
    platform = platform_of(cluster, topic, tmp_path, cluster.bootstrap)
    leader = replicas(cluster, topic, 0).leader
    third = cluster.local_segments(topic, 0, node_id=leader)[2]

    def raise_log_start() -> None:
        start = TopicPartition(topic, 0, third)
        cluster.admin.delete_records([start], request_timeout=WAIT_SECONDS)[start].result(WAIT_SECONDS)

    log = platform.log()
    platform.copy("one", raise_log_start)
    first = platform.finished(log)
    assert len(first) == 1
    (held,) = platform.copy("two").held_back
    assert held.hole is not None
    assert (held.hole.first, held.hole.last) == (first[0][1] + 1, third - 1)
    assert platform.finished(log) == first


# Over a proxy.


@dataclass(frozen=True)
class Proxied:
    """A broker that every client reaches through the proxy."""

    cluster: KafkaCluster
    proxy: FetchProxy


@pytest.fixture(scope="module")
def proxied(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxied]:
    require_kafka()
    with fetch_proxy() as proxy:
        config = {"advertised.listeners": f"PLAINTEXT://{proxy.address}"}
        with kafka_cluster(tmp_path_factory.mktemp("proxied") / "kafka", config=config) as cluster:
            proxy.target = cluster.broker.port
            yield Proxied(cluster, proxy)


@pytest.fixture
def fetched_topic(proxied: Proxied, tmp_path: Path) -> Iterator[Platform]:
    topic = tmp_path.name
    fill(proxied.cluster, topic)
    yield platform_of(proxied.cluster, topic, tmp_path, proxied.proxy.address)
    proxied.proxy.answer = lambda records: records


@pytest.mark.parametrize("number", [1, 2, 4])
def test_a_connection_that_ends_in_the_middle_of_a_batch(
    proxied: Proxied, fetched_topic: Platform, number: int
) -> None:
    """The first answers are to the plan, which finds the segments, the later ones to the copy."""
    proxy = proxied.proxy
    ends_at = proxy.answers + number
    proxy.answer = lambda records: None if proxy.answers == ends_at else records
    fetched_topic.copy("one")
    assert proxy.answers >= ends_at
    before = fetched_topic.finished()
    assert len(before) < 3
    fetched_topic.copy("two")
    assert len(fetched_topic.finished()) == 3
    assert fetched_topic.finished()[: len(before)] == before


@pytest.mark.parametrize("seed", range(3))
def test_a_proxy_that_lies(proxied: Proxied, fetched_topic: Platform, seed: int) -> None:
    """Half of its answers are changed, without a wrong checksum."""
    source, earlier, lies = random.Random(seed), list[bytes](), list[str]()

    def lie(records: bytes) -> bytes:
        earlier.append(records)
        if source.random() < 0.5:
            return records
        how = source.choice(list(LIES))
        lies.append(how)
        return LIES[how](records, earlier, source)

    proxied.proxy.answer = lie
    for number in range(60):
        try:
            fetched_topic.copy(f"run-{number}")
        except TieringError:
            continue
        if len(fetched_topic.finished()) == 3:
            assert lies
            return
    raise AssertionError(f"{fetched_topic.finished()} after {lies}")


def _batches(records: bytes) -> list[bytes]:
    """The whole batches of an answer."""
    found, at = [], 0
    while at + 12 <= len(records) and (end := at + 12 + int.from_bytes(records[at + 8 : at + 12])) <= len(records):
        found.append(records[at:end])
        at = end
    return found


def _cut(records: bytes, _earlier: Sequence[bytes], source: random.Random) -> bytes:
    return records[: source.randrange(1, len(records))]


def _repeated(records: bytes, _earlier: Sequence[bytes], source: random.Random) -> bytes:
    found = _batches(records)
    found.insert(source.randrange(len(found) + 1), source.choice(found))
    return b"".join(found)


def _left_out(records: bytes, _earlier: Sequence[bytes], source: random.Random) -> bytes:
    found = _batches(records)
    del found[source.randrange(len(found))]
    return b"".join(found)


def _reordered(records: bytes, _earlier: Sequence[bytes], source: random.Random) -> bytes:
    found = _batches(records)
    source.shuffle(found)
    return b"".join(found)


def _old(_records: bytes, earlier: Sequence[bytes], source: random.Random) -> bytes:
    return source.choice(earlier)


LIES: Final = {"cut": _cut, "repeated": _repeated, "left out": _left_out, "reordered": _reordered, "old": _old}
