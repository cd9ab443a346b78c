"""Pools are created once, never overwritten, and mirrored while batches run."""

import threading

import pytest
from airflow.models.pool import Pool
from airflow.utils.session import create_session

from include.tiering.errors import MetadataUnavailableError
from plugins.tiering_airflow.errors import AirflowApiUnavailableError
from plugins.tiering_airflow.pools import (
    COPIER_POOL,
    POOLS,
    UNLIMITED_SLOTS,
    PoolMirror,
    create_missing_pools,
    suitable_slots,
)
from tests.doubles.airflow_home import airflow_database

POOL = "remote_log_copier"


def test_missing_pools_are_created_and_a_changed_size_stays() -> None:
    airflow_database()
    assert set(create_missing_pools(2)) == {pool.name for pool in POOLS}
    with create_session() as session:
        copier = Pool.get_pool(COPIER_POOL, session=session)
        assert (copier.slots, copier.include_deferred) == (2, False)
        copier.slots = 7
    assert create_missing_pools(2) == []
    with create_session() as session:
        assert Pool.get_pool(COPIER_POOL, session=session).slots == 7


@pytest.mark.parametrize(("cpus", "slots"), [(0, 1), (1, 1), (2, 2), (64, 10)])
def test_slots_suit_the_machine(cpus: int, slots: int) -> None:
    assert suitable_slots(cpus) == slots


class _Airflow:
    """Answers with the sizes given, one per question; an exception is raised."""

    def __init__(self, *answers: int | Exception) -> None:
        self._answers = list(answers)
        self.exhausted = threading.Event()

    def slots(self, pool: str) -> int:
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if len(self._answers) == 1:
            self.exhausted.set()
        if isinstance(answer, Exception):
            raise answer
        return answer


def test_size_is_mirrored_at_once_and_again() -> None:
    airflow, written = _Airflow(2, 2, 6, 6), list[tuple[str, int]]()
    mirror = PoolMirror(POOL, read=airflow.slots, write=lambda *pair: written.append(pair), period_seconds=0.01)
    with mirror.running():
        assert written[0] == (POOL, 2)
        assert airflow.exhausted.wait(10)
    assert written[-1] == (POOL, 6)


def test_a_work_store_that_was_away_gets_the_size_later(caplog: pytest.LogCaptureFixture) -> None:
    airflow, arrived = _Airflow(2, 6), threading.Event()
    written: list[int] = []

    def write(_pool: str, slots: int) -> None:
        written.append(slots)
        if len(written) == 2:
            raise MetadataUnavailableError("locked")
        if len(written) == 3:
            arrived.set()

    with PoolMirror(POOL, read=airflow.slots, write=write, period_seconds=0.01).running():
        assert arrived.wait(10)
    assert [record.message for record in caplog.records] == [f"Size of pool {POOL} is not mirrored: locked"]


def test_unlimited_is_a_large_number() -> None:
    written: list[tuple[str, int]] = []
    PoolMirror(POOL, read=_Airflow(-1).slots, write=lambda *pair: written.append(pair)).refresh()
    assert written == [(POOL, UNLIMITED_SLOTS)]


def test_the_last_size_stays_while_airflow_is_away(caplog: pytest.LogCaptureFixture) -> None:
    airflow, written = _Airflow(3, AirflowApiUnavailableError("away")), list[tuple[str, int]]()
    mirror = PoolMirror(POOL, read=airflow.slots, write=lambda *pair: written.append(pair))
    for _ in range(3):
        mirror.refresh()
    assert written == [(POOL, 3)]
    assert [record.message for record in caplog.records] == [f"Size of pool {POOL} is not mirrored: away"]
