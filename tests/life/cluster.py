"""Three brokers of which each is a controller too, and a fourth one that can take the place of any."""

import base64
import secrets
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Final, TypeVar

from confluent_kafka import ElectionType, IsolationLevel, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from include.tiering.broker_process.broker_process import Ports, free_ports, logging_option, server_properties
from include.tiering.errors import PortTakenError
from tests.doubles.kafka_lab.artifacts import class_path
from tests.doubles.kafka_lab.broker import KafkaBroker
from tests.doubles.kafka_lab.cluster import WAIT_SECONDS, KafkaCluster, client_configuration, wait_until
from tests.doubles.kafka_lab.requests import Replicas, move

VERSION: Final = "4.3.1"
VOTERS: Final = (1, 2, 3)
SPARE: Final = 4
SEGMENT_BYTES: Final = 16_384
HIGH_WATERMARKS: Final = "replication-offset-checkpoint"
RECOVERY_POINTS: Final = "recovery-point-offset-checkpoint"
LOG_STARTS: Final = "log-start-offset-checkpoint"
_HEAP_MIB: Final = 224
_START_ATTEMPTS: Final = 3
# Of one question; it is asked again.
_ANSWER_SECONDS: Final = 10
_Answer = TypeVar("_Answer")
_CONFIG: Final[Mapping[str, str | int]] = {
    "broker.session.timeout.ms": 9_000,
    "controller.quorum.election.timeout.ms": 3_000,
    "controller.quorum.fetch.timeout.ms": 6_000,
    "replica.high.watermark.checkpoint.interval.ms": 1_000,
    "auto.leader.rebalance.enable": "false",
    "transaction.state.log.replication.factor": 3,
    "transaction.max.timeout.ms": 7_200_000,
    "log.cleaner.dedupe.buffer.size": 4_194_304,
    "log.cleaner.backoff.ms": 500,
}


@dataclass(frozen=True)
class LifeCluster(KafkaCluster):
    """`brokers` are node 1, 2, 3 and the spare one; `wanted` are those that belong to the cluster now."""

    wanted: set[int] = field(default_factory=lambda: set(VOTERS))

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{broker.port}" for broker in self.brokers if broker.node_id in VOTERS)

    def node(self, node_id: int) -> KafkaBroker:
        return self.brokers[node_id - 1]

    @cached_property
    def directories(self) -> dict[int, Path]:
        return {broker.node_id: broker.log_dir for broker in self.brokers}

    def is_running(self, node_id: int) -> bool:
        process = self.node(node_id).process
        return process is not None and process.poll() is None

    def make_topic(
        self, name: str, brokers: Sequence[int], config: Mapping[str, str] | None = None, partitions: int = 1
    ) -> str:
        """Its id; the first of `brokers` leads. Small segments, kept for ever unless `config` says else."""
        settings = {
            "retention.ms": "-1",
            "retention.bytes": "-1",
            "internal.segment.bytes": str(SEGMENT_BYTES),
            **(config or {}),
        }
        asked = NewTopic(
            name, num_partitions=partitions, replica_assignment=[list(brokers)] * partitions, config=settings
        )
        self.admin.create_topics([asked], request_timeout=WAIT_SECONDS)[name].result(WAIT_SECONDS)
        for partition in range(partitions):
            self.wait_for(name, lambda now: now.leader > 0 and now.in_sync == set(brokers), "all follow", partition)
        return self.topic_id(name)

    def delete_topic(self, name: str) -> None:
        self.admin.delete_topics([name], request_timeout=WAIT_SECONDS)[name].result(WAIT_SECONDS)
        wait_until(lambda: not any(self._directories_of(name)), f"the directories of {name} are gone")

    def replicas(self, topic: str, partition: int = 0) -> Replicas:
        """As some broker knows them; asked until one answers that knows the topic."""
        answers: list[Replicas] = []

        def ask(admin: AdminClient) -> None:
            found = admin.list_topics(topic, timeout=_ANSWER_SECONDS).topics[topic]
            if partition not in found.partitions:
                raise KafkaException(found.error)
            now = found.partitions[partition]
            answers.append(Replicas(leader=now.leader, all=tuple(now.replicas), in_sync=frozenset(now.isrs)))

        self._until_answered(ask, f"replicas of {topic}-{partition}")
        return answers[-1]

    @cached_property
    def admin(self) -> AdminClient:
        """Of now: `renew` forgets it."""
        patience = {"socket.timeout.ms": _ANSWER_SECONDS * 1_000}
        return AdminClient({**client_configuration(self.bootstrap), **patience, "client.id": "life-admin"})

    def topic_id(self, name: str) -> str:
        found: list[str] = []

        def ask(admin: AdminClient) -> None:
            described = admin.describe_topics(TopicCollection([name]), request_timeout=_ANSWER_SECONDS)
            id_ = described[name].result(WAIT_SECONDS).topic_id
            halves = (id_.get_most_significant_bits(), id_.get_least_significant_bits())
            raw = b"".join((half & (1 << 64) - 1).to_bytes(8, "big") for half in halves)
            found.append(base64.urlsafe_b64encode(raw).decode().rstrip("="))

        self._until_answered(ask, f"the id of {name}")
        return found[-1]

    def partitions(self, topic: str) -> int:
        found: list[int] = []

        def ask(admin: AdminClient) -> None:
            found.append(len(admin.list_topics(topic, timeout=_ANSWER_SECONDS).topics[topic].partitions))

        self._until_answered(ask, f"partitions of {topic}")
        return found[-1]

    def renew(self) -> None:
        """Forgets the client: one that waits for a broker that is gone waits long."""
        self.__dict__.pop("admin", None)

    def _asked(self, question: Callable[[AdminClient], _Answer]) -> _Answer:
        try:
            return question(self.admin)
        except KafkaException:
            self.renew()
            raise

    def _until_answered(self, ask: Callable[[AdminClient], None], what: str) -> None:
        def is_answered() -> bool:
            self._asked(ask)
            return True

        wait_until(is_answered, what)

    def _offset(self, topic: str, partition: int, spec: OffsetSpec, isolation: IsolationLevel) -> int:
        found: list[int] = []

        def ask(admin: AdminClient) -> None:
            asked = {TopicPartition(topic, partition): spec}
            answer = admin.list_offsets(asked, isolation_level=isolation, request_timeout=_ANSWER_SECONDS)
            found.append(int(next(iter(answer.values())).result(WAIT_SECONDS).offset))

        self._until_answered(ask, f"offsets of {topic}-{partition}")
        return found[-1]

    def wait_for(self, topic: str, holds: Callable[[Replicas], bool], what: str, partition: int = 0) -> None:
        wait_until(lambda: holds(self.replicas(topic, partition)), f"{topic}-{partition}: {what}")

    def in_sync_again(self, topic: str, partition: int = 0) -> None:
        """It has a leader, and every replica follows it."""
        self.wait_for(topic, lambda now: now.leader > 0 and now.in_sync == set(now.all), "all follow", partition)

    def prefer(self, topic: str, leader: int, partition: int = 0) -> None:
        """The replicas stay, `leader` comes first and leads."""
        now = self.replicas(topic, partition)
        self.reassign(topic, [leader, *(one for one in now.all if one != leader)], partition)
        self.elect_preferred(topic, partition)

    def reassign(self, topic: str, brokers: Sequence[int], partition: int = 0) -> None:
        """Returns when these are the replicas, and all are in sync."""
        move(self, topic, partition, brokers)
        wanted = tuple(brokers)
        self.wait_for(topic, lambda now: now.all == wanted and now.in_sync == set(wanted), "moved", partition)

    def elect_preferred(self, topic: str, partition: int = 0) -> None:
        def led() -> bool:
            now = self.replicas(topic, partition)
            if now.leader == now.all[0]:
                return True
            where = [TopicPartition(topic, partition)]
            self._asked(lambda admin: admin.elect_leaders(ElectionType.PREFERRED, where).result(WAIT_SECONDS))
            return False

        wait_until(led, f"the preferred replica leads {topic}-{partition}")

    def delete_records(self, topic: str, before: int, partition: int = 0) -> None:
        """As kafka-delete-records: returns when the leader's log begins there and its directory says so."""
        where = TopicPartition(topic, partition, before)
        self.admin.delete_records([where], request_timeout=WAIT_SECONDS)[where].result(WAIT_SECONDS)
        wait_until(lambda: self.earliest(topic, partition) >= before, "the log start rose")

        def is_written() -> bool:
            """A log start that is the first segment's base offset is in no checkpoint."""
            leader = self.replicas(topic, partition).leader
            return leader > 0 and (
                self.checkpoint(LOG_STARTS, topic, leader, partition) >= before
                or self.bases(topic, leader, partition)[0] >= before
            )

        wait_until(is_written, f"the leader's directory has the log start of {topic}-{partition}")

    def log(self, topic: str, node_id: int, partition: int = 0) -> Path:
        """A replica's directory."""
        return self.directories[node_id] / f"{topic}-{partition}"

    def bases(self, topic: str, node_id: int | None = None, partition: int = 0) -> list[int]:
        """Of the segments on a disk, ascending, the last is the active one. None: the leader's."""
        where = self.log(topic, node_id or self.replicas(topic, partition).leader, partition)
        return sorted(int(path.stem) for path in where.glob("*.log"))

    def checkpoint(self, name: str, topic: str, node_id: int, partition: int = 0) -> int:
        """What the directory of a broker says of a partition; -1 if nothing."""
        try:
            lines = (self.directories[node_id] / name).read_text().splitlines()
        except FileNotFoundError:
            return -1
        found = [line.rpartition(" ")[2] for line in lines if line.startswith(f"{topic} {partition} ")]
        return int(found[0]) if found else -1

    def written_down(self, topic: str, partition: int = 0) -> None:
        """Waits until the leader's directory says what is replicated and flushed, as of now."""

        def is_written() -> bool:
            leader = self.replicas(topic, partition).leader
            return leader > 0 and (
                self.checkpoint(HIGH_WATERMARKS, topic, leader, partition) == self.latest(topic, partition)
                and self.checkpoint(RECOVERY_POINTS, topic, leader, partition)
                >= self.bases(topic, leader, partition)[-1]
            )

        wait_until(is_written, f"the checkpoints know {topic}-{partition}")

    def stop(self, node_id: int, *, kill: bool = False) -> None:
        self.node(node_id).kill() if kill else self.node(node_id).stop()
        self.renew()

    def start(self, node_id: int) -> None:
        self.node(node_id).start()
        self.renew()

    def format_voters(self) -> None:
        _at_once([partial(self.node(node).format, self.cluster_id) for node in VOTERS])

    def start_all(self) -> None:
        """Whichever is wanted and does not run. Two that start at once find each other."""
        down = [node for node in sorted(self.wanted) if not self.is_running(node)]
        _at_once([self.node(node).start for node in down])
        self.renew()

    def lose_disk(self, node_id: int) -> None:
        """Stops it, empties its log directory, and formats it under its own id; it does not run then."""
        self.stop(node_id)
        shutil.rmtree(self.directories[node_id])
        self.node(node_id).format(self.cluster_id)

    def start_spare(self) -> None:
        """A broker with a directory of its own. Nothing if it runs."""
        if self.is_running(SPARE):
            return
        if not self.directories[SPARE].exists():
            self.node(SPARE).format(self.cluster_id)
        self.wanted.add(SPARE)
        self.start(SPARE)

    def stop_spare(self) -> None:
        self.wanted.discard(SPARE)
        self.stop(SPARE)

    def _directories_of(self, topic: str) -> Iterator[Path]:
        """On brokers that run, to be deleted ones among them; strays of a replaced disk may stay."""
        for node_id, directory in self.directories.items():
            if self.is_running(node_id):
                found = directory.glob(f"{topic}-[0-9]*")
                yield from (path for path in found if not path.name.endswith("-stray"))


@contextmanager
def life_cluster(directory: Path) -> Iterator[LifeCluster]:
    """Everything lies below `directory`; brokers are stopped, or killed by their own pid, when the block ends.

    Raises:
        KafkaMissingError: no Java, or no jars.
        BrokerProcessError: a broker did not start.
    """
    class_path(VERSION)
    for attempt in range(_START_ATTEMPTS):
        cluster = _prepared(directory / f"try-{attempt}")
        try:
            cluster.format_voters()
            cluster.start_all()
            yield cluster
        except PortTakenError:
            if attempt == _START_ATTEMPTS - 1:
                raise
        else:
            return
        finally:
            # No clean stop: what is left of the quorum would be waited for.
            for broker in cluster.brokers:
                broker.kill()


def _at_once(calls: Sequence[Callable[[], None]]) -> None:
    with ThreadPoolExecutor(max_workers=max(1, len(calls))) as pool:
        for done in [pool.submit(call) for call in calls]:
            done.result()


def _prepared(directory: Path) -> LifeCluster:
    ports = free_ports(7)
    controllers = dict(zip(VOTERS, ports[:3], strict=True))
    quorum = ",".join(f"{node}@127.0.0.1:{port}" for node, port in controllers.items())
    members = []
    for node, port in zip((*VOTERS, SPARE), ports[3:], strict=True):
        home = directory / f"broker-{node}"
        home.mkdir(parents=True)
        config: dict[str, str | int] = {**_CONFIG, "controller.quorum.voters": quorum}
        if node in VOTERS:
            config["process.roles"] = "broker,controller"
            config["listeners"] = f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controllers[node]}"
        else:
            config["process.roles"] = "broker"
            config["listeners"] = f"PLAINTEXT://127.0.0.1:{port}"
        log_dir = home / "data"
        text = server_properties(node, Ports(port, ports[0]), log_dir, None, config)
        (home / "server.properties").write_text(text)
        logging = logging_option(VERSION, home, home / "server.log")
        broker = KafkaBroker(node, home, log_dir, port, class_path(VERSION), logging, False, version=VERSION)
        broker.heap_mib = _HEAP_MIB
        members.append(broker)
    cluster_id = base64.urlsafe_b64encode(b"\x01" + secrets.token_bytes(15)).decode().rstrip("=")
    return LifeCluster(VERSION, cluster_id, tuple(members), None)
