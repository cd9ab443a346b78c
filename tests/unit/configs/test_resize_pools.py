"""Sizes of pools under Kafka's names: what is refused, what is asked of Airflow, what is written down."""

from collections.abc import Mapping

import pytest

from include.tiering.configs.config_store import ALL_BROKERS, ConfigEntity, EntityType
from include.tiering.configs.pools import COPIER_POOL, EXPIRATION_POOL
from include.tiering.configs.service import AlteredConfigs, asks_for_pools, resize_pools
from include.tiering.errors import (
    AirflowApiUnavailableError,
    ConfigRefusedError,
    MetadataUnavailableError,
    SettingError,
)
from tests.doubles.manual_clock import ManualClock
from tests.doubles.memory_configs import MemoryConfigStore
from tests.doubles.memory_pools import MemoryMirror, MemoryPools, usage

COPIER = "remote.log.manager.copier.thread.pool.size"
EXPIRATION = "remote.log.manager.expiration.thread.pool.size"


def _resize(
    pools: MemoryPools,
    mirror: MemoryMirror,
    changes: Mapping[str, str | None],
    entity: ConfigEntity = ALL_BROKERS,
) -> AlteredConfigs:
    return resize_pools(
        entity, changes, pools=pools, mirror=mirror, store=MemoryConfigStore(), clock=ManualClock(), author="ada"
    )


def test_airflow_is_told_first_and_the_change_carries_its_author() -> None:
    pools, mirror = MemoryPools(2), MemoryMirror()
    altered = _resize(pools, mirror, {COPIER: "4", EXPIRATION: "1"})
    assert pools.resized == [(COPIER_POOL, 4), (EXPIRATION_POOL, 1)]
    assert mirror.changes == [(COPIER_POOL, 2, 4, "ada"), (EXPIRATION_POOL, 2, 1, "ada")]
    assert [(change.name, change.old_value, change.new_value) for change in altered.changes] == [
        (COPIER, "2", "4"),
        (EXPIRATION, "2", "1"),
    ]


def test_with_nothing_waiting_growing_starts_nothing() -> None:
    notes = _resize(MemoryPools(3), MemoryMirror(), {COPIER: "4"}).notes
    assert notes == ("remote_log_copier has 4 slots: 0 in use, nothing waits",)


def test_a_size_that_is_so_already_is_no_change() -> None:
    pools, mirror = MemoryPools(2), MemoryMirror()
    assert _resize(pools, mirror, {COPIER: "2"}).changes == ()
    assert (pools.resized, mirror.changes) == ([], [])


@pytest.mark.parametrize(
    ("slots", "note"),
    [
        ("0", "remote_log_copier is paused: 3 running end after their segment, 5 wait until it has slots"),
        ("2", "remote_log_copier has 2 slots: 1 of 3 running end after their segment"),
        ("4", "remote_log_copier has 4 slots: 1 of 5 waiting start"),
        ("99", "remote_log_copier has 99 slots: 5 of 5 waiting start"),
    ],
)
def test_what_follows_is_said_in_numbers(slots: str, note: str) -> None:
    pools = MemoryPools(3)
    pools.known[COPIER_POOL] = usage(3, running=2, queued=1, scheduled=5)
    assert _resize(pools, MemoryMirror(), {COPIER: slots}).notes == (note,)


@pytest.mark.parametrize(("slots", "warned"), [("4", False), ("5", True), ("3", False)])
def test_more_slots_than_the_executor_runs_is_warned_about(slots: str, warned: bool) -> None:
    notes = _resize(MemoryPools(4, parallelism=4), MemoryMirror(), {COPIER: slots}).notes
    assert ("the executor runs 4 tasks at once" in notes[-1]) is warned


def test_an_airflow_that_was_changed_meanwhile_is_written_down_as_such() -> None:
    pools, mirror = MemoryPools(2), MemoryMirror()
    _resize(pools, mirror, {COPIER: "2"})
    pools.known[COPIER_POOL] = usage(7)
    _resize(pools, mirror, {COPIER: "3"})
    assert mirror.changes == [(COPIER_POOL, 2, 7, "unknown"), (COPIER_POOL, 7, 3, "ada")]


@pytest.mark.parametrize(
    ("changes", "entity", "error"),
    [
        ({COPIER: "-1"}, ALL_BROKERS, SettingError),
        ({COPIER: "many"}, ALL_BROKERS, SettingError),
        ({COPIER: None}, ALL_BROKERS, ConfigRefusedError),
        ({COPIER: "3"}, ConfigEntity(EntityType.BROKERS, "1"), SettingError),
        ({COPIER: "3"}, ConfigEntity(EntityType.TOPICS), SettingError),
    ],
)
def test_what_makes_no_sense_changes_nothing(
    changes: Mapping[str, str | None], entity: ConfigEntity, error: type[Exception]
) -> None:
    pools = MemoryPools(2)
    with pytest.raises(error):
        _resize(pools, MemoryMirror(), {EXPIRATION: "9", **changes}, entity)
    assert pools.resized == []


def test_a_pool_that_airflow_lost_is_not_made_here() -> None:
    pools = MemoryPools(2)
    del pools.known[COPIER_POOL]
    with pytest.raises(ConfigRefusedError, match="Airflow has no pool remote_log_copier"):
        _resize(pools, MemoryMirror(), {EXPIRATION: "9", COPIER: "3"})
    assert pools.resized == []


def test_a_crash_between_airflow_and_the_mirror_is_found_by_the_next_look() -> None:
    """The crash table's second row."""
    pools, mirror = MemoryPools(2), MemoryMirror()
    _resize(pools, mirror, {COPIER: "2"})

    class Dying(MemoryMirror):
        def record(self, pool: str, slots: int, *, seen: int | None, author: str) -> bool:
            if author == "ada":
                raise MetadataUnavailableError("away")
            return mirror.record(pool, slots, seen=seen, author=author)

        def seen(self):
            return mirror.seen()

    with pytest.raises(MetadataUnavailableError):
        _resize(pools, Dying(), {COPIER: "5"})
    pools.editors[COPIER_POOL, 5] = "tiering-operator"
    assert _resize(pools, mirror, {COPIER: "5"}).changes == ()
    assert mirror.changes == [(COPIER_POOL, 2, 5, "tiering-operator (Airflow)")]


def test_nothing_is_stored_that_airflow_has_not_taken() -> None:
    pools, mirror = MemoryPools(2), MemoryMirror()
    pools.fails = AirflowApiUnavailableError("away")
    with pytest.raises(AirflowApiUnavailableError):
        _resize(pools, mirror, {COPIER: "5"})
    assert mirror.known == {}


def test_pools_and_other_configs_are_changed_one_after_the_other() -> None:
    assert asks_for_pools({COPIER: "3"})
    assert not asks_for_pools({"queued.max.requests": "3"})
    with pytest.raises(SettingError, match="one after the other"):
        asks_for_pools({COPIER: "3", "queued.max.requests": "3"})
