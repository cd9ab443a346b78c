"""Compare recounted remote log sizes with the counters. A difference is a finding; nothing is corrected here.

Segments change state while they are counted, so a first difference is only a suspicion: the partition is read again
between two looks at its counters, and believed if the counters stood still.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from include.tiering.model.ids import TopicIdPartition
from include.tiering.model.segment_metadata import RemoteLogSegmentState
from include.tiering.model.sizes import EpochSize, PartitionStates, StateSize, partition_states
from include.tiering.segments.contract import RemoteLogMetadata, RemoteLogSizes
from include.tiering.verification.rules import BrokenRule, Judge
from include.tiering.verification.suites import SizeMeasure

SETTLE_ATTEMPTS: Final = 3


@dataclass(frozen=True, slots=True)
class RecountedPartition:
    """The counters of a partition and what its rows add up to, as of the same moment."""

    counters: PartitionStates
    recounted: PartitionStates


@dataclass(frozen=True, slots=True)
class SizeDifference:
    """A partition that breaks rules, in one state: what the counters say, and what the rows add up to."""

    topic_id_partition: TopicIdPartition
    counters: StateSize
    recounted: StateSize
    broken: tuple[BrokenRule[SizeMeasure], ...]


@dataclass(frozen=True, slots=True)
class SizeComparison:
    """`partitions` have segments by the recount. `unsettled` changed at every look; they are for the next run."""

    partitions: int
    differences: tuple[SizeDifference, ...]
    unsettled: tuple[TopicIdPartition, ...]


def compare_sizes(
    recounted: Iterable[PartitionStates],
    sizes: RemoteLogSizes,
    metadata: RemoteLogMetadata,
    judge: Judge[SizeMeasure],
) -> SizeComparison:
    """`recounted` holds every partition with segments once, in any order.

    Raises:
        JudgeError: a rule could not be applied.
    """
    counters = {size.topic_id_partition: size for size in sizes.partition_states() if size.states}
    seen = 0
    settled: list[RecountedPartition] = []
    suspects: list[TopicIdPartition] = []
    for size in recounted:
        seen += 1
        counted = counters.pop(size.topic_id_partition, None)
        if counted == size:
            settled.append(RecountedPartition(counted, size))
        else:
            suspects.append(size.topic_id_partition)
    unsettled = []
    for partition in (*suspects, *counters):
        at_rest = _settle(partition, sizes, metadata)
        if at_rest is None:
            unsettled.append(partition)
        else:
            settled.append(at_rest)
    return SizeComparison(seen, _judged(settled, judge), tuple(unsettled))


def _settle(
    partition: TopicIdPartition, sizes: RemoteLogSizes, metadata: RemoteLogMetadata
) -> RecountedPartition | None:
    """Counters and a recount of the same moment, perhaps equal; None if there was no such moment."""
    before = _counters_of(partition, sizes)
    for _ in range(SETTLE_ATTEMPTS):
        recounted = partition_states(partition, (row.metadata for row in metadata.list_segments(partition)))
        after = _counters_of(partition, sizes)
        if after == before:
            return RecountedPartition(after, recounted)
        before = after
    return None


def _counters_of(partition: TopicIdPartition, sizes: RemoteLogSizes) -> PartitionStates:
    return next(iter(sizes.partition_states(partition)), PartitionStates(partition, ()))


def _judged(settled: Sequence[RecountedPartition], judge: Judge[SizeMeasure]) -> tuple[SizeDifference, ...]:
    """One difference for each partition and state that breaks rules, in the order of the partitions."""
    subjects = {_measure(one, state): (one, state) for one in settled for state in _states(one)}
    broken: dict[SizeMeasure, list[BrokenRule[SizeMeasure]]] = {}
    for breach in judge.judge(list(subjects)):
        broken.setdefault(breach.measure, []).append(breach)
    differences = []
    for measure, breaches in broken.items():
        one, state = subjects[measure]
        differences.append(
            SizeDifference(
                one.counters.topic_id_partition, one.counters.of(state), one.recounted.of(state), tuple(breaches)
            )
        )
    return tuple(differences)


def _states(one: RecountedPartition) -> Iterator[RemoteLogSegmentState]:
    for state in RemoteLogSegmentState:
        if any(size.state is state for size in (*one.counters.states, *one.recounted.states)):
            yield state


def _measure(one: RecountedPartition, state: RemoteLogSegmentState) -> SizeMeasure:
    partition = one.counters.topic_id_partition
    counters, recounted = one.counters.of(state), one.recounted.of(state)
    return SizeMeasure(
        topic=partition.topic,
        topic_id=str(partition.topic_id),
        partition=partition.partition,
        state=state.name,
        counted_bytes=counters.size_bytes,
        counted_segments=counters.segments,
        recounted_bytes=recounted.size_bytes,
        recounted_segments=recounted.segments,
        epoch_differences=len({e.leader_epoch for e in {*counters.leader_epochs} ^ {*recounted.leader_epochs}}),
        epochs_above_partition=sum(_is_above(epoch, recounted) for epoch in recounted.leader_epochs),
        segments_without_epoch=max(0, recounted.segments - sum(epoch.segments for epoch in recounted.leader_epochs)),
    )


def _is_above(epoch: EpochSize, size: StateSize) -> bool:
    return epoch.size_bytes > size.size_bytes or epoch.segments > size.segments
