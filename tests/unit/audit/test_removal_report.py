"""What is told of a withdrawn run of removals, and of very many findings, topics and reasons."""

import pytest

from include.tiering.audit.finding import AuditFinding, FindingKind
from include.tiering.audit.plan_removals import (
    PlannedRemoval,
    RemovalItem,
    RemovalOutcome,
    RemovalPlan,
    Spared,
    WithdrawnRemovals,
)
from include.tiering.audit.record import AuditRecord, AuditSource, AuditTally, FindingState, RecordedFinding
from include.tiering.audit.report import (
    AuditRun,
    RemovalRun,
    audit_document,
    finding_document,
    present_audit,
    present_withdrawn_removals,
    removal_question,
)
from include.tiering.model.segments import RemoteLogSegmentId
from include.tiering.runs.deletion_limits import DeletionLimitReport, TopicAction
from include.tiering.runs.deletion_run import Approval, DeletionRun, Withdrawal
from tests.doubles.segments import partition_of, uuid

ORDERS = partition_of("orders", 3)
SEGMENT_ID = RemoteLogSegmentId(ORDERS, uuid(1))


def planned(number: int, size_bytes: int = 1_024) -> PlannedRemoval:
    return PlannedRemoval(SEGMENT_ID, FindingKind.ORPHAN, f"orders/{number}", None, size_bytes, 1)


def withdrawn(*outcomes: RemovalOutcome, not_claimed: str | None = None) -> WithdrawnRemovals:
    items = tuple(RemovalItem(planned(number, 100 * number), one, "why") for number, one in enumerate(outcomes, 1))
    run = DeletionRun("remove-1", "hash", True, None, withdrawal=Withdrawal("ada", 7))
    return WithdrawnRemovals(run, items, not_claimed)


def test_a_withdrawal_tells_what_stays_what_was_gone_and_what_may_have_begun() -> None:
    kept, removed, gone, failed = (
        RemovalOutcome.KEPT,
        RemovalOutcome.REMOVED,
        RemovalOutcome.GONE,
        RemovalOutcome.FAILED,
    )
    shown = present_withdrawn_removals(withdrawn(kept, removed, gone, failed, kept))
    assert shown.summary == (
        "run remove-1 is withdrawn: 2 objects (600 B) stay, 2 objects (500 B) were already gone;"
        " the next audit reports what is left of 1 object (400 B)"
    )
    assert shown.document() == {
        "run_id": "remove-1",
        "plan_hash": "hash",
        "withdrawn_by": "ada",
        "withdrawn_at_ms": 7,
        "kept": 2,
        "removed": 2,
        "unsettled": [{"key": "orders/4", "kind": "orphan", "message": "why"}],
        "not_claimed": None,
    }
    (table,) = shown.tables()
    assert table.rows == (("orphan", "orders/4", "why"),)
    assert shown.ok


def test_a_withdrawal_before_anything_began_has_no_table_and_names_a_store_that_was_not_claimed() -> None:
    shown = present_withdrawn_removals(withdrawn(RemovalOutcome.KEPT, not_claimed="it is away"))
    assert (shown.tables(), shown.ok) == ((), True)
    assert shown.summary.startswith("run remove-1 is withdrawn: 1 object (100 B) stay, 0 objects (0 B) were already")
    assert shown.summary.endswith("the store could not be claimed: it is away")


def removal(*, approval: Approval | None = None, reasons: tuple[str, ...] = ("always",)) -> RemovalRun:
    plan = RemovalPlan("remove-1", "audit-1", (planned(1),), {Spared.YOUNG: 3, Spared.KNOWN: 2})
    action = TopicAction(ORDERS.topic_id, "orders", 1_024, 0, 3_000)
    report = DeletionLimitReport("remove-1", plan.plan_hash, (action,), reasons, approval)
    return RemovalRun(plan, report, (RemovalItem(planned(1), RemovalOutcome.GONE, None),))


def test_the_document_of_a_removal_has_all_that_decides_about_it() -> None:
    run = removal(approval=Approval("hash", "grace", 5))
    record = AuditRecord("audit-1", AuditSource.LISTING, 5, 6, 33, 10)
    document = audit_document(AuditRun(record, [], AuditTally(9, 4, 2), run))
    assert (document["run_id"], document["source"], document["new"], document["gone"]) == ("audit-1", "listing", 4, 2)
    assert document["removal"] == {
        "run_id": "remove-1",
        "plan_hash": run.plan.plan_hash,
        "needs_approval": True,
        "reasons": ["always"],
        "approved_by": "grace",
        "refusal": None,
        "bytes": 1_024,
        "spared": {"young": 3, "known": 2},
        "shares": [{"topic": "orders", "topic_id": str(ORDERS.topic_id), "share": 0.341333}],
        "removals": [
            {
                "kind": "orphan",
                "key": "orders/1",
                "segment_id": str(uuid(1)),
                "bytes": 1_024,
                "outcome": "gone",
                "message": None,
            }
        ],
    }
    without = audit_document(AuditRun(record, []))
    assert (without["new"], without["gone"], without["removal"]) == (None, None, None)


@pytest.mark.parametrize(
    ("run", "asks"),
    [(removal(), True), (removal(approval=Approval("hash", "grace", 5)), False), (removal(reasons=()), False)],
)
def test_reasons_are_listed_until_a_person_has_approved(run: RemovalRun, asks: bool) -> None:
    record = AuditRecord("audit-1", AuditSource.LISTING, 5, 6, 33, 10)
    titles = [table.title for table in present_audit(AuditRun(record, [], removal=run)).tables()]
    assert ("needs an approval" in titles) is asks


def test_the_document_of_a_finding_has_all_members() -> None:
    finding = AuditFinding(
        kind=FindingKind.OPEN_MULTIPART_UPLOAD,
        key="a",
        message="m",
        size_bytes=3,
        segment_id=uuid(1),
        topic_id=ORDERS.topic_id,
        topic="orders",
        partition=3,
        start_offset=10,
        end_offset=19,
        last_modified_ms=4,
        version_id="v",
        upload_id="u",
    )
    assert finding_document(RecordedFinding(7, finding, FindingState.GONE, 1, 2)) == {
        "kind": str(FindingKind.OPEN_MULTIPART_UPLOAD),
        "key": "a",
        "segment_id": str(uuid(1)),
        "bytes": 3,
        "message": "m",
        "topic": "orders",
        "topic_id": str(ORDERS.topic_id),
        "partition": 3,
        "start_offset": 10,
        "end_offset": 19,
        "version_id": "v",
        "upload_id": "u",
        "last_modified_ms": 4,
        "finding_id": 7,
        "state": "gone",
        "first_seen_ms": 1,
        "last_seen_ms": 2,
    }


@pytest.mark.parametrize(("topics", "more"), [(50, []), (51, ["and 1 more topic"]), (53, ["and 3 more topics"])])
def test_a_question_names_fifty_topics_with_the_most_bytes(topics: int, more: list[str]) -> None:
    partitions = [partition_of(f"t{number:02}", topic_number=number) for number in range(topics)]
    removals = tuple(
        PlannedRemoval(RemoteLogSegmentId(one, uuid(number)), FindingKind.ORPHAN, f"key-{number}", None, 10, 1)
        for number, one in enumerate(partitions)
        for _ in range(2)
    )
    actions = tuple(TopicAction(one.topic_id, one.topic, 100 + at, 0, 1_000) for at, one in enumerate(partitions))
    plan = RemovalPlan("remove-1", "audit-1", removals)
    reasons = tuple(f"reason {number}" for number in range(60))
    question = removal_question(plan, DeletionLimitReport("remove-1", "0123456789abcdef", actions, reasons))
    assert question.subject.endswith("without metadata? Plan 0123456789ab")
    assert f"{2 * topics} objects" in question.subject
    lines = question.body.splitlines()
    assert f"{topics} segment ids" in lines[0]
    assert [line for line in lines if line.startswith("and ")] == more
    assert len([line for line in lines if line.startswith("* reason")]) == 50
    rows = [line for line in lines if line.startswith("| `t")]
    last = topics - 1
    assert rows[0] == f"| `t{last:02}` | {100 + last} B | {(100 + last) / 1_000:.1%} | orphan 2 | `key-{last}` |"
    assert len(rows) == 50
