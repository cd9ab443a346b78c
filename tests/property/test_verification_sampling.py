"""Sampling: every segment gets into some rolling sample, and each reason takes what a plain reading of it takes."""

import dataclasses
import math
from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from include.tiering.model.segments import Depth, RemoteLogSegmentId, Uuid, Verdict
from include.tiering.quotas.contract import QuotasInForce
from include.tiering.segments.contract import SegmentRow
from include.tiering.verification.measures import bytes_to_read
from include.tiering.verification.plan import (
    PLACES,
    RollingSample,
    VerificationPlan,
    VerificationReason,
    VerificationSample,
    place_of,
    plan_verification,
)
from tests.doubles.segments import FINISHED, STARTED, partition_of, segment_of

NO_QUOTAS = QuotasInForce(0, {})
NOW_MS = 1_700_000_000_000
MAX_AGE_MS = 1_000
SHARES = st.floats(0.01, 1.0) | st.sampled_from([0.05, 0.1, 0.2, 0.25, 0.3, 1 / 3, 0.5, 1.0])


@st.composite
def rows(draw: st.DrawFn) -> list[SegmentRow]:
    """Segments of some partitions in a few states, verdicts of any age, sizes that differ by six orders."""
    found = []
    for number in range(draw(st.integers(0, 30))):
        partition = partition_of(draw(st.sampled_from(["orders", "audit"])), draw(st.integers(0, 2)))
        verdict = draw(st.sampled_from(Verdict))
        segment = segment_of(
            partition,
            number,
            100 * number,
            100 * number + 99,
            size_bytes=draw(st.integers(1, 10**9)),
            state=draw(st.sampled_from([FINISHED, FINISHED, FINISHED, STARTED])),
        )
        age_ms = draw(st.integers(0, 2 * MAX_AGE_MS))
        verdict_at_ms = None if verdict is Verdict.NONE else NOW_MS - age_ms
        found.append(SegmentRow(segment, verdict, None, verdict_at_ms=verdict_at_ms))
    return found


def plan(
    found: list[SegmentRow], sample: VerificationSample, limit_bytes: int | None = None, depth: Depth = Depth.DEEP
):
    return plan_verification(
        found,
        sample,
        run_id="r",
        depth=depth,
        quotas=NO_QUOTAS,
        now_ms=NOW_MS,
        max_age_ms=MAX_AGE_MS,
        limit_bytes=limit_bytes,
    )


def ids(planned: VerificationPlan) -> set[RemoteLogSegmentId]:
    return {one.segment_id for one in planned.planned}


def age_of(row: SegmentRow) -> float:
    return math.inf if row.verdict_at_ms is None else NOW_MS - row.verdict_at_ms


@given(SHARES, st.integers(0, 10**6), st.binary(min_size=16, max_size=16))
def test_every_segment_gets_its_turn_within_the_cycle(share: float, first: int, raw: bytes) -> None:
    segment_id = RemoteLogSegmentId(partition_of(), Uuid(raw))
    cycle = math.ceil(1 / Fraction(share).limit_denominator(10**9))
    turns = [number for number in range(first, first + cycle) if RollingSample.of(share, number).holds(segment_id)]
    # The arcs of a cycle that is not whole overlap where it begins again.
    assert 1 <= len(turns) <= 2
    if Fraction(share).limit_denominator(10**9) * cycle == 1:
        assert len(turns) == 1


@given(SHARES, st.integers(0, 10**6))
def test_periods_join_without_gap(share: float, period: int) -> None:
    rolling_sample, following = RollingSample.of(share, period), RollingSample.of(share, period + 1)
    assert (rolling_sample.first + rolling_sample.length) % PLACES == following.first
    assert abs(rolling_sample.length - share * PLACES) < PLACES / 10**8


def test_a_period_takes_about_its_share_of_the_bytes() -> None:
    """20,000 segments, one in ten of them ten times as long. Places follow from ids alone: each run is the same."""
    segments = [segment_of(partition_of(), n, n, n, size_bytes=10 if n % 10 == 0 else 1) for n in range(20_000)]
    turns = [RollingSample.of(0.05, period) for period in range(20)]
    taken = [
        sum(s.segment_size_bytes for s in segments if rolling_sample.holds(s.remote_log_segment_id))
        for rolling_sample in turns
    ]
    total = sum(segment.segment_size_bytes for segment in segments)
    assert sum(taken) == total
    assert all(0.8 < size_bytes / (0.05 * total) < 1.2 for size_bytes in taken)
    assert len({place_of(segment.remote_log_segment_id) for segment in segments}) == len(segments)


@given(rows(), st.booleans(), st.booleans(), st.none() | st.integers(0, 2_000), st.none() | SHARES, st.booleans())
def test_a_sample_takes_what_its_reasons_say(found, due, failed, older_than_ms, share, everything) -> None:
    rolling_sample = None if share is None else RollingSample.of(share, 7)
    sample = VerificationSample(
        due=due, failed=failed, older_than_ms=older_than_ms, rolling_sample=rolling_sample, everything=everything
    )
    finished = [row for row in found if row.metadata.is_finished]
    expected = {
        row.metadata.remote_log_segment_id
        for row in finished
        if everything
        or (due and (row.verdict is not Verdict.PASSED or age_of(row) >= 0.9 * MAX_AGE_MS))
        or (failed and row.verdict is Verdict.FAILED)
        or (older_than_ms is not None and age_of(row) >= older_than_ms)
        or (rolling_sample is not None and rolling_sample.holds(row.metadata.remote_log_segment_id))
    }
    planned = plan(found, sample)
    assert ids(planned) == expected
    assert (planned.segments, planned.left_out) == (len(finished), 0)
    assert planned.cost.read_bytes == sum(one.planned_bytes for one in planned.planned)
    order = [
        (p.segment_id.topic_id_partition.topic, p.segment_id.topic_id_partition.partition, p.start_offset)
        for p in planned.planned
    ]
    assert order == sorted(order)


@given(rows(), st.integers(1, 3 * 10**9))
def test_a_limit_takes_the_most_urgent_and_leaves_the_rest(found, limit_bytes) -> None:
    sample = VerificationSample(due=True, rolling_sample=RollingSample.of(0.5, 3))
    whole, limited = plan(found, sample), plan(found, sample, limit_bytes)
    taken = ids(limited)
    assert len(taken) + limited.left_out == len(whole.planned)
    assert limited.cost.read_bytes <= limit_bytes or len(taken) == 1
    assert bool(taken) == bool(whole.planned)
    by_id = {row.metadata.remote_log_segment_id: row for row in found}
    left = [one for one in whole.planned if one.segment_id not in taken]
    for one in limited.planned:
        for other in left:
            mine, others = list(VerificationReason).index(one.reason), list(VerificationReason).index(other.reason)
            assert mine <= others
            if mine == others:
                assert age_of(by_id[one.segment_id]) >= age_of(by_id[other.segment_id])


@given(rows(), st.integers(1, 10**9))
def test_runs_with_a_limit_reach_everything_in_the_end(found, limit_bytes) -> None:
    """Each run verifies what it planned; nothing waits for ever behind what is read again and again."""
    left = {row.metadata.remote_log_segment_id: row for row in found if row.metadata.is_finished}
    due = [key for key, row in left.items() if row.verdict is not Verdict.PASSED or age_of(row) >= 0.9 * MAX_AGE_MS]
    for _ in range(len(due)):
        for segment_id in ids(plan(list(left.values()), VerificationSample(due=True), limit_bytes)):
            left[segment_id] = dataclasses.replace(left[segment_id], verdict=Verdict.PASSED, verdict_at_ms=NOW_MS)
    assert not plan(list(left.values()), VerificationSample(due=True)).planned


@given(st.integers(1, 2**31 - 1))
def test_a_deep_verification_costs_the_log_more(size_bytes: int) -> None:
    segment = segment_of(partition_of(), 1, 0, 9, size_bytes=size_bytes)
    deep, shallow = bytes_to_read(segment, Depth.DEEP), bytes_to_read(segment, Depth.SHALLOW)
    assert size_bytes < deep < 1.01 * size_bytes + 2_000
    assert shallow < 0.01 * size_bytes + 20_000
