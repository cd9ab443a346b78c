"""Sizes of a partition's remote log by state and leader epoch, lags, and estimated costs."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

from include.tiering.model.segments import RemoteLogSegmentMetadata, RemoteLogSegmentState, TopicIdPartition
from include.tiering.units import GIB

_STORED: Final = (RemoteLogSegmentState.COPY_SEGMENT_FINISHED, RemoteLogSegmentState.DELETE_SEGMENT_STARTED)


@dataclass(frozen=True, slots=True)
class EpochSize:
    """Bytes and segments of one leader epoch; a segment that spans epochs counts in each."""

    leader_epoch: int
    size_bytes: int
    segments: int


@dataclass(frozen=True, slots=True)
class PartitionSize:
    """FINISHED bytes and segments of a partition; a segment that spans epochs counts once."""

    topic_id_partition: TopicIdPartition
    size_bytes: int
    segments: int
    leader_epochs: tuple[EpochSize, ...]


@dataclass(frozen=True, slots=True)
class StateSize:
    """Bytes and segments of a partition in one state; a segment that spans epochs counts once."""

    state: RemoteLogSegmentState
    size_bytes: int
    segments: int
    leader_epochs: tuple[EpochSize, ...]


@dataclass(frozen=True, slots=True)
class PartitionStates:
    """A partition's sizes by state, in ascending order. Tombstones, and states that have no segment, are left out."""

    topic_id_partition: TopicIdPartition
    states: tuple[StateSize, ...]

    @property
    def finished(self) -> PartitionSize:
        size = self.of(RemoteLogSegmentState.COPY_SEGMENT_FINISHED)
        return PartitionSize(self.topic_id_partition, size.size_bytes, size.segments, size.leader_epochs)

    @property
    def stored_bytes(self) -> int:
        """Bytes that are stored and paid for, as brokers count them in RemoteLogSizeBytes.

        They are those of FINISHED segments and of segments in DELETE_SEGMENT_STARTED, whose objects are not all deleted
        yet; superseded segments are among the latter.
        """
        return sum(self.of(state).size_bytes for state in _STORED)

    @property
    def segments(self) -> int:
        """Number of segments in all these states."""
        return sum(size.segments for size in self.states)

    def of(self, state: RemoteLogSegmentState) -> StateSize:
        """Return the size of a state; zeros if it has no segment."""
        return next((size for size in self.states if size.state is state), StateSize(state, 0, 0, ()))


def partition_states(
    topic_id_partition: TopicIdPartition, segments: Iterable[RemoteLogSegmentMetadata]
) -> PartitionStates:
    """Count the sizes of one partition from its segments; tombstones do not count."""
    return counted_states(
        topic_id_partition,
        (
            (segment.state, segment.segment_size_bytes, [entry.epoch for entry in segment.segment_leader_epochs])
            for segment in segments
            if segment.state is not RemoteLogSegmentState.DELETE_SEGMENT_FINISHED
        ),
    )


def counted_states(
    topic_id_partition: TopicIdPartition,
    segments: Iterable[tuple[RemoteLogSegmentState, int, Sequence[int]]],
) -> PartitionStates:
    """Count the sizes of one partition; memory does not grow with the number of segments.

    Args:
        topic_id_partition: the partition.
        segments: state, bytes and leader epochs of each of its segments.
    """
    totals: dict[RemoteLogSegmentState, tuple[int, int]] = {}
    epochs: dict[RemoteLogSegmentState, dict[int, tuple[int, int]]] = defaultdict(dict)
    for state, size_bytes, leader_epochs in segments:
        held_bytes, held = totals.get(state, (0, 0))
        totals[state] = (held_bytes + size_bytes, held + 1)
        of_state = epochs[state]
        for epoch in leader_epochs:
            epoch_bytes, epoch_segments = of_state.get(epoch, (0, 0))
            of_state[epoch] = (epoch_bytes + size_bytes, epoch_segments + 1)
    sizes = (
        StateSize(state, *total, tuple(EpochSize(epoch, *counted) for epoch, counted in sorted(epochs[state].items())))
        for state, total in sorted(totals.items())
    )
    return PartitionStates(topic_id_partition, tuple(sizes))


def partition_size(topic_id_partition: TopicIdPartition, segments: Iterable[RemoteLogSegmentMetadata]) -> PartitionSize:
    """Count the FINISHED size of one partition from its segments."""
    return partition_states(topic_id_partition, (each for each in segments if each.is_finished)).finished


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """Segments of a partition that wait for a copy or a deletion. `seconds` is 0 if the time is unknown.

    For copies, `seconds` counts from the newest record of the first waiting segment. For deletions, it counts from the
    earliest time at which a plan chose one of these segments, or their deletion began.
    """

    topic_id_partition: TopicIdPartition
    size_bytes: int
    segments: int
    seconds: float


OBJECTS_PER_SEGMENT: Final = 3
"""Log, indexes and manifest of the aiven layout; each is written by one request (a large log by more), read by one."""

SEGMENTS_PER_DELETE: Final = 333
"""Objects are deleted in requests of up to 999 keys, three per segment in the aiven layout."""

_PER_REQUESTS: Final = 1000


@dataclass(frozen=True, slots=True)
class PriceTable:
    """Prices in `currency`: of one GiB for a month, and of 1000 requests of each kind. None if unknown."""

    currency: str
    gib_month: Decimal | None = None
    put_requests: Decimal | None = None
    get_requests: Decimal | None = None
    delete_requests: Decimal | None = None

    @property
    def is_empty(self) -> bool:
        return self.gib_month is self.put_requests is self.get_requests is self.delete_requests is None


@dataclass(frozen=True, slots=True)
class CostEstimate:
    """Estimated costs of a remote log; None if the price is unknown.

    `storage_per_month` assumes that the log's size stays the same. The other costs are those of the requests to write,
    read and delete the log once.
    """

    currency: str
    storage_per_month: Decimal | None
    writing: Decimal | None
    reading: Decimal | None
    deleting: Decimal | None


def estimate_cost(stored_bytes: int, segments: int, prices: PriceTable) -> CostEstimate | None:
    """Estimate the costs of storing `stored_bytes`, and of the requests for FINISHED segments; None without any price.

    `stored_bytes` does not count indexes and manifests, which are a few per mille of the log.
    """
    if prices.is_empty:
        return None
    objects = segments * OBJECTS_PER_SEGMENT
    return CostEstimate(
        prices.currency,
        None if prices.gib_month is None else prices.gib_month * stored_bytes / GIB,
        _requests(objects, prices.put_requests),
        _requests(objects, prices.get_requests),
        _requests(-(-segments // SEGMENTS_PER_DELETE), prices.delete_requests),
    )


def _requests(number: int, price: Decimal | None) -> Decimal | None:
    return None if price is None else price * number / _PER_REQUESTS
