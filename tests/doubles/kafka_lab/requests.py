"""Small requests of a real broker: its gauges, its replicas, what is skipped."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import pytest
from confluent_kafka import TopicCollection

from include.tiering.errors import KafkaMissingError
from tests.doubles.kafka_lab.artifacts import class_path
from tests.doubles.kafka_lab.broker import KafkaBroker
from tests.doubles.kafka_lab.cluster import WAIT_SECONDS, KafkaCluster
from tests.doubles.kafka_lab.java_programs import run_program

# Gauges of a broker that was started with JMX.

_BY_TOPIC = "kafka.server:type=BrokerTopicMetrics,name={name},topic=*"


def gauge_by_topic(broker: KafkaBroker, name: str) -> dict[str, int]:
    """Of `BrokerTopicMetrics`, such as RemoteLogSizeBytes: what the broker says of the partitions that it leads."""
    assert broker.jmx_port, "the broker was started without JMX"
    said = run_program("Gauges", str(broker.jmx_port), _BY_TOPIC.format(name=name), version=broker.version).decode()
    found = re.findall(r"topic=([^,\s]+)\S* (-?\d+)$", said, re.MULTILINE)
    return {topic: int(value) for topic, value in found}


# Tests that need a broker are skipped, with the reason, where none can be had.


def require_kafka(version: str = "4.3.1") -> None:
    """In a fixture or a test: skips it unless a broker of that version can be started. Fetches its jars once."""
    why_not = _why_not(version)
    if why_not:
        pytest.skip(why_not)


@cache
def _why_not(version: str) -> str:
    try:
        class_path(version)
    except KafkaMissingError as error:
        return str(error)
    return ""


# Replicas of a partition moved and elected: what librdkafka's admin client cannot ask for.


@dataclass(frozen=True, slots=True)
class Replicas:
    """Broker ids; `all` in the order of preference."""

    leader: int
    all: tuple[int, ...]
    in_sync: frozenset[int]


def replicas(cluster: KafkaCluster, topic: str, partition: int) -> Replicas:
    described = cluster.admin.describe_topics(TopicCollection([topic]), request_timeout=WAIT_SECONDS)
    found = described[topic].result(WAIT_SECONDS).partitions[partition]
    return Replicas(
        leader=found.leader.id if found.leader else -1,
        all=tuple(node.id for node in found.replicas),
        in_sync=frozenset(node.id for node in found.isr),
    )


def move(cluster: KafkaCluster, topic: str, partition: int, brokers: Sequence[int]) -> None:
    """Asks for these replicas, the preferred leader first; returns at once, `replicas` tells when they are in sync."""
    names = ",".join(map(str, brokers))
    run_program("Replicas", cluster.bootstrap, "move", topic, str(partition), names, version=cluster.version)


def lead(cluster: KafkaCluster, topic: str, partition: int) -> None:
    """The preferred replica becomes leader."""
    run_program("Replicas", cluster.bootstrap, "lead", topic, str(partition), version=cluster.version)
