"""Two topics of one name in the tables of reports: each by its id, and never both added up."""

from dataclasses import replace

import pytest

from include.tiering.copying.plan import CopyPlan, HeldBack, HeldBackPartition
from include.tiering.copying.report import CopyRun, present_copy, present_plan
from include.tiering.expiration.plan import WaitingPartition, Waits
from include.tiering.expiration.report import ExpireRun, present_expire
from include.tiering.model.sizes import PartitionLag, PartitionSize
from include.tiering.operations.doctor import Cause, Diagnosis, present_doctor
from include.tiering.operations.readiness import NotReady, PartitionReadiness, Readiness, present_ready
from include.tiering.presentation import Table
from include.tiering.runs.approval import approval_question
from include.tiering.runs.contract import PlannedSegment, SegmentOutcome, WorkItem
from include.tiering.runs.deletion_limits import DeletionLimitReport, TopicAction
from include.tiering.runs.deletion_run import DeletionItem, DeletionOutcome, DeletionRun
from include.tiering.sizes.report import SizeReport, present_sizes
from include.tiering.verification.report import present_verify
from include.tiering.verification.rules import QualityFinding
from include.tiering.verification.verify_segments import VerifyReport
from tests.doubles.expirations import planned_expiration
from tests.doubles.segments import FINISHED, partition_of, segment_of

OLD, NEW = partition_of("orders", topic_number=1), partition_of("orders", topic_number=2)
OTHER = partition_of("others", topic_number=3)
OLD_NAME, NEW_NAME = (f"orders-0 (topic id {one.topic_id})" for one in (OLD, NEW))


def plan_of(partition, segments: int):
    return planned_expiration(
        partition, *(segment_of(partition, n, 10 * n, 10 * n + 9, state=FINISHED) for n in range(segments))
    )


def first_cells(tables: tuple[Table, ...], title: str) -> list[str]:
    (table,) = [one for one in tables if one.title.startswith(title)]
    return [row[0] for row in table.rows]


def test_an_expiration_counts_each_by_itself() -> None:
    plans = [plan_of(OLD, 3), plan_of(NEW, 1), plan_of(OTHER, 2)]
    items = [DeletionItem(one, DeletionOutcome.PLANNED) for plan in plans for one in plan.deletions]
    actions = tuple(TopicAction(one.topic_id, one.topic, 1, 0, 2) for one in (OLD, NEW, OTHER))
    limit_report = DeletionLimitReport("run", "hash", actions, ())
    run = ExpireRun(DeletionRun("run", "hash", False, None), plans, items, limit_report)
    tables = present_expire(run).tables()
    (expires,) = [one for one in tables if one.title.startswith("expires")]
    assert [row[:3] for row in expires.rows] == [
        (OLD_NAME, "3", "2.9 KiB"),
        (NEW_NAME, "1", "1000 B"),
        ("others-0", "2", "2.0 KiB"),
    ]
    named = [f"orders (topic id {one.topic_id})" for one in (OLD, NEW)]
    assert first_cells(tables, "share") == [*named, "others"]
    question = approval_question(limit_report, plans).body
    assert all(f"| `{one}` |" in question for one in (*named, "others"))


def test_an_expiration_names_the_id_if_the_other_topic_is_not_part_of_it() -> None:
    run = ExpireRun(DeletionRun("run", "hash", False, None), [plan_of(OLD, 1)], [], shared_names={"orders"})
    items = [DeletionItem(one, DeletionOutcome.FAILED) for one in plan_of(OLD, 1).deletions]
    waits = WaitingPartition(OLD, Waits.NAME_TAKEN, "why")
    tables = present_expire(replace(run, items=items, waiting=[waits])).tables()
    for title in ("expires", "could not", "waiting"):
        assert first_cells(tables, title) == [OLD_NAME]


def test_sizes() -> None:
    lags = [PartitionLag(one, 1, 1, 1.0) for one in (OLD, NEW)]
    sizes = [PartitionSize(one, 1, 1, ()) for one in (OLD, NEW, OTHER)]
    tables = present_sizes(SizeReport(sizes, lags)).tables()
    assert first_cells(tables, "remote log size") == [OLD_NAME, NEW_NAME, "others-0"]
    assert first_cells(tables, "waits to be deleted") == [OLD_NAME, NEW_NAME]


def test_copies_and_their_plan() -> None:
    held = tuple(HeldBackPartition(one, 0, HeldBack.NOT_READY, "") for one in (NEW, OTHER))
    items = [WorkItem(OLD, PlannedSegment(0, 9, 100), SegmentOutcome.PLANNED)]
    tables = present_copy(CopyRun("run", items, 1.0, held)).tables()
    assert first_cells(tables, "run run") == [OLD_NAME]
    assert first_cells(tables, "waiting") == [NEW_NAME, "others-0"]
    plan = CopyPlan("run", (), tuple(replace(held[0], topic_id_partition=one) for one in (OLD, NEW)), ())
    assert first_cells(present_plan(plan).tables(), "waiting") == [OLD_NAME, NEW_NAME]


def test_a_verification() -> None:
    findings = [
        QualityFinding("orders", 0, str(one.topic_id), "segment", 0, "Q1", "segment", "broken") for one in (OLD, NEW)
    ]
    report = VerifyReport(2, tuple(findings), (), 0, 1.0)
    assert first_cells(present_verify(report).tables(), "failed") == [OLD_NAME, NEW_NAME]


@pytest.mark.parametrize("shown", [(OLD, NEW), (OLD, OTHER)])
def test_ready_and_doctor(shown) -> None:
    names = [OLD_NAME, NEW_NAME] if NEW in shown else ["orders-0", "others-0"]
    waiting = tuple(PartitionReadiness(one, NotReady.PAUSED, "") for one in shown)
    assert first_cells(present_ready(Readiness((), waiting)).tables(), "waiting") == names
    lines = [Diagnosis("orders", one, Cause.UP_TO_DATE, "") for one in shown[:1] * 2 if NEW not in shown] or [
        Diagnosis("orders", one, Cause.UP_TO_DATE, "") for one in shown
    ]
    expected = [name.removeprefix("orders-") for name in names] if NEW in shown else ["0", "0"]
    assert first_cells(present_doctor("orders", lines).tables(), "orders") == expected
