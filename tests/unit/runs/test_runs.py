"""Approvals, deletion limits, tries of runs and the guard of clocks."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from include.tiering.errors import ClockBehindError, ClockDisagreesError
from include.tiering.model.retention import DeletionReason
from include.tiering.model.segments import Uuid
from include.tiering.runs.approval import approval_question
from include.tiering.runs.database_clock import ClockBounds, ClockReading, require_consistent_clock
from include.tiering.runs.deletion_limits import (
    DeletionLimitReport,
    DeletionLimits,
    TopicAction,
    disagreements,
    excesses,
    total_excesses,
)
from include.tiering.runs.deletion_run import PlannedExpiration, TopicTotals, id_of_try, is_try_of
from include.tiering.units import GIB
from tests.doubles.segments import FINISHED, STARTED, partition_of, planned_deletion, planned_expiration, segment_of

# The question to a person: what goes, of which topic, how much of it, and why it asks.

HASH = "0123456789abcdef" * 4
A, B = partition_of("a"), partition_of("b_b")


def _asked(actions: list[TopicAction], expirations: list[PlannedExpiration], reasons: tuple[str, ...] = ("too much",)):
    return approval_question(DeletionLimitReport("run-1", HASH, tuple(actions), reasons), expirations)


def test_names_plan_reasons_and_topics_by_share() -> None:
    by_time = planned_expiration(A, segment_of(A, 1, 0, 9, state=FINISHED))
    by_size = [planned_deletion(segment_of(B, n, 10 * n, 10 * n + 9), DeletionReason.SIZE) for n in (2, 3)]
    expirations = [by_time, PlannedExpiration(B, 0, 40, tuple(by_size))]
    actions = [TopicAction(A.topic_id, "a", 1_024, 0, 10_240), TopicAction(B.topic_id, "b_b", 2_048, 2_048, 6_144)]
    question = _asked(actions, expirations, ("b_b: half of it", "the sums differ"))
    assert question.subject == "Delete 3 segments (2.9 KiB) of 2 topics? Plan 0123456789ab"
    lines = question.body.splitlines()
    assert lines[0] == f"Plan `{HASH}` of run `run-1` deletes 3 segments (2.9 KiB) of 2 topics from remote storage."
    assert lines[2:4] == ["* b_b: half of it", "* the sums differ"]
    rows = [line for line in lines if line.startswith("| ")]
    assert rows[2:] == [
        "| `b_b` | 2 | 2.0 KiB | 50.0% | 2.0 KiB | 6.0 KiB | size 2 |",
        "| `a` | 1 | 1.0 KiB | 10.0% | 0 B | 10.0 KiB | time 1 |",
    ]
    assert len({row.count("|") for row in rows}) == 1


def test_a_thousand_topics_stay_readable() -> None:
    topics = [partition_of(f"topic-{number:04}") for number in range(1_000)]
    expirations = [planned_expiration(one, segment_of(one, 1, 0, 9)) for one in topics]
    actions = [TopicAction(one.topic_id, one.topic, 100, 0, 1_000) for one in topics]
    body = _asked(actions, expirations, tuple(f"{one.topic}: too much" for one in topics)).body
    assert "and 950 more topics" in body
    assert "and 950 more reasons" in body
    assert len(body) < 10_000


# When the deletion limit asks for an approval: shares over a day, the floor, and sums that disagree.

A_TOPIC = partition_of("a")
LIMITS = DeletionLimits(max_share=0.2, min_bytes=100)


def action(planned: int, recent: int = 0, remote: int = 1_000) -> TopicAction:
    return TopicAction(A_TOPIC.topic_id, "a", planned, recent, remote)


@pytest.mark.parametrize(
    ("found", "share", "stops"),
    [
        (action(200), 0.2, False),
        (action(201), 0.201, True),
        (action(1_000), 1.0, True),
        (action(100, remote=100), 1.0, False),
        (action(101, remote=101), 1.0, True),
        (action(150, recent=100, remote=900), 0.25, True),
        (action(150, recent=50, remote=950), 0.2, False),
        (action(0, recent=900, remote=100), 0.9, True),
        (action(0, remote=0), 0.0, False),
    ],
)
def test_a_share_above_the_limit_and_the_floor_stops(found: TopicAction, share: float, stops: bool) -> None:
    assert found.share == pytest.approx(share)
    assert bool(excesses([found], LIMITS)) is stops


def test_the_sentence_has_the_numbers() -> None:
    (sentence,) = excesses([action(2_048, 1_024, 4_096)], LIMITS).values()
    assert sentence.startswith("a: 2.0 KiB planned and 1.0 KiB deleted within 24 hours are 60.0% of what there was")


def test_what_only_ends_what_a_released_run_began_is_not_asked_about() -> None:
    """Its bytes counted for that run, and cannot be taken back."""
    resumed = TopicAction(A_TOPIC.topic_id, "a", 900, 900, 100, begun_bytes=900)
    assert excesses([resumed], LIMITS) == {}
    assert excesses([replace(resumed, planned_bytes=901)], LIMITS) != {}


def topics(count: int, **changes: Any) -> list[TopicAction]:
    made = [TopicAction(Uuid(n.to_bytes(16)), f"t{n:02}", 100, 0, 100) for n in range(count)]
    return [replace(one, **changes) for one in made]


IN_ALL = DeletionLimits(max_share=0.2, min_bytes=100, total_max_bytes=1_000, max_whole_topics=1)


class TestInAll:
    def test_what_goes_below_the_floor_of_each_topic_has_a_limit_of_its_own(self) -> None:
        assert total_excesses(topics(10), IN_ALL) == {}
        ((sentence, topic_ids),) = total_excesses(topics(11), IN_ALL).items()
        assert sentence.startswith("11 topics lose more than 20.0% of their bytes within 24 hours, each at most 100 B")
        assert "in all 1.1 KiB (t00, t01, t02, t03, t04 and 6 more)" in sentence
        assert len(topic_ids) == 11

    def test_what_rolls_within_its_share_asks_nobody_however_much_it_is(self) -> None:
        """500 GiB a day of a hundred topics whose retention is 30 days."""
        daily = topics(100, planned_bytes=GIB // 5, recent_bytes=5 * GIB, remote_bytes=150 * GIB)
        assert excesses(daily, DeletionLimits(max_share=0.2, min_bytes=GIB)) == {}
        assert total_excesses(daily, DeletionLimits(max_share=0.2, min_bytes=GIB)) == {}

    def test_what_exceeds_by_itself_asks_by_itself(self) -> None:
        large = topics(11, planned_bytes=101, remote_bytes=101)
        assert len(excesses(large, IN_ALL)) == 11
        assert total_excesses(large, IN_ALL) == {}

    def test_more_than_one_topic_that_loses_everything_asks_however_little_it_is(self) -> None:
        whole = topics(2, planned_bytes=1, remote_bytes=1, loses_everything=True)
        assert total_excesses(whole[:1], IN_ALL) == {}
        ((sentence, topic_ids),) = total_excesses(whole, IN_ALL).items()
        assert sentence == ("2 topics lose everything within 24 hours (t00, t01); without an approval at most 1")
        assert topic_ids == {one.topic_id for one in whole}

    def test_a_slice_counts_with_what_went_before_it(self) -> None:
        gone, goes = topics(2, loses_everything=True)
        gone = replace(gone, planned_bytes=0, recent_bytes=100, unapproved_bytes=100, remote_bytes=0)
        ((_, topic_ids),) = total_excesses([gone, goes], IN_ALL).items()
        assert topic_ids == {goes.topic_id}

    def test_what_was_approved_is_not_asked_about_again(self) -> None:
        approved = topics(20, planned_bytes=0, recent_bytes=100, remote_bytes=0)
        assert total_excesses([*approved, *topics(21)[20:]], IN_ALL) == {}

    def test_a_plan_that_adds_nothing_is_not_asked_about(self) -> None:
        gone = topics(20, planned_bytes=0, recent_bytes=100, unapproved_bytes=100, remote_bytes=0)
        gone = [replace(one, loses_everything=True) for one in gone]
        harmless = replace(topics(21)[20], remote_bytes=10_000)
        assert total_excesses([*gone, harmless], IN_ALL) == {}


PLAN = planned_expiration(
    A_TOPIC,
    segment_of(A_TOPIC, 1, 0, 9, state=FINISHED),
    segment_of(A_TOPIC, 2, 10, 19, state=FINISHED),
    segment_of(A_TOPIC, 3, 10, 19, state=STARTED),
)
AGREEING = TopicTotals(A_TOPIC.topic_id, "a", 3, 3_000, recent_bytes=0, remote_bytes=5_000, above_log_start=0)


def test_equal_sums_agree() -> None:
    assert disagreements([PLAN], [AGREEING]) == {}


@pytest.mark.parametrize(
    ("totals", "said"),
    [
        ([replace(AGREEING, planned_segments=2)], "counts 3 segments with 3000 bytes, the database 2 with 3000"),
        ([replace(AGREEING, planned_bytes=2_999)], "the database 3 with 2999"),
        ([], "the database 0 with 0"),
        ([replace(AGREEING, above_log_start=1)], "1 planned segments reach beyond the log start"),
    ],
)
def test_a_difference_is_told(totals: list[TopicTotals], said: str) -> None:
    ((topic_id, sentence),) = disagreements([PLAN], totals).items()
    assert topic_id == A_TOPIC.topic_id
    assert said in sentence


# No id of a planned run is that of two tries.

RUNS = ["x", "x.1", "x.2", "x.2.1", "x.02", "x.", "x.1a", "xx", "y.2.2", "x.\u0662", "x.2\n"]
NAMES = st.one_of(st.sampled_from(RUNS), st.from_regex(r"\A[a.12]{1,6}\Z"))
NUMBERS = st.integers(1, 20)


def test_a_run_keeps_its_name_and_later_tries_are_numbered() -> None:
    assert [id_of_try("x", n) for n in (1, 2, 3)] == ["x", "x.2", "x.3"]


def test_a_name_that_looks_like_a_try_is_numbered_from_the_first_on() -> None:
    assert [id_of_try("x.2", n) for n in (1, 2)] == ["x.2.1", "x.2.2"]
    assert not is_try_of("x.2", "x.2")
    assert not is_try_of("x", "x.2.1")


def test_no_try_has_such_an_id() -> None:
    for planned in ("x.1", "x.02", "x.a", "x2", "y", "x.", "x.\u0662"):
        assert not is_try_of("x", planned)


@given(NAMES, NUMBERS, NAMES, NUMBERS)
def test_two_tries_have_two_ids(first: str, number: int, second: str, other: int) -> None:
    assert (id_of_try(first, number) == id_of_try(second, other)) == ((first, number) == (second, other))


@given(NAMES, NAMES, NUMBERS)
def test_each_try_is_that_of_its_run_alone(run_id: str, other: str, number: int) -> None:
    assert is_try_of(run_id, id_of_try(other, number)) == (run_id == other)


# When the database's clock is not believed: far from another clock, or before what it dated itself.

NOW = 1_800_000_000_000
MINUTE = 60_000
BOUNDS = ClockBounds(max_difference_ms=5 * MINUTE)


def worker(now_ms: int) -> ClockReading:
    return ClockReading("this worker's says", now_ms)


@pytest.mark.parametrize("apart_ms", [0, 5 * MINUTE, -5 * MINUTE, 5 * MINUTE + 1_000])
def test_within_the_bound_and_a_second_of_rounding_it_is_believed(apart_ms: int) -> None:
    require_consistent_clock(NOW, [worker(NOW + apart_ms)], NOW, BOUNDS)


@pytest.mark.parametrize("apart_ms", [5 * MINUTE + 1_001, -5 * MINUTE - 1_001, 12 * 365 * 24 * 60 * MINUTE])
def test_farther_apart_it_is_not_and_both_clocks_are_named(apart_ms: int) -> None:
    with pytest.raises(ClockDisagreesError) as caught:
        require_consistent_clock(NOW, [worker(NOW), ClockReading("the store says", NOW + apart_ms)], None, BOUNDS)
    assert "the database's clock says 2027-01-15" in str(caught.value)
    assert "the store says 20" in str(caught.value)
    assert not caught.value.retriable


def test_what_cannot_be_compared_is_no_obstacle() -> None:
    require_consistent_clock(NOW, [], None, BOUNDS)


def test_before_its_newest_event_it_catches_up_or_it_was_ahead() -> None:
    require_consistent_clock(NOW, [], NOW + 1_000, BOUNDS)
    with pytest.raises(ClockBehindError, match="until it has caught up") as behind:
        require_consistent_clock(NOW, [], NOW + 1_001, BOUNDS)
    assert behind.value.retriable
    with pytest.raises(ClockDisagreesError, match=r"tiering\.clock\.ignored\.until\.ms=1800000300001") as far:
        require_consistent_clock(NOW, [], NOW + 5 * MINUTE + 1, BOUNDS)
    assert not far.value.retriable
