"""Two histories of one partition: copied, verified, expired and rebuilt."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from include.tiering.cli.command import author
from include.tiering.cli.exit_codes import ExitCode
from include.tiering.expiration.delete_segments import SegmentDeleter
from tests.doubles.two_histories import BACK, BACK_BASES, BACK_END, DIVERGENCE, WHY, Cluster, evaluate_plainly, offsets

# An unclean election over copied records, by the command line: it is named whatever the source forgets, a person
# decides, and what is read back is one history.

pytestmark = pytest.mark.integration


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    evaluate_plainly(monkeypatch)
    return Cluster(tmp_path)


@pytest.mark.parametrize("log_start", [0, 56, 70, 95])
def test_what_was_seen_once_is_said_by_every_command(cluster: Cluster, log_start: int) -> None:
    cluster.elect_unclean()
    assert cluster.run("copy")[0] == 1
    cluster.elect_unclean(log_start)
    follow_from = max(35, log_start)
    for command in (["plan"], ["copy"]):
        code, document = cluster.run(*command)
        (held,) = document["held_back"]
        assert (code, held["next_offset"], held["follow_from"]) == (1, 35, follow_from)
        assert held["detail"].startswith(DIVERGENCE)
    code, said = cluster.text("doctor", "orders")
    assert code == 1
    assert DIVERGENCE in " ".join(said.split())
    assert f"--follow-source-from {follow_from}" in " ".join(said.split())
    code, said = cluster.text("skip", "orders", "--partition", "0", "--reason", WHY, "--approve")
    assert (code, "nothing to skip" in said) == (1, True)
    found, document = cluster.read(33)
    assert {epoch for epoch, _ in found} == {0, 4}
    assert document["said"] == [f"{DIVERGENCE}; no decision about it is recorded"]


def test_by_decision_one_history_is_read_and_the_other_one_by_its_epoch(cluster: Cluster) -> None:
    cluster.elect_unclean()
    cluster.run("plan")
    code, said = cluster.decide(35)
    assert (code, "nothing is decided: without a terminal it needs --approve" in said) == (1, True)
    assert cluster.run("plan")[0] == 1
    code, said = cluster.decide(34, "--approve")
    assert code == 1
    assert "the source can be followed from offset 35 on, not from 34" in said
    code, said = cluster.decide(35, "--approve")
    assert code == 0
    assert "offsets 35..69 stay as they are, for readers that give a leader epoch" in said
    assert cluster.run("copy")[0] == 0
    assert cluster.run("verify")[0] == 0
    assert cluster.text("doctor", "orders")[0] == 0
    # Offsets 30..39 are stored twice: to 34 with the same records, behind that each has what the other one has not.
    code, document = cluster.run("audit")
    assert (code, document["findings"]) == (0, [])

    before, document = cluster.read(0)
    assert offsets(before, 0) == [*range(0, 35, 5)]
    assert (document["next_offset"], {epoch for epoch, _ in before}) == (35, {0})
    behind, document = cluster.read(35)
    assert ({epoch for epoch, _ in behind}, behind[0][1], document["next_offset"]) == ({6}, 35, 91)
    assert f"followed by decision of {author()} ({WHY})" in document["said"][0]
    old, document = cluster.read(40, "--epoch", "0")
    assert ({epoch for epoch, _ in old}, document["next_offset"]) == ({0, 4}, 70)
    assert document["said"][0].startswith("offsets 40..69 are of the history that the source has replaced")

    code, document = cluster.run("fetch", "orders", "0", "--output", str(cluster.directory / "all"))
    left = [one["start_offset"] for one in document["segments"] if one["by_decision"]]
    written = [(one["start_offset"], one["history"]) for one in document["segments"] if one["path"]]
    assert (code, left) == (0, [40, 50, 60])
    assert written == [(0, 0), (10, 0), (20, 0), (30, 1), (30, 0), (40, 1), (52, 1), (65, 1), (78, 1)]
    assert len({one["path"] for one in document["segments"] if one["path"]}) == len(written)


def test_decided_after_the_log_start_passed_both_losses_are_said(cluster: Cluster) -> None:
    cluster.elect_unclean()
    cluster.run("plan")
    cluster.elect_unclean(80)
    code, said = cluster.decide(80, "--approve")
    assert code == 0, said
    assert "45 offsets of the source's history, 35..79, will be missing from the archive for ever" in said
    assert cluster.run("copy")[0] == 0
    assert cluster.run("verify")[0] == 0
    found, document = cluster.read(33)
    assert ({epoch for epoch, _ in found}, document["next_offset"]) == ({0, 4}, 70)
    assert document["said"][0].startswith("offsets 35..69 are of the history that the source has replaced")
    code, said = cluster.text("fetch", "orders", "0", "--output", str(cluster.directory / "x"), "--offset", "75")
    assert (code, "go on at offset 80" in said) == (1, True)
    assert cluster.read(80)[0][0] == (6, 78)


def test_what_is_not_remote_any_more_keeps_nothing_waiting(cluster: Cluster) -> None:
    cluster.elect_unclean()
    cluster.run("plan")
    assert cluster.run("delete-records", "orders", "--partition", "0", "--before-offset", "70", "--approve")[0] == 0
    assert cluster.run("expire", "--topic", "orders", "--approve")[0] == 0
    assert cluster.run("copy")[0] == 0
    assert cluster.run("verify")[0] == 0
    assert {epoch for epoch, _ in cluster.read(70)[0]} == {6}


# A person decides to follow another history while a batch deletes what had expired of the one that is left.

ORDERS = ("--entity-type", "topics", "--entity-name", "orders")


@pytest.fixture
def diverged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    evaluate_plainly(monkeypatch)
    diverged = Cluster(tmp_path)
    diverged.elect_unclean()
    assert diverged.run("plan")[0] == 1
    return diverged


def set_retention(diverged: Cluster, retention_ms: int) -> None:
    config = f"retention.ms={retention_ms}"
    assert diverged.text("configs", "--alter", *ORDERS, "--add-config", config)[0] == 0


def test_the_followed_history_keeps_the_offsets_of_what_expired_in_the_left_one(
    diverged: Cluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The batch has asked whether its plan holds; then the decision comes; then the log start would rise."""
    real = SegmentDeleter.begin

    def begin_and_decide(deleter: SegmentDeleter, *rest: Any) -> Any:
        begun = real(deleter, *rest)
        monkeypatch.setattr(SegmentDeleter, "begin", real)
        assert diverged.decide(35, "--approve")[0] == 0
        return begun

    monkeypatch.setattr(SegmentDeleter, "begin", begin_and_decide)
    set_retention(diverged, 1)
    assert diverged.text("expire", "--approve")[0] == ExitCode.RETRY
    (warning,) = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert "a person decided to follow another history (number 1, not 0)" in warning
    set_retention(diverged, -1)
    assert diverged.run("copy")[0] == 0
    assert diverged.text("expire", "--approve")[0] == 0
    assert diverged.run("verify")[0] == 0
    assert diverged.read(0)[0][0] == (0, 0), "nothing had gone before the decision"
    assert diverged.read(35)[0][0] == (6, 35)


# An archive of two histories loses its database. The decision is nowhere in the store: nothing of either history is
# lost, and a person decides again.


def stored(cluster: Cluster) -> set[str]:
    store = cluster.directory / "store"
    return {str(path.relative_to(store)) for path in store.rglob("*.log")}


def rebuild(cluster: Cluster) -> int:
    """The database is lost; another one is made from the store."""
    cluster.config.write_text(cluster.config.read_text().replace("metadata.sqlite", "new.sqlite"))
    return cluster.text("rebuild", "--approve")[0]


def test_a_divergence_that_nobody_decided_about_is_seen_again(cluster: Cluster) -> None:
    cluster.elect_unclean()
    cluster.run("plan")
    before = stored(cluster)
    assert rebuild(cluster) == 0
    code, document = cluster.run("plan")
    (held,) = document["held_back"]
    assert (code, held["follow_from"]) == (1, 35)
    assert cluster.run("copy")[0] == 1
    assert cluster.decide(35, "--approve")[0] == 0
    assert cluster.run("copy")[0] == 0
    assert cluster.run("verify")[0] == 0
    assert before < stored(cluster)
    assert {epoch for epoch, _ in cluster.read(35)[0]} == {6}
    assert {epoch for epoch, _ in cluster.read(40, "--epoch", "0")[0]} == {0, 4}


def test_two_histories_in_the_store_are_not_served_as_one(cluster: Cluster) -> None:
    cluster.elect_unclean()
    cluster.run("plan")
    assert cluster.decide(35, "--approve")[0] == 0
    assert cluster.run("copy")[0] == 0
    assert cluster.run("verify")[0] == 0
    before = stored(cluster)
    cluster.config.write_text(cluster.config.read_text().replace("metadata.sqlite", "new.sqlite"))
    code, report = cluster.run("rebuild", "--approve")
    (rebuilt,) = report["partitions"]
    assert (code, rebuilt["holes"], report["left_out"]) == (1, [], [])
    assert [(one["from_offset"], one["replaced_epochs"]) for one in rebuilt["followed"]] == [(35, [0, 4])]
    assert cluster.run("verify")[0] == 0
    require_one_history(cluster, from_offset=35)
    assert stored(cluster) == before


def require_one_history(cluster: Cluster, from_offset: int) -> None:
    """As after a person's decision, and the archive goes on."""
    for command in ("plan", "copy"):
        assert cluster.run(command)[0] == 0
    assert cluster.text("doctor", "orders")[0] == 0
    behind, document = cluster.read(from_offset)
    assert ({epoch for epoch, _ in behind}, document["next_offset"]) == ({6}, 91)
    old, document = cluster.read(40, "--epoch", "0")
    assert ({epoch for epoch, _ in old}, document["next_offset"]) == ({0, 4}, 70)


def test_what_the_source_no_longer_has_when_it_is_followed_is_answered_by_the_old_history(cluster: Cluster) -> None:
    cluster.elect_unclean()
    cluster.run("plan")
    cluster.elect_unclean(80)
    assert cluster.decide(80, "--approve")[0] == 0
    assert cluster.run("copy")[0] == 0
    assert rebuild(cluster) == 1
    assert cluster.run("verify")[0] == 0
    found, document = cluster.read(33)
    assert ({epoch for epoch, _ in found}, document["next_offset"]) == ({0, 4}, 70)
    # The source's own history was cut at its log start, so nothing in the store says that it has replaced these.
    assert document["said"] == []
    require_one_history(cluster, from_offset=80)


# Which leader epochs an archive is measured by behind decisions: after a database was restored, and whoever is read
# in between.

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
