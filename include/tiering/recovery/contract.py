"""Metadata that come from the store instead of a copy: all of a cluster's at once, or single segments that were left.

Both make segments FINISHED without a verdict, in one transaction: nothing of them is served before it was verified.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from include.tiering.model.histories import OffsetRange
from include.tiering.model.leader_epochs import LeaderEpochs
from include.tiering.model.ownership import Fence, StoreMarker
from include.tiering.model.recovered_histories import RecoveredHistory
from include.tiering.model.segments import RemoteLogSegmentId, RemoteLogSegmentMetadata, TopicIdPartition


@dataclass(frozen=True, slots=True)
class StoredSegment:
    """A complete copy as the store holds it.

    `metadata` as its manifest has them, in COPY_SEGMENT_STARTED. `log_crc32c` is what the store computed over the log,
    or what its bytes give: nobody knows any more what the source had. None where the log is compressed or encrypted.
    """

    metadata: RemoteLogSegmentMetadata
    log_crc32c: int | None


@dataclass(frozen=True, slots=True)
class RecoveredPartition:
    """What the store says of one partition of which it has a complete copy.

    Attributes:
        segments: at least one, with ascending ends within a history, by history.
        leader_epochs: the merged history of all that the copies of the newest history say, and older ones below it.
        holes: offsets between segments that no copy has; each becomes a decision to go on without them.
        detail: what else to record of it, for the event log.
        decided: later histories by number: each becomes a decision to follow it.
        histories: the numbers of these, of their segments.
    """

    topic_id_partition: TopicIdPartition
    segments: tuple[StoredSegment, ...]
    leader_epochs: LeaderEpochs
    holes: tuple[OffsetRange, ...]
    detail: str
    decided: tuple[RecoveredHistory, ...] = ()
    histories: Mapping[RemoteLogSegmentId, int] = field(default_factory=dict)


class MetadataRecovery(Protocol):
    """Metadata of one cluster, rebuilt in an empty database. Until `finish` they serve nobody else.

    Every call is one transaction; repeating it after a crash is harmless.
    """

    def begun(self, found: StoreMarker) -> StoreMarker | None:
        """The marker of a rebuild that was begun before and has not come to its end; None if none was. Changes nothing
        and raises as `begin` does.
        """
        ...

    def begin(self, found: StoreMarker, wanted: StoreMarker, *, author: str) -> StoreMarker:
        """Record that the metadata of the store which `found` marks are rebuilt here. Returns the marker that it is to
        have: `wanted`, or of a rebuild that was begun before that one's.

        Raises:
            StateConflictError: the database is not empty, or metadata of another cluster are rebuilt in it.
        """
        ...

    def recovered(self) -> Mapping[TopicIdPartition, int]:
        """Segments of each partition that is there."""
        ...

    def add_partition(self, partition: RecoveredPartition, *, author: str) -> None:
        """Store a partition with its topic (which has no owner), segments, leader epochs, counters, decisions, and an
        event. One that is there already stays as it is.

        Raises:
            StateConflictError: no rebuild is under way.
        """
        ...

    def finish(self, *, author: str) -> None:
        """From now on the metadata serve, as those of any other database."""
        ...


class SegmentAdoption(Protocol):
    """A complete copy without metadata becomes a segment."""

    def adopt(self, segment: StoredSegment, *, fence: Fence, author: str) -> None:
        """From nothing to FINISHED, with an event. As a copy that is FINISHED; repeating it is harmless.

        Raises:
            IllegalTransitionError: the id is known with other values, or was deleted.
            StateConflictError: it is out of order, its partition is stopped, or its topic is somebody else's by now.
            LeaseLostError
        """
        ...
