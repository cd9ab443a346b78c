"""What a broker holds in memory of one partition's remote log, record by record of `__remote_log_metadata`.

Kafka's topic-based RLMM keeps for every partition its segments by id and, for every leader epoch, which segment answers
for which offset. It drops what it cannot use, never answers from what is not COPY_SEGMENT_FINISHED, and forgets a
segment whose deletion has finished. This is the same, as values, with its oddities:

- *Superset*: a segment that ends at or above all that its epoch ever finished takes the place of every segment that
  begins at or behind it. Those stay known, unreferenced, until they are deleted.
- *Leak*: one that begins where another does but ends below what was finished takes the other's place without making it
  unreferenced. The other is listed with the partition, under no epoch, and no expiration ever finds it.
- *Highest*: what an epoch ever finished is never lowered.

A topic that was created again has another topic id, so its partitions have other caches.
Source: `RemoteLogMetadataCache` and `RemoteLogLeaderEpochState` of Kafka, behind `RemotePartitionMetadataStore`; a test
compares thousands of sequences with the cache itself, in three releases.
"""

from bisect import bisect_right, insort
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from include.tiering.errors import PoisonRecordError
from include.tiering.model.segments import (
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemoteLogSegmentState,
    is_legal_transition,
)

BROKER_COUNTED_STATES: Final = frozenset(
    {RemoteLogSegmentState.COPY_SEGMENT_FINISHED, RemoteLogSegmentState.DELETE_SEGMENT_STARTED}
)
"""States that a newer broker's RemoteLogSizeBytes counts; an older one counts every segment that it knows."""


class Effect(StrEnum):
    """What a record did to a cache. Dropped ones leave it as it was, and the broker goes on."""

    APPLIED = "applied"
    UNKNOWN_SEGMENT = "dropped: no segment with this id"
    ILLEGAL_TRANSITION = "dropped: not the next state"


class Reference(StrEnum):
    """How a leader epoch knows a segment. Neither of the two: as if it were not there (see the leak)."""

    REFERENCED = "referenced"
    UNREFERENCED = "unreferenced"


EpochReference = tuple[int, RemoteLogSegmentId]
"""Leader epoch, segment."""


@dataclass(frozen=True, slots=True)
class BrokerCacheState:
    """All that a cache holds, or as much of it as records can touch: see `BrokerCache`.

    Attributes:
        segments: what is known by id.
        references: every (leader epoch, segment) that the epoch knows.
        highest: the highest offset (inclusive) that each epoch ever finished.
    """

    segments: Mapping[RemoteLogSegmentId, RemoteLogSegmentMetadata] = field(default_factory=dict)
    references: Mapping[EpochReference, Reference] = field(default_factory=dict)
    highest: Mapping[int, int] = field(default_factory=dict)


@dataclass(slots=True)
class _Epoch:
    """One leader epoch. `starts` are the keys of `by_start`, ascending: the epoch's first offset in each segment."""

    by_start: dict[int, RemoteLogSegmentId] = field(default_factory=dict)
    starts: list[int] = field(default_factory=list)
    unreferenced: dict[RemoteLogSegmentId, None] = field(default_factory=dict)
    highest: int | None = None

    def refer(self, start: int, segment_id: RemoteLogSegmentId) -> None:
        if start not in self.by_start:
            insort(self.starts, start)
        self.by_start[start] = segment_id

    def finish(self, start: int, end: int, segment_id: RemoteLogSegmentId) -> None:
        """`end` is inclusive, and below `start` for an epoch without a record."""
        while self.starts and self.starts[-1] >= start and self.highest is not None and self.highest <= end:
            self.unreferenced[self.by_start.pop(self.starts.pop())] = None
        self.refer(start, segment_id)
        self.unreferenced.pop(segment_id, None)
        self.highest = end if self.highest is None else max(self.highest, end)

    def begin_delete(self, start: int, segment_id: RemoteLogSegmentId) -> None:
        if self.by_start.get(start) == segment_id:
            del self.by_start[start]
            self.starts.remove(start)
        self.unreferenced[segment_id] = None

    def at_or_before(self, offset: int) -> RemoteLogSegmentId | None:
        position = bisect_right(self.starts, offset)
        return self.by_start[self.starts[position - 1]] if position else None


class BrokerCache:
    """The cache of one partition.

    It may be restored in part, to apply some records: then it needs the segments with their ids, the highest offsets of
    their epochs and, of these epochs, what is referenced at or behind the lowest start. Queries need all of it.
    """

    def __init__(self, state: BrokerCacheState | None = None) -> None:
        restored = state if state is not None else BrokerCacheState()
        self._segments = dict(restored.segments)
        self._epochs: dict[int, _Epoch] = defaultdict(_Epoch)
        for leader_epoch, highest in restored.highest.items():
            self._epochs[leader_epoch].highest = highest
        for (leader_epoch, segment_id), reference in restored.references.items():
            epoch = self._epochs[leader_epoch]
            if reference is Reference.UNREFERENCED:
                epoch.unreferenced[segment_id] = None
            else:
                epoch.refer(_start_of(leader_epoch, self._segments[segment_id]), segment_id)

    def state(self) -> BrokerCacheState:
        """A copy of what the cache holds."""
        references: dict[EpochReference, Reference] = {}
        for leader_epoch, epoch in self._epochs.items():
            references |= {(leader_epoch, one): Reference.UNREFERENCED for one in epoch.unreferenced}
            references |= {(leader_epoch, one): Reference.REFERENCED for one in epoch.by_start.values()}
        highest = {number: epoch.highest for number, epoch in self._epochs.items() if epoch.highest is not None}
        return BrokerCacheState(dict(self._segments), references, highest)

    def add(self, metadata: RemoteLogSegmentMetadata) -> Effect:
        """A segment metadata record (api key 0). A repeated one replaces what was known.

        Raises:
            PoisonRecordError: it is in another state than COPY_SEGMENT_STARTED.
        """
        segment_id = metadata.remote_log_segment_id
        if metadata.state is not RemoteLogSegmentState.COPY_SEGMENT_STARTED:
            raise PoisonRecordError(
                f"{segment_id}: a segment begins as COPY_SEGMENT_STARTED, not {metadata.state.name}"
            )
        known = self._segments.get(segment_id)
        if known is not None and not is_legal_transition(known.state, metadata.state):
            return Effect.ILLEGAL_TRANSITION
        for leader_epoch, _ in metadata.segment_leader_epochs:
            self._epochs[leader_epoch].unreferenced[segment_id] = None
        self._segments[segment_id] = metadata
        return Effect.APPLIED

    def update(self, change: RemoteLogSegmentMetadataUpdate) -> Effect:
        """An update record (api key 1). Staying in a state is applied again, as a broker does.

        Raises:
            PoisonRecordError: it sends a segment that is COPY_SEGMENT_STARTED to COPY_SEGMENT_STARTED.
        """
        segment_id = change.remote_log_segment_id
        known = self._segments.get(segment_id)
        if known is None:
            return Effect.UNKNOWN_SEGMENT
        if not is_legal_transition(known.state, change.state):
            return Effect.ILLEGAL_TRANSITION
        after = known.with_update(change)
        match change.state:
            case RemoteLogSegmentState.COPY_SEGMENT_STARTED:
                raise PoisonRecordError(f"{segment_id}: no update makes a segment COPY_SEGMENT_STARTED")
            case RemoteLogSegmentState.COPY_SEGMENT_FINISHED:
                for leader_epoch, start in after.segment_leader_epochs:
                    self._epochs[leader_epoch].finish(start, _end_of(leader_epoch, after), segment_id)
            case RemoteLogSegmentState.DELETE_SEGMENT_STARTED:
                for leader_epoch, start in after.segment_leader_epochs:
                    self._epochs[leader_epoch].begin_delete(start, segment_id)
            case RemoteLogSegmentState.DELETE_SEGMENT_FINISHED:
                for leader_epoch, _ in after.segment_leader_epochs:
                    self._epochs[leader_epoch].unreferenced.pop(segment_id, None)
                del self._segments[segment_id]
                return Effect.APPLIED
        self._segments[segment_id] = after
        return Effect.APPLIED

    def segment(self, segment_id: RemoteLogSegmentId) -> RemoteLogSegmentMetadata | None:
        """None for one that is not known, or was forgotten."""
        return self._segments.get(segment_id)

    def segment_for_offset(self, leader_epoch: int, offset: int) -> RemoteLogSegmentMetadata | None:
        """What answers for `offset` under the epoch; a gap answers None."""
        epoch = self._epochs.get(leader_epoch)
        segment_id = None if epoch is None else epoch.at_or_before(offset)
        if segment_id is None:
            return None
        found = self._segments[segment_id]
        return found if offset <= _end_of(leader_epoch, found) else None

    def highest_offset_for_epoch(self, leader_epoch: int) -> int | None:
        """Highest offset (inclusive) ever finished under the epoch."""
        epoch = self._epochs.get(leader_epoch)
        return None if epoch is None else epoch.highest

    def list_segments(self, leader_epoch: int | None = None) -> Sequence[RemoteLogSegmentMetadata]:
        """All, by start offset; of an epoch what it knows, what answers before what does not. As in Kafka these are by
        the epoch's start in each segment while all of them answer, else by the segments' start offset.
        """
        if leader_epoch is None:
            return sorted(self._segments.values(), key=lambda segment: segment.start_offset)
        epoch = self._epochs.get(leader_epoch, _Epoch())
        known = (*(epoch.by_start[start] for start in epoch.starts), *epoch.unreferenced)
        listed = [self._segments[segment_id] for segment_id in known if segment_id in self._segments]
        return sorted(listed, key=lambda segment: segment.start_offset) if epoch.unreferenced else listed

    def remote_log_size(self, leader_epoch: int) -> int:
        """Bytes of all that the epoch lists, in whatever state, as KIP-405's remoteLogSize adds them up."""
        return sum(segment.segment_size_bytes for segment in self.list_segments(leader_epoch))


def _start_of(leader_epoch: int, segment: RemoteLogSegmentMetadata) -> int:
    return next(start for epoch, start in segment.segment_leader_epochs if epoch == leader_epoch)


def _end_of(leader_epoch: int, segment: RemoteLogSegmentMetadata) -> int:
    """Last offset (inclusive) of an epoch that the segment has."""
    end = segment.end_offset_of_epoch(leader_epoch)
    return segment.end_offset if end is None else end
