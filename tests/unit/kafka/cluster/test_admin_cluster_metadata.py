"""Cluster metadata from the admin API, releases of brokers, and metadata that is lost."""

from dataclasses import dataclass, field, replace

import pytest

from include.tiering.errors import BrokersForbiddenError, BrokersUnavailableError, ClusterMetadataError
from include.tiering.kafka.cluster.cluster_metadata import (
    AdminClusterMetadata,
    LostClusterMetadata,
    UnknownClusterMetadata,
)
from include.tiering.kafka.cluster.contract import BrokerNode, TopicMetadata, release_of
from include.tiering.model.segments import Uuid
from tests.doubles.model_brokers import CLUSTER_ID, ModelBrokers

# Cluster metadata from brokers, and the two things that only the metadata log tells.

GONE = Uuid(b"a-topic-long-gon")
DIRECTORY = Uuid(b"one-directory-id")


@dataclass
class LoggedClusterMetadata:
    """A metadata log that says what a test wants."""

    id: str | None = CLUSTER_ID
    removed: set[Uuid] = field(default_factory=set)
    topics: dict[Uuid, TopicMetadata] = field(default_factory=dict)
    broken: bool = False

    def refresh(self) -> None:
        if self.broken:
            raise ClusterMetadataError("no readable metadata log")

    def cluster_id(self) -> str | None:
        return self.id

    def topic(self, topic_id: Uuid) -> TopicMetadata | None:
        return self.topics.get(topic_id)

    def topic_named(self, name: str) -> TopicMetadata | None:
        return None

    def topic_names(self) -> list[str]:
        return [topic.topic for topic in self.topics.values()]

    def is_removed(self, topic_id: Uuid) -> bool:
        return topic_id in self.removed

    def removal_evidence(self, topic_id: Uuid) -> str | None:
        return "RemoveTopicRecord" if topic_id in self.removed else None


def test_topics_are_known_by_id_and_by_name_with_configs_and_leaders() -> None:
    brokers = ModelBrokers()
    orders = brokers.create_topic("orders", partitions=2, configs={"retention.ms": "5"})
    cluster_metadata = AdminClusterMetadata(brokers, UnknownClusterMetadata())
    cluster_metadata.refresh()
    assert cluster_metadata.cluster_id() == CLUSTER_ID
    by_id, by_name = cluster_metadata.topic(orders), cluster_metadata.topic_named("orders")
    assert by_id == by_name
    assert by_id is not None
    assert (by_id.configs["retention.ms"], by_id.configs["cleanup.policy"]) == ("5", "delete")
    assert by_id.partitions[1].leader == 1
    assert (cluster_metadata.topic(GONE), cluster_metadata.topic_named("payments")) == (None, None)


def test_a_topic_is_asked_for_once_until_a_refresh() -> None:
    brokers = ModelBrokers()
    orders = brokers.create_topic("orders")
    cluster_metadata = AdminClusterMetadata(brokers, UnknownClusterMetadata())
    cluster_metadata.refresh()
    for _ in range(3):
        cluster_metadata.topic_named("orders")
        cluster_metadata.topic(orders)
        cluster_metadata.topic(GONE)
    assert (brokers.calls.count("topics"), brokers.calls.count("topic")) == (1, 1)
    brokers.create_topic("orders")
    assert cluster_metadata.topic(orders) is not None
    cluster_metadata.refresh()
    assert cluster_metadata.topic(orders) is None
    named = cluster_metadata.topic_named("orders")
    assert named is not None
    assert named.topic_id != orders


def test_without_an_answer_nothing_is_told_from_before() -> None:
    brokers = ModelBrokers()
    orders = brokers.create_topic("orders")
    cluster_metadata = AdminClusterMetadata(brokers, UnknownClusterMetadata())
    cluster_metadata.refresh()
    assert cluster_metadata.topic(orders) is not None
    brokers.fail("cluster_id", BrokersUnavailableError("no answer"), times=None)
    brokers.fail("topic", BrokersForbiddenError("not authorised"), times=None)
    with pytest.raises(BrokersUnavailableError):
        cluster_metadata.refresh()
    with pytest.raises(BrokersForbiddenError):
        cluster_metadata.topic(orders)
    with pytest.raises(BrokersUnavailableError):
        cluster_metadata.cluster_id()


def test_absence_is_no_removal_but_a_record_of_it_is() -> None:
    log = LoggedClusterMetadata()
    cluster_metadata = AdminClusterMetadata(ModelBrokers(), log)
    cluster_metadata.refresh()
    assert not cluster_metadata.is_removed(GONE)
    assert cluster_metadata.removal_evidence(GONE) is None
    log.removed.add(GONE)
    assert cluster_metadata.is_removed(GONE)
    assert cluster_metadata.removal_evidence(GONE) == "RemoveTopicRecord"


def test_a_log_is_not_believed_against_the_brokers() -> None:
    brokers = ModelBrokers()
    orders = brokers.create_topic("orders")
    cluster_metadata = AdminClusterMetadata(brokers, LoggedClusterMetadata(removed={orders}))
    cluster_metadata.refresh()
    assert not cluster_metadata.is_removed(orders)
    assert cluster_metadata.removal_evidence(orders) is None


@pytest.mark.parametrize(
    "log", [LoggedClusterMetadata("another-cluster", {GONE}), LoggedClusterMetadata(removed={GONE}, broken=True)]
)
def test_a_log_of_another_cluster_or_one_that_cannot_be_read_says_nothing(log: LoggedClusterMetadata) -> None:
    cluster_metadata = AdminClusterMetadata(ModelBrokers(), log)
    cluster_metadata.refresh()
    assert cluster_metadata.cluster_id() == CLUSTER_ID
    assert not cluster_metadata.is_removed(GONE)
    assert cluster_metadata.removal_evidence(GONE) is None


def test_directories_are_the_logs_where_it_has_the_same_replicas() -> None:
    brokers = ModelBrokers()
    orders = brokers.create_topic("orders")
    told = brokers.topics()["orders"]
    logged = replace(told.partitions[0], directories=(DIRECTORY,), leader=7)
    log = LoggedClusterMetadata(topics={orders: replace(told, partitions={0: logged})})
    cluster_metadata = AdminClusterMetadata(brokers, log)
    cluster_metadata.refresh()
    known = cluster_metadata.topic(orders)
    assert known is not None
    assert known.partitions[0] == replace(told.partitions[0], directories=(DIRECTORY,))
    brokers.partition(orders, 0).replicas = (1, 2)
    cluster_metadata.refresh()
    moved = cluster_metadata.topic(orders)
    assert moved is not None
    assert moved.partitions[0].directories == ()


def test_names_of_topics_are_asked_once_after_a_refresh() -> None:
    brokers = ModelBrokers()
    brokers.create_topic("orders")
    cluster_metadata = AdminClusterMetadata(brokers, UnknownClusterMetadata())
    cluster_metadata.refresh()
    assert list(cluster_metadata.topic_names()) == ["orders"]
    brokers.create_topic("audit")
    assert list(cluster_metadata.topic_names()) == ["orders"]
    cluster_metadata.refresh()
    assert set(cluster_metadata.topic_names()) == {"orders", "audit"}


def test_a_topic_that_was_asked_about_by_id_is_known_by_name_too() -> None:
    brokers = ModelBrokers()
    orders = brokers.create_topic("orders")
    cluster_metadata = AdminClusterMetadata(brokers, UnknownClusterMetadata())
    cluster_metadata.refresh()
    found = cluster_metadata.topic(orders)
    asked = list(brokers.calls)
    assert cluster_metadata.topic_named("orders") == found
    assert brokers.calls == asked


# Releases by the levels that brokers of known releases support.


@pytest.mark.parametrize(
    ("level", "words"),
    [
        (21, "Kafka 3.9"),
        (30, "Kafka 4.3"),
        (33, "Kafka 4.4"),
        (34, "newer than Kafka 4.4"),
        (25, "Kafka 4.0"),
        (7, "older than Kafka 3.5"),
    ],
)
def test_the_greatest_supported_level_tells_the_minor_release(level: int, words: str) -> None:
    assert release_of(BrokerNode(1, "host", 9092, supported_features={"metadata.version": level})) == words


def test_a_broker_that_tells_no_level_is_unknown() -> None:
    assert release_of(BrokerNode(1, "host", 9092)) == "unknown"


# Without cluster metadata the user's word counts, until it was known once.

TOPIC_ID = Uuid(bytes(range(16)))


def test_metadata_that_nobody_has_ever_read_are_unknown() -> None:
    cluster_metadata = LostClusterMetadata(lambda: False)
    cluster_metadata.refresh()
    assert (cluster_metadata.cluster_id(), cluster_metadata.topic(TOPIC_ID), cluster_metadata.topic_named("a")) == (
        None,
        None,
        None,
    )
    assert not cluster_metadata.is_removed(TOPIC_ID)


def test_metadata_that_were_read_before_are_missed_with_the_way_out() -> None:
    with pytest.raises(ClusterMetadataError, match=r"__cluster_metadata-0, but .* was read before: mount .* again"):
        LostClusterMetadata(lambda: True).refresh()


def test_the_memory_is_asked_each_time() -> None:
    answers = iter([False, True])
    cluster_metadata = LostClusterMetadata(lambda: next(answers))
    cluster_metadata.refresh()
    with pytest.raises(ClusterMetadataError):
        cluster_metadata.refresh()
