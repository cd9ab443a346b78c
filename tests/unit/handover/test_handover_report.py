"""What a person reads of a handover: the question before it, its tables and its last line."""

from dataclasses import replace
from typing import Any

import pytest

from include.tiering.handover.checks import CheckOutcome, CheckResult
from include.tiering.handover.contract import Handover, LocalRetention, RetentionOverride, SeededPartition
from include.tiering.handover.report import (
    HandoverView,
    handover_question,
    present_checks,
    present_handover,
    step_line,
    undo_sentence,
)
from include.tiering.handover.rules import STEPS, HandoverState, HandoverStep, undo_of
from include.tiering.model.segments import TopicIdPartition
from tests.doubles.segments import uuid

PARTITION = TopicIdPartition(uuid(7), 0, "orders")
PLANNED = Handover(
    uuid(1),
    PARTITION.topic_id,
    "orders",
    HandoverStep.APPROVAL,
    HandoverState.ACTIVE,
    LocalRetention(),
    "ada",
    plan_hash="0123456789abcdef" * 4,
)
SEED = (
    SeededPartition(PARTITION, 100, 199, 120, 3, 5, compared_offset=150),
    SeededPartition(replace(PARTITION, partition=1), 50, 49, 50, 4, 6),
)
CHECKS = (
    CheckResult("disk-room", None, CheckOutcome.NOTE, "7.0 GiB free"),
    CheckResult("epochs", 0, CheckOutcome.PASSED, "they ascend"),
    CheckResult("producers", 1, CheckOutcome.WAITING, "2 open transactions", "wait for them"),
)
OVERRIDES = (
    RetentionOverride("retention.bytes", "900000", "-1", restored=True),
    RetentionOverride("retention.ms", None, "-1", restored=False),
)


def view(**changes: Any) -> HandoverView:
    return HandoverView(replace(PLANNED, **changes), CHECKS, OVERRIDES, SEED)


def test_the_question_says_what_is_handed_over_and_what_each_answer_does() -> None:
    question = handover_question(view())
    assert question.subject == f"Hand 2 partitions of orders over? Plan {PLANNED.plan_hash[:12]}"  # type: ignore[index]
    lines = question.body.splitlines()
    assert f"Plan `{PLANNED.plan_hash}` hands topic `orders` ({PARTITION.topic_id}) over to its brokers." in lines
    assert [line for line in lines if line.startswith(("| 0 |", "| 1 |"))] == [
        "| 0 | 100..199 | 120 |",
        "| 1 | nothing | 50 |",
    ]
    assert "* disk-room: 7.0 GiB free" in lines
    assert not [line for line in lines if "epochs" in line or "producers" in line]
    assert any(line.startswith("**Approve** fences the topic off") for line in lines)
    assert any("./tiering handover TOPIC --undo" in line for line in lines)


def test_of_one_partition_it_is_asked_in_the_singular() -> None:
    question = handover_question(HandoverView(replace(PLANNED, plan_hash="0123"), seed=SEED[:1]))
    assert question.subject == "Hand 1 partition of orders over? Plan 0123"


def test_the_tables_of_a_handover() -> None:
    steps, checks, overrides, seed = present_handover(view()).tables()
    place = STEPS.index(HandoverStep.APPROVAL)
    assert [row[2] for row in steps.rows] == ["done"] * place + ["active"] + [""] * (len(STEPS) - place - 1)
    assert [row[0].split() for row in steps.rows] == [[str(n), str(step)] for n, step in enumerate(STEPS, start=1)]
    assert checks.title == "checks (1 of 3 passed)"
    assert checks.rows == (
        ("disk-room", "", "note", "7.0 GiB free", ""),
        ("producers", "1", "waiting", "2 open transactions", "wait for them"),
    )
    assert overrides.rows == (("retention.bytes", "900000", "-1", "yes"), ("retention.ms", "unset", "-1", "no"))
    assert seed.rows == (
        ("orders-0", "100..199", "120", "3, epoch 5", "150"),
        ("orders-1", "nothing", "50", "4, epoch 6", "0"),
    )


def test_of_a_handover_that_is_done_every_step_is() -> None:
    (steps,) = present_handover(HandoverView(replace(PLANNED, state=HandoverState.DONE))).tables()
    assert {row[2] for row in steps.rows} == {"done"}


@pytest.mark.parametrize(
    ("changes", "refusal", "summary", "is_ok"),
    [
        ({}, None, "orders waits at approval: its driver ended", False),
        ({"detail": "it waits for a person"}, None, "orders waits at approval: it waits for a person", False),
        ({"state": HandoverState.STOPPED, "detail": "no room"}, None, "orders is stopped at approval: no room", False),
        (
            {"state": HandoverState.PARKED, "detail": "published"},
            None,
            "orders is parked at approval: published",
            False,
        ),
        ({"state": HandoverState.UNDONE, "detail": "by ada"}, None, "orders is undone at approval: by ada", True),
        ({"state": HandoverState.DONE, "detail": "they serve it"}, None, "orders is handed over: they serve it", True),
        ({"state": HandoverState.DONE}, "rejected by grace", "orders: rejected by grace", False),
    ],
)
def test_the_last_line_and_whether_all_is_well(
    changes: dict[str, Any], refusal: str | None, summary: str, is_ok: bool
) -> None:
    presentation = present_handover(HandoverView(replace(PLANNED, **changes), refusal=refusal))
    assert (presentation.summary, presentation.ok) == (summary, is_ok)


def test_a_dry_run_counts_what_refuses_and_what_waits() -> None:
    refused = CheckResult("replicas", 0, CheckOutcome.REFUSED, "1 of 3 in sync", "wait")
    presentation = present_checks("orders", (*CHECKS, refused), OVERRIDES, 12)
    assert presentation.summary == (
        "orders: 1 check refused, 1 waiting; 12 segments not remote yet; nothing was changed"
    )
    assert not presentation.ok
    checks, _ = presentation.tables()
    assert [row[0] for row in checks.rows] == ["disk-room", "epochs", "producers", "replicas"]
    document = presentation.document()
    assert (document["topic"], document["segments_to_copy"]) == ("orders", 12)
    assert [one["restored"] for one in document["guards"]] == [True, False]


@pytest.mark.parametrize(
    ("checks", "said", "is_ok"),
    [
        (CHECKS[:2], "no check refused", True),
        (CHECKS, "0 checks refused, 1 waiting", False),
        ((), "no check refused", True),
    ],
)
def test_a_check_that_waits_is_no_success(checks: tuple[CheckResult, ...], said: str, is_ok: bool) -> None:
    presentation = present_checks("orders", checks, (), 1)
    assert presentation.summary == f"orders: {said}; 1 segment not remote yet; nothing was changed"
    assert presentation.ok is is_ok


def test_the_line_of_a_step_and_of_an_undo() -> None:
    assert step_line(PLANNED).startswith(f"step {STEPS.index(HandoverStep.APPROVAL) + 1} of {len(STEPS)}, approval: ")
    assert step_line(replace(PLANNED, step=STEPS[0])).startswith(f"step 1 of {len(STEPS)}, ")
    undone = undo_sentence(PLANNED, undo_of(is_fenced=False, is_published=False, is_enabled=False))
    assert undone.endswith(". It ends as undone")
    parked = undo_sentence(PLANNED, undo_of(is_fenced=True, is_published=True, is_enabled=False))
    assert ". It ends as parked: " in parked
    assert undo_sentence(PLANNED, undo_of(is_fenced=True, is_published=True, is_enabled=True)).startswith(
        "orders cannot be given back: "
    )
