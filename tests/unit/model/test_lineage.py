"""Leader epochs, lineages and their histories."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from include.tiering.model.histories import Lineage, with_records
from include.tiering.model.leader_epochs import (
    Contradiction,
    LeaderEpochEntry,
    LeaderEpochs,
    followed,
    merged,
    without_left,
)
from tests.doubles.epoch_worlds import MOST_OFFSET, EpochWorld, cut_views, epoch_worlds
from tests.doubles.slow_expiration import remote_segment

# Which segments belong to the log. Tables: Kafka's tests of the remote log manager (segments within leader epochs,
# the filter of leader epochs without records).

LONG = {0: 0, 1: 10, 2: 20, 3: 30, 4: 40, 5: 50, 7: 70}
CUT = {7: 51, 9: 100}


@pytest.mark.parametrize(
    ("lineage", "log_end_offset", "leader_epochs", "start_offset", "end_offset", "is_within"),
    [
        (LONG, 90, {1: 15, 2: 20, 3: 30}, 15, 35, True),
        (LONG, 90, {1: 15}, 15, 19, True),
        (LONG, 90, {0: 0}, 0, 5, True),
        (LONG, 90, {7: 70}, 70, 75, True),
        (LONG, 90, {1: 15, 2: 20}, 15, 29, True),
        (LONG, 90, {5: 55, 6: 60, 7: 70}, 55, 85, False),
        (LONG, 90, {1: 15, 2: 20, 4: 40}, 15, 45, False),
        (LONG, 90, LONG, 15, 90, False),
        (LONG, 90, {1: 5, 2: 20}, 5, 25, False),
        (LONG, 90, {1: 15, 2: 20}, 15, 35, False),
        (CUT, 210, {5: 14, 7: 15, 9: 100}, 14, 150, True),
        (CUT, 210, {2: 5, 3: 6}, 2, 7, False),
        (CUT, 210, {7: 15, 9: 100, 10: 200}, 15, 250, False),
    ],
)
def test_kafkas_table(
    lineage: dict[int, int],
    log_end_offset: int,
    leader_epochs: dict[int, int],
    start_offset: int,
    end_offset: int,
    is_within: bool,
) -> None:
    segment = remote_segment(1, start_offset, end_offset, leader_epochs)
    assert Lineage(LeaderEpochs.of(lineage.items()), log_end_offset).holds(segment) is is_within


@pytest.mark.parametrize(("end_offset", "is_within"), [(19, True), (20, False)])
def test_the_next_epochs_first_offset_is_no_longer_the_epochs_own(end_offset: int, is_within: bool) -> None:
    lineage = Lineage(LeaderEpochs.of(LONG.items()))
    assert lineage.holds(remote_segment(1, 15, end_offset, {1: 15})) is is_within


def test_kafkas_example_of_epochs_without_records() -> None:
    history = LeaderEpochs.of([(0, 0), (1, 0), (2, 0), (3, 30), (4, 40), (5, 60), (6, 60), (7, 70), (8, 70)])
    assert with_records(history) == LeaderEpochs.of([(2, 0), (3, 30), (4, 40), (6, 60), (8, 70)])


def test_no_history_has_no_records_and_holds_nothing() -> None:
    assert with_records(LeaderEpochs()) == LeaderEpochs()
    assert Lineage(LeaderEpochs()).first_epoch is None
    assert not Lineage(LeaderEpochs()).holds(remote_segment(1, 0, 9))


@pytest.mark.parametrize(("log_end_offset", "is_within"), [(None, True), (10, True), (9, False), (0, False)])
def test_the_log_end_is_exclusive_and_may_be_unknown(log_end_offset: int | None, is_within: bool) -> None:
    lineage = Lineage.of(LeaderEpochs.of([(0, 0)]), log_start_offset=0, log_end_offset=log_end_offset)
    assert lineage.holds(remote_segment(1, 0, 9)) is is_within


def test_a_segment_that_names_an_epoch_without_records_is_still_within() -> None:
    lineage = Lineage.of(LeaderEpochs.of([(0, 0), (1, 50), (2, 50)]), log_start_offset=0)
    assert lineage.holds(remote_segment(1, 40, 60, {0: 40, 1: 50, 2: 50}))


@given(st.lists(st.integers(0, 5), max_size=8))
def test_the_filter_keeps_the_epoch_of_every_offset_and_nothing_else(starts: list[int]) -> None:
    history = LeaderEpochs.of(enumerate(sorted(starts)))
    kept = with_records(history)
    assert {entry.epoch for entry in kept} == {history.epoch_for(offset) for offset in range(6)} - {None}
    assert all(kept.epoch_for(offset) == history.epoch_for(offset) for offset in range(7))


@given(epoch_worlds(), st.integers(0, MOST_OFFSET), st.integers(0, MOST_OFFSET), st.integers(0, 20), st.booleans())
def test_within_means_the_same_epoch_at_every_offset_that_is_remembered(
    world: EpochWorld, log_start: int, start_offset: int, length: int, from_branch: bool
) -> None:
    history = world.branch if from_branch else world.main
    end_offset = start_offset + length
    segment = remote_segment(1, start_offset, end_offset, dict(history.range(start_offset, end_offset + 1)))
    remembered = range(max(start_offset, log_start), end_offset + 1)
    agrees = (
        all(history.epoch_for(offset) == world.main.epoch_for(offset) for offset in remembered)
        if remembered
        else history.epoch_for(end_offset) == world.main.epoch_for(log_start)
    )
    assert Lineage.of(world.main, log_start_offset=log_start).holds(segment) is agrees


# The leader epoch history: what a segment carries of it.

HISTORY = LeaderEpochs.of({0: 0, 1: 20, 3: 50, 4: 100}.items())


@st.composite
def histories(draw: st.DrawFn) -> LeaderEpochs:
    epochs = sorted(draw(st.sets(st.integers(0, 30), max_size=8)))
    starts = sorted(draw(st.lists(st.integers(0, 60), min_size=len(epochs), max_size=len(epochs))))
    return LeaderEpochs.of(zip(epochs, starts, strict=True))


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        (0, 100, {0: 0, 1: 20, 3: 50}),
        (30, 120, {1: 30, 3: 50, 4: 100}),
        (50, 51, {3: 50}),
        (-1, 60, {0: 0, 1: 20, 3: 50}),
        (0, 101, {0: 0, 1: 20, 3: 50, 4: 100}),
        (-1, 0, {}),
    ],
)
def test_range_vectors_of_kafka(start: int, end: int, expected: dict[int, int]):
    assert dict(HISTORY.range(start, end)) == expected


def test_range_before_the_history_keeps_its_first_start():
    assert dict(LeaderEpochs.of([(2, 10), (3, 20)]).range(5, 15)) == {2: 10}


@given(histories(), st.integers(0, 70), st.integers(1, 30))
def test_range_names_the_epoch_of_every_offset_in_it(history: LeaderEpochs, start: int, length: int):
    part = history.range(start, start + length)
    for offset in range(start, start + length):
        assert part.epoch_for(offset) == history.epoch_for(offset)
    assert all(start <= entry.start_offset < start + length for entry in part)


@given(histories(), st.integers(0, 70))
def test_truncation_from_the_start_changes_nothing_behind_it(history: LeaderEpochs, log_start: int):
    truncated = history.truncated_from_start(log_start)
    assert all(truncated.epoch_for(offset) == history.epoch_for(offset) for offset in range(log_start, 100))
    assert truncated.truncated_from_start(log_start) == truncated


def test_epoch_for():
    assert [HISTORY.epoch_for(offset) for offset in (0, 19, 20, 49, 50, 99, 100, 10**9)] == [0, 0, 1, 1, 3, 3, 4, 4]
    assert LeaderEpochs.of([(2, 10)]).epoch_for(9) is None
    assert LeaderEpochs().epoch_for(0) is None


def test_epoch_for_of_epochs_with_one_start_is_the_last():
    assert LeaderEpochs.of([(0, 5), (1, 5), (2, 5)]).epoch_for(5) == 2


def test_end_offset_of():
    assert [HISTORY.end_offset_of(epoch, 130) for epoch in (0, 1, 2, 3, 4)] == [20, 50, None, 100, 130]
    assert LeaderEpochs().end_offset_of(0, 130) is None


@pytest.mark.parametrize("entries", [[(1, 0), (0, 5)], [(1, 0), (1, 5)], [(0, 5), (1, 4)], [(-1, 0)], [(0, -1)]])
def test_a_history_ascends(entries: list[tuple[int, int]]):
    with pytest.raises(ValueError, match="epoch"):
        LeaderEpochs.of(entries)


# An archive remembers every leader epoch that anyone saw.

KNOWN = LeaderEpochs.of([(0, 0), (1, 50), (2, 100)])


@st.composite
def epoch_histories(draw: st.DrawFn) -> LeaderEpochs:
    """Of no log in particular: two of them may contradict each other in every way."""
    epochs = sorted(draw(st.sets(st.integers(0, 8), max_size=5)))
    starts = sorted(draw(st.lists(st.integers(0, 8), min_size=len(epochs), max_size=len(epochs))))
    return LeaderEpochs.of(zip(epochs, starts, strict=True))


def test_the_first_history_is_taken_as_it_is() -> None:
    assert merged(LeaderEpochs(), KNOWN, 0).history == KNOWN
    assert merged(KNOWN, LeaderEpochs(), 0).history == KNOWN


@pytest.mark.parametrize(
    ("seen", "log_start", "history"),
    [
        pytest.param({1: 70, 2: 100}, 70, {0: 0, 1: 50, 2: 100}, id="cut-from-the-start"),
        pytest.param({2: 500}, 500, {0: 0, 1: 50, 2: 100}, id="only-the-last-epoch-is-left"),
        pytest.param({0: 0, 1: 50, 2: 100, 3: 130}, 0, {0: 0, 1: 50, 2: 100, 3: 130}, id="grew"),
        pytest.param({2: 120, 3: 130}, 120, {0: 0, 1: 50, 2: 100, 3: 130}, id="cut-and-grew"),
        pytest.param({5: 900}, 900, {0: 0, 1: 50, 2: 100, 5: 900}, id="nothing-in-common-any-more"),
        pytest.param({0: 0, 1: 50, 2: 100, 3: 100}, 0, {0: 0, 1: 50, 2: 100, 3: 100}, id="epoch-without-records"),
    ],
)
def test_a_cut_or_grown_cache_adds_and_never_removes(
    seen: dict[int, int], log_start: int, history: dict[int, int]
) -> None:
    result = merged(KNOWN, LeaderEpochs.of(seen.items()), log_start)
    assert dict(result.history) == history
    assert not result.contradictions


def test_a_later_look_at_an_earlier_beginning_completes_the_history() -> None:
    cut, whole = LeaderEpochs.of([(3, 100)]), LeaderEpochs.of([(2, 50), (3, 70)])
    assert merged(cut, whole, 50) == merged(whole, cut, 100)
    assert merged(cut, whole, 50).history == whole


def test_an_epoch_that_a_follower_never_had_a_record_of_contradicts_nothing() -> None:
    known, seen = LeaderEpochs.of([(5, 100), (6, 200)]), LeaderEpochs.of([(5, 100), (7, 200)])
    result = merged(known, seen, 100)
    assert dict(result.history) == {5: 100, 6: 200, 7: 200}
    assert not result.contradictions


def test_a_tail_that_was_written_again_leaves_the_history_and_is_a_finding() -> None:
    known, seen = LeaderEpochs.of([(5, 100), (6, 200)]), LeaderEpochs.of([(5, 100), (7, 150)])
    result = merged(known, seen, 100)
    assert dict(result.history) == {5: 100, 7: 150}
    assert result.contradictions == (Contradiction(LeaderEpochEntry(6, 200), LeaderEpochEntry(7, 150), kept=False),)
    assert str(result.contradictions[0]) == (
        "epoch 6 from offset 200 is not in the history, contradicted by epoch 7 from offset 150"
    )
    assert merged(result.history, known, 100).history == result.history, "the loser's log dir, seen again"


def test_one_epoch_with_two_starts_keeps_the_lower_and_is_a_finding() -> None:
    result = merged(LeaderEpochs.of([(5, 100), (7, 150)]), LeaderEpochs.of([(5, 100), (7, 160)]), 100)
    assert dict(result.history) == {5: 100, 7: 150}
    assert result.contradictions == (Contradiction(LeaderEpochEntry(7, 160), LeaderEpochEntry(7, 150), kept=False),)


def test_a_start_that_is_known_may_come_from_a_cut_cache() -> None:
    known = merged(LeaderEpochs.of([(0, 0)]), LeaderEpochs.of([(3, 30)]), 30).history
    result = merged(known, LeaderEpochs.of([(0, 0), (2, 10), (3, 20)]), 0)
    assert dict(result.history) == {0: 0, 2: 10, 3: 20}
    assert not result.contradictions


def test_an_epoch_with_records_that_the_leader_denies_is_kept_and_a_finding() -> None:
    known, seen = LeaderEpochs.of([(5, 100), (6, 120)]), LeaderEpochs.of([(5, 100), (7, 150)])
    result = merged(known, seen, 100)
    assert dict(result.history) == {5: 100, 6: 120, 7: 150}
    assert result.contradictions == (Contradiction(LeaderEpochEntry(6, 120), LeaderEpochEntry(5, 100), kept=True),)
    assert "epoch 6 from offset 120 is kept" in str(result.contradictions[0])


def test_what_lies_below_the_log_start_is_forgotten_not_denied() -> None:
    known, seen = LeaderEpochs.of([(5, 100), (6, 120)]), LeaderEpochs.of([(5, 100), (7, 150)])
    assert merged(known, seen, 150).contradictions == ()


def test_a_log_that_was_lost_and_begun_anew_empties_the_history_but_for_findings() -> None:
    result = merged(KNOWN, LeaderEpochs.of([(9, 0)]), 0)
    assert dict(result.history) == {0: 0, 9: 0}
    assert [one.entry.epoch for one in result.contradictions] == [2, 1]


@given(epoch_histories(), epoch_histories(), epoch_histories())
def test_merging_is_associative_commutative_and_idempotent(a: LeaderEpochs, b: LeaderEpochs, c: LeaderEpochs) -> None:
    def join(one: LeaderEpochs, other: LeaderEpochs) -> LeaderEpochs:
        return merged(one, other, 0).history

    assert join(a, a) == a
    assert join(a, b) == join(b, a)
    assert join(join(a, b), c) == join(a, join(b, c))
    assert join(join(a, b), b) == join(a, b)


@given(epoch_histories(), epoch_histories())
def test_what_leaves_a_history_is_a_finding_unless_its_beginning_was_forgotten(
    known: LeaderEpochs, seen: LeaderEpochs
) -> None:
    result = merged(known, seen, 0)
    lost = {*known, *seen} - {*result.history}
    found = {one.entry for one in result.contradictions if not one.kept}
    assert found <= lost
    starts = dict(merged(seen, known, 0).history)
    assert all(starts[entry.epoch] < entry.start_offset for entry in lost - found)


@given(st.data())
def test_views_of_one_log_in_any_order_never_contradict_and_never_lose(data: st.DataObject) -> None:
    truth = data.draw(epoch_worlds()).main
    views = [(truth, 0), *data.draw(st.lists(cut_views(truth), max_size=5))]
    history = LeaderEpochs()
    for seen, log_start in data.draw(st.permutations(views)):
        result = merged(history, seen, log_start)
        assert not result.contradictions
        assert {entry.epoch for entry in history} <= {entry.epoch for entry in result.history}
        history = result.history
    assert history == truth


@given(epoch_worlds())
def test_after_an_unclean_election_the_later_epochs_say_who_wrote_each_offset(world: EpochWorld) -> None:
    history = merged(world.branch, world.main, 0).history
    assert all(history.epoch_for(offset) == world.main.epoch_for(offset) for offset in range(MOST_OFFSET + 2))


def test_a_source_that_is_followed_says_its_history_below_the_offset_too() -> None:
    """An unclean leader's epoch was seen, and the leader of before is back: nothing of it was replaced after all."""
    known, source = LeaderEpochs.of([(0, 0), (6, 35)]), LeaderEpochs.of([(0, 0), (4, 50), (8, 75)])
    assert dict(followed(known, source, 75)) == {0: 0, 4: 50, 8: 75}
    assert dict(followed(known, source.truncated_from_start(60), 75)) == {0: 0, 4: 60, 8: 75}


def test_where_a_followed_source_has_lost_its_beginning_nothing_is_known_of_what_was_left() -> None:
    known, source = LeaderEpochs.of([(0, 0), (6, 35)]), LeaderEpochs.of([(10, 110)])
    assert dict(followed(known, source, 35)) == {0: 0, 10: 110}
    assert dict(followed(known, source, 110)) == {0: 0, 6: 35, 10: 110}


def test_of_a_source_with_one_epoch_its_first_entry_is_its_last() -> None:
    known, source = LeaderEpochs.of([(0, 0), (2, 20), (5, 50)]), LeaderEpochs.of([(3, 30)])
    assert dict(followed(known, source, 40)) == {0: 0, 2: 20, 3: 30, 5: 50}
    assert dict(without_left(known, source, 10)) == {0: 0, 2: 20, 5: 50}
    assert dict(without_left(known, source, 60)) == {0: 0, 2: 20, 5: 50}
    assert dict(without_left(LeaderEpochs.of([(0, 0), (3, 25)]), source, 30)) == {0: 0, 3: 25}
