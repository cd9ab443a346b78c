"""Facts from brokers, and the two things that only the metadata log tells."""

from dataclasses import dataclass, field, replace

import pytest

from include.tiering.errors import BrokersForbiddenError, BrokersUnavailableError, ClusterMetadataError
from include.tiering.kafka.cluster.cluster_metadata import AdminClusterMetadata, UnknownClusterMetadata
from include.tiering.kafka.cluster.contract import TopicMetadata
from include.tiering.model.ids import Uuid
from tests.doubles.model_brokers import CLUSTER_ID, ModelBrokers

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
    facts = AdminClusterMetadata(brokers, UnknownClusterMetadata())
    facts.refresh()
    assert facts.cluster_id() == CLUSTER_ID
    by_id, by_name = facts.topic(orders), facts.topic_named("orders")
    assert by_id == by_name
    assert by_id is not None
    assert (by_id.configs["retention.ms"], by_id.configs["cleanup.policy"]) == ("5", "delete")
    assert by_id.partitions[1].leader == 1
    assert (facts.topic(GONE), facts.topic_named("payments")) == (None, None)


def test_a_topic_is_asked_for_once_until_a_refresh() -> None:
    brokers = ModelBrokers()
    orders = brokers.create_topic("orders")
    facts = AdminClusterMetadata(brokers, UnknownClusterMetadata())
    facts.refresh()
    for _ in range(3):
        facts.topic_named("orders")
        facts.topic(orders)
        facts.topic(GONE)
    assert (brokers.calls.count("topics"), brokers.calls.count("topic")) == (1, 1)
    brokers.create_topic("orders")
    assert facts.topic(orders) is not None
    facts.refresh()
    assert facts.topic(orders) is None
    named = facts.topic_named("orders")
    assert named is not None
    assert named.topic_id != orders


def test_without_an_answer_nothing_is_told_from_before() -> None:
    brokers = ModelBrokers()
    orders = brokers.create_topic("orders")
    facts = AdminClusterMetadata(brokers, UnknownClusterMetadata())
    facts.refresh()
    assert facts.topic(orders) is not None
    brokers.fail("cluster_id", BrokersUnavailableError("no answer"), times=None)
    brokers.fail("topic", BrokersForbiddenError("not authorised"), times=None)
    with pytest.raises(BrokersUnavailableError):
        facts.refresh()
    with pytest.raises(BrokersForbiddenError):
        facts.topic(orders)
    with pytest.raises(BrokersUnavailableError):
        facts.cluster_id()


def test_absence_is_no_removal_but_a_record_of_it_is() -> None:
    log = LoggedClusterMetadata()
    facts = AdminClusterMetadata(ModelBrokers(), log)
    facts.refresh()
    assert not facts.is_removed(GONE)
    assert facts.removal_evidence(GONE) is None
    log.removed.add(GONE)
    assert facts.is_removed(GONE)
    assert facts.removal_evidence(GONE) == "RemoveTopicRecord"


def test_a_log_is_not_believed_against_the_brokers() -> None:
    brokers = ModelBrokers()
    orders = brokers.create_topic("orders")
    facts = AdminClusterMetadata(brokers, LoggedClusterMetadata(removed={orders}))
    facts.refresh()
    assert not facts.is_removed(orders)
    assert facts.removal_evidence(orders) is None


@pytest.mark.parametrize(
    "log", [LoggedClusterMetadata("another-cluster", {GONE}), LoggedClusterMetadata(removed={GONE}, broken=True)]
)
def test_a_log_of_another_cluster_or_one_that_cannot_be_read_says_nothing(log: LoggedClusterMetadata) -> None:
    facts = AdminClusterMetadata(ModelBrokers(), log)
    facts.refresh()
    assert facts.cluster_id() == CLUSTER_ID
    assert not facts.is_removed(GONE)
    assert facts.removal_evidence(GONE) is None


def test_directories_are_the_logs_where_it_has_the_same_replicas() -> None:
    brokers = ModelBrokers()
    orders = brokers.create_topic("orders")
    told = brokers.topics()["orders"]
    logged = replace(told.partitions[0], directories=(DIRECTORY,), leader=7)
    log = LoggedClusterMetadata(topics={orders: replace(told, partitions={0: logged})})
    facts = AdminClusterMetadata(brokers, log)
    facts.refresh()
    known = facts.topic(orders)
    assert known is not None
    assert known.partitions[0] == replace(told.partitions[0], directories=(DIRECTORY,))
    brokers.partition(orders, 0).replicas = (1, 2)
    facts.refresh()
    moved = facts.topic(orders)
    assert moved is not None
    assert moved.partitions[0].directories == ()


def test_names_of_topics_are_asked_once_after_a_refresh() -> None:
    brokers = ModelBrokers()
    brokers.create_topic("orders")
    facts = AdminClusterMetadata(brokers, UnknownClusterMetadata())
    facts.refresh()
    assert list(facts.topic_names()) == ["orders"]
    brokers.create_topic("audit")
    assert list(facts.topic_names()) == ["orders"]
    facts.refresh()
    assert set(facts.topic_names()) == {"orders", "audit"}


def test_a_topic_that_was_asked_about_by_id_is_known_by_name_too() -> None:
    brokers = ModelBrokers()
    orders = brokers.create_topic("orders")
    facts = AdminClusterMetadata(brokers, UnknownClusterMetadata())
    facts.refresh()
    found = facts.topic(orders)
    asked = list(brokers.calls)
    assert facts.topic_named("orders") == found
    assert brokers.calls == asked
