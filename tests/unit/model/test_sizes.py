"""Sizes recounted from segments."""

from include.tiering.model.sizes import EpochSize, PartitionSize, partition_size
from tests.doubles.segments import DELETE_STARTED, FINISHED, STARTED, partition_of, segment_of

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
