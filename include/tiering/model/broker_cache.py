"""A model of a broker's in-memory metadata cache of one partition, built record by record of `__remote_log_metadata`.

Kafka's topic-based RLMM stores for every partition its segments by id and, for every leader epoch, the segments by
offset. It drops records that it cannot use, returns only COPY_SEGMENT_FINISHED segments from lookups, and removes a
segment whose deletion has finished. This model does the same, including these peculiarities:

- *Superset*: a segment finishes, and its last offset in an epoch is at or above the highest offset that the epoch ever
  finished. Then it replaces all referenced segments whose first offset in the epoch is at or above its own. The
  replaced segments stay in the cache, unreferenced, until they are deleted.
- *Leak*: a segment finishes whose first offset in an epoch is that of another segment, and its last offset there is
  below the highest that the epoch ever finished. Then it replaces the other without making it unreferenced. The other
  is listed with the partition but no longer under this epoch; if no other epoch lists it, no expiration ever finds it.
- *Highest*: the highest offset that an epoch ever finished is never lowered.

A topic that was created again has another topic id, so its partitions have new caches.
Source: `RemoteLogMetadataCache` and `RemoteLogLeaderEpochState` of Kafka, used by `RemotePartitionMetadataStore`; a
test compares thousands of sequences with the cache itself, in three releases.
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
"""States that RemoteLogSizeBytes counts in brokers of release 4.3.1; brokers of some releases count every state."""


class Effect(StrEnum):
    """Effect of a record on a cache. A dropped record changes nothing, and the broker continues."""

    APPLIED = "applied"
    UNKNOWN_SEGMENT = "dropped: no segment with this id"
    ILLEGAL_TRANSITION = "dropped: not the next state"


class Reference(StrEnum):
    """How a leader epoch lists a segment: REFERENCED under an offset, or UNREFERENCED, without one.

    An epoch may also have lost a segment: then it has neither of these references to it (see *Leak* above).
    """

    REFERENCED = "referenced"
    UNREFERENCED = "unreferenced"


EpochReference = tuple[int, RemoteLogSegmentId]
"""A leader epoch, and the id of a segment that it lists."""


@dataclass(frozen=True, slots=True)
class BrokerCacheState:
    """Content of a cache: all of it, or the part that is enough to apply some records (see `BrokerCache`).

    Attributes:
        segments: segments by id.
        references: how each leader epoch refers to its segments.
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
        """Refer to a FINISHED segment. `end` is inclusive, and below `start` for an epoch without a record."""
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

    The cache may be restored in part, to apply only some records. Then its state must have:

    - the segments that these records name
    - for each leader epoch of these segments: the highest offset that it ever finished, and its references to all
      segments in which it begins at or above the lowest offset at which it begins in a named segment
    - the segments that are referred to

    Queries need the whole state.
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
        """Return a copy of the cache's content."""
        references: dict[EpochReference, Reference] = {}
        for leader_epoch, epoch in self._epochs.items():
            references |= {(leader_epoch, unlisted): Reference.UNREFERENCED for unlisted in epoch.unreferenced}
            references |= {(leader_epoch, listed): Reference.REFERENCED for listed in epoch.by_start.values()}
        highest = {number: epoch.highest for number, epoch in self._epochs.items() if epoch.highest is not None}
        return BrokerCacheState(dict(self._segments), references, highest)

    def add(self, metadata: RemoteLogSegmentMetadata) -> Effect:
        """Apply a segment metadata record (api key 0).

        A repeated record replaces a segment that is COPY_SEGMENT_STARTED, and is dropped if the segment has another
        state.

        Raises:
            PoisonRecordError: the record's state is not COPY_SEGMENT_STARTED.
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
        """Apply an update record (api key 1). An update to the present state is applied again, as in a broker.

        Raises:
            PoisonRecordError: the segment is COPY_SEGMENT_STARTED, and the update says so again.
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
        """Return the segment; None if it is not in the cache, or not any more."""
        return self._segments.get(segment_id)

    def segment_for_offset(self, leader_epoch: int, offset: int) -> RemoteLogSegmentMetadata | None:
        """Return the segment that holds `offset` under the epoch; None if there is none."""
        epoch = self._epochs.get(leader_epoch)
        segment_id = None if epoch is None else epoch.at_or_before(offset)
        if segment_id is None:
            return None
        found = self._segments[segment_id]
        return found if offset <= _end_of(leader_epoch, found) else None

    def highest_offset_for_epoch(self, leader_epoch: int) -> int | None:
        """Return the highest offset (inclusive) that the epoch ever finished; None if it finished none."""
        epoch = self._epochs.get(leader_epoch)
        return None if epoch is None else epoch.highest

    def list_segments(self, leader_epoch: int | None = None) -> Sequence[RemoteLogSegmentMetadata]:
        """Return all segments, ordered by start offset, or those that `leader_epoch` lists, referenced or unreferenced.

        As in Kafka, the segments of an epoch are ordered by the epoch's first offset in each if all are referenced. If
        one is unreferenced, they are ordered by their start offsets, and of equal ones referenced segments come first.
        """
        if leader_epoch is None:
            return sorted(self._segments.values(), key=lambda segment: segment.start_offset)
        epoch = self._epochs.get(leader_epoch, _Epoch())
        known = (*(epoch.by_start[start] for start in epoch.starts), *epoch.unreferenced)
        listed = [self._segments[segment_id] for segment_id in known if segment_id in self._segments]
        return sorted(listed, key=lambda segment: segment.start_offset) if epoch.unreferenced else listed

    def remote_log_size(self, leader_epoch: int) -> int:
        """Return the bytes of all segments that the epoch lists, in any state, as remoteLogSize of KIP-405 does."""
        return sum(segment.segment_size_bytes for segment in self.list_segments(leader_epoch))


def _start_of(leader_epoch: int, segment: RemoteLogSegmentMetadata) -> int:
    return next(start for epoch, start in segment.segment_leader_epochs if epoch == leader_epoch)


def _end_of(leader_epoch: int, segment: RemoteLogSegmentMetadata) -> int:
    """Return the last offset (inclusive) of an epoch that the segment has."""
    end = segment.end_offset_of_epoch(leader_epoch)
    return segment.end_offset if end is None else end
