"""An unclean election over copied records, by the command line: it is named whatever the source forgets, a person
decides, and what is read back is one history."""

from pathlib import Path

import pytest

from include.tiering.cli.command import author
from tests.doubles.two_histories import DIVERGENCE, WHY, Cluster, evaluate_plainly, offsets

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
    assert document["said"] == [f"{DIVERGENCE}; nobody decided about it"]


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
    assert "offsets 35..69 stay as they are, for those who ask by leader epoch" in said
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
    assert f"followed, by {author()} ({WHY})" in document["said"][0]
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
