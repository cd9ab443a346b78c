"""When the brake asks for an approval: shares over a day, the floor, and sums that disagree."""

from dataclasses import replace

import pytest

from include.tiering.tasks.brake import BrakeLimits, TopicAction, disagreements, excesses
from include.tiering.work.deletion_contract import TopicTotals
from tests.doubles.expirations import planned_expiration
from tests.doubles.segments import FINISHED, STARTED, partition_of, segment_of

A = partition_of("a")
LIMITS = BrakeLimits(max_share=0.2, min_bytes=100)


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


PLAN = planned_expiration(
    A,
    segment_of(A, 1, 0, 9, state=FINISHED),
    segment_of(A, 2, 10, 19, state=FINISHED),
    segment_of(A, 3, 10, 19, state=STARTED),
)
AGREEING = TopicTotals(A.topic_id, "a", 3, 2_000, recent_bytes=0, remote_bytes=5_000, above_log_start=0)


def test_equal_sums_agree() -> None:
    assert disagreements([PLAN], [AGREEING]) == {}


@pytest.mark.parametrize(
    ("totals", "said"),
    [
        ([replace(AGREEING, planned_segments=2)], "counts 3 segments with 2000 bytes, the database 2 with 2000"),
        ([replace(AGREEING, planned_bytes=1_999)], "the database 3 with 1999"),
        ([], "the database 0 with 0"),
        ([replace(AGREEING, above_log_start=1)], "1 planned segments reach beyond the log start"),
    ],
)
def test_a_difference_is_told(totals: list[TopicTotals], said: str) -> None:
    ((topic_id, sentence),) = disagreements([PLAN], totals).items()
    assert topic_id == A.topic_id
    assert said in sentence
