"""Which segments belong to the log. Tables: Kafka's tests of the remote log manager (segments within leader epochs,
the filter of leader epochs without records)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from include.tiering.model.histories import Lineage, with_records
from include.tiering.model.leader_epochs import LeaderEpochs
from tests.doubles.epoch_worlds import MOST_OFFSET, EpochWorld, epoch_worlds
from tests.doubles.retention import remote_segment

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
