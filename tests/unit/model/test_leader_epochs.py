"""The leader epoch history: what a segment carries of it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from include.tiering.model.leader_epochs import LeaderEpochs

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
