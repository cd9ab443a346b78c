"""Which copies make up a log, of whatever a store may hold."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from include.tiering.model.recovered_log import Obstacle, RecoveredLog, continued_log, recovered_log
from include.tiering.model.segment_metadata import RemoteLogSegmentMetadata
from include.tiering.model.skipped_offsets import OffsetRange, SkippedOffsets
from tests.doubles.segments import partition_of, segment_of

ORDERS_0 = partition_of()
BEGAN_MS = 1_600_000_100_000


def copy(
    number: int, start: int, end: int, epochs: Mapping[int, int] | None = None, *, began_ms: int = BEGAN_MS
) -> RemoteLogSegmentMetadata:
    return replace(segment_of(ORDERS_0, number, start, end, epochs), event_timestamp_ms=began_ms)


def obstacles(log: RecoveredLog) -> list[tuple[RemoteLogSegmentMetadata, Obstacle]]:
    return [(one.segment, one.obstacle) for one in log.left_out]


def test_copies_that_follow_each_other_are_the_log_whatever_their_order() -> None:
    segments = [copy(n, 100 * n, 100 * n + 99) for n in range(5)]
    assert recovered_log(reversed(segments)) == RecoveredLog(tuple(segments))
    assert recovered_log(()) == RecoveredLog(())


def test_a_hole_is_named_and_both_sides_are_kept() -> None:
    first, last = copy(0, 10, 99), copy(1, 200, 299)
    assert recovered_log([first, last]) == RecoveredLog((first, last), (), (OffsetRange(100, 199),))


def test_of_two_copies_of_the_same_offsets_the_one_that_was_begun_last_is_taken() -> None:
    """A failed segment and the copy that took its place; an attempt that was given up and the next one."""
    old, new = copy(9, 0, 99), copy(1, 0, 99, began_ms=BEGAN_MS + 1)
    log = recovered_log([new, old])
    assert log.segments == (new,)
    assert [(one.segment, one.obstacle, one.beside) for one in log.left_out] == [(old, Obstacle.SAME_OFFSETS, new)]


def test_a_later_lineage_wins_over_a_later_begin() -> None:
    old, new = copy(0, 0, 99, {0: 0}, began_ms=BEGAN_MS + 5), copy(1, 0, 99, {0: 0, 3: 50})
    assert recovered_log([old, new]).segments == (new,)


def test_a_new_leaders_segment_overlaps_and_both_are_taken() -> None:
    first, second = copy(0, 0, 99), copy(1, 50, 149, {0: 50, 1: 120})
    covering = copy(2, 0, 199, {0: 0, 1: 120})
    assert recovered_log([covering, second, first]) == RecoveredLog((first, second, covering))


def test_a_log_that_was_cut_and_written_again_goes_on_with_the_later_lineage() -> None:
    """An unclean election: offsets 80 to 99 were copied under epoch 0, and are others now."""
    lost, fork = copy(0, 0, 99, {0: 0}), copy(1, 50, 149, {0: 50, 1: 80})
    assert recovered_log([lost, fork]).segments == (lost, fork)


def test_a_copy_of_an_older_lineage_with_a_higher_end_is_left_out() -> None:
    first, second = copy(0, 0, 99, {0: 0, 1: 50}), copy(1, 0, 149, {0: 0, 1: 100})
    assert obstacles(recovered_log([first, second])) == [(second, Obstacle.OLDER_LINEAGE)]


def test_of_two_that_reach_one_end_the_one_that_goes_on_is_taken() -> None:
    first, following, longer = copy(0, 0, 99), copy(1, 100, 199), copy(2, 50, 199)
    log = recovered_log([longer, following, first])
    assert log.segments == (first, following)
    assert obstacles(log) == [(longer, Obstacle.COVERED)]


@pytest.mark.parametrize("position", [0, 2, 3, 4])
@pytest.mark.parametrize("epoch", [0, 2**31 - 1])
def test_one_odd_manifest_takes_no_other_with_it(position: int, epoch: int) -> None:
    segments = [copy(n, 100 * n, 100 * n + 99, {5: 100 * n}) for n in range(5)]
    odd = copy(position, 100 * position, 100 * position + 99, {epoch: 100 * position})
    others = [one for n, one in enumerate(segments) if n != position]
    log = recovered_log([*others, odd])
    # At its own end of the log an odd epoch contradicts nobody.
    harmless = (position, epoch) in ((0, 0), (4, 2**31 - 1))
    assert list(log.segments) == (sorted([*others, odd], key=lambda one: one.end_offset) if harmless else others)
    assert obstacles(log) == ([] if harmless else [(odd, Obstacle.FALLING_EPOCHS)])


def decision(first: int, last: int) -> SkippedOffsets:
    return SkippedOffsets(OffsetRange(first, last), "agreed", "me", 1)


class TestContinued:
    LAST = copy(0, 0, 99, {2: 0})

    @pytest.mark.parametrize(
        ("start", "end", "epoch", "obstacle"),
        [
            (100, 199, 2, None),
            (100, 199, 3, None),
            (100, 199, 1, Obstacle.FALLING_EPOCHS),
            (99, 199, 2, Obstacle.OVERLAP),
            (0, 99, 2, Obstacle.OVERLAP),
            (0, 19, 2, Obstacle.BELOW_LOG_START),
            (101, 199, 2, None),
            (122, 199, 2, Obstacle.GAP),
            (131, 199, 2, Obstacle.GAP),
        ],
    )
    def test_only_what_goes_on_follows(self, start: int, end: int, epoch: int, obstacle: Obstacle | None) -> None:
        one = copy(1, start, end, {epoch: start})
        log = continued_log(self.LAST, 99, [one], decisions=[decision(100, 120)], log_start_offset=20)
        assert obstacles(log) == ([] if obstacle is None else [(one, obstacle)])
        assert log.segments == ((one,) if obstacle is None else ())

    def test_a_gap_that_somebody_decided_about_is_none(self) -> None:
        one = copy(1, 121, 199, {2: 121})
        log = continued_log(self.LAST, 99, [one], decisions=[decision(100, 110), decision(111, 120)])
        assert log.segments == (one,)

    def test_several_follow_each_other_until_one_is_missing(self) -> None:
        segments = [copy(n, 100 * n, 100 * n + 99, {2: 100 * n}) for n in (1, 2, 4)]
        log = continued_log(self.LAST, 99, segments)
        assert log.segments == tuple(segments[:2])
        assert obstacles(log) == [(segments[2], Obstacle.GAP)]

    def test_where_nothing_was_ever_copied_the_first_begins_anywhere(self) -> None:
        segments = [copy(n, 100 * n, 100 * n + 99) for n in (7, 8)]
        assert continued_log(None, None, segments).segments == tuple(segments)
        assert continued_log(None, None, segments, begun_offset=segments[0].start_offset).segments == tuple(segments)
        behind = continued_log(None, None, segments, begun_offset=segments[0].start_offset - 1)
        assert (behind.segments, {one.obstacle for one in behind.left_out}) == ((), {Obstacle.GAP})

    def test_where_everything_was_deleted_it_goes_on_behind_that(self) -> None:
        early, next_one = copy(1, 0, 99), copy(2, 500, 599)
        log = continued_log(None, 499, [early, next_one])
        assert log.segments == (next_one,)


@st.composite
def stores(draw: st.DrawFn) -> Sequence[RemoteLogSegmentMetadata]:
    copies = []
    for number in range(draw(st.integers(0, 12))):
        start = draw(st.integers(0, 60))
        end = start + draw(st.integers(0, 30))
        first = draw(st.integers(0, 3))
        epochs = {first: start}
        if draw(st.booleans()) and end > start:
            epochs[first + draw(st.integers(1, 2))] = draw(st.integers(start + 1, end))
        copies.append(copy(number, start, end, epochs, began_ms=draw(st.integers(0, 3))))
    return copies


@given(stores(), st.randoms(use_true_random=False))
def test_whatever_a_store_holds(copies: Sequence[RemoteLogSegmentMetadata], random) -> None:
    log = recovered_log(copies)
    taken, left = list(log.segments), [one.segment for one in log.left_out]
    assert sorted([*taken, *left], key=str) == sorted(copies, key=str)
    assert all(before.end_offset < after.end_offset for before, after in pairwise(taken))
    last_epochs = [one.segment_leader_epochs.entries[-1].epoch for one in taken]
    assert last_epochs == sorted(last_epochs)
    assert bool(taken) is bool(copies)
    covered = {offset for one in taken for offset in range(one.start_offset, one.end_offset + 1)}
    holes = {offset for hole in log.holes for offset in range(hole.first, hole.last + 1)}
    if taken:
        assert set(range(taken[0].start_offset, taken[-1].end_offset + 1)) <= covered | holes
    shuffled = list(copies)
    random.shuffle(shuffled)
    assert recovered_log(shuffled) == log
    assert recovered_log(taken).segments == log.segments
