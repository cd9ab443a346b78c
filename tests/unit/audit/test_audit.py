"""What is said of an audit: when a person is needed, and what became of a removal."""

from dataclasses import replace

import pytest

from include.tiering.audit.finding import AuditFinding, FindingKind, PassedOver
from include.tiering.audit.plan_removals import PlannedRemoval, RemovalItem, RemovalOutcome, RemovalPlan, Spared
from include.tiering.audit.record import (
    AuditRecord,
    AuditSource,
    AuditTally,
    FindingState,
    Guard,
    RecordedFinding,
    Refusal,
)
from include.tiering.audit.report import AuditRun, RemovalRun, present_accepted, present_audit, removal_question
from include.tiering.model.segments import RemoteLogSegmentId
from include.tiering.presentation import as_text
from include.tiering.runs.deletion_limits import DeletionLimitReport, TopicAction
from tests.doubles.segments import partition_of, uuid

ORDERS = partition_of("orders")
RECORD = AuditRecord("one", AuditSource.LISTING, 5, 5, 33, 10, (), {}, 1)
ORPHAN = AuditFinding(
    kind=FindingKind.ORPHAN,
    key="orders/a.log",
    message="no metadata",
    size_bytes=2048,
    segment_id=uuid(1),
    topic_id=ORDERS.topic_id,
    topic="orders",
    partition=0,
)


def recorded(kind: FindingKind = FindingKind.ORPHAN, state: FindingState = FindingState.OPEN) -> RecordedFinding:
    return RecordedFinding(7, replace(ORPHAN, kind=kind), state, 1, 5)


def removal(
    outcome: RemovalOutcome = RemovalOutcome.PLANNED, refusal: str | None = None, removals: int = 2
) -> RemovalRun:
    segment_id = RemoteLogSegmentId(ORDERS, uuid(1))
    planned = tuple(
        PlannedRemoval(segment_id, FindingKind.ORPHAN, f"orders/{number}", None, 1024, 1) for number in range(removals)
    )
    plan = RemovalPlan("remove", "one", planned, {Spared.YOUNG: 3})
    action = TopicAction(ORDERS.topic_id, "orders", 2048, 0, 4096)
    limit_report = DeletionLimitReport("remove", plan.plan_hash, (action,), ("always",))
    return RemovalRun(plan, limit_report, tuple(RemovalItem(one, outcome, "why") for one in planned), refusal)


@pytest.mark.parametrize("kind", FindingKind)
def test_who_is_needed(kind: FindingKind) -> None:
    needs_no_action = kind in (FindingKind.OLD_VERSION, FindingKind.DELETE_MARKER)
    assert present_audit(AuditRun(RECORD, [recorded(kind)])).ok is needs_no_action
    for state in (FindingState.ACCEPTED, FindingState.ACTED, FindingState.GONE):
        assert present_audit(AuditRun(RECORD, [recorded(kind, state)])).ok


def test_the_summary_says_what_was_not_classified_and_what_can_be_adopted() -> None:
    record = replace(RECORD, passed_over={PassedOver.YOUNG: 3})
    summary = present_audit(AuditRun(record, [recorded(FindingKind.ADOPTABLE)])).summary
    assert summary == (
        "33 objects compared with 10 segments: adoptable 1; not classified: young 3;"
        " 1 complete copy without metadata: ./tiering adopt --all --dry-run says which are taken,"
        " and why another is not"
    )


@pytest.mark.parametrize(
    ("run", "ok", "text"),
    [
        (removal(refusal="it needs --approve"), False, "nothing was removed: it needs --approve"),
        (removal(removals=0), True, "there is nothing to remove"),
        (
            removal(RemovalOutcome.REMOVED),
            True,
            "of 2 objects (2.0 KiB) removed 2, 0 were gone, 0 kept, 0 failed, 0 left",
        ),
        (removal(RemovalOutcome.KEPT), True, "removed 0, 0 were gone, 2 kept"),
        (removal(RemovalOutcome.FAILED), False, "2 failed"),
    ],
)
def test_what_became_of_a_removal(run: RemovalRun, ok: bool, text: str) -> None:
    presentation = present_audit(AuditRun(RECORD, [], removal=run))
    assert text in presentation.summary
    assert presentation.ok is ok
    assert text in as_text(presentation)


def test_the_document_has_the_members_that_others_read() -> None:
    record = replace(RECORD, refusals=(Refusal(Guard.OLDER_DATABASE, "because"),))
    document = present_audit(AuditRun(record, [recorded()], AuditTally(1, 1, 0), removal())).document()
    assert (document["objects"], document["rows"], document["new"]) == (33, 10, 1)
    (finding,) = document["findings"]
    assert {name: finding[name] for name in ("kind", "key", "segment_id", "bytes", "message", "topic_id")} == {
        "kind": "orphan",
        "key": "orders/a.log",
        "segment_id": str(uuid(1)),
        "bytes": 2048,
        "message": "no metadata",
        "topic_id": str(ORDERS.topic_id),
    }
    assert document["refusals"] == [{"guard": "older-database", "message": "because"}]
    assert document["removal"]["needs_approval"]
    assert [one["outcome"] for one in document["removal"]["removals"]] == ["planned", "planned"]


def test_the_question_names_the_plan_its_topics_and_what_happens() -> None:
    run = removal()
    question = removal_question(run.plan, run.limit_report)
    assert question.subject.startswith("Remove 2 objects (2.0 KiB) without metadata?")
    for text in (run.plan.plan_hash, "`orders`", "50.0%", "orphan 2", "`orders/0`", "1 segment id", "* always"):
        assert text in question.body


def test_accepted_findings_are_listed() -> None:
    presentation = present_accepted([recorded(state=FindingState.ACCEPTED)])
    assert (presentation.ok, "1 finding accepted" in presentation.summary) == (True, True)
    assert [one["finding_id"] for one in presentation.document()["accepted"]] == [7]
