"""Sizes recounted from segments."""

import pytest

from include.tiering.model.sizes import (
    EpochSize,
    PartitionSize,
    PartitionStates,
    StateSize,
    overlapping_bytes,
    partition_size,
    partition_states,
)
from tests.doubles.segments import DELETE_FINISHED, DELETE_STARTED, FINISHED, STARTED, partition_of, segment_of

PARTITION = partition_of()


def test_a_segment_that_spans_epochs_counts_once_in_all_and_once_in_each():
    segments = [
        segment_of(PARTITION, 1, 0, 99, {0: 0, 1: 60}, size_bytes=10, state=FINISHED),
        segment_of(PARTITION, 2, 100, 199, {1: 100}, size_bytes=5, state=FINISHED),
        segment_of(PARTITION, 3, 200, 299, {2: 200}, size_bytes=70, state=STARTED),
        segment_of(PARTITION, 4, 0, 99, {0: 0}, size_bytes=70, state=DELETE_STARTED),
    ]
    expected = PartitionSize(PARTITION, 15, 2, (EpochSize(0, 10, 1), EpochSize(1, 15, 2)))
    assert partition_size(PARTITION, segments) == expected


def test_nothing():
    assert partition_size(PARTITION, []) == PartitionSize(PARTITION, 0, 0, ())


def test_every_state_counts_for_itself_and_tombstones_do_not():
    segments = [
        segment_of(PARTITION, 1, 0, 99, {0: 0, 1: 60}, size_bytes=10, state=DELETE_STARTED),
        segment_of(PARTITION, 2, 100, 199, {1: 100}, size_bytes=5, state=STARTED),
        segment_of(PARTITION, 3, 200, 299, {1: 200}, size_bytes=70, state=DELETE_FINISHED),
    ]
    states = partition_states(PARTITION, segments)
    assert states == PartitionStates(
        PARTITION,
        (
            StateSize(STARTED, 5, 1, (EpochSize(1, 5, 1),)),
            StateSize(DELETE_STARTED, 10, 1, (EpochSize(0, 10, 1), EpochSize(1, 10, 1))),
        ),
    )
    assert (states.segments, states.finished) == (2, PartitionSize(PARTITION, 0, 0, ()))


@pytest.mark.parametrize(
    ("spans", "expected"),
    [
        ([(0, 99), (100, 199)], 0),
        ([(0, 99), (200, 299)], 0),
        ([(0, 99), (50, 149)], 500),
        ([(0, 99), (0, 99)], 1_000),
        ([(0, 999), (100, 199), (300, 399)], 2_000),
        ([(0, 99), (98, 100)], 666),
        ([(0, 99), (50, 149), (50, 149)], 1_500),
    ],
)
def test_offsets_that_are_held_twice_count_by_their_share(spans, expected):
    segments = [segment_of(PARTITION, n, *span, state=FINISHED) for n, span in enumerate(spans)]
    unfinished = segment_of(PARTITION, 99, 0, 9_999, state=STARTED)
    assert overlapping_bytes([*reversed(segments), unfinished]) == expected
