"""Every segment that a run left has one reason, the first that shows; without any it is a finding."""

import pytest

from include.tiering.copying.plan import LeftBecause, left_work
from include.tiering.model.segments import Uuid
from include.tiering.runs.contract import (
    ALL_TOPICS,
    LeaseHolder,
    PlannedSegment,
    SegmentOutcome,
    WorkItem,
)
from tests.doubles.segments import partition_of

A, B = partition_of("a"), partition_of("b")
HOLDER = LeaseHolder("run-2", "batch-2", 1_700_000_000_000, 1_700_000_030_000, 5)
PLANNED, COPIED, FAILED = SegmentOutcome.PLANNED, SegmentOutcome.COPIED, SegmentOutcome.FAILED


def item(number: int, outcome: SegmentOutcome = PLANNED, partition=A, *, supersedes: Uuid | None = None, **rest):
    return WorkItem(partition, PlannedSegment(10 * number, 10 * number + 9, 100, supersedes), outcome, **rest)


def reasons(*items: WorkItem, holder=None, highest=None, paused=(), ended_early=False) -> list[LeftBecause]:
    found = left_work(
        items,
        holder=lambda _: holder,
        highest_copied=lambda _: highest,
        paused=paused,
        ended_early=ended_early,
    )
    return [one.reason for one in found]


def test_what_has_an_outcome_is_not_left():
    assert reasons(item(0, COPIED), item(1, FAILED)) == []


@pytest.mark.parametrize(
    ("items", "given", "reason"),
    [
        ((item(0),), {}, LeftBecause.UNKNOWN),
        ((item(0),), {"paused": {"b"}}, LeftBecause.UNKNOWN),
        ((item(0),), {"ended_early": True}, LeftBecause.ENDED),
        ((item(0),), {"paused": {"a"}, "ended_early": True}, LeftBecause.PAUSED),
        ((item(0),), {"paused": {ALL_TOPICS}}, LeftBecause.PAUSED),
        ((item(0),), {"holder": HOLDER, "paused": {"a"}}, LeftBecause.HELD),
        ((item(0),), {"holder": HOLDER, "highest": 9}, LeftBecause.COPIED),
        ((item(0), item(1)), {"highest": 9}, LeftBecause.UNKNOWN),
        ((item(0, supersedes=Uuid(b"0123456789abcdef")),), {"highest": 9}, LeftBecause.UNKNOWN),
        ((item(0, error="QuotaExceededError", message="too much"),), {"holder": HOLDER}, LeftBecause.THROTTLED),
        ((item(0, FAILED), item(1)), {"holder": HOLDER}, LeftBecause.FAILED),
    ],
)
def test_the_first_reason_that_shows(items, given, reason):
    assert reasons(*items, **given) == [reason]


def test_each_partition_by_itself():
    left = left_work(
        [item(0), item(1), item(0, FAILED, B), item(1, PLANNED, B)],
        holder=lambda partition: HOLDER if partition == A else None,
        highest_copied=lambda _: None,
        paused=(),
        ended_early=False,
    )
    assert [(one.topic_id_partition, one.segments, one.size_bytes, one.reason, one.is_explained) for one in left] == [
        (A, 2, 200, LeftBecause.HELD, True),
        (B, 1, 100, LeftBecause.FAILED, True),
    ]
    assert str(left[0]) == (
        "another batch holds the partition: batch-2 of run run-2, until 2023-11-14 22:13:50 UTC unless it renews"
    )
