"""Which copies make up a log, of whatever a store may hold."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from include.tiering.model.histories import OffsetRange, SeenBy, SeenDivergence, SkippedOffsets, part_of_history
from include.tiering.model.leader_epochs import LeaderEpochs
from include.tiering.model.recovered_histories import divergences_of
from include.tiering.model.recovered_log import Obstacle, RecoveredLog, continued_log, recovered_log
from include.tiering.model.segments import RemoteLogSegmentMetadata
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


def test_a_new_leaders_segment_overlaps_and_both_are_taken() -> None:
    first, second = copy(0, 0, 99), copy(1, 50, 149, {0: 50, 1: 120})
    covering = copy(2, 0, 199, {0: 0, 1: 120})
    assert recovered_log([covering, second, first]) == RecoveredLog((first, second, covering))


def numbered(log: RecoveredLog) -> list[tuple[RemoteLogSegmentMetadata, int]]:
    return [(one, log.histories.get(one.remote_log_segment_id, 0)) for one in log.segments]


def followed(log: RecoveredLog) -> list[tuple[int, int, OffsetRange]]:
    return [(one.number, one.from_offset, one.seen.offsets) for one in log.decided]


class TestHistories:
    def test_a_log_that_was_cut_and_written_again_is_followed_from_there_on(self) -> None:
        """An unclean election: offsets 80 to 99 were copied under epoch 0, and are others now."""
        lost, new = copy(0, 0, 99, {0: 0}), copy(1, 50, 149, {0: 50, 1: 80})
        log = recovered_log([new, lost])
        assert numbered(log) == [(lost, 0), (new, 1)]
        assert (followed(log), log.holes) == ([(1, 80, OffsetRange(80, 99))], ())
        assert log.decided[0].seen == SeenDivergence(OffsetRange(80, 99), (0,), (1,), SeenBy.REBUILD)

    def test_of_the_same_offsets_each_history_has_its_copy(self) -> None:
        old, new = copy(0, 0, 99, {0: 0}, began_ms=BEGAN_MS + 5), copy(1, 0, 99, {0: 0, 3: 50})
        assert numbered(recovered_log([old, new])) == [(old, 0), (new, 1)]

    def test_what_was_replaced_reaches_further_than_what_replaced_it(self) -> None:
        first, second = copy(0, 0, 99, {0: 0, 1: 50}), copy(1, 0, 149, {0: 0})
        log = recovered_log([first, second])
        assert numbered(log) == [(second, 0), (first, 1)]
        assert followed(log) == [(1, 50, OffsetRange(50, 149))]

    def test_more_old_copies_than_new_ones_do_not_outvote_them(self) -> None:
        old = [copy(n, 10 * n, 10 * n + 9, {0: 10 * n}) for n in range(9)]
        new = [copy(20, 30, 41, {0: 30, 6: 35}), copy(21, 42, 54, {6: 42})]
        log = recovered_log([*new, *old])
        assert numbered(log) == [*((one, 0) for one in old), *((one, 1) for one in new)]
        assert (followed(log), log.holes, log.left_out) == ([(1, 35, OffsetRange(35, 89))], (), ())

    def test_what_is_missing_of_what_was_replaced_is_named_and_is_no_hole(self) -> None:
        old = [copy(n, 10 * n, 10 * n + 9, {0: 10 * n}) for n in range(9) if n not in (3, 6)]
        new = [copy(20, 30, 41, {0: 30, 6: 35}), copy(21, 42, 99, {6: 42})]
        log = recovered_log([*new, *old])
        assert (log.holes, log.left_out) == ((), ())
        assert log.decided[0].missing == (OffsetRange(35, 39), OffsetRange(60, 69))
        assert recovered_log([*new, *old[:1]]).decided == ()

    def test_where_copies_of_the_new_history_begin_later_the_old_one_answers_up_to_there(self) -> None:
        """The source had lost its first offsets when it was followed; what the last copy carries still knows them."""
        old, new = copy(0, 0, 69, {0: 0}), copy(1, 78, 90, {6: 78})
        log = recovered_log([old, new], LeaderEpochs.of([(0, 0), (6, 35)]))
        assert numbered(log) == [(old, 0), (new, 1)]
        assert (followed(log), log.holes) == ([(1, 78, OffsetRange(35, 69))], (OffsetRange(70, 77),))

    def test_several_elections_make_several_histories(self) -> None:
        copies = [
            copy(0, 0, 49, {0: 0}),
            copy(1, 50, 99, {0: 50}),
            copy(2, 50, 109, {2: 50}),
            copy(3, 110, 140, {2: 110}),
            copy(4, 70, 120, {2: 70, 5: 80}),
        ]
        log = recovered_log(copies)
        assert [number for _, number in numbered(log)] == [0, 0, 1, 1, 2]
        assert followed(log) == [(1, 50, OffsetRange(50, 99)), (2, 80, OffsetRange(80, 140))]

    def test_copies_by_which_there_are_two_are_named(self) -> None:
        before, old = copy(0, 0, 29), copy(1, 30, 59)
        new, behind = copy(2, 30, 49, {0: 30, 6: 35}), copy(3, 50, 70, {6: 50})
        assert set(recovered_log([before, old, new, behind]).contradicting) == {before, old, new}
        assert recovered_log([before, old]).contradicting == ()

    @pytest.mark.parametrize("position", [0, 2, 3, 4])
    @pytest.mark.parametrize("epoch", [0, 2**31 - 1])
    def test_an_odd_manifest_is_among_those(self, position: int, epoch: int) -> None:
        segments = [copy(n, 100 * n, 100 * n + 99, {5: 100 * n}) for n in range(5)]
        odd = segments[position] = copy(position, 100 * position, 100 * position + 99, {epoch: 100 * position})
        log = recovered_log(segments)
        # At its own end of the log an odd epoch contradicts nobody.
        harmless = (position, epoch) in ((0, 0), (4, 2**31 - 1))
        assert (odd in log.contradicting) is not harmless
        assert sorted(log.segments, key=str) == sorted(segments, key=str)


def test_of_two_that_reach_one_end_the_one_that_goes_on_is_taken() -> None:
    first, following, longer = copy(0, 0, 99), copy(1, 100, 199), copy(2, 50, 199)
    log = recovered_log([longer, following, first])
    assert log.segments == (first, following)
    assert obstacles(log) == [(longer, Obstacle.COVERED)]


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
def test_whatever_a_store_holds(copies: Sequence[RemoteLogSegmentMetadata], random: Random) -> None:
    log = recovered_log(copies)
    taken, left = list(log.segments), [one.segment for one in log.left_out]
    assert sorted([*taken, *left], key=str) == sorted(copies, key=str)
    divergences = divergences_of(log.decided)
    for history in {number for _, number in numbered(log)}:
        ends = [one.end_offset for one, number in numbered(log) if number == history]
        assert all(before < after for before, after in pairwise(ends))
    assert bool(taken) is bool(copies)
    parts = [part_of_history(one, number, divergences) for one, number in numbered(log)]
    covered = {offset for part in parts if part for offset in range(part.first, part.last + 1)}
    holes = {offset for hole in log.holes for offset in range(hole.first, hole.last + 1)}
    if covered:
        assert set(range(min(covered), max(covered) + 1)) == covered | holes
        assert not covered & holes
    epochs_at: dict[int, set[int | None]] = {}
    for (one, _), part in zip(numbered(log), parts, strict=True):
        for offset in range(part.first, part.last + 1) if part else ():
            epochs_at.setdefault(offset, set()).add(one.segment_leader_epochs.epoch_for(offset))
    assert {len(epochs) for epochs in epochs_at.values()} <= {1}, "an offset is served of two histories"
    shuffled = list(copies)
    random.shuffle(shuffled)
    assert recovered_log(shuffled) == log
    if not log.decided:
        assert recovered_log(taken).segments == log.segments
