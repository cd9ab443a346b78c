"""A change is checked, stored, announced, and waited for; repeated, it is announced again."""

import pytest

from include.tiering.configs.config_store import ALL_BROKERS, ConfigEntity, EntityType
from include.tiering.configs.service import POLL_SECONDS, AlteredConfigs, alter_configs
from include.tiering.errors import ConfigRefusedError, MetadataUnavailableError, SettingError
from include.tiering.quotas.contract import QuotasInForce, Scope
from tests.doubles.manual_clock import ManualClock
from tests.doubles.memory_configs import MemoryConfigStore, ScriptedLedger

COPY = "remote.log.manager.copy.max.bytes.per.second"
COPY_SCOPE = Scope.parse("copy/broker/")


@pytest.fixture
def store() -> MemoryConfigStore:
    return MemoryConfigStore()


def alter(
    store: MemoryConfigStore, ledger: ScriptedLedger, value: str | None, clock: ManualClock | None = None
) -> AlteredConfigs:
    return alter_configs(
        ALL_BROKERS, {COPY: value}, store=store, ledger=ledger, clock=clock or ManualClock(), author="ann"
    )


def test_it_returns_when_every_worker_has_taken_it(store: MemoryConfigStore) -> None:
    clock, ledger = ManualClock(), ScriptedLedger(first=1, second=3)
    altered = alter(store, ledger, "10", clock)
    assert [worker.worker_id for worker in altered.taken_by] == ["first", "second"]
    assert altered.not_taken_by == ()
    assert clock.slept == [POLL_SECONDS] * 3
    assert [(change.old_value, change.new_value, change.author) for change in altered.changes] == [(None, "10", "ann")]
    assert ledger.announced == [QuotasInForce(1, {COPY_SCOPE: 10})]


def test_workers_that_do_not_take_it_in_time_are_named(store: MemoryConfigStore) -> None:
    clock = ManualClock()
    altered = alter(store, ScriptedLedger(quick=0, dead=None), "10", clock)
    assert [worker.worker_id for worker in altered.taken_by] == ["quick"]
    assert [(worker.worker_id, worker.version) for worker in altered.not_taken_by] == [("dead", 0)]
    assert sum(clock.slept) == pytest.approx(5.0, abs=2 * POLL_SECONDS)


def test_without_workers_there_is_nothing_to_wait_for(store: MemoryConfigStore) -> None:
    clock = ManualClock()
    altered = alter(store, ScriptedLedger(), "10", clock)
    assert (altered.taken_by, altered.not_taken_by, clock.slept) == ((), (), [])


def test_repeating_changes_nothing_and_announces_again(store: MemoryConfigStore) -> None:
    ledger = ScriptedLedger()
    first, second = (alter(store, ledger, "10") for _ in range(2))
    assert (second.changes, second.version) == ((), first.version)
    assert len(store.history()) == 1
    assert ledger.announced[0] == ledger.announced[1]


class _LedgerAway(ScriptedLedger):
    def announce(self, quotas: QuotasInForce) -> None:
        raise MetadataUnavailableError("the ledger is away")


def test_a_change_that_was_not_announced_is_repaired_by_repeating_it(store: MemoryConfigStore) -> None:
    with pytest.raises(MetadataUnavailableError):
        alter(store, _LedgerAway(), "10")
    assert store.of_entity(ALL_BROKERS) == {COPY: "10"}
    ledger = ScriptedLedger()
    alter(store, ledger, "10")
    assert ledger.in_force().of(COPY_SCOPE) == 10


def test_removing_a_quota_lifts_the_limit(store: MemoryConfigStore) -> None:
    ledger = ScriptedLedger()
    alter(store, ledger, "10")
    alter(store, ledger, None)
    assert ledger.in_force() == QuotasInForce(2, {})


@pytest.mark.parametrize(
    ("entity", "changes", "error"),
    [
        (ALL_BROKERS, {COPY: "10", "remote.log.manager.fetch.max.bytes.per.second": "0"}, SettingError),
        (ALL_BROKERS, {"remote.log.manager.fetch.max.bytes.per.second": "5"}, ConfigRefusedError),
    ],
)
def test_a_refused_change_is_neither_stored_nor_announced(
    store: MemoryConfigStore, entity: ConfigEntity, changes: dict[str, str | None], error: type[Exception]
) -> None:
    ledger, clock = ScriptedLedger(), ManualClock()
    client = {"tiering.fetch.max.bytes.per.second": "5"}
    store.alter(ConfigEntity(EntityType.CLIENTS, "reporting"), client, author="bob")
    before = store.snapshot()
    with pytest.raises(error):
        alter_configs(entity, changes, store=store, ledger=ledger, clock=clock, author="ann")
    assert (store.snapshot(), ledger.announced) == (before, [])
