"""`take-over-store`, `relocate-store`, and commands that only show, over real files and a real database."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

from include.tiering.cli import operations
from tests.doubles.orphans import plant_orphan
from tests.doubles.tiny_deployment import TinyDeployment


@pytest.fixture
def deployment(tmp_path: Path) -> TinyDeployment:
    made = TinyDeployment(tmp_path)
    made.copied(3)
    return made


@pytest.fixture(scope="module")
def unchanged(tmp_path_factory: pytest.TempPathFactory) -> TinyDeployment:
    """For commands that only look."""
    made = TinyDeployment(tmp_path_factory.mktemp("deployment"))
    made.copied(3)
    plant_orphan(made.store)
    made.run("audit")
    for topic in ("orders", "orders", "orders"):
        made.run("pause", "--topic", topic)
        made.run("resume", "--topic", topic)
    return made


def document(done: Result, code: int = 0) -> Any:
    assert done.exit_code == code, done.output
    return json.loads(done.stdout)


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Answers that a person gives, and then the questions."""
    answers: list[str] = []

    def asked(question: str) -> str | None:
        answers.append(question)
        return None if answers.pop(0) == "yes" else "not confirmed"

    monkeypatch.setattr(operations, "refusal_of", asked)
    return answers


def behind(deployment: TinyDeployment, tmp_path: Path) -> None:
    """The database is set back: it was restored, and the store has a later generation since."""
    shutil.copy(tmp_path / "tiering.sqlite", tmp_path / "backup.sqlite")
    for _ in range(2):
        deployment.run("pause")
        deployment.run("resume")
    for file in tmp_path.glob("tiering.sqlite-*"):
        file.unlink()
    shutil.copy(tmp_path / "backup.sqlite", tmp_path / "tiering.sqlite")


def test_a_store_that_is_ours_is_taken_over_without_a_question(deployment: TinyDeployment, terminal: list[str]) -> None:
    taken = document(deployment.run("take-over-store", "--json"))
    assert (taken["marker"]["generation"], taken["nothing_published"]) == (taken["found"]["generation"] + 1, False)
    assert terminal == []


def test_a_store_of_a_later_generation_is_taken_over_once_somebody_agreed(
    deployment: TinyDeployment, tmp_path: Path, terminal: list[str]
) -> None:
    behind(deployment, tmp_path)
    terminal.append("no")
    refused = document(deployment.run("take-over-store", "--json"), 1)
    assert (refused["marker"], refused["refusal"]) == (None, "not confirmed")
    assert refused["found"]["generation"] > refused["ours"]["generation"]
    (question,) = terminal
    assert "Let this database own the store?" in question
    terminal[:] = ["yes"]
    taken = document(deployment.run("take-over-store", "--json"))
    assert taken["marker"]["generation"] == refused["found"]["generation"] + 1
    assert (taken["refusal"], taken["nothing_published"]) == (None, False)


def test_with_an_approval_nobody_is_asked(deployment: TinyDeployment, tmp_path: Path, terminal: list[str]) -> None:
    behind(deployment, tmp_path)
    taken = document(deployment.run("take-over-store", "--approve", "--nothing-published", "--json"))
    assert (taken["nothing_published"], terminal) == (True, [])


def test_that_nothing_was_published_is_asked_even_of_the_owner(deployment: TinyDeployment, terminal: list[str]) -> None:
    terminal.append("yes")
    taken = document(deployment.run("take-over-store", "--nothing-published", "--json"))
    assert taken["nothing_published"] is True
    (question,) = terminal
    assert question.startswith("Do brokers know only segments of this store")


def moved(deployment: TinyDeployment, tmp_path: Path) -> str:
    target = tmp_path / "moved"
    shutil.copytree(deployment.store, target)
    deployment.set_environ(TIERING_REMOTE_STORAGE__URL=target.as_uri())
    return target.as_uri()


def test_a_store_moves_once_somebody_agreed(deployment: TinyDeployment, tmp_path: Path, terminal: list[str]) -> None:
    url = moved(deployment, tmp_path)
    terminal.append("no")
    refused = document(deployment.run("relocate-store", "--json"), 1)
    assert (refused["marker"], refused["refusal"], refused["to"]["url"]) == (None, "not confirmed", url)
    assert "Use this place from now on?" in terminal[0]
    terminal[:] = ["yes"]
    done = document(deployment.run("relocate-store", "--json"))
    assert (done["refusal"], done["segments"], done["looked_at"], done["wrong"]) == (None, 3, 3, 0)
    assert done["marker"]["generation"] > 0
    terminal.clear()
    # It is there: nobody is asked again.
    assert document(deployment.run("relocate-store", "--json"))["refusal"] is None
    assert terminal == []


def test_a_store_that_lacks_a_segment_does_not_move_whatever_somebody_says(
    deployment: TinyDeployment, tmp_path: Path, terminal: list[str]
) -> None:
    moved(deployment, tmp_path)
    next((tmp_path / "moved").rglob("*.log")).unlink()
    refused = document(deployment.run("relocate-store", "--approve", "--json"), 1)
    assert (refused["marker"], refused["wrong"], len(refused["missing"])) == (None, 1, 1)
    assert "1 of 3 checked segments" in refused["refusal"]
    assert terminal == []


@pytest.mark.parametrize(("flags", "shown"), [((), 6), (("--last", "2"), 2), (("--last", "1"), 1)], ids=str)
def test_the_newest_events_come_first(unchanged: TinyDeployment, flags: tuple[str, ...], shown: int) -> None:
    events = document(unchanged.run("events", "--json", *flags))["events"]
    assert len(events) >= shown
    assert len(events) == shown or not flags
    times = [one["occurred_at_ms"] for one in events]
    assert times == sorted(times, reverse=True)
    assert all("@" in one["author"] for one in events[:shown])


def test_what_waits_for_a_person_is_a_finding(unchanged: TinyDeployment) -> None:
    waiting = document(unchanged.run("attention", "--json"), 1)
    assert (waiting["total"], waiting["more_findings"]) == (2, 0)
    assert [finding["kind"] for finding in waiting["findings"]] == ["orphan", "orphan"]
    assert (waiting["approvals"], waiting["failed"], waiting["handovers"]) == ([], [], [])


def test_throughput_goes_as_far_back_as_is_asked(unchanged: TinyDeployment) -> None:
    for flags, hours in (((), 6), (("--hours", "1"), 1)):
        shown = document(unchanged.run("throughput", "--json", *flags))
        assert (shown["until_ms"] - shown["since_ms"]) // 3_600_000 in (hours, hours - 1)


@pytest.mark.parametrize(("quota", "asked"), [("1MiB", 1_048_576), ("0", None)])
def test_a_backfill_is_shown_at_another_quota(unchanged: TinyDeployment, quota: str, asked: int | None) -> None:
    shown = document(unchanged.run("backfill", "--json", "--quota", quota))
    assert (shown["bytes"], shown["segments"], shown["is_asked"]) == (0, 0, True)
    assert shown["asked_quota"] == asked


def test_without_another_quota_none_is_shown(unchanged: TinyDeployment) -> None:
    assert document(unchanged.run("backfill", "--json"))["is_asked"] is False
