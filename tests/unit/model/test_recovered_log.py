"""Logs that are put together again: succession, adoption, skipped offsets."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from include.tiering.model.histories import (
    Divergence,
    Followed,
    OffsetRange,
    SeenBy,
    SeenDivergence,
    SkippedOffsets,
    decision_about,
    leader_epochs_back,
    missing_offsets,
    not_skipped,
    part_of_history,
    unexplained_overlap,
)
from include.tiering.model.leader_epochs import LeaderEpochs
from include.tiering.model.recovered_histories import divergences_of
from include.tiering.model.recovered_log import (
    Obstacle,
    RecoveredLog,
    StoredHistories,
    continued_log,
    newest_decision,
    not_followed,
    recovered_log,
)
from include.tiering.model.segments import RemoteLogSegmentMetadata
from tests.doubles.segments import partition_of, segment_of
from tests.doubles.stored_log import some_metadata

# Which copies make up a log, of whatever a store may hold.

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


# Copies that no metadata knows, beside a log that is known: which are of a later history, and which may be adopted.

NOTHING = LeaderEpochs()


def adoptable(number: int, start: int, end: int, epochs: Mapping[int, int] | None = None) -> RemoteLogSegmentMetadata:
    return segment_of(ORDERS_0, number, start, end, epochs or {0: start})


KNOWN = [adoptable(1, 0, 29), adoptable(2, 30, 39), adoptable(3, 40, 69, {0: 40, 4: 50})]
LATER = [adoptable(11, 30, 39, {0: 30, 6: 35}), adoptable(12, 40, 64, {6: 40}), adoptable(13, 65, 90, {6: 65})]


def seen(copies: list[RemoteLogSegmentMetadata], carried: LeaderEpochs = NOTHING) -> SeenDivergence | None:
    return StoredHistories(KNOWN, copies, carried).diverging()


def divergence(first: int, last: int, seen_by: SeenBy, source: tuple[int, ...] = (6,)) -> SeenDivergence:
    return SeenDivergence(OffsetRange(first, last), (0, 4), source, seen_by)


def test_copies_that_replace_what_is_known_from_where_it_differs_on() -> None:
    assert seen(LATER) == divergence(35, 69, SeenBy.STORE)


def test_copies_that_begin_behind_what_differs() -> None:
    """Its copy carries the history of its leader epochs, so one copy at the end tells."""
    assert seen(LATER[2:], LeaderEpochs.of([(0, 0), (6, 35)])) == divergence(35, 69, SeenBy.ADOPTION)
    assert seen(LATER[1:], LeaderEpochs.of([(0, 0), (6, 35)])) == divergence(35, 69, SeenBy.ADOPTION)


def test_two_elections_since() -> None:
    copies = [*LATER[:2], adoptable(14, 60, 99, {9: 60})]
    assert seen(copies) == divergence(35, 69, SeenBy.ADOPTION, (6, 9))


def test_what_goes_on_and_what_an_older_leader_left_are_no_later_history() -> None:
    going_on = adoptable(4, 70, 99, {4: 70})
    assert seen([going_on]) is None
    assert seen([adoptable(5, 45, 79, {2: 45}), going_on]) is None
    assert seen([]) is None


def test_copies_of_two_histories_are_not_adopted_as_one() -> None:
    """A backup of before either: what follows offset 29 was copied twice, in segments that fit together."""
    older = [adoptable(21, 30, 39), adoptable(22, 40, 59), adoptable(23, 60, 69)]
    later = [adoptable(31, 30, 44, {0: 30, 6: 35}), adoptable(32, 60, 79, {6: 60})]
    told = StoredHistories(KNOWN[:1], [*older, *later], NOTHING)
    assert told.diverging() is None
    mixed = continued_log(KNOWN[0], 29, [*older[:2], later[1]]).segments
    assert told.mixes(mixed)
    assert not told.mixes(older)
    assert not told.mixes(later[:1])
    assert list(told.of_first_history()) == older


@pytest.mark.parametrize(
    ("one", "obstacle"),
    [
        (LATER[0], None),
        (LATER[2], None),
        (KNOWN[1], Obstacle.LEFT_HISTORY),
        (adoptable(5, 70, 79, {4: 70}), Obstacle.LEFT_HISTORY),
        (adoptable(6, 60, 79, {4: 60, 6: 70}), Obstacle.LEFT_HISTORY),
        (adoptable(7, 20, 34), Obstacle.BEFORE_HISTORY),
    ],
)
def test_behind_a_decision_only_what_the_later_leader_wrote_is_taken(
    one: RemoteLogSegmentMetadata, obstacle: Obstacle | None
) -> None:
    decided = Divergence(1, divergence(35, 69, SeenBy.PLAN), 0, Followed(35, "agreed", "me", 1))
    assert newest_decision([decided]) == decided
    assert newest_decision([Divergence(1, decided.seen, 0)]) is None
    assert not_followed(one, decided) is obstacle


def test_a_history_begins_in_the_store_where_an_adoption_saw_it_and_a_decision_followed() -> None:
    followed = Followed(35, "agreed", "me", 1)
    stored = Divergence(1, divergence(35, 69, SeenBy.STORE), 0, followed)
    assert [stored.begins_in_store(offset) for offset in (34, 35, 36)] == [False, True, False]
    assert not replace(stored, followed=None).begins_in_store(35)
    assert not replace(stored, seen=divergence(35, 69, SeenBy.PLAN)).begins_in_store(35)
    assert not replace(stored, followed=replace(followed, from_offset=36)).begins_in_store(36)


def test_a_followed_history_begins_with_the_segment_that_holds_its_offset() -> None:
    log = continued_log(None, 34, LATER, followed_from=35)
    assert log.segments == tuple(LATER)
    assert [one.obstacle for one in continued_log(None, 34, LATER).left_out] == [
        Obstacle.OVERLAP,
        Obstacle.GAP,
        Obstacle.GAP,
    ]
    behind = continued_log(None, 34, LATER[1:], followed_from=35)
    assert [one.obstacle for one in behind.left_out] == [Obstacle.GAP, Obstacle.GAP]


# How one segment follows another: gaps, overlaps after a change of the leader, falling epochs.


def segment(start: int, end: int, *epochs: tuple[int, int], broker_id: int = 1) -> RemoteLogSegmentMetadata:
    template = some_metadata(100)
    return RemoteLogSegmentMetadata(
        template.remote_log_segment_id,
        start,
        end,
        max_timestamp_ms=-1,
        broker_id=broker_id,
        event_timestamp_ms=0,
        segment_size_bytes=100,
        segment_leader_epochs=LeaderEpochs.of(epochs or [(0, start)]),
    )


def test_the_first_segment_follows_nothing() -> None:
    first = segment(500, 600, (7, 500))
    assert missing_offsets(None, first) == ()
    assert unexplained_overlap(None, first) == leader_epochs_back(None, first) == 0


def test_a_gap_has_the_offsets_that_nobody_holds() -> None:
    assert missing_offsets(segment(0, 99), segment(100, 199)) == ()
    assert missing_offsets(segment(0, 99), segment(101, 199)) == ((100, 100),)
    assert missing_offsets(segment(0, 99), segment(50, 199)) == ()


def test_what_was_skipped_by_decision_is_not_missing() -> None:
    decisions = [SkippedOffsets(OffsetRange(100, 149), "lost", "me", 0)]
    assert missing_offsets(segment(0, 99), segment(150, 199), decisions) == ()
    assert missing_offsets(segment(0, 99), segment(160, 199), decisions) == ((150, 159),)


def test_an_overlap_of_the_same_leader_is_counted() -> None:
    assert unexplained_overlap(segment(0, 99), segment(100, 199)) == 0
    assert unexplained_overlap(segment(0, 99), segment(90, 199)) == 10


def test_an_overlap_is_explained_by_another_broker_or_a_later_epoch() -> None:
    assert unexplained_overlap(segment(0, 99), segment(90, 199, broker_id=2)) == 0
    assert unexplained_overlap(segment(0, 99), segment(90, 199, (0, 90), (1, 150))) == 0


def test_a_segment_that_brings_nothing_new_is_never_explained() -> None:
    assert unexplained_overlap(segment(0, 99), segment(40, 99, broker_id=2)) == 60
    assert unexplained_overlap(segment(0, 99), segment(40, 59, broker_id=2)) == 20


def test_epochs_may_stay_or_rise() -> None:
    before = segment(0, 99, (0, 0), (3, 50))
    assert leader_epochs_back(before, segment(100, 199, (3, 100))) == 0
    assert leader_epochs_back(before, segment(100, 199, (5, 100))) == 0
    assert leader_epochs_back(before, segment(100, 199, (1, 100))) == 2


def test_an_overlapping_segment_is_compared_at_its_first_new_offset() -> None:
    before = segment(0, 99, (0, 0), (3, 50))
    assert leader_epochs_back(before, segment(20, 199, (0, 20), (3, 50), broker_id=2)) == 0
    assert leader_epochs_back(before, segment(20, 199, (0, 20), (4, 120), broker_id=2)) == 3


def test_a_history_that_begins_inside_the_segment_is_compared_where_it_begins() -> None:
    before = segment(0, 99, (3, 0))
    assert leader_epochs_back(before, segment(100, 199, (3, 150))) == 0
    assert leader_epochs_back(before, segment(100, 199, (1, 150))) == 2


# What recorded holes leave of a range of offsets.

_OFFSETS = st.integers(0, 40)


def skipped(first: int, last: int) -> SkippedOffsets:
    return SkippedOffsets(OffsetRange(first, last), "retention was quicker", "me@host", 0)


@pytest.mark.parametrize(
    ("holes", "left"),
    [
        ([], [(100, 199)]),
        ([(100, 199)], []),
        ([(0, 500)], []),
        ([(100, 149)], [(150, 199)]),
        ([(150, 199)], [(100, 149)]),
        ([(120, 129), (150, 159)], [(100, 119), (130, 149), (160, 199)]),
        ([(100, 149), (150, 199)], []),
        ([(0, 99), (200, 300)], [(100, 199)]),
    ],
)
def test_what_is_covered_is_left_out(holes: list[tuple[int, int]], left: list[tuple[int, int]]) -> None:
    assert list(not_skipped(100, 199, [skipped(*hole) for hole in holes])) == left


def test_of_no_offsets_nothing_is_left() -> None:
    assert not_skipped(100, 99, []) == not_skipped(100, 99, [skipped(100, 110)]) == ()


@given(_OFFSETS, _OFFSETS, st.lists(st.tuples(_OFFSETS, _OFFSETS).map(sorted), max_size=5))
def test_the_same_as_offset_by_offset(first: int, last: int, holes: list[list[int]]) -> None:
    covered = {offset for low, high in holes for offset in range(low, high + 1)}
    left = not_skipped(first, last, [skipped(low, high) for low, high in holes])
    assert [offset for part in left for offset in range(part.first, part.last + 1)] == [
        offset for offset in range(first, last + 1) if offset not in covered
    ]
    assert sum(part.size for part in left) == len(set(range(first, last + 1)) - covered)


def test_a_decision_is_found_by_its_offsets() -> None:
    decisions = [skipped(10, 19), skipped(30, 30)]
    assert [decision_about(offset, decisions) for offset in (9, 10, 19, 20, 30)] == [
        None,
        decisions[0],
        decisions[0],
        None,
        decisions[1],
    ]


@pytest.mark.parametrize("offsets", [(-1, 5), (6, 5)])
def test_a_hole_has_offsets(offsets: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match=r"are not a range"):
        skipped(*offsets)
