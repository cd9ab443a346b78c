"""A topic's deletion: believed from a positive answer alone, and followed only while nothing contradicts."""

from dataclasses import dataclass, field

import pytest

from include.tiering.errors import BrokersForbiddenError, BrokersUnavailableError, ClusterMetadataError
from include.tiering.expiration.plan import deletion_demands
from include.tiering.kafka.cluster.cluster_metadata import AdminClusterMetadata, UnknownClusterMetadata
from include.tiering.kafka.cluster.contract import TopicMetadata
from include.tiering.model.retention import DeletionReason
from include.tiering.model.segments import TopicIdPartition, Uuid
from include.tiering.runs.deletion_run import PlannedExpiration
from include.tiering.segments.topics import TopicDeletion, TopicLifecycleState, TopicWatch
from tests.doubles.memory_stores import SEEN_MS, MemoryTopicDeletions
from tests.doubles.model_brokers import ModelBrokers
from tests.doubles.partial import Partial
from tests.doubles.segments import FINISHED, partition_of, planned_deletion, segment_of

ORDERS = partition_of("orders", topic_number=1)
AGAIN = partition_of("orders", topic_number=2)
OTHERS = partition_of("others", topic_number=3)
CLUSTER, DAY_MS = "cluster", 24 * 60 * 60 * 1000
EVIDENCE = "RemoveTopicRecord in a log"


@dataclass
class ClusterMetadataDouble(Partial):
    """`topics` are there, of `removed` a removal was seen; without a cluster nothing can be asked."""

    topics: dict[Uuid, TopicMetadata] = field(default_factory=dict)
    removed: set[Uuid] = field(default_factory=set)
    cluster: str | None = CLUSTER
    is_away: bool = False
    hidden: set[Uuid] = field(default_factory=set)

    def have(self, partition: TopicIdPartition, **configs: str) -> None:
        self.topics[partition.topic_id] = TopicMetadata(partition.topic, partition.topic_id, configs)

    def refresh(self) -> None:
        if self.is_away:
            raise ClusterMetadataError("the metadata log is away")

    def cluster_id(self) -> str | None:
        return self.cluster

    def topic(self, topic_id: Uuid) -> TopicMetadata | None:
        if topic_id in self.hidden:
            raise BrokersForbiddenError("not authorised for this topic")
        return self.topics.get(topic_id)

    def topic_named(self, name: str) -> TopicMetadata | None:
        return next((topic for topic in self.topics.values() if topic.topic == name), None)

    def removal_evidence(self, topic_id: Uuid) -> str | None:
        return EVIDENCE if topic_id in self.removed else None


@pytest.fixture
def cluster_metadata() -> ClusterMetadataDouble:
    return ClusterMetadataDouble()


@pytest.fixture
def deletions() -> MemoryTopicDeletions:
    return MemoryTopicDeletions()


@pytest.fixture
def watch(cluster_metadata: ClusterMetadataDouble, deletions: MemoryTopicDeletions) -> TopicWatch:
    return TopicWatch(CLUSTER, cluster_metadata, deletions)


def lifecycle_state(
    watch: TopicWatch, *partitions: TopicIdPartition, days: int | None = 30, after_ms: int = 30 * DAY_MS
) -> TopicLifecycleState:
    """Of the first of the partitions."""
    asked = partitions or (ORDERS,)
    names = {one.topic_id: one.topic for one in asked}
    found = watch.lifecycle_states(asked[:1], names_in_use=names, expire_after_days=days, now_ms=SEEN_MS + after_ms)
    return found[asked[0].topic_id]


class TestRecording:
    def test_a_removal_that_was_seen(self, watch, cluster_metadata, deletions):
        cluster_metadata.removed.add(ORDERS.topic_id)
        watch.record([ORDERS, OTHERS], author="me")
        assert deletions.known == {ORDERS.topic_id: TopicDeletion("orders", SEEN_MS, EVIDENCE)}

    def test_absence_is_no_deletion(self, watch, deletions):
        watch.record([ORDERS], author="me")
        assert deletions.known == {}

    def test_another_topic_of_the_name_is_no_deletion(self, watch, cluster_metadata, deletions):
        """A metadata log of last week shows an older topic under the name of ours."""
        cluster_metadata.have(AGAIN)
        watch.record([ORDERS], author="me")
        assert deletions.known == {}

    @pytest.mark.parametrize("cluster", [None, "another cluster"])
    def test_what_is_not_our_cluster_says_nothing(self, watch, cluster_metadata, deletions, cluster):
        cluster_metadata.cluster = cluster
        cluster_metadata.removed.add(ORDERS.topic_id)
        watch.record([ORDERS], author="me")
        assert deletions.known == {}

    def test_metadata_that_are_away_say_nothing(self, watch, cluster_metadata, deletions):
        cluster_metadata.removed.add(ORDERS.topic_id)
        cluster_metadata.is_away = True
        watch.record([ORDERS], author="me")
        assert deletions.known == {}

    def test_a_topic_about_which_nothing_may_be_asked_hides_no_other(self, watch, cluster_metadata, deletions):
        cluster_metadata.removed |= {ORDERS.topic_id, OTHERS.topic_id}
        cluster_metadata.hidden.add(ORDERS.topic_id)
        watch.record([ORDERS, OTHERS], author="me")
        assert deletions.known.keys() == {OTHERS.topic_id}

    def test_a_topic_that_is_there_takes_the_record_back(self, watch, cluster_metadata, deletions):
        deletions.record(ORDERS.topic_id, "orders", evidence=EVIDENCE, author="me")
        cluster_metadata.have(ORDERS)
        cluster_metadata.removed.add(ORDERS.topic_id)
        watch.record([ORDERS], author="me")
        assert deletions.known == {}


class TestWhatFollows:
    @pytest.fixture(autouse=True)
    def deleted(self, deletions):
        deletions.record(ORDERS.topic_id, "orders", evidence=EVIDENCE, author="me")

    def test_nothing_if_it_is_kept(self, watch):
        assert lifecycle_state(watch, days=None) == TopicLifecycleState(is_deleted=True)

    def test_nothing_before_the_days_are_over_and_it_says_when(self, watch):
        early = lifecycle_state(watch, after_ms=30 * DAY_MS - 1)
        assert not early.deletion_due
        assert early.kept_because == (
            "seen 2023-11-14 22:13:20 UTC; segments expire after 2023-12-14 22:13:20 UTC, with an approval"
        )
        assert lifecycle_state(watch) == TopicLifecycleState(deletion_due=True, is_deleted=True)

    def test_nothing_while_the_cluster_has_it(self, watch, cluster_metadata):
        cluster_metadata.have(ORDERS)
        found = lifecycle_state(watch)
        assert (found.deletion_due, found.kept_because) == (False, "the cluster's metadata has the topic again")

    def test_nothing_while_nothing_may_be_asked_about_it(self, watch, cluster_metadata):
        unseen = lifecycle_state(watch, OTHERS)
        cluster_metadata.hidden.add(ORDERS.topic_id)
        assert not lifecycle_state(watch, ORDERS, OTHERS).deletion_due
        assert lifecycle_state(watch, OTHERS, ORDERS) == unseen

    @pytest.mark.parametrize("away", [{"is_away": True}, {"cluster": None}, {"cluster": "another"}])
    def test_nothing_while_nobody_can_be_asked(self, watch, cluster_metadata, away):
        for name, value in away.items():
            setattr(cluster_metadata, name, value)
        found = lifecycle_state(watch)
        assert not found.deletion_due
        assert "cannot be read" in found.kept_because

    def test_a_topic_created_again_is_another_one(self, watch, cluster_metadata):
        cluster_metadata.have(AGAIN)
        why = f"the cluster gives the name to topic id {AGAIN.topic_id} now"
        assert lifecycle_state(watch, ORDERS, AGAIN) == TopicLifecycleState(
            name_taken_because=why, deletion_due=True, is_deleted=True
        )
        assert lifecycle_state(watch, AGAIN, ORDERS) == TopicLifecycleState()

    def test_without_metadata_the_name_is_neither_ones(self, watch, cluster_metadata):
        cluster_metadata.is_away = True
        assert lifecycle_state(watch, ORDERS, AGAIN, days=None).is_name_taken
        assert lifecycle_state(watch, AGAIN, ORDERS, days=None).is_name_taken
        assert not lifecycle_state(watch, ORDERS, OTHERS, days=None).is_name_taken


def test_a_topic_that_was_not_deleted_has_no_name_if_another_one_has_it(watch, cluster_metadata):
    cluster_metadata.have(AGAIN)
    assert lifecycle_state(watch, ORDERS, days=None).is_name_taken
    cluster_metadata.have(ORDERS)
    assert not lifecycle_state(watch, OTHERS, days=None).is_name_taken


class TestANameOfTwoTopics:
    """Of which the database knows both. Retention that is set on it is about neither, unless the cluster says whose it
    is now."""

    @pytest.fixture(params=["never any", "away", "another cluster", "neither is known", "forbidden"])
    def silent(self, cluster_metadata, request) -> None:
        match request.param:
            case "never any":
                cluster_metadata.cluster = None
            case "away":
                cluster_metadata.have(AGAIN)
                cluster_metadata.is_away = True
            case "another cluster":
                cluster_metadata.have(AGAIN)
                cluster_metadata.cluster = "another"
            case "forbidden":
                cluster_metadata.hidden |= {ORDERS.topic_id, AGAIN.topic_id}

    def test_is_taken_for_both_while_nothing_says_whose_it_is(self, watch, silent):
        for asked, other in ((ORDERS, AGAIN), (AGAIN, ORDERS)):
            assert lifecycle_state(watch, asked, other).name_taken_because == (
                f"topic id {other.topic_id} has had the name as well, and the cluster does not say now whose it is"
            )
            assert not lifecycle_state(watch, asked, OTHERS).is_name_taken
        names = {one.topic_id: one.topic for one in (ORDERS, AGAIN, OTHERS)}
        assert watch.doubtful_names(names) == {"orders"}

    def test_is_the_one_s_of_which_the_cluster_says_so(self, watch, cluster_metadata):
        cluster_metadata.have(AGAIN)
        assert not lifecycle_state(watch, AGAIN, ORDERS).is_name_taken
        assert lifecycle_state(watch, ORDERS, AGAIN).is_name_taken
        assert watch.doubtful_names({one.topic_id: one.topic for one in (ORDERS, AGAIN)}) == frozenset()

    def test_is_taken_while_brokers_alone_are_asked_and_away(self, deletions):
        """Brokers that do not know an id are no evidence of a deletion, so none is recorded."""
        brokers = ModelBrokers(CLUSTER)
        brokers.create_topic("orders", topic_id=AGAIN.topic_id)
        watch = TopicWatch(CLUSTER, AdminClusterMetadata(brokers, UnknownClusterMetadata()), deletions)
        watch.record([ORDERS, AGAIN], author="me")
        assert deletions.known == {}
        assert lifecycle_state(watch, ORDERS, AGAIN).is_name_taken
        assert not lifecycle_state(watch, AGAIN, ORDERS).is_name_taken
        for question in ("cluster_id", "topics"):
            brokers.fail(question, BrokersUnavailableError("no answer"), times=None)
            assert lifecycle_state(watch, ORDERS, AGAIN).is_name_taken
            assert lifecycle_state(watch, AGAIN, ORDERS).is_name_taken


def test_a_topic_that_its_broker_tiers(watch, cluster_metadata):
    cluster_metadata.have(ORDERS, **{"remote.storage.enable": "true"})
    assert lifecycle_state(watch) == TopicLifecycleState(is_broker_tiered=True)


class TestDemands:
    def plan(self, reason: DeletionReason) -> list[PlannedExpiration]:
        deletion = planned_deletion(segment_of(ORDERS, 1, 0, 9, state=FINISHED), reason)
        return [PlannedExpiration(ORDERS, 0, 10, (deletion,))]

    @pytest.mark.parametrize("reason", [reason for reason in DeletionReason if reason != DeletionReason.TOPIC_DELETED])
    def test_of_other_reasons_none(self, reason):
        assert deletion_demands(self.plan(reason), {}) == {}

    def test_say_which_topic_since_when_and_from_what(self):
        demands = deletion_demands(
            self.plan(DeletionReason.TOPIC_DELETED), {ORDERS.topic_id: TopicDeletion("orders", SEEN_MS, EVIDENCE)}
        )
        assert list(demands) == [ORDERS.topic_id]
        assert demands[ORDERS.topic_id] == (
            f"orders ({ORDERS.topic_id}): the topic was deleted (seen 2023-11-14 22:13:20 UTC, {EVIDENCE}):"
            " all of its segments are deleted, which always needs an approval"
        )

    def test_a_record_that_was_taken_back_since_is_said(self):
        (demand,) = deletion_demands(self.plan(DeletionReason.TOPIC_DELETED), {}).values()
        assert "no longer recorded" in demand
