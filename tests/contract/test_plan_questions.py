"""What every implementation of `PlanQuestions` does, over each database."""

from typing import Any

import pytest
from sqlalchemy import Engine, select

from include.tiering.database.schema import events
from include.tiering.errors import StateConflictError
from include.tiering.expiration.store import SqlDeletionStore
from include.tiering.runs.approval import Answer, GivenAnswer, PlanQuestion, PlanQuestions
from include.tiering.runs.sql_approval import SqlPlanQuestions
from tests.doubles.databases import AdjustableNow
from tests.doubles.segments import CLUSTER_ID, partition_of, planned_expiration, segment_of

DAG_RUN = "tiering_expiration manual__1"
PLAN: dict[str, Any] = {"subject": "run-1", "plan_hash": "abc", "headline": "Delete?", "body": "All of it."}


@pytest.fixture
def questions(engine: Engine, now: AdjustableNow) -> PlanQuestions:
    return SqlPlanQuestions(engine, CLUSTER_ID, now_ms=now)


def test_a_question_is_put_shown_and_answered(questions: PlanQuestions, now: AdjustableNow, engine: Engine) -> None:
    assert questions.find(DAG_RUN) is None
    questions.put(DAG_RUN, **PLAN)
    assert questions.find(DAG_RUN) == PlanQuestion(DAG_RUN, **PLAN)
    shown_at_ms = now.now_ms
    assert questions.show(DAG_RUN) == PlanQuestion(DAG_RUN, **PLAN, shown_at_ms=shown_at_ms)
    now.now_ms += 1_000
    answered = questions.answer(DAG_RUN, Answer.APPROVED, user_id="olga", answered_at_ms=77)
    assert answered.given == GivenAnswer(Answer.APPROVED, "olga", 77, shown_at_ms + 1_000)
    assert answered == questions.find(DAG_RUN)
    with engine.connect() as connection:
        (event,) = connection.execute(select(events).where(events.c.kind == "answer"))
    assert (event.subject, event.author) == ("run run-1", "olga")
    assert event.detail == f"plan abc is approved in {DAG_RUN}"


def test_a_question_that_is_shown_again_has_no_answer(questions: PlanQuestions) -> None:
    questions.put(DAG_RUN, **PLAN)
    questions.show(DAG_RUN)
    questions.answer(DAG_RUN, Answer.APPROVED, user_id="olga", answered_at_ms=77)
    assert questions.show(DAG_RUN).given is None
    nobody = questions.answer(DAG_RUN, Answer.REJECTED, user_id=None, answered_at_ms=78).given
    assert nobody is not None
    assert (nobody.answer, nobody.user_id) == (Answer.REJECTED, None)


def test_what_nobody_has_seen_may_be_replaced_and_what_was_shown_stays(questions: PlanQuestions) -> None:
    questions.put(DAG_RUN, **{**PLAN, "plan_hash": "first"})
    questions.put(DAG_RUN, **PLAN)
    questions.show(DAG_RUN)
    questions.put(DAG_RUN, **{**PLAN, "body": "another text"})
    found = questions.find(DAG_RUN)
    assert found is not None
    assert (found.body, found.shown_at_ms is None) == (PLAN["body"], False)
    for other in ({"plan_hash": "def"}, {"subject": "run-2"}):
        with pytest.raises(StateConflictError, match="trigger another DAG run to ask"):
            questions.put(DAG_RUN, **{**PLAN, **other})
    assert questions.find(DAG_RUN) == found


def test_nothing_is_shown_or_answered_out_of_turn(questions: PlanQuestions) -> None:
    with pytest.raises(StateConflictError, match="has no question"):
        questions.show(DAG_RUN)
    questions.put(DAG_RUN, **PLAN)
    with pytest.raises(StateConflictError, match="was not shown"):
        questions.answer(DAG_RUN, Answer.APPROVED, user_id="olga", answered_at_ms=77)


def test_the_last_approval_is_that_of_the_newest_text(questions: PlanQuestions, now: AdjustableNow) -> None:
    assert questions.last_approved_ms() == 0
    put_at = []
    for number, answer in enumerate((Answer.APPROVED, Answer.APPROVED, Answer.REJECTED)):
        questions.put(f"run {number}", **PLAN)
        put_at.append(now.now_ms)
        now.now_ms += 1_000
        questions.show(f"run {number}")
        questions.answer(f"run {number}", answer, user_id="olga", answered_at_ms=now.now_ms)
    assert questions.last_approved_ms() == put_at[1]


def test_clusters_keep_their_own(questions: PlanQuestions, engine: Engine) -> None:
    questions.put(DAG_RUN, **PLAN)
    assert SqlPlanQuestions(engine, "another cluster").find(DAG_RUN) is None


def test_questions_without_an_answer_are_those_that_somebody_was_asked_and_that_nothing_settled(
    questions: PlanQuestions, now: AdjustableNow, engine: Engine
) -> None:
    deletions = SqlDeletionStore(engine, CLUSTER_ID, now_ms=now)
    plan = (planned_expiration(partition_of("a"), segment_of(partition_of("a"), 1, 0, 9)),)
    for number, run_id in enumerate(("open", "answered", "withdrawn", "approved", "other", "old")):
        hash_of_plan = deletions.save_plan(run_id, plan).plan_hash
        questions.put(run_id, **{**PLAN, "subject": run_id, "plan_hash": hash_of_plan})
        now.now_ms += number
    questions.put("not shown", **PLAN)
    questions.show("old")
    now.now_ms += 1_000
    since_ms = now.now_ms
    for run_id in ("open", "answered", "withdrawn", "approved"):
        questions.show(run_id)
    now.now_ms += 1
    questions.show("other")
    questions.answer("answered", Answer.REJECTED, user_id="olga", answered_at_ms=1)
    deletions.withdraw("withdrawn", author="olga")
    deletions.approve("approved", deletions.run("approved").plan_hash, author="olga")
    assert [each.asked_in for each in questions.unanswered(since_ms=since_ms, at_most=9)] == ["other", "open"]
    assert [each.asked_in for each in questions.unanswered(since_ms=since_ms, at_most=1)] == ["other"]
    assert [each.asked_in for each in questions.unanswered(since_ms=0, at_most=9)] == ["other", "open", "old"]
