"""Damage to what a decision left, and to the segment that straddles it: it is named, and neither the copy nor a reader
of what is followed waits for it."""

from pathlib import Path
from typing import Any

import pytest

from tests.doubles.two_histories import NEW, NEW_BASES, Cluster, evaluate_plainly, offsets

pytestmark = pytest.mark.integration


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    """The source is followed from offset 35 on; both histories are copied and verified."""
    evaluate_plainly(monkeypatch)
    cluster = Cluster(tmp_path)
    cluster.elect_unclean()
    cluster.run("plan")
    assert cluster.decide(35, "--approve")[0] == 0
    assert cluster.run("copy")[0] == 0
    assert cluster.run("verify")[0] == 0
    return cluster


def verify_deeply(cluster: Cluster) -> Any:
    return cluster.run("verify", "--share", "1", "--depth", "deep")


def damage(cluster: Cluster, base: int, *, newest: bool = False) -> None:
    """The log object of the first or of the last copy from this offset loses its end."""
    copies = sorted((cluster.directory / "store").rglob(f"{base:020d}-*.log"), key=lambda one: one.stat().st_mtime_ns)
    path = copies[-1 if newest else 0]
    path.chmod(0o644)
    path.write_bytes(path.read_bytes()[:-7])


def roll_more(cluster: Cluster) -> None:
    """The segment that was active has rolled."""
    cluster.writes(NEW, (*NEW_BASES, 100), 104)


def lose_database(cluster: Cluster) -> Any:
    cluster.config.write_text(cluster.config.read_text().replace("metadata.sqlite", "new.sqlite"))
    return cluster.run("rebuild", "--approve")


@pytest.mark.parametrize(("base", "epoch"), [(40, 0), (30, 0), (50, 4)])
def test_damage_in_what_was_left_is_named_and_holds_no_copy(cluster: Cluster, base: int, epoch: int) -> None:
    damage(cluster, base)
    code, document = verify_deeply(cluster)
    (failed,) = document["not_served"]
    assert (code, failed["start_offset"], failed["was_left"], failed["lost_because"]) == (1, base, True, None)
    code, said = cluster.text("verify")
    assert "of a history that a decision replaced: it stops no partition" in " ".join(said.split())
    roll_more(cluster)
    for command in ("plan", "copy"):
        code, document = cluster.run(command)
        assert (code, document["held_back"]) == (0, [])
    assert [one["start_offset"] for one in document["copied"]] == [91]
    code, said = cluster.text("doctor", "orders")
    assert code == 0
    assert f"offsets {base}..{base + 9} of a history that a decision has replaced failed" in " ".join(said.split())
    code, said = cluster.text("skip", "orders", "--partition", "0", "--reason", "x", "--approve")
    assert (code, "nothing to skip" in said) == (0, True)
    asked = ("--offset", str(max(35, base)), "--epoch", str(epoch))
    code, said = cluster.text("fetch", "orders", "0", "--output", str(cluster.directory / "x"), *asked)
    assert (code, "its verdict is failed" in said, "skipped" in said) == (1, True, False)


def test_what_is_followed_answers_beside_damage_in_what_was_left(cluster: Cluster) -> None:
    damage(cluster, 40)
    verify_deeply(cluster)
    found, document = cluster.read(45)
    assert ({epoch for epoch, _ in found}, document["next_offset"]) == ({6}, 91)
    code, document = cluster.run("fetch", "orders", "0", "--output", str(cluster.directory / "all"))
    left = [one for one in document["segments"] if one["by_decision"]]
    assert (code, [one["start_offset"] for one in left]) == (0, [40, 50, 60])
    assert "its verdict is failed" in left[0]["refused"]


def test_the_followed_copy_answers_for_offsets_below_the_divergence(cluster: Cluster) -> None:
    damage(cluster, 30)
    verify_deeply(cluster)
    found, document = cluster.read(30)
    assert (offsets(found, 0), offsets(found, 6)[0], document["next_offset"]) == ([30], 35, 91)
    found, document = cluster.read(20)
    assert ({epoch for epoch, _ in found}, document["next_offset"]) == ({0}, 35)
    assert cluster.read(36)[0][0] == (6, 35)
    asked = ("--offset", "36", "--epoch", "0")
    code, said = cluster.text("fetch", "orders", "0", "--output", str(cluster.directory / "x"), *asked)
    assert (code, "its verdict is failed" in said) == (1, True)


def test_below_where_the_source_is_followed_its_other_records_answer_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Followed from 56 on by a segment of 52..64: for 53 the record of the left history was the answer, and is gone."""
    evaluate_plainly(monkeypatch)
    cluster = Cluster(tmp_path)
    cluster.elect_unclean()
    cluster.run("plan")
    cluster.elect_unclean(56)
    assert cluster.decide(56, "--approve")[0] == 0
    assert cluster.run("copy")[0] == 0
    damage(cluster, 50)
    assert verify_deeply(cluster)[0] == 1
    for offset in ("50", "53"):
        asked = ("--offset", offset)
        code, said = cluster.text("fetch", "orders", "0", "--output", str(cluster.directory / "x"), *asked)
        assert (code, "its verdict is failed" in said) == (1, True)
    assert cluster.read(48)[1]["next_offset"] == 50
    assert cluster.read(56)[0][0][0] == 6
    assert cluster.run("plan")[1]["held_back"] == []
    code, said = cluster.text("doctor", "orders")
    assert (code, "offsets 50..59 of a history that a decision has replaced" in " ".join(said.split())) == (0, True)


def test_damage_in_what_is_followed_is_copied_anew_as_ever(cluster: Cluster) -> None:
    damage(cluster, 30, newest=True)
    damage(cluster, 52, newest=True)
    assert verify_deeply(cluster)[0] == 1
    code, document = cluster.run("copy")
    assert (code, [one["start_offset"] for one in document["copied"]]) == (0, [30, 52])
    assert cluster.run("verify")[0] == 0
    assert cluster.read(35)[1]["next_offset"] == 91


@pytest.mark.parametrize("base", [30, 40, 50])
def test_a_rebuild_names_what_is_missing_of_the_history_that_was_left(cluster: Cluster, base: int) -> None:
    damage(cluster, base)
    code, report = lose_database(cluster)
    (rebuilt,) = report["partitions"]
    assert (code, rebuilt["holes"], [one["start_offset"] for one in report["failed"]]) == (1, [], [base])
    (followed,) = rebuilt["followed"]
    missing = {"first_offset": max(35, base), "last_offset": base + 9}
    assert (followed["from_offset"], followed["missing"]) == (35, [missing])
    assert cluster.run("verify")[0] == 0
    roll_more(cluster)
    for command in ("plan", "copy"):
        code, document = cluster.run(command)
        assert (code, document["held_back"]) == (0, [])
    assert cluster.text("doctor", "orders")[0] == 0
    code, said = cluster.text("skip", "orders", "--partition", "0", "--reason", "x", "--approve")
    assert (code, "nothing to skip" in said) == (0, True)
    for offset in (36, 45):
        found, document = cluster.read(offset)
        assert ({epoch for epoch, _ in found}, document["next_offset"]) == ({6}, 91)
    assert cluster.read(30)[0][0] == (0, 30)
    assert {epoch for epoch, _ in cluster.read(62, "--epoch", "4")[0]} == {4}
    before, document = cluster.read(0)
    assert ({epoch for epoch, _ in before}, document["next_offset"]) == ({0}, 35)


def test_damage_before_a_decision_is_no_loss_of_what_will_be_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    evaluate_plainly(monkeypatch)
    cluster = Cluster(tmp_path)
    damage(cluster, 40)
    assert verify_deeply(cluster)[0] == 1
    cluster.elect_unclean()
    for _ in range(2):
        code, document = cluster.run("plan")
        (held,) = document["held_back"]
        assert (code, held["next_offset"], held["follow_from"]) == (1, 35, 35)
    code, said = cluster.text("skip", "orders", "--partition", "0", "--reason", "x", "--approve")
    assert (code, "nothing to skip" in said) == (1, True)
    assert cluster.decide(35, "--approve")[0] == 0
    assert cluster.run("copy")[0] == 0
    assert verify_deeply(cluster)[0] == 1
    assert cluster.read(45)[1]["next_offset"] == 91
