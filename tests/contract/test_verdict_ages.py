"""What every implementation of `RemoteLogMetadata` does with verdicts as they grow old."""

import dataclasses

import pytest
from sqlalchemy import update

from include.tiering.database.schema import segments as segment_rows
from include.tiering.model.ownership import Fence
from include.tiering.model.segments import RemoteLogSegmentMetadata, TopicIdPartition, Verdict, VerdictTotal
from include.tiering.segments.contract import RemoteLogMetadata
from include.tiering.segments.sql import SqlRemoteLogMetadata
from tests.doubles.databases import POSTGRESQL, AdjustableNow
from tests.doubles.segments import (
    DELETE_STARTED,
    FINISHED,
    delete,
    finish,
    segment_of,
    update_of,
)

AGE_MS = 1_000


@pytest.fixture
def segments(metadata: RemoteLogMetadata, partition: TopicIdPartition, fence: Fence) -> list[RemoteLogSegmentMetadata]:
    """Five FINISHED ones without a verdict, of 1,000 to 5,000 bytes."""
    return [
        finish(metadata, segment_of(partition, n, 100 * n, 100 * n + 99, size_bytes=1_000 * (n + 1)), fence)
        for n in range(5)
    ]


def record_verdict_of(
    metadata: RemoteLogMetadata, segment: RemoteLogSegmentMetadata, verdict: Verdict = Verdict.PASSED
) -> None:
    metadata.record_verdict(segment.remote_log_segment_id, verdict, detail="why")


def verdicts(metadata: RemoteLogMetadata, partition: TopicIdPartition) -> list[Verdict]:
    return [row.verdict for row in metadata.list_segments(partition)]


def test_a_row_has_the_time_of_its_verdict(metadata, now: AdjustableNow, segments):
    first = segments[0].remote_log_segment_id
    assert metadata.segment(first).verdict_at_ms is None
    record_verdict_of(metadata, segments[0])
    assert metadata.segment(first).verdict_at_ms == now.now_ms


def test_what_passed_too_long_ago_expires_and_nothing_else_of_it_changes(metadata, now, partition, segments):
    record_verdict_of(metadata, segments[0])
    now.advance(1)
    record_verdict_of(metadata, segments[1])
    before = metadata.segment(segments[0].remote_log_segment_id)
    now.advance(AGE_MS)
    assert metadata.expire_verdicts(AGE_MS, at_most=10) == 1
    assert metadata.segment(segments[0].remote_log_segment_id) == dataclasses.replace(before, verdict=Verdict.EXPIRED)
    assert verdicts(metadata, partition)[:2] == [Verdict.EXPIRED, Verdict.PASSED]
    assert metadata.expire_verdicts(AGE_MS, at_most=10) == 0


def test_a_call_is_bounded_and_takes_the_oldest_first(metadata, now, partition, segments):
    for segment in reversed(segments):
        record_verdict_of(metadata, segment)
        now.advance(1)
    now.advance(AGE_MS)
    assert metadata.expire_verdicts(AGE_MS, at_most=2) == 2
    assert verdicts(metadata, partition) == [Verdict.PASSED] * 3 + [Verdict.EXPIRED] * 2
    assert [metadata.expire_verdicts(AGE_MS, at_most=2) for _ in range(3)] == [2, 1, 0]


def test_only_what_passed_and_is_finished_expires(metadata, now, partition, fence, segments):
    record_verdict_of(metadata, segments[0], Verdict.FAILED)
    record_verdict_of(metadata, segments[1])
    delete(metadata, segments[1], fence)
    record_verdict_of(metadata, segments[2])
    metadata.update_segment(update_of(segments[2], DELETE_STARTED), expected=FINISHED, fence=fence)
    now.advance(10 * AGE_MS)
    assert metadata.expire_verdicts(AGE_MS, at_most=10) == 0
    assert metadata.segment(segments[1].remote_log_segment_id).verdict is Verdict.PASSED
    assert verdicts(metadata, partition) == [Verdict.FAILED, Verdict.PASSED, Verdict.NONE, Verdict.NONE]


def test_a_new_verdict_begins_a_new_age(metadata, now, partition, segments):
    record_verdict_of(metadata, segments[0])
    now.advance(2 * AGE_MS)
    assert metadata.expire_verdicts(AGE_MS, at_most=10) == 1
    record_verdict_of(metadata, segments[0])
    assert metadata.expire_verdicts(AGE_MS, at_most=10) == 0
    assert verdicts(metadata, partition)[0] is Verdict.PASSED


def test_a_segment_that_is_being_verified_is_passed_over(database_kind, engine, metadata, now, partition, segments):
    if database_kind != POSTGRESQL:
        pytest.skip("here one transaction writes at a time")
    for segment in segments:
        record_verdict_of(metadata, segment)
    now.advance(2 * AGE_MS)
    verified = str(segments[0].remote_log_segment_id.id)
    with engine.begin() as connection:
        is_verified = segment_rows.c.segment_id == verified
        connection.execute(update(segment_rows).where(is_verified).values(verdict_at_ms=now.now_ms))
        assert metadata.expire_verdicts(AGE_MS, at_most=10) == len(segments) - 1
    assert metadata.expire_verdicts(AGE_MS, at_most=10) == 0
    assert verdicts(metadata, partition) == [Verdict.PASSED] + [Verdict.EXPIRED] * (len(segments) - 1)


def test_an_expired_verdict_neither_stops_the_partition_nor_is_unverified(metadata, now, partition, fence, segments):
    for segment in segments:
        record_verdict_of(metadata, segment)
    now.advance(2 * AGE_MS)
    metadata.expire_verdicts(AGE_MS, at_most=10)
    assert metadata.stopped_reason(partition) is None
    assert list(metadata.unverified_segments()) == []
    finish(metadata, segment_of(partition, 9, 500, 599), fence)


def test_another_cluster_keeps_its_verdicts(engine, metadata, now, partition, segments):
    record_verdict_of(metadata, segments[0])
    now.advance(2 * AGE_MS)
    other = SqlRemoteLogMetadata(engine, "other-cluster", now_ms=now)
    assert other.expire_verdicts(AGE_MS, at_most=10) == 0
    assert [total.segments for total in other.verdict_totals()] == [0, 0, 0, 0]
    assert verdicts(metadata, partition)[0] is Verdict.PASSED


def test_totals_by_verdict_with_the_age_of_the_oldest(metadata, now, partition, fence, segments):
    record_verdict_of(metadata, segments[0])
    now.advance(300)
    record_verdict_of(metadata, segments[1], Verdict.FAILED)
    now.advance(AGE_MS - 300 + 1)
    record_verdict_of(metadata, segments[2])
    assert metadata.expire_verdicts(AGE_MS, at_most=10) == 1
    now.advance(50)
    assert list(metadata.verdict_totals()) == [
        VerdictTotal(Verdict.NONE, 2, 9_000, None),
        VerdictTotal(Verdict.PASSED, 1, 3_000, 50),
        VerdictTotal(Verdict.FAILED, 1, 2_000, 751),
        VerdictTotal(Verdict.EXPIRED, 1, 1_000, 1_051),
    ]
    delete(metadata, segments[0], fence)
    assert metadata.verdict_totals()[3] == VerdictTotal(Verdict.EXPIRED, 0, 0, None)
