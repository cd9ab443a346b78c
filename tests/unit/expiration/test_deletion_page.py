"""The page of a deletion plan: numbers by topic."""

from dataclasses import replace
from typing import Any

import pytest

from include.tiering.expiration.deletion_page import MOST_TOPICS, ShownPlan, deletion_page, plan_status
from include.tiering.runs.approval import Answer, GivenAnswer, PlanQuestion
from include.tiering.runs.deletion_run import (
    Approval,
    DeletionItem,
    DeletionOutcome,
    DeletionRun,
    TopicTotals,
    Withdrawal,
)
from tests.doubles.segments import FINISHED, partition_of, planned_expiration, segment_of

ORDERS = partition_of("orders")


def test_what_an_earlier_run_began_is_counted_once_in_the_share() -> None:
    """It is among the planned bytes and among the recent bytes: together they would be more than all there was."""
    expiration = planned_expiration(
        ORDERS, *(segment_of(ORDERS, n, 10 * n, 10 * n + 9, state=FINISHED) for n in (1, 2))
    )
    items = [DeletionItem(planned, DeletionOutcome.PLANNED) for planned in expiration.deletions]
    totals = TopicTotals(
        ORDERS.topic_id,
        "orders",
        2,
        2_000,
        recent_bytes=1_000,
        remote_bytes=1_000,
        above_log_start=0,
        begun_bytes=1_000,
    )
    plan = ShownPlan(DeletionRun("run", "0" * 64, True, None), [expiration], items, [totals])
    page = deletion_page("scheduled", [plan], withdraw_at=None).decode()
    assert ">100.0%<" in page
    assert "150.0%" not in page


WITHDRAWN = Withdrawal("olga", 5)


@pytest.mark.parametrize(
    ("outcomes", "withdrawal", "may_be"),
    [
        ([DeletionOutcome.PLANNED], None, True),
        ([DeletionOutcome.DELETED, DeletionOutcome.PLANNED], None, True),
        ([DeletionOutcome.DELETED, DeletionOutcome.FAILED], None, False),
        ([DeletionOutcome.PLANNED], WITHDRAWN, False),
    ],
)
def test_a_plan_may_be_withdrawn_while_that_keeps_a_segment(
    outcomes: list[DeletionOutcome], withdrawal: Withdrawal | None, may_be: bool
) -> None:
    segments = [segment_of(ORDERS, n, 10 * n, 10 * n + 9, state=FINISHED) for n in range(len(outcomes))]
    expiration = planned_expiration(ORDERS, *segments)
    items = [DeletionItem(*both) for both in zip(expiration.deletions, outcomes, strict=True)]
    plan = ShownPlan(DeletionRun("run", "0" * 64, True, None, withdrawal), [expiration], items, [])
    assert plan.may_be_withdrawn is may_be
    assert ("<button" in deletion_page("scheduled", [plan], withdraw_at="/withdraw").decode()) is may_be
    assert "<button" not in deletion_page("scheduled", [plan], withdraw_at=None).decode()


def test_the_page_shows_so_many_topics_and_counts_the_others() -> None:
    partitions = [partition_of(f"topic-{number:03}") for number in range(MOST_TOPICS + 1)]
    expirations = [planned_expiration(one, segment_of(one, 1, 0, 9, state=FINISHED)) for one in partitions]
    items = [DeletionItem(planned, DeletionOutcome.PLANNED) for one in expirations for planned in one.deletions]

    def page(number: int) -> str:
        run = DeletionRun("run", "0" * 64, True, None)
        return deletion_page("it", [ShownPlan(run, expirations, items[:number], [])], withdraw_at=None).decode()

    assert page(MOST_TOPICS).count("<tr>") == page(MOST_TOPICS + 1).count("<tr>") == 1 + MOST_TOPICS
    assert "more topic" not in page(MOST_TOPICS)
    assert "and 1 more topic<" in page(MOST_TOPICS + 1)


def test_the_page_says_what_is_gone_already_and_where_the_answer_of_a_withdrawal_appears() -> None:
    segments = [segment_of(ORDERS, n, 10 * n, 10 * n + 9, state=FINISHED) for n in range(3)]
    expiration = planned_expiration(ORDERS, *segments)
    outcomes = (DeletionOutcome.DELETED, DeletionOutcome.PLANNED, DeletionOutcome.FAILED)
    items = [DeletionItem(*both) for both in zip(expiration.deletions, outcomes, strict=True)]
    plan = ShownPlan(DeletionRun("run", "0" * 64, True, None), [expiration], items, [])
    page = deletion_page("scheduled", [plan], withdraw_at="/withdraw").decode()
    assert "<dt>deletes</dt><dd>3 segments (" in page
    assert "<dt>gone already</dt><dd>1 segment (" in page
    assert '<output id="said"' in page


def _asked(answer: Answer | None, user_id: str | None = "ada") -> PlanQuestion:
    given = None if answer is None else GivenAnswer(answer, user_id, 1, 2)
    return PlanQuestion("dag run", "run", "0" * 64, "Delete?", "body", 1, given)


@pytest.mark.parametrize(
    ("run", "question", "says", "colour"),
    [
        ({"withdrawal": WITHDRAWN, "approval": Approval("h", "ada", 5)}, None, "Withdrawn by olga at 1970", "good"),
        ({"approval": Approval("h", "ada", 5)}, None, "Released by ada at 1970", "odd"),
        ({"needs_approval": False}, None, "Released without an approval", "odd"),
        ({"needs_approval": True}, _asked(Answer.REJECTED), "Rejected by ada:", "good"),
        ({"needs_approval": True}, _asked(Answer.REJECTED, None), "Rejected by a timeout", "good"),
        ({"needs_approval": None}, None, "Not released: it is a dry run", "good"),
        ({"needs_approval": None}, _asked(None), "Not released: it is a dry run", "good"),
        ({"needs_approval": True}, _asked(Answer.APPROVED), "Not released: it waits for an approval.", "odd"),
        ({"needs_approval": True}, None, "Not released: it waits for an approval.", "odd"),
    ],
)
def test_the_state_of_a_plan_in_a_sentence(
    run: dict[str, Any], question: PlanQuestion | None, says: str, colour: str
) -> None:
    plan = ShownPlan(replace(DeletionRun("run", "0" * 64, None, None), **run), [], [], [], question=question)
    sentence, shown = plan_status(plan)
    assert (sentence.startswith(says), shown) == (True, colour), sentence


def test_the_newest_plan_comes_first_and_a_run_without_one_says_so() -> None:
    plans = [ShownPlan(DeletionRun(f"run-{number}", "0" * 64, True, None), [], [], []) for number in (1, 2)]
    page = deletion_page("scheduled", plans, withdraw_at=None).decode()
    assert 0 < page.index("run-2") < page.index("run-1")
    assert "This run has planned no deletion." not in page
    assert "This run has planned no deletion." in deletion_page("scheduled", [], withdraw_at=None).decode()
