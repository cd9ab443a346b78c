"""Sizes recomputed, described and measured."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from include.tiering.kafka.log_dirs.contract import IneligibleReason, ReplicaId, ScanReport
from include.tiering.model.segments import RemoteLogSegmentState, TopicIdPartition, Verdict
from include.tiering.model.sizes import EpochSize, PartitionStates, StateSize, partition_states
from include.tiering.runs.cluster_log_dirs import KnownLogDir
from include.tiering.segments.contract import SegmentRow
from include.tiering.sizes.compare import (
    SETTLE_ATTEMPTS,
    SizeComparison,
    SizeDifference,
    compare_sizes,
    describe_log_dirs,
)
from include.tiering.verification.suites import SIZE_RULES, explain_size
from tests.doubles.memory_stores import MemoryMetadata
from tests.doubles.plain_evaluator import PlainEvaluator
from tests.doubles.sample_values import ORDERS_0, ORDERS_1, REPLICA_0, ROLLED, partition_size, replica
from tests.doubles.stored_log import some_metadata

# Differences are believed only when the counters stood still; partitions that never rest are left for later.

FINISHED = RemoteLogSegmentState.COPY_SEGMENT_FINISHED
STARTED = RemoteLogSegmentState.COPY_SEGMENT_STARTED
EVALUATOR = PlainEvaluator(SIZE_RULES)


def row(seed: str, size_bytes: int, partition: int = 0, state: RemoteLogSegmentState = FINISHED) -> SegmentRow:
    metadata = some_metadata(size_bytes, seed=seed, partition=partition)
    return SegmentRow(replace(metadata, state=state), Verdict.NONE, 0)


def recounted(metadata: MemoryMetadata) -> list[PartitionStates]:
    return list(metadata.partition_states())


def compare(found: Sequence[PartitionStates], metadata: MemoryMetadata) -> SizeComparison:
    return compare_sizes(found, metadata, metadata, EVALUATOR)


def rules(difference: SizeDifference) -> list[str]:
    return [broken.rule.rule_id for broken in difference.broken]


class WrongCounters(MemoryMetadata):
    """Counters are what a test puts into `counters`."""

    counters: Sequence[PartitionStates] = ()

    def partition_states(self, partition: TopicIdPartition | None = None) -> Sequence[PartitionStates]:
        return [each for each in self.counters if partition in (None, each.topic_id_partition)]


def test_equal_sizes_are_no_finding() -> None:
    metadata = MemoryMetadata([row("a", 10), row("b", 20, state=STARTED), row("c", 5, partition=1)])
    comparison = compare(recounted(metadata), metadata)
    assert (comparison.partitions, comparison.differences, comparison.unsettled) == (2, (), ())


@pytest.mark.parametrize("state", [STARTED, FINISHED, RemoteLogSegmentState.DELETE_SEGMENT_STARTED])
def test_a_wrong_counter_is_a_difference_with_both_numbers(state: RemoteLogSegmentState) -> None:
    metadata = WrongCounters([row("a", 10, state=state)])
    (size,) = recounted(MemoryMetadata(metadata.rows.values()))
    wrong = replace(size.of(state), size_bytes=11)
    metadata.counters = [replace(size, states=(wrong,))]
    (difference,) = compare([size], metadata).differences
    assert (difference.counters, difference.recounted) == (wrong, size.of(state))
    assert rules(difference) == ["S101"]
    assert explain_size(difference.broken[0].rule, difference.broken[0].measure).endswith(
        "Found: counted_bytes = 11, recounted_bytes = 10"
    )


def test_a_wrong_counter_of_one_epoch_is_a_difference() -> None:
    metadata = WrongCounters([row("a", 10)])
    (size,) = recounted(MemoryMetadata(metadata.rows.values()))
    finished = size.of(FINISHED)
    (epoch, *_) = finished.leader_epochs
    metadata.counters = [
        replace(size, states=(replace(finished, leader_epochs=(EpochSize(epoch.leader_epoch, 10, 2),)),))
    ]
    (difference,) = compare([size], metadata).differences
    assert "S103" in rules(difference)


def test_a_counter_without_segments_is_a_difference() -> None:
    metadata = WrongCounters()
    partition = some_metadata(10).topic_id_partition
    metadata.counters = [partition_states(partition, [row("a", 10).metadata])]
    (difference,) = compare([], metadata).differences
    assert (difference.counters.segments, difference.recounted) == (1, StateSize(FINISHED, 0, 0, ()))


def test_segments_without_a_counter_are_a_difference() -> None:
    metadata = WrongCounters([row("a", 10)])
    (difference,) = compare(recounted(MemoryMetadata(metadata.rows.values())), metadata).differences
    assert (difference.counters.size_bytes, difference.recounted.size_bytes) == (0, 10)


def test_segments_that_finished_after_the_count_are_no_difference() -> None:
    metadata = MemoryMetadata([row("a", 10)])
    before = recounted(metadata)
    metadata.put(row("b", 20))
    metadata.put(row("c", 30, partition=1))
    comparison = compare(before, metadata)
    assert (comparison.differences, comparison.unsettled) == ((), ())


class Restless(MemoryMetadata):
    """A segment finishes at each of the first `changes` looks at the segments."""

    changes = 0

    def list_segments(self, partition: TopicIdPartition, leader_epoch: int | None = None) -> Sequence[SegmentRow]:
        found = super().list_segments(partition, leader_epoch)
        if self.changes:
            self.changes -= 1
            self.put(row(f"late {self.changes}", 1))
        return found


def test_a_partition_that_rests_in_time_is_settled() -> None:
    metadata = Restless([row("a", 10)])
    metadata.changes = SETTLE_ATTEMPTS - 1
    assert compare([], metadata).unsettled == ()


def test_a_partition_that_changes_at_every_look_is_neither_right_nor_wrong() -> None:
    metadata = Restless([row("a", 10)])
    metadata.changes = SETTLE_ATTEMPTS
    comparison = compare([], metadata)
    assert comparison.differences == ()
    assert comparison.unsettled == (some_metadata(1, partition=0).topic_id_partition,)


# Replicas under the directory that holds them.


def test_each_replica_is_shown_in_its_directory_with_what_is_remote() -> None:
    behind = replace(replica(ROLLED, ROLLED), high_watermark=250, log_end_offset=200)
    moving = replace(
        replica(replace(ROLLED, reason=IneligibleReason.BEING_MOVED)), replica_id=ReplicaId(ORDERS_1, 1, "dir-b")
    )
    dirs = [KnownLogDir(1, "/a", "dir-a"), KnownLogDir(1, "/b", "dir-b"), KnownLogDir(2, "/a2", "dir-a")]
    first, second, third = describe_log_dirs(ScanReport("c", (behind, moving), ()), dirs, [partition_size()])
    assert REPLICA_0.directory_id == first.log_dir.directory_id
    (shown,) = first.replicas
    assert (shown.topic_id_partition, shown.size_bytes, shown.offset_lag) == (ORDERS_0, 8192, 50)
    assert (shown.is_future, shown.remote) == (False, partition_size())
    (shown,) = second.replicas
    assert (shown.is_future, shown.offset_lag, shown.remote) == (True, 0, None)
    assert third.replicas == ()
