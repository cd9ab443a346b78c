"""Whether an answer releases a plan: the right plan, a person who may, a time that can be; and what is asked."""

from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from include.tiering.configs.config_store import ALL_BROKERS
from include.tiering.configs.rules import LoosenedLimit, Loosening
from include.tiering.errors import AnswerRefusedError, ApprovalRequiredError
from include.tiering.runs.approval import (
    CLOCKS_MAY_DIFFER_MS,
    Answer,
    GivenAnswer,
    PlanQuestion,
    QuestionService,
    approval_author,
    approval_question,
    loosened_lines,
)
from include.tiering.runs.deletion_limits import DeletionLimitReport, TopicAction
from tests.doubles.segments import partition_of

MINUTE = 60_000
SHOWN = 1_700_000_000_000
GIVEN = GivenAnswer(Answer.APPROVED, "ada", SHOWN + MINUTE, SHOWN + MINUTE)
QUESTION = PlanQuestion("run manual__1", "run-1", "abc", "Delete?", "body", SHOWN, GIVEN)


def author(
    found: PlanQuestion | None = QUESTION, *, plan_hash: str | None = "abc", approvers: Sequence[str] = ()
) -> str:
    return approval_author(found, asked_in="run manual__1", subject="run-1", plan_hash=plan_hash, approvers=approvers)


def given(**changes: Any) -> PlanQuestion:
    return replace(QUESTION, given=replace(GIVEN, **changes))


@pytest.mark.parametrize("approvers", [(), ("ada",), ("grace", "ada")])
def test_an_approval_of_this_plan_by_who_may_releases_it(approvers: Sequence[str]) -> None:
    assert author(approvers=approvers) == "ada (run manual__1, answered 2023-11-14 22:14:20 UTC)"


@pytest.mark.parametrize(
    "found",
    [
        None,
        replace(QUESTION, shown_at_ms=None),
        replace(QUESTION, given=None),
        given(user_id=None, answer=Answer.REJECTED),
        given(user_id=None),
        given(answer=Answer.REJECTED),
    ],
    ids=["no question", "not shown", "no answer", "rejected in time", "approved by nobody", "rejected"],
)
def test_without_an_approval_it_needs_one(found: PlanQuestion | None) -> None:
    with pytest.raises(ApprovalRequiredError):
        author(found)


@pytest.mark.parametrize(
    "found",
    [replace(QUESTION, plan_hash="abe"), replace(QUESTION, subject="run-2"), given(answered_at_ms=SHOWN - 10 * MINUTE)],
)
def test_an_approval_of_another_plan_or_from_before_the_question_is_refused(found: PlanQuestion) -> None:
    with pytest.raises(AnswerRefusedError):
        author(found)


def test_an_approval_of_a_plan_that_has_no_hash_any_more_is_refused() -> None:
    with pytest.raises(AnswerRefusedError):
        author(plan_hash=None)


def test_who_may_not_approve_any_more_is_refused_by_name() -> None:
    with pytest.raises(AnswerRefusedError, match=r"approved by ada, .* \(grace, alan; "):
        author(approvers=("grace", "alan"))


@pytest.mark.parametrize(("later_ms", "is_refused"), [(0, False), (1, True)])
def test_clocks_may_differ_by_five_minutes(later_ms: int, is_refused: bool) -> None:
    assert CLOCKS_MAY_DIFFER_MS == 5 * MINUTE
    in_the_future = given(answered_at_ms=GIVEN.recorded_at_ms + 5 * MINUTE + later_ms)
    before_the_question = given(answered_at_ms=SHOWN - 5 * MINUTE - later_ms)
    for found in (in_the_future, before_the_question):
        if is_refused:
            with pytest.raises(AnswerRefusedError, match="set the clocks right"):
                author(found)
        else:
            assert author(found).startswith("ada ")


class Questions:
    """`PlanQuestions` that notes the answers; the last approved one was stored at `approved_ms`."""

    def __init__(self, approved_ms: int = 0) -> None:
        self.answers: list[tuple[object, ...]] = []
        self.approved_ms = approved_ms

    def answer(self, asked_in: str, answer: Answer, *, user_id: str | None, answered_at_ms: int) -> PlanQuestion:
        self.answers.append((asked_in, answer, user_id, answered_at_ms))
        return QUESTION

    def last_approved_ms(self) -> int:
        return self.approved_ms


def service(questions: Questions, claims: list[str], changes: Sequence[object] = ()) -> QuestionService:
    asked: list[object] = []

    def history(entity: object) -> Sequence[object]:
        asked.append(entity)
        assert asked == [ALL_BROKERS]
        return changes

    def claim() -> None:
        claims.append("claimed")

    ports: Any = {"questions": questions, "configs": SimpleNamespace(history=history), "settings": SETTINGS}
    return QuestionService(claim=claim, **ports)


SETTINGS: Any = None


@pytest.mark.parametrize(("answer", "claims"), [(Answer.APPROVED, []), (Answer.REJECTED, ["claimed"])])
def test_a_rejection_is_stored_and_then_keeps_copies_of_the_database_from_the_store(
    answer: Answer, claims: list[str]
) -> None:
    questions, claimed = Questions(), list[str]()
    stored = service(questions, claimed).answer("dag run", answer, user_id="ada", answered_at_ms=7)
    assert (stored, claimed) == (QUESTION, claims)
    assert questions.answers == [("dag run", answer, "ada", 7)]


@pytest.mark.parametrize(
    ("approved_ms", "seen"), [(0, [1, 2]), (MINUTE + 1_000, [1, 2]), (MINUTE + 1_001, [2]), (MINUTE + 2_001, [])]
)
def test_limits_that_were_loosened_since_the_minute_before_the_last_approval_are_listed(
    monkeypatch: pytest.MonkeyPatch, approved_ms: int, seen: list[Any]
) -> None:
    changes = [SimpleNamespace(number=1, at_ms=1_000), SimpleNamespace(number=2, at_ms=2_000)]

    def since(found: Sequence[Any], settings: object, *, since_ms: int) -> list[int]:
        return [change.number for change in found if change.at_ms >= since_ms]

    monkeypatch.setattr("include.tiering.runs.approval.loosenings", since)
    assert service(Questions(approved_ms), [], changes).loosened_since_approval() == seen


def loosening(number: int) -> Loosening:
    return Loosening(LoosenedLimit("tiering.limit", str(number), str(number + 1)), "ada", 1_700_000_000_000)


def test_no_line_is_about_limits_that_nobody_loosened() -> None:
    assert list(loosened_lines([])) == []


@pytest.mark.parametrize(("number", "earlier"), [(1, None), (20, None), (21, "1 earlier change"), (25, "5 earlier")])
def test_the_twenty_newest_loosened_limits_are_listed_and_the_others_counted(number: int, earlier: str | None) -> None:
    lines = list(loosened_lines([loosening(each) for each in range(number)]))
    assert (lines[0].startswith("**"), lines[1], lines[-1]) == (True, "", "")
    named = [line for line in lines if "`tiering.limit`" in line]
    assert len(named) == min(number, 20)
    assert named[-1] == f"* `tiering.limit` {number - 1} -> {number}, by ada at 2023-11-14 22:13:20 UTC"
    counted = [line for line in lines if "earlier" in line]
    assert len(counted) == (0 if earlier is None else 1)
    assert all(earlier is not None and earlier in line for line in counted)
    assert len(lines) == 3 + len(named) + len(counted)


@pytest.mark.parametrize(("number", "left_out"), [(50, []), (51, ["and 1 more reason", "and 1 more topic"])])
def test_fifty_reasons_and_topics_are_listed_and_the_others_counted(number: int, left_out: list[str]) -> None:
    partitions = [partition_of(f"t{each:02}", topic_number=each) for each in range(number)]
    actions = [TopicAction(one.topic_id, one.topic, 10 + at, 0, 1_000) for at, one in enumerate(partitions)]
    reasons = tuple(f"reason {each}" for each in range(number))
    body = approval_question(DeletionLimitReport("run-1", "0123456789abcdef", tuple(actions), reasons), []).body
    lines = body.splitlines()
    assert [line for line in lines if line.startswith("and ")] == left_out
    assert len([line for line in lines if line.startswith("* reason")]) == 50
    rows = [line for line in lines if line.startswith("| `t")]
    assert len(rows) == 50
    assert rows[0].startswith(f"| `t{number - 1:02}` | 0 | {9 + number} B | ")
