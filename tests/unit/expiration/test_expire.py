"""Expiration as a run: its plan checked again, its report, its metrics."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from include.tiering.expiration.checks import still_planned
from include.tiering.expiration.delete_segments import DeleteResult, FailedDeletion
from include.tiering.expiration.metrics import count_batch, count_deleted
from include.tiering.expiration.plan import HeldSegments, Unknown
from include.tiering.expiration.report import ExpireRun, present_expire
from include.tiering.model.retention import DeletionReason
from include.tiering.model.segments import Verdict
from include.tiering.runs.batch import BatchEnd
from include.tiering.runs.deletion_limits import DeletionLimitReport, TopicAction
from include.tiering.runs.deletion_run import (
    Approval,
    DeletionItem,
    DeletionOutcome,
    DeletionRun,
    PlannedDeletion,
    PlannedExpiration,
)
from include.tiering.segments.values import SegmentRow
from tests.doubles.archive import Archive
from tests.doubles.recorded_metrics import RecordedMetrics
from tests.doubles.segments import FINISHED, partition_of, planned_deletion, planned_expiration, segment_of

# The report of an expiration run: JSON members that others rely on, and the line a person reads.

A = partition_of("orders", 2)
PLAN = planned_expiration(A, *(segment_of(A, n, 10 * n, 10 * n + 9, state=FINISHED) for n in range(3)))
ACTION = TopicAction(A.topic_id, "orders", 3_000, 1_000, 9_000)
STOPPED = DeletionLimitReport("run", "hash", (ACTION,), ("orders: too much",))
LABELS = {"topic": "orders", "topic_id": str(A.topic_id), "partition": 2}


def run_of(*outcomes: DeletionOutcome, needs_approval: bool = True, **rest) -> ExpireRun:
    items = [DeletionItem(one, outcome) for one, outcome in zip(PLAN.deletions, outcomes, strict=True)]
    return ExpireRun(DeletionRun("run", "hash", needs_approval, None), [PLAN], items, STOPPED, **rest)


PLANNED, DELETED, FAILED = DeletionOutcome.PLANNED, DeletionOutcome.DELETED, DeletionOutcome.FAILED


def test_the_document_of_a_plan() -> None:
    unknown = Unknown(A, "local bytes are unknown")
    document = present_expire(run_of(PLANNED, PLANNED, PLANNED, unknowns=[unknown])).document()
    assert document["decisions"][1] == {
        **LABELS,
        "segment_id": str(PLAN.deletions[1].segment_id.id),
        "start_offset": 10,
        "end_offset": 19,
        "bytes": 1_000,
        "reason": "time",
        "detail": "age_ms 5",
        "outcome": "planned",
    }
    assert document["log_start_offsets"] == [{**LABELS, "from": 0, "to": 30}]
    assert document["shares"] == [
        {
            "topic": "orders",
            "topic_id": str(A.topic_id),
            "share": 0.4,
            "planned_bytes": 3_000,
            "recent_bytes": 1_000,
            "remote_bytes": 9_000,
        }
    ]
    assert (document["needs_approval"], document["plan_hash"], document["bytes"]) == (True, "hash", 3_000)
    assert document["unknowns"] == [{**LABELS, "message": "local bytes are unknown"}]


def test_what_is_held_is_named_with_the_time_until_it_goes() -> None:
    held = HeldSegments(A, 2, 2_048, 1_700_000_000_000)
    presented = present_expire(run_of(PLANNED, PLANNED, PLANNED, held=[held]))
    expected = {**LABELS, "segments": 2, "bytes": 2_048, "until_ms": 1_700_000_000_000}
    assert presented.document()["held"] == [expected]
    (table,) = [one for one in presented.tables() if one.title.startswith("superseded")]
    assert table.rows == (("orders-2", "2", "2.0 KiB", "2023-11-14 22:13:20 UTC"),)


def test_a_log_start_that_stays_is_not_listed() -> None:
    stays = replace(run_of(PLANNED, PLANNED, PLANNED), expirations=[replace(PLAN, log_start_before=30)])
    assert present_expire(stays).document()["log_start_offsets"] == []


def test_who_approved_is_told() -> None:
    run = run_of(DELETED, DELETED, DELETED)
    approved = replace(run, run=replace(run.run, approval=Approval("hash", "me@host", 5)))
    assert present_expire(approved).document()["approved_by"] == "me@host"


def test_summaries() -> None:
    def summary(run: ExpireRun) -> tuple[str, bool]:
        presented = present_expire(run)
        return presented.summary, presented.ok

    nothing = ExpireRun(DeletionRun("run", "hash", False, None), [], [])
    assert summary(nothing) == ("nothing expires", True)
    planned = run_of(PLANNED, PLANNED, PLANNED)
    assert summary(planned) == (
        "expires: 3 segments (2.9 KiB) of 1 partition, and needs an approval (plan hash)",
        True,
    )
    refused = replace(planned, refusal="not confirmed")
    assert summary(refused) == (
        "3 segments (2.9 KiB) of 1 partition would be deleted, nothing was deleted: not confirmed",
        False,
    )
    assert summary(run_of(DELETED, FAILED, PLANNED)) == (
        "deleted 1 segment, 1000 B; 1 failed, 0 skipped, 1 still planned",
        False,
    )


def test_tables_name_reasons_shares_and_failures() -> None:
    titles = [table.title for table in present_expire(run_of(DELETED, FAILED, PLANNED)).tables()]
    assert titles == ["expires, run run", "share of each topic", "needs an approval", "could not be deleted"]


# What became of the reasons of a plan while it waited for an approval, over a real deployment.


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    made = Archive.of(tmp_path)
    made.copy()
    return made


def _planned(archive: Archive) -> list[PlannedDeletion]:
    with archive.open() as app:
        app.expiration.plan("approved")
        return [
            deletion for planned in app.adapters.stores.deletions.plan("approved") for deletion in planned.deletions
        ]


def _withdrawn(archive: Archive) -> list[PlannedDeletion]:
    with archive.open() as app:
        return list(app.expiration.withdrawn("approved"))


def test_a_plan_stands_while_its_reasons_do(archive: Archive) -> None:
    archive.set(retention_bytes=100_000)
    planned = _planned(archive)
    assert planned
    assert _withdrawn(archive) == []
    archive.set(retention_bytes=0)
    assert _withdrawn(archive) == []


def test_what_would_stay_now_is_named(archive: Archive) -> None:
    archive.set(retention_bytes=0)
    planned = _planned(archive)
    archive.set(retention_bytes=100_000)
    kept = _withdrawn(archive)
    assert 0 < len(kept) < len(planned)
    assert set(kept) < set(planned)
    archive.set(retention_bytes=None)
    assert _withdrawn(archive) == planned


def test_what_another_run_deleted_is_nobodys_loss(archive: Archive) -> None:
    archive.set(retention_bytes=0)
    planned = _planned(archive)
    run, _ = archive.expire()
    assert len(run.items) == len(planned)
    archive.set(retention_bytes=None)
    assert _withdrawn(archive) == []


# What of a plan goes on, by what would be planned now.

ORDERS = partition_of("orders", 0)
COPY = segment_of(ORDERS, 1, 0, 9)


@dataclass
class OneSegment:
    """Metadata that know of an abandoned copy alone."""

    @property
    def selected(self) -> "OneSegment":
        return self

    def segments_with_ids(self, _partition: object, _ids: object) -> list[SegmentRow]:
        return [SegmentRow(COPY, Verdict.NONE, None)]


@pytest.mark.parametrize(
    ("planned", "now", "goes"),
    [
        (DeletionReason.TIME, DeletionReason.TIME, True),
        (DeletionReason.TIME, DeletionReason.LOG_START, True),
        (DeletionReason.TIME, DeletionReason.ABANDONED_COPY, False),
        (DeletionReason.ABANDONED_COPY, DeletionReason.ABANDONED_COPY, True),
        (DeletionReason.ABANDONED_COPY, DeletionReason.TIME, True),
        (DeletionReason.SIZE, DeletionReason.TOPIC_DELETED, False),
        (DeletionReason.TOPIC_DELETED, DeletionReason.TOPIC_DELETED, True),
        (DeletionReason.TOPIC_DELETED, DeletionReason.TIME, True),
        (DeletionReason.TIME, None, False),
    ],
)
def test_what_is_due_only_as_an_abandoned_copy_or_with_its_topic_waits_for_a_plan_that_says_so(
    planned: DeletionReason, now: DeletionReason | None, goes: bool
) -> None:
    """Only of such a one is proved that its offsets are elsewhere, by what the plan calls it."""
    before = PlannedExpiration(ORDERS, 0, 0, (planned_deletion(COPY, planned),))
    again = None if now is None else replace(before, deletions=(planned_deletion(COPY, now),))
    metadata: Any = OneSegment()
    checked = still_planned(before, again, metadata, history=0)
    assert (checked.planned.deletions, checked.kept) == ((before.deletions, ()) if goes else ((), before.deletions))


# Metrics of deletions: segments that went or stayed.


def test_segments_by_topic() -> None:
    recorder = RecordedMetrics()
    one = planned_deletion(COPY, DeletionReason.TIME)
    failed = FailedDeletion(DeletionItem(one, DeletionOutcome.FAILED, "RemoteStorageUnavailableError"), retriable=True)
    held = DeletionItem(one, DeletionOutcome.SKIPPED)
    count_deleted(recorder, [one] * 5)
    count_batch(recorder, DeleteResult((one,) * 5, (failed,), 1.0, BatchEnd.NO_WORK, (held, held)))
    topic = COPY.topic_id_partition.topic
    assert recorder.values() == {
        ("RemoteDeleteRequestsPerSec_total", topic): 6,
        ("RemoteDeleteErrorsPerSec_total", topic): 1,
        ("tiering_expired_bytes_total", topic): 5 * one.size_bytes,
        ("tiering_superseded_held_total", topic): 2,
    }
