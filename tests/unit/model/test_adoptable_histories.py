"""Copies that no metadata knows, beside a log that is known: which are of a later history, and which may be adopted."""

from collections.abc import Mapping

import pytest

from include.tiering.model.histories import Divergence, Followed, OffsetRange, SeenBy, SeenDivergence
from include.tiering.model.leader_epochs import LeaderEpochs
from include.tiering.model.recovered_log import Obstacle, StoredHistories, continued_log, newest_decision, not_followed
from include.tiering.model.segments import RemoteLogSegmentMetadata
from tests.doubles.segments import partition_of, segment_of

ORDERS_0 = partition_of()
NOTHING = LeaderEpochs()


def copy(number: int, start: int, end: int, epochs: Mapping[int, int] | None = None) -> RemoteLogSegmentMetadata:
    return segment_of(ORDERS_0, number, start, end, epochs or {0: start})


KNOWN = [copy(1, 0, 29), copy(2, 30, 39), copy(3, 40, 69, {0: 40, 4: 50})]
LATER = [copy(11, 30, 39, {0: 30, 6: 35}), copy(12, 40, 64, {6: 40}), copy(13, 65, 90, {6: 65})]


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
    copies = [*LATER[:2], copy(14, 60, 99, {9: 60})]
    assert seen(copies) == divergence(35, 69, SeenBy.ADOPTION, (6, 9))


def test_what_goes_on_and_what_an_older_leader_left_are_no_later_history() -> None:
    going_on = copy(4, 70, 99, {4: 70})
    assert seen([going_on]) is None
    assert seen([copy(5, 45, 79, {2: 45}), going_on]) is None
    assert seen([]) is None


def test_copies_of_two_histories_are_not_adopted_as_one() -> None:
    """A backup of before either: what follows offset 29 was copied twice, in segments that fit together."""
    older = [copy(21, 30, 39), copy(22, 40, 59), copy(23, 60, 69)]
    later = [copy(31, 30, 44, {0: 30, 6: 35}), copy(32, 60, 79, {6: 60})]
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
        (copy(5, 70, 79, {4: 70}), Obstacle.LEFT_HISTORY),
        (copy(6, 60, 79, {4: 60, 6: 70}), Obstacle.LEFT_HISTORY),
        (copy(7, 20, 34), Obstacle.BEFORE_HISTORY),
    ],
)
def test_behind_a_decision_only_what_the_later_leader_wrote_is_taken(
    one: RemoteLogSegmentMetadata, obstacle: Obstacle | None
) -> None:
    decided = Divergence(1, divergence(35, 69, SeenBy.PLAN), 0, Followed(35, "agreed", "me", 1))
    assert newest_decision([decided]) == decided
    assert newest_decision([Divergence(1, decided.seen, 0)]) is None
    assert not_followed(one, decided) is obstacle


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
