"""The mirror follows Airflow, and a size that somebody changed there is written down with who it was."""

import pytest

from include.tiering.configs.pools import COPIER_POOL, EXPIRATION_POOL, READER_POOL, mirror_pools
from include.tiering.errors import AirflowApiError, AirflowApiUnavailableError
from tests.doubles.memory_pools import MemoryMirror, MemoryPools, usage


def test_all_three_are_mirrored_and_the_first_look_is_no_change() -> None:
    mirror = MemoryMirror()
    mirror_pools(MemoryPools(3), mirror)
    assert {name: seen.slots for name, seen in mirror.known.items()} == {
        COPIER_POOL: 3,
        EXPIRATION_POOL: 3,
        READER_POOL: 3,
    }
    assert mirror.changes == []


@pytest.mark.parametrize(("editors", "author"), [({}, "unknown"), ({(COPIER_POOL, 6): "ada"}, "ada (Airflow)")])
def test_a_change_made_in_airflow_is_noticed_once(editors: dict[tuple[str, int], str], author: str) -> None:
    pools, mirror = MemoryPools(2), MemoryMirror()
    mirror_pools(pools, mirror)
    pools.known[COPIER_POOL] = usage(6)
    pools.editors = editors
    for _ in range(2):
        mirror_pools(pools, mirror)
    assert mirror.changes == [(COPIER_POOL, 2, 6, author)]


def test_a_log_that_cannot_be_read_does_not_hold_the_size_up() -> None:
    pools, mirror = MemoryPools(2), MemoryMirror()
    mirror_pools(pools, mirror)
    pools.known[COPIER_POOL] = usage(0)
    pools.log_fails = AirflowApiError("403")
    mirror_pools(pools, mirror)
    assert mirror.changes == [(COPIER_POOL, 2, 0, "unknown")]


def test_without_airflow_nothing_is_forgotten() -> None:
    pools, mirror = MemoryPools(2), MemoryMirror()
    mirror_pools(pools, mirror)
    pools.fails = AirflowApiUnavailableError("away")
    with pytest.raises(AirflowApiUnavailableError):
        mirror_pools(pools, mirror)
    assert mirror.known[COPIER_POOL].slots == 2


def test_an_answer_that_was_overtaken_is_dropped() -> None:
    """Airflow was asked, then somebody resized the pool and wrote it down; the old answer comes last."""
    pools, mirror = MemoryPools(2), MemoryMirror()
    mirror_pools(pools, mirror)

    class Slow(MemoryPools):
        def usages(self):
            answer = super().usages()
            mirror.record(COPIER_POOL, 4, seen=2, author="ada")
            return answer

    mirror_pools(Slow(2), mirror)
    assert mirror.known[COPIER_POOL].slots == 4
    assert mirror.changes == [(COPIER_POOL, 2, 4, "ada")]
