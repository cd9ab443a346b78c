"""When the deletion limit asks for an approval: shares over a day, the floor, and sums that disagree."""

from dataclasses import replace
from typing import Any

import pytest

from include.tiering.model.segments import Uuid
from include.tiering.runs.deletion_limits import DeletionLimits, TopicAction, disagreements, excesses, excesses_in_all
from include.tiering.runs.deletion_run import TopicTotals
from include.tiering.units import GIB
from tests.doubles.expirations import planned_expiration
from tests.doubles.segments import FINISHED, STARTED, partition_of, segment_of

A = partition_of("a")
LIMITS = DeletionLimits(max_share=0.2, min_bytes=100)


def action(planned: int, recent: int = 0, remote: int = 1_000) -> TopicAction:
    return TopicAction(A.topic_id, "a", planned, recent, remote)


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
    resumed = TopicAction(A.topic_id, "a", 900, 900, 100, begun_bytes=900)
    assert excesses([resumed], LIMITS) == {}
    assert excesses([replace(resumed, planned_bytes=901)], LIMITS) != {}


def topics(count: int, **changes: Any) -> list[TopicAction]:
    made = [TopicAction(Uuid(n.to_bytes(16)), f"t{n:02}", 100, 0, 100) for n in range(count)]
    return [replace(one, **changes) for one in made]


IN_ALL = DeletionLimits(max_share=0.2, min_bytes=100, total_max_bytes=1_000, max_whole_topics=1)


class TestInAll:
    def test_what_goes_below_the_floor_of_each_topic_has_a_limit_of_its_own(self) -> None:
        assert excesses_in_all(topics(10), IN_ALL) == {}
        ((sentence, topic_ids),) = excesses_in_all(topics(11), IN_ALL).items()
        assert sentence.startswith("11 topics lose more than 20.0% of themselves within 24 hours, each at most 100 B")
        assert "in all 1.1 KiB (t00, t01, t02, t03, t04 and 6 more)" in sentence
        assert len(topic_ids) == 11

    def test_what_rolls_within_its_share_asks_nobody_however_much_it_is(self) -> None:
        """500 GiB a day of a hundred topics whose retention is 30 days."""
        daily = topics(100, planned_bytes=GIB // 5, recent_bytes=5 * GIB, remote_bytes=150 * GIB)
        assert excesses(daily, DeletionLimits(max_share=0.2, min_bytes=GIB)) == {}
        assert excesses_in_all(daily, DeletionLimits(max_share=0.2, min_bytes=GIB)) == {}

    def test_what_exceeds_by_itself_asks_by_itself(self) -> None:
        large = topics(11, planned_bytes=101, remote_bytes=101)
        assert len(excesses(large, IN_ALL)) == 11
        assert excesses_in_all(large, IN_ALL) == {}

    def test_more_than_one_topic_that_loses_everything_asks_however_little_it_is(self) -> None:
        whole = topics(2, planned_bytes=1, remote_bytes=1, loses_everything=True)
        assert excesses_in_all(whole[:1], IN_ALL) == {}
        ((sentence, topic_ids),) = excesses_in_all(whole, IN_ALL).items()
        assert sentence == ("2 topics lose everything within 24 hours (t00, t01); without an approval at most 1")
        assert topic_ids == {one.topic_id for one in whole}

    def test_a_slice_counts_with_what_went_before_it(self) -> None:
        gone, goes = topics(2, loses_everything=True)
        gone = replace(gone, planned_bytes=0, recent_bytes=100, unapproved_bytes=100, remote_bytes=0)
        ((_, topic_ids),) = excesses_in_all([gone, goes], IN_ALL).items()
        assert topic_ids == {goes.topic_id}

    def test_what_was_approved_is_not_asked_about_again(self) -> None:
        approved = topics(20, planned_bytes=0, recent_bytes=100, remote_bytes=0)
        assert excesses_in_all([*approved, *topics(21)[20:]], IN_ALL) == {}

    def test_a_plan_that_adds_nothing_is_not_asked_about(self) -> None:
        gone = topics(20, planned_bytes=0, recent_bytes=100, unapproved_bytes=100, remote_bytes=0)
        gone = [replace(one, loses_everything=True) for one in gone]
        harmless = replace(topics(21)[20], remote_bytes=10_000)
        assert excesses_in_all([*gone, harmless], IN_ALL) == {}


PLAN = planned_expiration(
    A,
    segment_of(A, 1, 0, 9, state=FINISHED),
    segment_of(A, 2, 10, 19, state=FINISHED),
    segment_of(A, 3, 10, 19, state=STARTED),
)
AGREEING = TopicTotals(A.topic_id, "a", 3, 3_000, recent_bytes=0, remote_bytes=5_000, above_log_start=0)


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
    assert topic_id == A.topic_id
    assert said in sentence
