"""Stores of dynamic configs: one behaviour over each database and in memory, and changes that meet."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import Engine, insert, select

from include.tiering.clock import SystemClock
from include.tiering.configs.config_store import (
    ALL_BROKERS,
    ConfigEntity,
    ConfigSnapshot,
    ConfigStore,
    ConfigValues,
    EntityType,
)
from include.tiering.configs.rules import check_rules, checked_changes, quotas_in_force
from include.tiering.configs.service import alter_configs
from include.tiering.configs.sql_configs import SqlConfigStore
from include.tiering.database.engine import open_engine
from include.tiering.database.schema import dynamic_config_changes, dynamic_configs
from include.tiering.errors import ConfigRefusedError
from include.tiering.quotas.shared_quotas import AnnouncingLedger
from tests.doubles.databases import SHARED, AdjustableNow, each_database
from tests.doubles.manual_clock import ManualClock
from tests.doubles.memory_stores import MemoryConfigStore
from tests.doubles.patience import PATIENCE_SECONDS
from tests.doubles.quotas import MemoryLedgerStore
from tests.doubles.segments import CLUSTER_ID

BROKER_FETCH = "remote.log.manager.fetch.max.bytes.per.second"
CLIENT_FETCH = "tiering.fetch.max.bytes.per.second"
REPORTING = ConfigEntity(EntityType.CLIENTS, "reporting")
ROUNDS = 15


database_kind = each_database(SHARED)


def test_the_store_in_memory_behaves_like_the_one_in_sql(engine: Engine) -> None:
    now = AdjustableNow()
    stores: tuple[ConfigStore, ...] = (
        SqlConfigStore(engine, CLUSTER_ID, now_ms=now),
        MemoryConfigStore(lambda: now.now_ms),
    )
    steps: list[tuple[ConfigEntity, dict[str, str | None]]] = [
        (ALL_BROKERS, {"a": "1", "b": "2"}),
        (REPORTING, {"a": "3"}),
        (ALL_BROKERS, {"a": "1", "b": "4", "absent": None}),
        (REPORTING, {"a": None}),
        (REPORTING, {"a": None}),
    ]
    first = stores[0].alter(*steps[0], author="ann").snapshot.version - 2
    stores[1].alter(*steps[0], author="ann")
    for entity, changes in steps[1:]:
        sql, memory = (store.alter(entity, changes, author="ann") for store in stores)
        assert sql.changes == memory.changes
        assert sql.snapshot == ConfigSnapshot(memory.snapshot.version + first, memory.snapshot.values)
        assert stores[0].snapshot() == sql.snapshot
    assert stores[0].history() == stores[1].history()
    assert stores[0].history(REPORTING) == stores[1].history(REPORTING)


class TestFormerNames:
    """Values that an earlier release stored under a name that a setting has no longer."""

    OLD, NEW = "tiering.unfinished.copy.expiry.ms", "tiering.abandoned.copy.expiry.ms"

    @pytest.fixture
    def store(self, engine: Engine) -> SqlConfigStore:
        key = {"cluster_id": CLUSTER_ID, "entity_type": "brokers", "entity_name": ALL_BROKERS.entity_name}
        change = {"old_value": None, "new_value": "90000", "author": "ann", "changed_at_ms": 1}
        with engine.begin() as connection:
            connection.execute(insert(dynamic_configs).values(**key, name=self.OLD, value="90000"))
            connection.execute(insert(dynamic_config_changes).values(**key, name=self.OLD, **change))
        return SqlConfigStore(engine, CLUSTER_ID)

    def names(self, engine: Engine) -> list[str]:
        with engine.connect() as connection:
            return list(connection.execute(select(dynamic_configs.c.name)).scalars())

    def test_are_read_as_the_current_name(self, store: SqlConfigStore) -> None:
        assert store.of_entity(ALL_BROKERS) == {self.NEW: "90000"}
        assert store.snapshot().values == {ALL_BROKERS: {self.NEW: "90000"}}
        assert [(one.name, one.new_value) for one in store.history(ALL_BROKERS)] == [(self.NEW, "90000")]

    @pytest.mark.parametrize("name", [OLD, NEW])
    def test_a_change_leaves_the_current_name_alone(self, store: SqlConfigStore, engine: Engine, name: str) -> None:
        changes = checked_changes(ALL_BROKERS, {name: "90001"}, stored=store.of_entity(ALL_BROKERS))
        (change,) = store.alter(ALL_BROKERS, changes, author="bob").changes
        assert (change.name, change.old_value, change.new_value) == (self.NEW, "90000", "90001")
        assert (self.names(engine), store.of_entity(ALL_BROKERS)) == ([self.NEW], {self.NEW: "90001"})

    @pytest.mark.parametrize("name", [OLD, NEW])
    def test_a_removal_removes_them(self, store: SqlConfigStore, engine: Engine, name: str) -> None:
        changes = checked_changes(ALL_BROKERS, {name: None}, stored=store.of_entity(ALL_BROKERS))
        assert len(store.alter(ALL_BROKERS, changes, author="bob").changes) == 1
        assert (self.names(engine), store.of_entity(ALL_BROKERS)) == ([], {})

    def test_the_value_under_the_current_name_counts_where_both_are(
        self, store: SqlConfigStore, engine: Engine
    ) -> None:
        key = {"cluster_id": CLUSTER_ID, "entity_type": "brokers", "entity_name": ALL_BROKERS.entity_name}
        with engine.begin() as connection:
            connection.execute(insert(dynamic_configs).values(**key, name=self.NEW, value="70000"))
        assert store.of_entity(ALL_BROKERS) == {self.NEW: "70000"}


class TestChangesThatMeet:
    @pytest.fixture
    def engines(self, engine: Engine, database_url: str) -> Iterator[tuple[Engine, Engine]]:
        """Two processes' worth of connections."""
        other = open_engine(database_url)
        yield engine, other
        other.dispose()

    def test_two_changes_never_break_a_rule_together(self, engines: tuple[Engine, Engine]) -> None:
        stores = [SqlConfigStore(engine, CLUSTER_ID) for engine in engines]
        ledger = AnnouncingLedger(MemoryLedgerStore(), SystemClock())
        together = threading.Barrier(2)

        def change(number: int, entity: ConfigEntity, name: str, value: str) -> bool:
            together.wait()
            try:
                alter_configs(
                    entity, {name: value}, store=stores[number], ledger=ledger, clock=ManualClock(), author="ann"
                )
            except ConfigRefusedError:
                return False
            return True

        with ThreadPoolExecutor(2) as pool:
            for _ in range(ROUNDS):
                for entity, name in ((ALL_BROKERS, BROKER_FETCH), (REPORTING, CLIENT_FETCH)):
                    stores[0].alter(entity, {name: None}, author="ann")
                lower = pool.submit(change, 0, ALL_BROKERS, BROKER_FETCH, "10")
                higher = pool.submit(change, 1, REPORTING, CLIENT_FETCH, "20")
                assert [lower.result(), higher.result()].count(True) == 1
                snapshot = stores[0].snapshot()
                check_rules(snapshot.values)
                assert ledger.in_force() == quotas_in_force(snapshot)

    def test_one_that_is_being_checked_makes_the_other_wait(self, engines: tuple[Engine, Engine]) -> None:
        first, second = (SqlConfigStore(engine, CLUSTER_ID) for engine in engines)
        checking, seen_by_second = threading.Event(), []
        with ThreadPoolExecutor(1) as pool:

            def check(*_: object) -> None:
                checking.set()
                # Nothing can be awaited here: that the other does not go on is what is shown.
                with pytest.raises(TimeoutError):
                    waiting.result(timeout=0.3)

            def seen(before: ConfigValues, after: ConfigValues) -> None:
                seen_by_second.append((before, after))

            def other() -> None:
                checking.wait()
                second.alter(REPORTING, {CLIENT_FETCH: "20"}, author="bob", check=seen)

            waiting = pool.submit(other)
            first.alter(ALL_BROKERS, {BROKER_FETCH: "10"}, author="ann", check=check)
            waiting.result(timeout=PATIENCE_SECONDS)
        before = {ALL_BROKERS: {BROKER_FETCH: "10"}}
        assert seen_by_second == [(before, {**before, REPORTING: {CLIENT_FETCH: "20"}})]

    def test_announcements_that_cross_leave_the_newest_in_force(self, engines: tuple[Engine, Engine]) -> None:
        stores = [SqlConfigStore(engine, CLUSTER_ID) for engine in engines]
        ledger = AnnouncingLedger(MemoryLedgerStore(), SystemClock())
        older = stores[0].alter(ALL_BROKERS, {BROKER_FETCH: "10"}, author="ann").snapshot
        newer = stores[1].alter(ALL_BROKERS, {BROKER_FETCH: "20"}, author="bob").snapshot
        for snapshot in (newer, older):
            ledger.announce(quotas_in_force(snapshot))
        assert ledger.in_force() == quotas_in_force(newer)


def test_changes_of_topics_are_the_newest_of_these_configs_on_these_topics(engine: Engine) -> None:
    stores: tuple[ConfigStore, ...] = (SqlConfigStore(engine, CLUSTER_ID), MemoryConfigStore())
    topics = [ConfigEntity(EntityType.TOPICS, name) for name in ("a", "b", "c")]
    for store in stores:
        for number, topic in enumerate((*topics, topics[0])):
            changes: dict[str, str | None] = {"retention.ms": str(number), "other": str(number)}
            store.alter(topic, changes, author=f"author {number}")
        store.alter(ConfigEntity(EntityType.TOPICS), {"retention.ms": "9"}, author="of the default")
        found = store.changes_of_topics(["a", "b"], ["retention.ms"], at_most=9)
        assert [(change.entity.entity_name, change.new_value) for change in found] == [
            ("a", "3"),
            ("b", "1"),
            ("a", "0"),
        ]
        assert list(store.changes_of_topics(["a", "b"], ["retention.ms"], at_most=1)) == list(found[:1])


def test_a_history_begins_at_a_time(engine: Engine) -> None:
    stores: tuple[ConfigStore, ...] = (SqlConfigStore(engine, CLUSTER_ID), MemoryConfigStore())
    for store in stores:
        store.alter(ALL_BROKERS, {BROKER_FETCH: "10"}, author="ann")
        (change,) = store.history(ALL_BROKERS)
        assert list(store.history(since_ms=change.changed_at_ms)) == [change]
        assert list(store.history(since_ms=change.changed_at_ms + 1)) == []


def test_the_newest_changes_come_last(engine: Engine) -> None:
    stores: tuple[ConfigStore, ...] = (SqlConfigStore(engine, CLUSTER_ID), MemoryConfigStore())
    topic = ConfigEntity(EntityType.TOPICS, "a")
    for store in stores:
        for number in range(3):
            store.alter(topic, {"retention.ms": str(number)}, author="ann")
        store.alter(ALL_BROKERS, {BROKER_FETCH: "10"}, author="ann")
        assert [change.new_value for change in store.history(newest=2)] == ["2", "10"]
        assert [change.new_value for change in store.history(topic, newest=2)] == ["1", "2"]
        assert [change.new_value for change in store.history(entity_type=EntityType.BROKERS)] == ["10"]
        assert [change.new_value for change in store.history(entity_type=EntityType.TOPICS, newest=1)] == ["2"]
