"""What every implementation of `RemoteLogMetadata` does with verifications, and with verdicts as they grow old."""

import dataclasses
from dataclasses import replace

import pytest
from sqlalchemy import update

from include.tiering.database.schema import segments as segment_rows
from include.tiering.model.ownership import Fence
from include.tiering.model.segments import (
    AgedSegments,
    Depth,
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    TopicIdPartition,
    Verdict,
    VerdictAge,
    VerdictTotal,
)
from include.tiering.segments import sql_verdicts
from include.tiering.segments.contract import QualityResult, RecordedVerdict, RemoteLogMetadata, Verification
from include.tiering.segments.sql import SqlRemoteLogMetadata
from tests.doubles.databases import POSTGRESQL, AdjustableNow
from tests.doubles.segments import DELETE_STARTED, FINISHED, delete, finish, segment_of, update_of

# What every implementation of `RemoteLogMetadata` makes of verifications of one segment.


@pytest.fixture
def segment_id(metadata: RemoteLogMetadata, partition: TopicIdPartition, fence: Fence) -> RemoteLogSegmentId:
    return finish(metadata, segment_of(partition, 1, 0, 99), fence).remote_log_segment_id


def verification(
    metadata: RemoteLogMetadata, segment_id: RemoteLogSegmentId, *broken: str, unevaluated: str = ""
) -> Verification:
    """One that begins now. A rule whose name begins with W is a warning."""
    results = tuple(
        QualityResult(segment_id, rule, "warning" if rule[0] == "W" else "critical", False, f"why {rule}")
        for rule in broken
    )
    return Verification(segment_id, results, frozenset(unevaluated.split()), before=metadata.segment(segment_id))


def broken(metadata: RemoteLogMetadata, segment_id: RemoteLogSegmentId) -> list[str]:
    return [result.rule for result in metadata.quality_results(segment_id) if not result.passed]


def verdict(metadata: RemoteLogMetadata, segment_id: RemoteLogSegmentId) -> Verdict:
    return metadata.segment(segment_id).verdict


def test_a_verification_that_finds_nothing_passes_the_segment(metadata, now, segment_id):
    assert metadata.record_verification(verification(metadata, segment_id)) == RecordedVerdict(Verdict.PASSED, ())
    row = metadata.segment(segment_id)
    assert (row.verdict, row.verdict_detail, row.verdict_at_ms) == (Verdict.PASSED, "", now.now_ms)
    assert metadata.quality_results(segment_id) == []


def test_a_critical_rule_fails_it_and_stops_the_partition(metadata, partition, segment_id):
    found = verification(metadata, segment_id, "Q2", "W1", "Q1")
    in_order = tuple(sorted(found.broken, key=lambda one: one.rule))
    assert metadata.record_verification(found) == RecordedVerdict(Verdict.FAILED, in_order)
    assert metadata.quality_results(segment_id) == list(in_order)
    row = metadata.segment(segment_id)
    assert (row.verdict, row.verdict_detail) == (Verdict.FAILED, "Q1: why Q1; Q2: why Q2")
    assert "Q1: why Q1" in metadata.stopped_reason(partition)


def test_a_warning_does_not(metadata, partition, segment_id):
    assert metadata.record_verification(verification(metadata, segment_id, "W1")).verdict is Verdict.PASSED
    assert broken(metadata, segment_id) == ["W1"]
    assert metadata.stopped_reason(partition) is None


def test_a_later_verification_clears_the_rules_that_it_evaluates(metadata, partition, segment_id):
    metadata.record_verification(verification(metadata, segment_id, "Q1", "Q2", "W1"))
    still = metadata.record_verification(verification(metadata, segment_id, unevaluated="Q2"))
    assert (still.verdict, [one.rule for one in still.broken]) == (Verdict.FAILED, ["Q2"])
    assert [(one.rule, one.passed, one.message) for one in metadata.quality_results(segment_id)] == [
        ("Q1", True, ""),
        ("Q2", False, "why Q2"),
        ("W1", True, ""),
    ]
    assert metadata.record_verification(verification(metadata, segment_id)) == RecordedVerdict(Verdict.PASSED, ())
    assert metadata.stopped_reason(partition) is None


@pytest.mark.parametrize("before", [(), ("Q1",)], ids=["never-verified", "failed-before"])
@pytest.mark.parametrize("fails_first", [True, False])
def test_of_two_verifications_at_once_the_failed_one_counts(metadata, segment_id, before, fails_first):
    """The clock stands still meanwhile, and what one finds may be what was found before."""
    if before:
        metadata.record_verification(verification(metadata, segment_id, *before))
    clears, fails = verification(metadata, segment_id), verification(metadata, segment_id, "Q1")
    for one in (fails, clears) if fails_first else (clears, fails):
        metadata.record_verification(one)
    assert verdict(metadata, segment_id) is Verdict.FAILED
    assert broken(metadata, segment_id) == ["Q1"]
    assert metadata.record_verification(verification(metadata, segment_id)).verdict is Verdict.PASSED


def test_a_verification_clears_what_was_found_before_it_began(metadata, segment_id):
    metadata.record_verification(verification(metadata, segment_id, "Q1"))
    clears = verification(metadata, segment_id)
    metadata.record_verification(verification(metadata, segment_id, "Q2", unevaluated="Q1"))
    metadata.record_verification(clears)
    assert verdict(metadata, segment_id) is Verdict.FAILED
    assert broken(metadata, segment_id) == ["Q2"]


def test_repeating_a_call_changes_nothing(metadata, segment_id):
    metadata.record_verification(verification(metadata, segment_id, "Q1"))
    for one in (verification(metadata, segment_id), verification(metadata, segment_id, "Q2")):
        assert metadata.record_verification(one) == metadata.record_verification(one)


def test_a_verification_without_a_row_of_before_clears_nothing_and_passes_nothing(metadata, segment_id):
    by_neighbours = verification(metadata, segment_id, "W1")
    recorded = metadata.record_verification(Verification(segment_id, by_neighbours.broken))
    assert (recorded.verdict, broken(metadata, segment_id)) == (Verdict.NONE, ["W1"])
    metadata.record_verification(verification(metadata, segment_id, "Q1", unevaluated="W1"))
    assert metadata.record_verification(Verification(segment_id)).verdict is Verdict.FAILED
    assert broken(metadata, segment_id) == ["Q1", "W1"]


def test_verdicts_of_a_segment_ascend_in_time_though_the_clock_is_set_back(metadata, now: AdjustableNow, segment_id):
    metadata.record_verification(verification(metadata, segment_id, "Q1"))
    first = metadata.segment(segment_id).verdict_at_ms
    now.now_ms -= 60_000
    clears = verification(metadata, segment_id)
    metadata.record_verification(verification(metadata, segment_id, "Q1"))
    assert metadata.segment(segment_id).verdict_at_ms == first + 1
    assert metadata.record_verification(clears).verdict is Verdict.FAILED


def test_what_a_deep_verification_passed_stays_so_until_it_fails(metadata, now, segment_id):
    def deep_passed_at(*broken: str, is_deep: bool) -> int | None:
        now.advance(1)
        metadata.record_verification(replace(verification(metadata, segment_id, *broken), is_deep=is_deep))
        return metadata.segment(segment_id).deep_passed_at_ms

    assert deep_passed_at(is_deep=False) is None
    first = now.now_ms + 1
    assert deep_passed_at("W1", is_deep=True) == first
    assert deep_passed_at(is_deep=False) == first
    assert deep_passed_at(is_deep=True) == first + 2
    metadata.expire_verdicts(-1, at_most=1)
    assert metadata.segment(segment_id).deep_passed_at_ms == first + 2
    assert deep_passed_at("Q1", is_deep=False) is None
    assert deep_passed_at(is_deep=False) is None


def test_what_is_not_finished_is_left_alone(metadata, partition, fence, segment_id):
    fails, passes = verification(metadata, segment_id, "Q1"), verification(metadata, segment_id)
    segment = metadata.segment(segment_id).metadata
    metadata.update_segment(update_of(segment, DELETE_STARTED), expected=FINISHED, fence=fence)
    assert metadata.record_verification(fails) is None
    assert metadata.record_verification(passes) is None
    assert verdict(metadata, segment_id) is Verdict.NONE
    assert metadata.quality_results(segment_id) == []
    assert metadata.record_verification(Verification(segment_of(partition, 2, 0, 99).remote_log_segment_id)) is None


def test_rules_and_verdict_are_stored_together_or_not_at_all(metadata, segment_id, monkeypatch):
    def dies(*_: object, **__: object) -> None:
        raise InterruptedError

    metadata.record_verification(verification(metadata, segment_id))
    fails = verification(metadata, segment_id, "Q1")
    monkeypatch.setattr(sql_verdicts, "store_verdict", dies)
    with pytest.raises(InterruptedError):
        metadata.record_verification(fails)
    assert verdict(metadata, segment_id) is Verdict.PASSED
    assert metadata.quality_results(segment_id) == []


# What every implementation of `RemoteLogMetadata` does with verdicts as they grow old.

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
    shallow, day = Depth.SHALLOW, VerdictAge.DAY
    assert list(metadata.verdict_totals()) == [
        VerdictTotal(Verdict.NONE, 2, 9_000, None, (AgedSegments(None, None, 2, 9_000),)),
        VerdictTotal(Verdict.PASSED, 1, 3_000, 50, (AgedSegments(shallow, day, 1, 3_000),)),
        VerdictTotal(Verdict.FAILED, 1, 2_000, 751, (AgedSegments(None, day, 1, 2_000),)),
        VerdictTotal(Verdict.EXPIRED, 1, 1_000, 1_051, (AgedSegments(shallow, day, 1, 1_000),)),
    ]
    delete(metadata, segments[0], fence)
    assert metadata.verdict_totals()[3] == VerdictTotal(Verdict.EXPIRED, 0, 0, None)


DAY_MS = 86_400_000


@pytest.mark.parametrize(
    ("age_ms", "expected"),
    [
        (0, VerdictAge.DAY),
        (DAY_MS - 1, VerdictAge.DAY),
        (DAY_MS, VerdictAge.WEEK),
        (7 * DAY_MS, VerdictAge.MONTH),
        (30 * DAY_MS, VerdictAge.QUARTER),
        (90 * DAY_MS - 1, VerdictAge.QUARTER),
        (90 * DAY_MS, VerdictAge.OLDER),
    ],
)
def test_a_range_of_ages_has_its_lower_bound(metadata, now, segments, age_ms, expected):
    record_verdict_of(metadata, segments[0])
    now.advance(age_ms)
    (passed,) = metadata.verdict_totals()[1].by_age
    assert (passed.depth, passed.age, passed.segments) == (Depth.SHALLOW, expected, 1)


def test_the_age_of_what_was_read_whole_is_that_of_the_reading(metadata, now, segments):
    segment_id = segments[0].remote_log_segment_id

    def verified(*, is_deep: bool) -> AgedSegments:
        metadata.record_verification(Verification(segment_id, before=metadata.segment(segment_id), is_deep=is_deep))
        (aged,) = metadata.verdict_totals()[1].by_age
        return aged

    size_bytes = segments[0].segment_size_bytes
    assert verified(is_deep=True) == AgedSegments(Depth.DEEP, VerdictAge.DAY, 1, size_bytes)
    now.advance(8 * DAY_MS)
    assert verified(is_deep=False) == AgedSegments(Depth.DEEP, VerdictAge.MONTH, 1, size_bytes)
    metadata.record_verdict(segment_id, Verdict.FAILED)
    assert metadata.verdict_totals()[1].by_age == ()
    assert verified(is_deep=False) == AgedSegments(Depth.SHALLOW, VerdictAge.DAY, 1, size_bytes)
