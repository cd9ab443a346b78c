"""Replicas of a partition moved and elected: what librdkafka's admin client cannot ask for."""

from collections.abc import Sequence
from dataclasses import dataclass

from confluent_kafka import TopicCollection

from tests.doubles.kafka_lab.cluster import WAIT_SECONDS, KafkaCluster
from tests.doubles.kafka_lab.java_programs import run_program


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
