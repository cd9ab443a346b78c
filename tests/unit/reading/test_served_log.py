"""Which segment's records are read at which offset, and what is a gap."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from include.tiering.model.histories import Divergence, Followed, OffsetRange, SeenBy, SeenDivergence, SkippedOffsets
from include.tiering.model.segments import Verdict
from include.tiering.reading.served_log import ServedPart, gaps_between, said_of_gap, served_parts
from include.tiering.segments.contract import SegmentRow
from tests.doubles.segments import DELETE_STARTED, FINISHED, partition_of, segment_of

ORDERS = partition_of()


def row(
    start: int,
    end: int,
    *,
    number: int = 0,
    epochs: Mapping[int, int] | None = None,
    verdict: Verdict = Verdict.PASSED,
    history: int = 0,
) -> SegmentRow:
    segment = segment_of(ORDERS, number or start, start, end, epochs, state=FINISHED)
    return SegmentRow(segment, verdict, None, history=history)


def divergence(number: int, first: int, last: int, from_offset: int) -> Divergence:
    seen = SeenDivergence(OffsetRange(first, last), (0,), (1,), SeenBy.COPY)
    return Divergence(number, seen, 0, Followed(from_offset, "reason", "author", 0))


def offsets(parts: Sequence[ServedPart]) -> list[tuple[int, int, int]]:
    """Start of the segment, first and last offset of each part."""
    return [(part.segment.start_offset, part.first_offset, part.last_offset) for part in parts]


def test_segments_that_follow_each_other() -> None:
    parts = served_parts([row(100, 199), row(0, 99)])
    assert offsets(parts) == [(0, 0, 99), (100, 100, 199)]
    assert all(part.is_whole for part in parts)
    assert gaps_between(parts) == ()


def test_an_overlap_is_read_once() -> None:
    parts = served_parts([row(0, 99), row(50, 149), row(60, 120), row(150, 199)])
    assert offsets(parts) == [(0, 0, 99), (50, 100, 149), (150, 150, 199)]
    assert [part.is_whole for part in parts] == [True, False, True]


def test_of_copies_with_one_start_the_longest_is_read() -> None:
    assert offsets(served_parts([row(0, 49, number=1), row(0, 99, number=2)])) == [(0, 0, 99)]


@pytest.mark.parametrize("verdict", [Verdict.NONE, Verdict.FAILED])
def test_what_is_not_served_is_a_gap(verdict: Verdict) -> None:
    parts = served_parts([row(0, 99), row(100, 199, verdict=verdict), row(200, 299)])
    assert offsets(parts) == [(0, 0, 99), (200, 200, 299)]
    assert gaps_between(parts) == ((100, 199),)


def test_an_expired_verdict_is_served() -> None:
    assert offsets(served_parts([row(0, 99, verdict=Verdict.EXPIRED)])) == [(0, 0, 99)]


def test_a_segment_that_is_being_deleted_is_not_read() -> None:
    deleted = row(0, 99)
    assert served_parts([replace(deleted, metadata=replace(deleted.metadata, state=DELETE_STARTED))]) == ()


def test_nothing_below_the_log_start_nor_below_the_first_leader_epoch() -> None:
    rows = [row(0, 99, epochs={0: 0}), row(100, 199, epochs={2: 130})]
    assert offsets(served_parts(rows, log_start_offset=30)) == [(0, 30, 99), (100, 130, 199)]
    assert offsets(served_parts(rows, log_start_offset=150)) == [(100, 150, 199)]


def test_from_a_decision_on_the_later_history_is_read() -> None:
    """The later history's segment was copied whole: it begins below the decision."""
    rows = [row(0, 149), row(80, 199, history=1)]
    parts = served_parts(rows, [divergence(1, 100, 149, from_offset=100)])
    assert offsets(parts) == [(0, 0, 99), (80, 100, 199)]


def test_a_later_history_replaces_what_this_one_has_lost_where_both_are_the_same() -> None:
    rows = [row(0, 49), row(40, 199, history=1)]
    parts = served_parts(rows, [divergence(1, 100, 149, from_offset=120)])
    assert offsets(parts) == [(0, 0, 49), (40, 50, 99), (40, 120, 199)]
    assert gaps_between(parts) == ((100, 119),)


def test_skipped_offsets_were_not_compared() -> None:
    rows = [row(0, 49), row(40, 199, history=1)]
    skipped = [SkippedOffsets(OffsetRange(60, 69), "reason", "author", 0)]
    parts = served_parts(rows, [divergence(1, 100, 149, from_offset=100)], skipped)
    assert gaps_between(parts) == ((60, 69),)
    assert "skipped by author (reason)" in said_of_gap(OffsetRange(60, 69), rows, skipped)


def test_an_unserved_segment_does_not_explain_what_lies_below_its_first_leader_epoch() -> None:
    rows = [row(0, 99, epochs={0: 40}, verdict=Verdict.FAILED)]
    assert "no segment in remote storage has them" in said_of_gap(OffsetRange(0, 39), rows, ())
    assert "its verdict is failed" in said_of_gap(OffsetRange(0, 40), rows, ())


def test_an_older_history_is_not_read_from_a_decision_on() -> None:
    parts = served_parts([row(0, 199)], [divergence(1, 100, 149, from_offset=100)])
    assert offsets(parts) == [(0, 0, 99)]


def test_what_is_said_of_a_gap() -> None:
    rows = [row(0, 99), row(100, 199, verdict=Verdict.NONE)]
    assert "its verdict is none" in said_of_gap(OffsetRange(100, 150), rows, ())
    assert said_of_gap(OffsetRange(200, 250), rows, ()) == ("offsets 200..250: no segment in remote storage has them")


@pytest.mark.parametrize(("first", "last"), [(-1, 5), (10, 5), (0, 100)])
def test_a_part_is_within_its_segment(first: int, last: int) -> None:
    with pytest.raises(ValueError, match="are no part of"):
        ServedPart(row(0, 99).metadata, first, last)
