"""An archive remembers every leader epoch that anyone saw."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from include.tiering.model.leader_epochs import Contradiction, LeaderEpochEntry, LeaderEpochs, followed, merged
from tests.doubles.epoch_worlds import MOST_OFFSET, EpochWorld, cut_views, epoch_worlds

KNOWN = LeaderEpochs.of([(0, 0), (1, 50), (2, 100)])


@st.composite
def histories(draw: st.DrawFn) -> LeaderEpochs:
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
        "epoch 6 from offset 200 left the history, contradicted by epoch 7 from offset 150"
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


@given(histories(), histories(), histories())
def test_merging_is_associative_commutative_and_idempotent(a: LeaderEpochs, b: LeaderEpochs, c: LeaderEpochs) -> None:
    def join(one: LeaderEpochs, other: LeaderEpochs) -> LeaderEpochs:
        return merged(one, other, 0).history

    assert join(a, a) == a
    assert join(a, b) == join(b, a)
    assert join(join(a, b), c) == join(a, join(b, c))
    assert join(join(a, b), b) == join(a, b)


@given(histories(), histories())
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
