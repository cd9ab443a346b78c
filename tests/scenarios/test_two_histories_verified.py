"""Which leader epochs an archive is measured by behind decisions: after a database was restored, and whoever is read
in between."""

import shutil
from pathlib import Path

import pytest

from tests.doubles.two_histories import BACK, BACK_BASES, BACK_END, Cluster, evaluate_plainly

pytestmark = pytest.mark.integration


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    evaluate_plainly(monkeypatch)
    return Cluster(tmp_path)


LATER_BASES, LATER_END = (0, 10, 20, 30, 40, 52, 65, 78, 91), 100


@pytest.mark.parametrize("later", [[(0, 0), (6, 35), (7, 50)], [(0, 0), (6, 35), (7, 50), (8, 80)]])
def test_what_is_adopted_says_which_history_it_is_of(cluster: Cluster, later: list[tuple[int, int]]) -> None:
    """The source has lost where its epochs began; only the store's copies know it."""
    with_set_back(cluster, later, LATER_BASES, LATER_END)
    assert adopted(cluster, later, LATER_BASES, LATER_END, log_start=80) == [30, 40, 52, 65, 78]
    cluster.require_quiet()


def with_set_back(cluster: Cluster, epochs: list[tuple[int, int]], bases: tuple[int, ...], end: int) -> None:
    """A decision to follow these epochs from offset 35 on, and what was copied behind it, are forgotten."""
    directory = cluster.directory
    shutil.copy(directory / "metadata.sqlite", directory / "backup.sqlite")
    cluster.writes(epochs, bases, end)
    cluster.follow(35)
    cluster.require_quiet()
    for path in directory.glob("metadata.sqlite*"):
        path.unlink()
    shutil.copy(directory / "backup.sqlite", directory / "metadata.sqlite")


def adopted(
    cluster: Cluster, epochs: list[tuple[int, int]], bases: tuple[int, ...], end: int, log_start: int
) -> list[int]:
    """First offsets of the copies that are taken in once somebody has decided again."""
    cluster.writes(epochs, bases, end, log_start)
    assert cluster.run("take-over-store", "--approve")[0] == 0
    code, said = cluster.decide(35, "--approve")
    assert code == 0, said
    code, document = cluster.run("adopt", "--all", "--approve")
    assert code == 0
    return [one["start_offset"] for one in document["adopted"]]


def test_an_old_directory_brings_nothing_back_between_two_decisions(cluster: Cluster) -> None:
    cluster.elect_unclean()
    cluster.follow(35)
    cluster.writes(BACK, BACK_BASES, BACK_END)
    cluster.follow(35)
    again = [*BACK, (12, 100)]
    cluster.writes(again, (*BACK_BASES, 130), 140)
    cluster.follow(100)
    cluster.elect_unclean()
    assert cluster.run("copy")[0] == 1
    cluster.writes(again, (*BACK_BASES, 130), 140)
    cluster.require_quiet()


def test_what_was_decided_about_is_not_asked_about_again(cluster: Cluster) -> None:
    """The first history's leader came back without its beginning; behind the decision another one is elected."""
    cluster.elect_unclean()
    cluster.follow(35)
    cluster.writes(BACK, BACK_BASES, BACK_END, 60)
    cluster.follow(60)
    assert cluster.run("verify")[0] == 0
    cluster.writes([*BACK, (12, 100)], (*BACK_BASES, 130), 140, 60)
    (held,) = cluster.run("plan")[1]["held_back"]
    assert (held["next_offset"], held["follow_from"]) == (100, 100)
    assert held["detail"].startswith("offsets 100..114 are remote under other leader epochs")
    code, said = cluster.decide(100, "--approve")
    assert code == 0
    assert "35" not in said, said
