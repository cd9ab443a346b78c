"""Pools are created once, never overwritten, and mirrored while batches run."""

import threading

import pytest
from airflow.models.pool import Pool
from airflow.utils.session import create_session

from include.tiering.configs.pools import POOLS
from include.tiering.errors import AirflowApiUnavailableError, MetadataUnavailableError
from plugins.tiering_airflow.pools import COPIER_POOL, PoolMirroring, create_missing_pools, suitable_slots
from tests.doubles.airflow_home import airflow_database
from tests.doubles.patience import PATIENCE_SECONDS


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


class _Mirror:
    """Does as the script says, one step per call and the last one for ever; an exception is raised."""

    def __init__(self, *steps: Exception | None) -> None:
        self._steps = list(steps)
        self.calls = 0
        self.exhausted = threading.Event()

    def __call__(self) -> None:
        self.calls += 1
        step = self._steps.pop(0) if len(self._steps) > 1 else self._steps[0]
        if len(self._steps) == 1:
            self.exhausted.set()
        if step is not None:
            raise step


def test_sizes_are_mirrored_at_once_and_again() -> None:
    mirror = _Mirror(None, None, None, None)
    with PoolMirroring(mirror, period_seconds=0.01).running():
        assert mirror.calls >= 1
        assert mirror.exhausted.wait(PATIENCE_SECONDS)


def test_a_database_that_was_away_gets_the_sizes_later(caplog: pytest.LogCaptureFixture) -> None:
    mirror = _Mirror(MetadataUnavailableError("locked"), MetadataUnavailableError("locked"), None, None)
    with PoolMirroring(mirror, period_seconds=0.01).running():
        assert mirror.exhausted.wait(PATIENCE_SECONDS)
    assert [record.message for record in caplog.records] == ["Sizes of the pools are not mirrored: locked"]


def test_airflow_away_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    mirroring = PoolMirroring(_Mirror(AirflowApiUnavailableError("away")))
    for _ in range(3):
        mirroring.refresh()
    assert [record.message for record in caplog.records] == ["Sizes of the pools are not mirrored: away"]
