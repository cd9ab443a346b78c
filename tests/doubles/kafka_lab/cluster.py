"""A cluster of one or two brokers on loopback, alive for as long as a block lasts."""

import base64
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

from confluent_kafka import IsolationLevel, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from include.tiering.broker_process.broker_process import Ports, free_ports, logging_option, server_properties
from include.tiering.errors import PortTakenError
from tests.doubles.kafka_lab.artifacts import class_path
from tests.doubles.kafka_lab.broker import KafkaBroker

WAIT_SECONDS: Final = 240
METADATA_TOPIC: Final = "__remote_log_metadata"
# A transaction may be left open for as long as a test likes.
_PATIENT: Final = {"transaction.max.timeout.ms": 7_200_000}
_START_ATTEMPTS: Final = 3


@dataclass(frozen=True)
class KafkaCluster:
    """`remote_dir` is what LocalTieredStorage was given: objects lie below its `kafka-tiered-storage`."""

    version: str
    cluster_id: str
    brokers: tuple[KafkaBroker, ...]
    remote_dir: Path | None

    @property
    def bootstrap(self) -> str:
        return ",".join(broker.bootstrap for broker in self.brokers)

    @property
    def broker(self) -> KafkaBroker:
        """The first one, which is the controller too."""
        return self.brokers[0]

    @property
    def stored(self) -> Path:
        """Where Kafka's own test storage looks for objects."""
        assert self.remote_dir is not None, "this cluster has no tiered storage"
        return self.remote_dir / "kafka-tiered-storage"

    @cached_property
    def admin(self) -> AdminClient:
        """Kept: an answer is lost with the client that asked."""
        return AdminClient({**client_configuration(self.bootstrap), "client.id": "lab-admin"})

    def create_topic(
        self,
        name: str,
        *,
        partitions: int = 1,
        replicas: int = 1,
        segment_bytes: int | None = 65_536,
        config: Mapping[str, str] | None = None,
    ) -> str:
        """Keeps records for ever unless `config` says else; its id, 22 characters. `segment_bytes` None: Kafka's."""
        topic_config = {"retention.ms": "-1", "retention.bytes": "-1"}
        if segment_bytes is not None:
            key = "segment.bytes" if self.version.startswith("3.") else "internal.segment.bytes"
            topic_config[key] = str(segment_bytes)
        topic_config |= config or {}
        topic = NewTopic(name, num_partitions=partitions, replication_factor=replicas, config=topic_config)
        self.admin.create_topics([topic], request_timeout=WAIT_SECONDS)[name].result(WAIT_SECONDS)
        wait_until(lambda: None not in self._leaders(name, partitions), f"every partition of {name} has a leader")
        return self.topic_id(name)

    def topic_id(self, name: str) -> str:
        described = self.admin.describe_topics(TopicCollection([name]), request_timeout=WAIT_SECONDS)
        id_ = described[name].result(WAIT_SECONDS).topic_id
        halves = (id_.get_most_significant_bits(), id_.get_least_significant_bits())
        raw = b"".join((half & (1 << 64) - 1).to_bytes(8, "big") for half in halves)
        return base64.urlsafe_b64encode(raw).decode().rstrip("=")

    def alter_topic(self, name: str, **config: str | None) -> None:
        """`retention_bytes="-1"` sets retention.bytes; None takes a setting away."""
        entries = [
            ConfigEntry(
                key.replace("_", "."),
                value,
                incremental_operation=AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET,
            )
            for key, value in config.items()
        ]
        resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=entries)
        done = self.admin.incremental_alter_configs([resource], request_timeout=WAIT_SECONDS)
        next(iter(done.values())).result(WAIT_SECONDS)

    def topic_config(self, name: str) -> dict[str, str]:
        resource = ConfigResource(ResourceType.TOPIC, name)
        described = self.admin.describe_configs([resource], request_timeout=WAIT_SECONDS)
        return {key: entry.value for key, entry in next(iter(described.values())).result(WAIT_SECONDS).items()}

    def earliest(self, topic: str, partition: int) -> int:
        """The log start offset, remote segments included."""
        return self._offset(topic, partition, OffsetSpec.earliest(), IsolationLevel.READ_UNCOMMITTED)

    def latest(self, topic: str, partition: int) -> int:
        """The high watermark."""
        return self._offset(topic, partition, OffsetSpec.latest(), IsolationLevel.READ_UNCOMMITTED)

    def last_stable(self, topic: str, partition: int) -> int:
        return self._offset(topic, partition, OffsetSpec.latest(), IsolationLevel.READ_COMMITTED)

    def partition_dir(self, topic: str, partition: int, *, node_id: int = 1) -> Path:
        return self.brokers[node_id - 1].log_dir / f"{topic}-{partition}"

    def local_segments(self, topic: str, partition: int, *, node_id: int = 1) -> list[int]:
        """Base offsets of the segments on the broker's disk, ascending; the last is the active one."""
        return sorted(int(path.stem) for path in self.partition_dir(topic, partition, node_id=node_id).glob("*.log"))

    def remote_segments(self, topic: str, partition: int) -> list[tuple[int, str]]:
        """(base offset, segment id) of every `.log` object, ascending: one that is there twice comes twice."""
        directories = self.stored.glob(f"{topic}-{partition}-*")
        names = [path.stem for directory in directories for path in directory.glob("*.log")]
        return sorted((int(name[:20]), name[21:]) for name in names)

    def errors(self) -> list[str]:
        return [f"broker {broker.node_id}: {line}" for broker in self.brokers for line in broker.errors()]

    def restart(self) -> None:
        """Every broker in turn, the controller first."""
        for broker in self.brokers:
            broker.restart()

    def _offset(self, topic: str, partition: int, spec: OffsetSpec, isolation: IsolationLevel) -> int:
        """Asked again while leaders are being elected."""
        deadline = time.monotonic() + WAIT_SECONDS
        asked = {TopicPartition(topic, partition): spec}
        while True:
            answer = self.admin.list_offsets(asked, isolation_level=isolation, request_timeout=WAIT_SECONDS)
            try:
                return int(next(iter(answer.values())).result(WAIT_SECONDS).offset)
            except KafkaException:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.2)

    def _leaders(self, topic: str, partitions: int) -> list[int | None]:
        found = self.admin.list_topics(topic, timeout=WAIT_SECONDS).topics[topic].partitions
        return [found[p].leader if p in found and found[p].leader > 0 else None for p in range(partitions)]


@contextmanager
def kafka_cluster(
    directory: Path,
    *,
    version: str = "4.3.1",
    brokers: int = 1,
    remote_dir: Path | None = None,
    config: Mapping[str, str | int] | None = None,
    heap_mib: int = 384,
    jmx: bool = False,
    niceness: int = 10,
) -> Iterator[KafkaCluster]:
    """Brokers that keep everything below `directory`; stopped, or killed, when the block ends.

    With a `remote_dir` tiered storage is on, kept there by Kafka's LocalTieredStorage: the metadata topic exists when
    the block begins. `config` goes into every broker's `server.properties`.

    Raises:
        KafkaMissingError: no Java, or no jars.
        BrokerProcessError: a broker did not start.
    """
    class_path(version)
    directory.mkdir(parents=True, exist_ok=True)
    for attempt in range(_START_ATTEMPTS):
        cluster = prepared_cluster(directory / f"try-{attempt}", version, brokers, remote_dir, config or {}, jmx=jmx)
        for broker in cluster.brokers:
            broker.heap_mib, broker.niceness = heap_mib, niceness
        try:
            for broker in cluster.brokers:
                broker.format(cluster.cluster_id)
                broker.start()
            yield cluster
        except PortTakenError:
            if attempt == _START_ATTEMPTS - 1:
                raise
        else:
            return
        finally:
            for broker in reversed(cluster.brokers):
                broker.stop()


def client_configuration(bootstrap: str) -> dict[str, str | int]:
    """What every client of the lab begins with; librdkafka's own chatter stays off stderr."""
    return {
        "bootstrap.servers": bootstrap,
        "broker.address.family": "v4",
        "log_level": 2,
        "reconnect.backoff.max.ms": 500,
    }


def wait_until(holds: Callable[[], bool], what: str, *, seconds: float = WAIT_SECONDS) -> None:
    """Asks until the answer is yes. An error of the cluster is a no.

    Raises:
        AssertionError: not within `seconds`.
    """
    deadline = time.monotonic() + seconds
    while True:
        try:
            if holds():
                return
            last: object = "no"
        except KafkaException as error:
            last = error
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds} s: {what} (last answer: {last})")
        time.sleep(0.1)


def prepared_cluster(
    directory: Path,
    version: str,
    brokers: int,
    remote_dir: Path | None,
    config: Mapping[str, str | int],
    *,
    jmx: bool = False,
) -> KafkaCluster:
    """Brokers whose log directories are not formatted yet: who calls it formats, starts and stops them."""
    if remote_dir is not None:
        remote_dir.mkdir(parents=True, exist_ok=True)
    controller, *ports = free_ports(1 + 2 * brokers)
    members = []
    for node_id in range(1, brokers + 1):
        home = directory / f"broker-{node_id}"
        home.mkdir(parents=True)
        log_dir = home / "data"
        port, jmx_port = ports[2 * node_id - 2 : 2 * node_id]
        text = server_properties(node_id, Ports(port, controller), log_dir, remote_dir, {**_PATIENT, **config})
        (home / "server.properties").write_text(text)
        logging = logging_option(version, home, home / "server.log")
        app, jars = remote_dir is not None, class_path(version)
        broker = KafkaBroker(node_id, home, log_dir, port, jars, logging, app, version=version)
        broker.jmx_port = jmx_port if jmx else 0
        members.append(broker)
    cluster_id = base64.urlsafe_b64encode(b"\x01" + secrets.token_bytes(15)).decode().rstrip("=")
    return KafkaCluster(version, cluster_id, tuple(members), remote_dir)
