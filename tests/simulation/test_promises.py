"""What the rule about retention forgives brokers, and what not: it is about handovers, and not Kafka's arithmetic."""

import itertools
from types import SimpleNamespace
from typing import Any

import pytest

from include.tiering.formats.remote_log_metadata import decode
from include.tiering.model.segments import TopicIdPartition, Uuid
from tests.simulation.invariants.promises import Promises
from tests.simulation.world.brokers import Cluster, PartitionLog
from tests.simulation.world.remote_cache import RemoteCache
from tests.simulation.world.remote_managers import RemoteManagers

TOPIC = Uuid(b"orders' topic id")
PARTITION = TopicIdPartition(TOPIC, 0, "orders")


class Brokers:
    """One partition with offsets 0..19 on one broker, which has copied all but its active segment. Offsets
    0..5 have 90 bytes, the others 220."""

    def __init__(self) -> None:
        self.broken: list[str] = []
        self.cluster = Cluster("cluster", lambda: 0)
        self.cluster.create_topic(TOPIC, "orders", 1, (1,), (2,))
        self.log: PartitionLog = self.cluster.logs[PARTITION]
        self.log.produce(20)
        self.log.replicate()
        self.set("-1")
        cache, ids = RemoteCache(), (Uuid(bytes([number]) * 16) for number in itertools.count(1))
        world: Any = SimpleNamespace(
            cluster=self.cluster,
            scheduler=SimpleNamespace(now_ms=0, quiet=True),
            store=SimpleNamespace(objects={}, brokers_own={}, written_ms={}),
            topic=SimpleNamespace(
                caches={(str(TOPIC), 0): cache},
                append=lambda _, value, __: cache.take(decode(value), is_brokers=True),
            ),
            topic_id=lambda: next(ids),
            happened=lambda *_: None,
        )
        handing_over = SimpleNamespace(
            is_disturbed=lambda _: False, has_new_leader=lambda _: False, brokers_know=lambda *_: None
        )
        world.watch = SimpleNamespace(
            world=world,
            foreign_history=False,
            rotten=set(),
            broken=lambda rule, _: self.broken.append(rule),
            handing_over=handing_over,
        )
        self.promises = world.watch.promises = Promises(world.watch)
        self._world = world
        self.restart()
        self.promises.begin(self.log)
        while self.managers.copy(self.log):
            pass

    def restart(self) -> None:
        """It does not know any more how much is remote."""
        self.managers = self._world.managers = RemoteManagers(self._world)

    def set(self, retention_bytes: str) -> None:
        self.cluster.configs[TOPIC] |= {"remote.storage.enable": "true", "retention.bytes": retention_bytes}

    def delete_records(self, offset: int) -> None:
        self.log.raise_log_start(self.log.replicas[1], offset)
        self.promises.released(self.log)

    def expire(self) -> int:
        """The log start behind it."""
        self.managers.expire(self.log)
        return self.log.replicas[1].log_start


@pytest.fixture
def brokers() -> Brokers:
    return Brokers()


def test_nothing_goes_that_retention_keeps(brokers: Brokers) -> None:
    brokers.delete_records(6)
    brokers.expire()
    brokers.set("220")

    assert (brokers.expire(), brokers.broken) == (6, [])


def test_a_broker_counts_once_more_what_somebody_deleted_under_its_retention(brokers: Brokers) -> None:
    brokers.set("250")
    brokers.delete_records(6)

    assert (brokers.expire(), brokers.broken) == (10, [])


def test_what_somebody_deleted_while_it_was_held_back_is_no_excuse_for_the_one_who_puts_it_back(
    brokers: Brokers,
) -> None:
    brokers.delete_records(6)
    brokers.set("250")

    assert (brokers.expire(), brokers.broken) == (10, ["what is within retention stays"])


def test_what_counts_twice_beside_it_is_found(brokers: Brokers) -> None:
    brokers.set("250")
    brokers.delete_records(6)
    brokers.restart()

    assert brokers.expire() > 10
    assert brokers.broken == ["what is within retention stays"]


def test_it_is_an_excuse_once(brokers: Brokers) -> None:
    brokers.set("250")
    brokers.delete_records(6)
    assert brokers.expire() == 10
    brokers.broken.clear()
    brokers.restart()

    assert brokers.expire() > 10
    assert brokers.broken == ["what is within retention stays"]
