"""Differences are believed only when the counters stood still; partitions that never rest are left for later."""

from collections.abc import Sequence
from dataclasses import replace

from include.tiering.model.ids import TopicIdPartition
from include.tiering.model.segment_state import RemoteLogSegmentState
from include.tiering.model.sizes import PartitionSize, partition_size
from include.tiering.model.verdict import Verdict
from include.tiering.remote_metadata.contract import SegmentRow
from include.tiering.tasks.recompute_sizes import SETTLE_ATTEMPTS, SizeDifference, compare_sizes
from tests.doubles.memory_metadata import MemoryMetadata
from tests.doubles.storage_segments import some_metadata


def finished(seed: str, size_bytes: int, partition: int = 0) -> SegmentRow:
    metadata = some_metadata(size_bytes, seed=seed, partition=partition)
    return SegmentRow(replace(metadata, state=RemoteLogSegmentState.COPY_SEGMENT_FINISHED), Verdict.NONE, 0)


def recounted(metadata: MemoryMetadata) -> list[PartitionSize]:
    return [
        partition_size(each, (row.metadata for row in metadata.list_segments(each))) for each in metadata.partitions()
    ]


class WrongCounters(MemoryMetadata):
    """Counters are what a test puts into `counters`."""

    counters: Sequence[PartitionSize] = ()

    def partition_sizes(self, partition: TopicIdPartition | None = None) -> Sequence[PartitionSize]:
        return [each for each in self.counters if partition in (None, each.topic_id_partition)]


def test_equal_sizes_are_no_finding() -> None:
    metadata = MemoryMetadata([finished("a", 10), finished("b", 20), finished("c", 5, partition=1)])
    comparison = compare_sizes(recounted(metadata), metadata)
    assert (comparison.partitions, comparison.differences, comparison.unsettled) == (2, (), ())


def test_a_wrong_counter_is_a_difference_with_both_numbers() -> None:
    metadata = WrongCounters([finished("a", 10)])
    (size,) = recounted(metadata)
    metadata.counters = [replace(size, size_bytes=11)]
    assert compare_sizes([size], metadata).differences == (SizeDifference(metadata.counters[0], size),)


def test_a_counter_without_segments_is_a_difference() -> None:
    metadata = WrongCounters()
    size = partition_size(some_metadata(10).topic_id_partition, [finished("a", 10).metadata])
    metadata.counters = [size]
    (difference,) = compare_sizes([], metadata).differences
    assert difference.counters == size
    assert difference.recounted.segments == 0


def test_segments_without_a_counter_are_a_difference() -> None:
    metadata = WrongCounters([finished("a", 10)])
    (difference,) = compare_sizes(recounted(metadata), metadata).differences
    assert (difference.counters.size_bytes, difference.recounted.size_bytes) == (0, 10)


def test_segments_that_finished_after_the_count_are_no_difference() -> None:
    metadata = MemoryMetadata([finished("a", 10)])
    before = recounted(metadata)
    metadata.put(finished("b", 20))
    metadata.put(finished("c", 30, partition=1))
    comparison = compare_sizes(before, metadata)
    assert (comparison.differences, comparison.unsettled) == ((), ())


class Restless(MemoryMetadata):
    """A segment finishes at each of the first `changes` looks at the segments."""

    changes = 0

    def list_segments(self, partition: TopicIdPartition, leader_epoch: int | None = None) -> Sequence[SegmentRow]:
        found = super().list_segments(partition, leader_epoch)
        if self.changes:
            self.changes -= 1
            self.put(finished(f"late {self.changes}", 1))
        return found


def test_a_partition_that_rests_in_time_is_settled() -> None:
    metadata = Restless([finished("a", 10)])
    metadata.changes = SETTLE_ATTEMPTS - 1
    assert compare_sizes([], metadata).unsettled == ()


def test_a_partition_that_changes_at_every_look_is_neither_right_nor_wrong() -> None:
    metadata = Restless([finished("a", 10)])
    metadata.changes = SETTLE_ATTEMPTS
    comparison = compare_sizes([], metadata)
    assert comparison.differences == ()
    assert comparison.unsettled == (some_metadata(1, partition=0).topic_id_partition,)
