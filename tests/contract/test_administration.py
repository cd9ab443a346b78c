"""Administration: identity of the store, owners and deletions of topics, configs, over each database."""

import pytest
from sqlalchemy import Engine, func, select, update

from include.tiering.configs.config_store import ConfigChange, ConfigEntity, ConfigSnapshot, ConfigValues, EntityType
from include.tiering.configs.sql_configs import SqlConfigStore
from include.tiering.database.schema import events, segments
from include.tiering.database.store_identity import StoreIdentities, known_clusters
from include.tiering.errors import ConfigRefusedError, RemoteMetadataError, StateConflictError
from include.tiering.model.ownership import StoreMarker, TopicOwner
from include.tiering.segments.sizes_contract import KeyRange
from include.tiering.segments.sql import SqlRemoteLogMetadata
from include.tiering.segments.sql_rows import export_segments, pages_of, split_segments
from include.tiering.segments.sql_topics import SqlTopicDeletions, SqlTopicRegistry
from include.tiering.segments.topics import TopicDeletion, TopicDeletions, gone_topics
from tests.doubles.databases import AdjustableNow
from tests.doubles.segments import CLUSTER_ID, FINISHED, delete, fence_of, finish, partition_of, segment_of, uuid

# Store identity, owners of topics, dynamic configs and the export of segments, over each database.

ORDERS = uuid(1)


class TestStoreIdentity:
    def test_is_created_once(self, engine: Engine):
        identities = StoreIdentities(engine, CLUSTER_ID)
        assert identities.read() is None
        first = identities.create(uuid(1))
        assert first.current == StoreMarker(CLUSTER_ID, str(uuid(1)), 1)
        assert identities.create(uuid(2)) == identities.read() == first

    def test_each_cluster_has_its_own(self, engine: Engine):
        assert known_clusters(engine) == []
        StoreIdentities(engine, "b").create(uuid(1))
        StoreIdentities(engine, "a").create(uuid(2))
        assert known_clusters(engine) == ["a", "b"]
        assert StoreIdentities(engine, "b").accepted().current == StoreMarker("b", str(uuid(1)), 1)


class TestOwners:
    @pytest.fixture
    def registry(self, engine: Engine, now: AdjustableNow) -> SqlTopicRegistry:
        return SqlTopicRegistry(engine, CLUSTER_ID, now_ms=now)

    def test_nobody_owns_an_unknown_topic(self, registry):
        assert registry.owner(ORDERS) is TopicOwner.NONE

    def test_moves_from_owner_to_owner_and_says_so(self, registry, engine):
        for expected, owner in [
            (TopicOwner.NONE, TopicOwner.PLATFORM),
            (TopicOwner.PLATFORM, TopicOwner.HANDING_OVER),
            (TopicOwner.HANDING_OVER, TopicOwner.BROKER),
        ]:
            registry.set_owner(ORDERS, "orders", owner, expected=expected, author="ops")
            assert registry.owner(ORDERS) is owner
        with engine.connect() as connection:
            changes = connection.scalars(select(events.c.detail).order_by(events.c.event_id)).all()
        assert changes == ["none -> platform", "platform -> handing-over", "handing-over -> broker"]

    def test_loses_cleanly_against_another_change(self, registry):
        registry.set_owner(ORDERS, "orders", TopicOwner.BROKER, expected=TopicOwner.NONE, author="ops")
        with pytest.raises(StateConflictError, match="owner broker, not none"):
            registry.set_owner(ORDERS, "orders", TopicOwner.PLATFORM, expected=TopicOwner.NONE, author="ops")
        assert registry.owner(ORDERS) is TopicOwner.BROKER

    def test_repeating_is_harmless(self, registry, engine):
        for _ in range(2):
            registry.set_owner(ORDERS, "orders", TopicOwner.PLATFORM, expected=TopicOwner.NONE, author="ops")
        with engine.connect() as connection:
            assert len(connection.execute(select(events)).all()) == 1

    def test_a_segment_gives_its_topic_no_owner(self, registry, engine):
        partition = partition_of("orders")
        SqlRemoteLogMetadata(engine, CLUSTER_ID).add_segment(
            segment_of(partition, 1, 0, 9), fence=fence_of(engine, partition)
        )
        assert registry.owner(partition.topic_id) is TopicOwner.NONE

    def test_a_recreated_topic_has_an_owner_of_its_own(self, registry):
        registry.set_owner(ORDERS, "orders", TopicOwner.PLATFORM, expected=TopicOwner.NONE, author="ops")
        assert registry.owner(uuid(2)) is TopicOwner.NONE

    def test_a_topic_keeps_the_name_that_was_recorded_whatever_is_left_of_it(self, registry, engine):
        metadata, partition = SqlRemoteLogMetadata(engine, CLUSTER_ID), partition_of("orders")
        assert registry.recorded_name(partition.topic_id) is None
        fence = fence_of(engine, partition)
        delete(metadata, finish(metadata, segment_of(partition, 2, 0, 9), fence), fence)
        assert registry.recorded_name(partition.topic_id) == "orders"
        SqlTopicDeletions(engine, CLUSTER_ID).record(partition.topic_id, "orders", evidence="seen", author="me")
        assert registry.recorded_name(partition.topic_id) == "orders"
        assert SqlTopicRegistry(engine, "another").recorded_name(partition.topic_id) is None

    def test_names_in_use_are_those_of_topics_with_an_owner_or_with_segments(self, registry, engine):
        metadata, partition = SqlRemoteLogMetadata(engine, CLUSTER_ID), partition_of("orders", topic_number=2)
        assert registry.names_in_use() == {}
        registry.set_owner(ORDERS, "orders", TopicOwner.BROKER, expected=TopicOwner.NONE, author="ops")
        fence = fence_of(engine, partition)
        metadata.add_segment(segment_of(partition, 1, 0, 9), fence=fence)
        both = {ORDERS: "orders", partition.topic_id: "orders"}
        assert registry.names_in_use() == both
        assert SqlTopicRegistry(engine, "another").names_in_use() == {}
        delete(metadata, finish(metadata, segment_of(partition, 2, 0, 9), fence), fence)
        assert registry.names_in_use() == both
        SqlTopicDeletions(engine, CLUSTER_ID).record(ORDERS, "orders", evidence="seen", author="me")
        assert registry.names_in_use() == {partition.topic_id: "orders"}

    def test_a_name_is_gone_once_all_topics_that_had_it_are_known_to_be_deleted(self, registry, engine):
        deletions, again = SqlTopicDeletions(engine, CLUSTER_ID), partition_of("orders", topic_number=2)
        registry.set_owner(ORDERS, "orders", TopicOwner.PLATFORM, expected=TopicOwner.NONE, author="ops")
        SqlRemoteLogMetadata(engine, CLUSTER_ID).add_segment(segment_of(again, 1, 0, 9), fence=fence_of(engine, again))
        assert gone_topics(registry, deletions) == set(), "what is not known to be deleted exists"
        deletions.record(ORDERS, "orders", evidence="seen", author="me")
        assert gone_topics(registry, deletions) == set(), "another topic has the name"
        deletions.record(again.topic_id, "orders", evidence="seen", author="me")
        assert gone_topics(registry, deletions) == {"orders"}, "its segments are still in the archive"
        deletions.withdraw(again.topic_id, evidence="it is there", author="me")
        assert gone_topics(registry, deletions) == set()

    def test_a_topic_of_which_only_tombstones_are_left_and_which_nobody_owns_has_no_name(self, registry, engine):
        metadata, partition = SqlRemoteLogMetadata(engine, CLUSTER_ID), partition_of("orders")
        fence = fence_of(engine, partition)
        delete(metadata, finish(metadata, segment_of(partition, 2, 0, 9), fence), fence)
        assert registry.names_in_use() == {}


class TestDynamicConfigs:
    BROKERS = ConfigEntity(EntityType.BROKERS)
    ONE = ConfigEntity(EntityType.BROKERS, "1")

    @pytest.fixture
    def configs(self, engine: Engine, now: AdjustableNow) -> SqlConfigStore:
        return SqlConfigStore(engine, CLUSTER_ID, now_ms=now)

    def test_set_change_and_remove_with_history(self, configs, now):
        configs.alter(self.BROKERS, {"copy.rate": "10", "fetch.rate": "5"}, author="ann")
        began_ms = now.now_ms
        now.advance(1)
        configs.alter(self.BROKERS, {"copy.rate": "20", "fetch.rate": None}, author="bob")
        assert configs.of_entity(self.BROKERS) == {"copy.rate": "20"}
        assert configs.history(self.BROKERS) == [
            ConfigChange(self.BROKERS, "copy.rate", None, "10", "ann", began_ms),
            ConfigChange(self.BROKERS, "fetch.rate", None, "5", "ann", began_ms),
            ConfigChange(self.BROKERS, "copy.rate", "10", "20", "bob", now.now_ms),
            ConfigChange(self.BROKERS, "fetch.rate", "5", None, "bob", now.now_ms),
        ]

    def test_the_version_grows_with_changes_only(self, configs):
        assert configs.snapshot() == ConfigSnapshot(0, {})
        versions = []
        for value in ("10", "10", "20", None, None):
            altered = configs.alter(self.BROKERS, {"copy.rate": value}, author="ann")
            versions.append(altered.snapshot.version)
            assert configs.snapshot().version == versions[-1]
        assert versions[0] == versions[1] < versions[2] < versions[3] == versions[4]

    def test_an_entity_is_not_its_default(self, configs):
        configs.alter(self.BROKERS, {"copy.rate": "10"}, author="ann")
        configs.alter(self.ONE, {"copy.rate": "7"}, author="ann")
        assert configs.of_entity(self.BROKERS) == {"copy.rate": "10"}
        assert configs.of_entity(self.ONE) == {"copy.rate": "7"}
        assert [change.entity for change in configs.history()] == [self.BROKERS, self.ONE]
        assert len(configs.history(self.ONE)) == 1

    def test_clusters_do_not_see_each_other(self, configs, engine):
        configs.alter(self.BROKERS, {"copy.rate": "10"}, author="ann")
        other = SqlConfigStore(engine, "another-cluster")
        assert other.of_entity(self.BROKERS) == {}
        assert other.snapshot() == ConfigSnapshot(0, {})
        assert other.history() == []

    def test_an_alteration_says_what_it_changed_and_what_is_set_then(self, configs, now):
        configs.alter(self.ONE, {"copy.rate": "7"}, author="ann")
        altered = configs.alter(self.BROKERS, {"copy.rate": "10", "absent": None}, author="bob")
        assert altered.changes == (ConfigChange(self.BROKERS, "copy.rate", None, "10", "bob", now.now_ms),)
        assert altered.snapshot.values == {self.BROKERS: {"copy.rate": "10"}, self.ONE: {"copy.rate": "7"}}
        assert configs.snapshot() == altered.snapshot
        removed = configs.alter(self.ONE, {"copy.rate": None}, author="bob")
        assert removed.snapshot.values == configs.snapshot().values == {self.BROKERS: {"copy.rate": "10"}}
        repeated = configs.alter(self.BROKERS, {"copy.rate": "10"}, author="bob")
        assert (repeated.changes, repeated.snapshot) == ((), removed.snapshot)

    def test_the_check_sees_all_values_before_and_after_the_change_and_can_refuse_it(self, configs):
        configs.alter(self.ONE, {"copy.rate": "7"}, author="ann")
        before = configs.snapshot()
        seen = []

        def refuse(before: ConfigValues, after: ConfigValues) -> None:
            seen.append((before, after))
            raise ConfigRefusedError("too much")

        with pytest.raises(ConfigRefusedError, match="too much"):
            configs.alter(self.BROKERS, {"copy.rate": "10"}, author="ann", check=refuse)
        known = {self.ONE: {"copy.rate": "7"}}
        assert seen == [(known, {self.BROKERS: {"copy.rate": "10"}, **known})]
        assert configs.snapshot() == before
        assert len(configs.history()) == 1

    def test_an_author_cannot_smuggle_control_characters_into_the_history(self, configs):
        configs.alter(self.ONE, {"copy.rate": "7"}, author="ann\x1b[2J\n")
        assert [change.author for change in configs.history()] == [r"ann\x1b[2J\n"]


class TestExport:
    @pytest.fixture
    def exported(self, engine: Engine) -> list[str]:
        """Eleven segments of three partitions, one of them a tombstone; ids in order of arrival."""
        metadata = SqlRemoteLogMetadata(engine, CLUSTER_ID)
        ids = []
        fences = [fence_of(engine, partition_of("orders", number)) for number in range(3)]
        for number in range(11):
            fence = fences[number % 3]
            segment = segment_of(fence.topic_id_partition, number, 100 * number, 100 * number + 99)
            finish(metadata, segment, fence)
            if number == 5:
                delete(metadata, segment, fence)
            else:
                ids.append(str(segment.remote_log_segment_id.id))
        other = SqlRemoteLogMetadata(engine, "another-cluster")
        assert other.partitions() == []
        return ids

    @pytest.mark.parametrize("ranges", [1, 2, 3, 7, 11, 100])
    @pytest.mark.parametrize("page_keys", [1, 4, 10, 2_000])
    def test_every_segment_once_whatever_the_ranges_and_pages(self, engine, exported, ranges, page_keys):
        split = split_segments(engine, CLUSTER_ID, ranges)
        assert len(split) <= ranges
        pages = [page for part in split for page in export_segments(engine, CLUSTER_ID, part, page_keys=page_keys)]
        assert all(0 < len(page) <= page_keys for page in pages)
        assert sorted(row[-1] for page in pages for row in page) == sorted(exported)

    def test_a_row_says_what_sizes_are_made_of(self, engine, exported):
        (key_range,) = split_segments(engine, CLUSTER_ID, 1)
        rows = {row[-1]: row for page in export_segments(engine, CLUSTER_ID, key_range) for row in page}
        partition = partition_of("orders", 0)
        assert rows[exported[0]] == (str(partition.topic_id), 0, int(FINISHED), 1_000, 0, 99, "0:0", exported[0])

    def test_no_segments(self, engine):
        assert split_segments(engine, CLUSTER_ID, 4) == []
        assert list(export_segments(engine, CLUSTER_ID, KeyRange(1, 100))) == []

    def test_an_error_of_the_driver_between_two_rows_is_one_of_the_database(self, engine, exported):
        """The database cannot compute the absolute number of the last row: SQLite finds that out after the others."""
        (key_range,) = split_segments(engine, CLUSTER_ID, 1)
        with engine.begin() as connection:
            last = segments.c.segment_id == exported[-1]
            connection.execute(update(segments).where(last).values(start_offset=-(2**63)))
        pages = pages_of(engine, select(func.abs(segments.c.start_offset)), CLUSTER_ID, key_range)
        with pytest.raises(RemoteMetadataError, match=r"^database .*(overflow|out of range)"):
            list(pages)

    def test_at_least_one_range(self, engine):
        with pytest.raises(ValueError, match="at least one"):
            split_segments(engine, CLUSTER_ID, 0)


# What every implementation of `TopicDeletions` remembers, over each database.

DELETED_TOPIC, AGAIN = uuid(1), uuid(2)
EVIDENCE = "RemoveTopicRecord, below offset 7"


@pytest.fixture
def deletions(engine: Engine, now: AdjustableNow) -> TopicDeletions:
    return SqlTopicDeletions(engine, CLUSTER_ID, now_ms=now)


def details(engine: Engine) -> list[tuple[str, str, str, str]]:
    with engine.connect() as connection:
        query = select(events.c.kind, events.c.subject, events.c.detail, events.c.author).order_by(events.c.event_id)
        return [tuple(row) for row in connection.execute(query)]


def test_nothing_is_deleted_before_somebody_said_so(deletions, engine):
    SqlTopicRegistry(engine, CLUSTER_ID).set_owner(
        DELETED_TOPIC, "orders", TopicOwner.PLATFORM, expected=TopicOwner.NONE, author="me"
    )
    assert deletions.all() == {}


def test_the_first_record_stays_with_its_time_and_evidence(deletions, now, engine):
    first = deletions.record(DELETED_TOPIC, "orders", evidence=EVIDENCE, author="expiration")
    assert first == TopicDeletion("orders", now.now_ms, EVIDENCE)
    now.advance(5)
    assert deletions.record(DELETED_TOPIC, "orders", evidence="something else", author="expiration") == first
    assert deletions.all() == {DELETED_TOPIC: first}
    assert details(engine) == [("topic-deletion", f"orders ({DELETED_TOPIC})", f"recorded: {EVIDENCE}", "expiration")]


def test_a_topic_of_the_same_name_is_another_one(deletions):
    deletions.record(DELETED_TOPIC, "orders", evidence=EVIDENCE, author="expiration")
    assert AGAIN not in deletions.all()
    deletions.withdraw(AGAIN, evidence="it is there", author="expiration")
    assert DELETED_TOPIC in deletions.all()


def test_what_was_withdrawn_may_be_recorded_anew_and_counts_from_then(deletions, now, engine):
    deletions.record(DELETED_TOPIC, "orders", evidence=EVIDENCE, author="expiration")
    for _ in range(2):
        deletions.withdraw(DELETED_TOPIC, evidence="it is there", author="expiration")
    assert deletions.all() == {}
    now.advance(1_000)
    assert deletions.record(DELETED_TOPIC, "orders", evidence="again", author="expiration").seen_at_ms == now.now_ms
    assert [detail for _, _, detail, _ in details(engine)] == [
        f"recorded: {EVIDENCE}",
        "withdrawn: it is there",
        "recorded: again",
    ]


def test_the_owner_is_not_touched(deletions, engine):
    registry = SqlTopicRegistry(engine, CLUSTER_ID)
    registry.set_owner(DELETED_TOPIC, "orders", TopicOwner.PLATFORM, expected=TopicOwner.NONE, author="me")
    deletions.record(DELETED_TOPIC, "orders", evidence=EVIDENCE, author="expiration")
    assert registry.owner(DELETED_TOPIC) is TopicOwner.PLATFORM


def test_each_cluster_has_its_own(deletions, engine):
    deletions.record(DELETED_TOPIC, "orders", evidence=EVIDENCE, author="expiration")
    assert SqlTopicDeletions(engine, "another").all() == {}
