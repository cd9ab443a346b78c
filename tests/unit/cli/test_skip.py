"""`./tiering skip` shows what is lost for ever, and records it only if somebody agrees."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from typer.testing import Result

from include.tiering.cli import command
from include.tiering.cli.command import author
from include.tiering.copying.decisions import Skip
from include.tiering.copying.plan import HeldBack, HeldBackPartition
from include.tiering.errors import StateConflictError
from include.tiering.model.histories import OffsetRange, SkippedOffsets
from include.tiering.segments.failed_copies import Loss
from tests.doubles import sample_values as sample
from tests.doubles.fake_app import FakeApp

Run = Callable[..., Result]
ARGUMENTS = ("skip", "orders", "--partition", "0", "--reason", "agreed")
LOST = "orders-0: 100 offsets, 100..199, will be missing from the archive for ever"


def called(app: FakeApp) -> list[str]:
    return [method for method, _ in app.calls]


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> Callable[[bool], list[str]]:
    """On a terminal, where somebody says yes or no; returns what was asked."""

    def answering(yes: bool) -> list[str]:
        asked: list[str] = []

        def agrees(question: str) -> bool:
            asked.append(question)
            return yes

        monkeypatch.setattr(command, "is_asked_on_a_terminal", lambda: True)
        monkeypatch.setattr(command, "agrees", agrees)
        return asked

    return answering


def test_without_a_terminal_it_needs_to_be_agreed_in_advance(run: Run, app: FakeApp) -> None:
    result = run(*ARGUMENTS)
    assert result.exit_code == 1
    assert f"nothing is skipped: without a terminal it needs --approve. {LOST}" in result.stdout
    assert called(app) == ["plan_skip"]


def test_agreed_in_advance_it_is_recorded(run: Run, app: FakeApp) -> None:
    result = run(*ARGUMENTS, "--topic-id", "AAA", "--approve")
    assert result.exit_code == 0
    assert f"recorded: {LOST}; the next copy begins at 200" in result.stdout
    assert app.calls == [
        ("plan_skip", {"topic": "orders", "partition": 0, "topic_id": "AAA"}),
        ("skip_offsets", {"planned": app.skip, "reason": "agreed"}),
    ]
    assert app.settings.topics.include == ("orders",)


def test_of_a_topic_whose_name_another_one_has_nothing_is_skipped(run: Run, app: FakeApp) -> None:
    earlier = SkippedOffsets(OffsetRange(10, 19), "lost", "me@host", 5)
    app.skip = Skip(sample.ORDERS_0, None, decisions=(earlier,), is_shown=False)
    result = run(*ARGUMENTS, "--approve")
    assert result.exit_code == 1
    assert "nothing can be skipped: in the source another topic has this name" in result.stdout
    assert "10..19" in result.stdout


@pytest.mark.parametrize(("yes", "code", "recorded"), [(True, 0, True), (False, 1, False)])
def test_on_a_terminal_it_asks(
    run: Run, app: FakeApp, answers: Callable[[bool], list[str]], yes: bool, code: int, recorded: bool
) -> None:
    asked = answers(yes)
    assert run(*ARGUMENTS).exit_code == code
    assert asked == [f"{LOST}. Continue without them?"]
    assert ("skip_offsets" in called(app)) is recorded


def test_failed_segments_are_asked_about_with_what_becomes_of_them(
    run: Run, app: FakeApp, answers: Callable[[bool], list[str]]
) -> None:
    segment_id = sample.segment_row().metadata.remote_log_segment_id
    losses = tuple(Loss(segment_id, OffsetRange(*offsets), "gone") for offsets in ((0, 9), (50, 59)))
    held = HeldBackPartition(sample.ORDERS_0, 0, HeldBack.LOST, "details", lost=losses)
    app.skip, asked = Skip(sample.ORDERS_0, None, held, lost=losses), answers(True)
    assert run(*ARGUMENTS).exit_code == 0
    (question,) = asked
    assert question.startswith("orders-0: 20 offsets, 0..9, 50..59, will be missing from the archive: 2 segments that")
    assert question.endswith("failed the quality gate, kept and not served (gone; gone). Continue without them?")
    assert "skip_offsets" in called(app)


def test_a_replica_that_still_has_some_is_part_of_the_question(
    run: Run, app: FakeApp, answers: Callable[[bool], list[str]]
) -> None:
    app.skip = replace(app.skip, elsewhere=(2, 3))
    asked = answers(False)
    run(*ARGUMENTS)
    assert "some of them are still on broker 2 and broker 3, but a copy reads only the leader's replica" in asked[0]


def test_with_nothing_to_skip_it_says_so_and_asks_nobody(
    run: Run, app: FakeApp, answers: Callable[[bool], list[str]]
) -> None:
    app.skip, asked = Skip(sample.ORDERS_0, None), answers(True)
    result = run(*ARGUMENTS)
    assert (result.exit_code, asked) == (0, [])
    assert result.stdout.strip() == "orders-0: there is nothing to skip"


@pytest.mark.parametrize(("reason", "code"), [(HeldBack.NOT_ELIGIBLE, 0), (HeldBack.DIVERGENCE, 1)])
def test_what_the_partition_waits_for_instead_is_said(run: Run, app: FakeApp, reason: HeldBack, code: int) -> None:
    app.skip = Skip(sample.ORDERS_0, None, HeldBackPartition(sample.ORDERS_0, 50, reason, "details"))
    result = run(*ARGUMENTS)
    assert result.exit_code == code
    assert f"nothing to skip; from offset 50 it waits: {reason}: details" in result.stdout


def test_a_copy_that_went_on_meanwhile_is_told(run: Run, app: FakeApp, monkeypatch: pytest.MonkeyPatch) -> None:
    def conflict(*_: object, **__: object) -> Skip:
        raise StateConflictError("orders-0: offsets 100..199 are not the next ones")

    monkeypatch.setattr(app.copying, "skip_offsets", conflict)
    result = run(*ARGUMENTS, "--approve")
    assert result.exit_code == 1
    assert "not the next ones" in result.stderr


def test_a_reason_is_asked_for(run: Run) -> None:
    assert run("skip", "orders", "--partition", "0").exit_code == 2


def test_the_document(document: Callable[..., Any], app: FakeApp) -> None:
    hole = {"first_offset": 100, "last_offset": 199, "offsets": 100}
    refused = document(*ARGUMENTS)
    assert refused == {
        **sample.LABELS,
        **hole,
        "lost": [],
        "elsewhere": [],
        "waits": None,
        "refusal": "without a terminal it needs --approve",
        "recorded": [],
    }
    decision = {**hole, "reason": "agreed", "author": author(), "recorded_at_ms": 1_700_000_000_000}
    assert document(*ARGUMENTS, "--approve") == {**refused, "refusal": None, "recorded": [decision]}
    app.skip = Skip(sample.ORDERS_0, None)
    assert document(*ARGUMENTS)["first_offset"] is None


def test_what_was_decided_before_is_shown(run: Run, app: FakeApp) -> None:
    earlier = SkippedOffsets(OffsetRange(10, 19), "lost in the move", "you@host", 5)
    app.skip = Skip(sample.ORDERS_0, None, decisions=(earlier,))
    title, _, _, row, *_ = run(*ARGUMENTS).stdout.splitlines()
    assert title == "orders-0, skipped"
    assert " ".join(row.split()) == "10..19 10 1970-01-01 00:00:00 UTC you@host lost in the move"


FOLLOW = (*ARGUMENTS, "--follow-source-from", "200")
MEANS = (
    "orders-0: offsets 150..299 are remote under other leader epochs than the source has (epochs 0, 4; source: epoch"
    " 6); from offset 200 on the archive follows the source; offsets 200..299 stay as they are, for readers that"
    " give a leader epoch; 50 offsets of the source's history, 150..199, will be missing from the archive for ever"
)


def test_what_following_the_source_means_is_said_before_it_is_agreed(run: Run, app: FakeApp) -> None:
    result = run(*FOLLOW)
    assert result.exit_code == 1
    assert f"nothing is decided: without a terminal it needs --approve. {MEANS}" in result.stdout
    where = {"topic": "orders", "partition": 0, "from_offset": 200, "topic_id": None}
    assert app.calls == [("plan_follow", where)]


@pytest.mark.parametrize(("yes", "code", "recorded"), [(True, 0, True), (False, 1, False)])
def test_following_the_source_is_asked_for_on_a_terminal(
    run: Run, app: FakeApp, answers: Callable[[bool], list[str]], yes: bool, code: int, recorded: bool
) -> None:
    asked = answers(yes)
    assert run(*FOLLOW).exit_code == code
    assert asked == [f"{MEANS}. Follow the source?"]
    assert ("follow_source" in called(app)) is recorded


def test_following_the_source_is_recorded(run: Run, document: Callable[..., Any], app: FakeApp) -> None:
    result = run(*FOLLOW, "--approve")
    assert (result.exit_code, f"recorded: {MEANS}; the next copy continues there" in result.stdout) == (0, True)
    assert ("follow_source", {"planned": app.follow, "reason": "agreed"}) in app.calls
    assert document(*FOLLOW, "--approve") == {
        **sample.LABELS,
        "from_offset": 200,
        "diverges": {
            "first_offset": 150,
            "last_offset": 299,
            "archive_epochs": [0, 4],
            "source_epochs": [6],
            "seen_by": "plan",
        },
        "kept": {"first_offset": 200, "last_offset": 299},
        "missing": {"first_offset": 150, "last_offset": 199},
        "refusal": None,
        "decided": {"history": 1, "reason": "agreed", "author": author(), "decided_at_ms": 1_700_000_000_000},
    }
