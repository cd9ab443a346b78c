"""Metadata that are made from the store instead of by a copy: all of a cluster, or single segments without metadata.

Both make segments FINISHED without a verdict, in one transaction: they are not served before they are verified.
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

    Attributes:
        metadata: as its manifest has them, in COPY_SEGMENT_STARTED.
        log_crc32c: computed by the store over the log, or from its bytes, as the checksum of the source is lost; None
            if the log is compressed or encrypted.
    """

    metadata: RemoteLogSegmentMetadata
    log_crc32c: int | None


@dataclass(frozen=True, slots=True)
class RecoveredPartition:
    """One partition, as recovered from the complete copies in the store.

    Attributes:
        segments: at least one, with ascending ends within a history, by history.
        leader_epochs: the merged leader epochs of the copies of the newest history, and older ones below it.
        holes: offsets between segments that no copy has; each is recorded as a decision to skip them.
        detail: further text for the event log.
        decided: later histories by number; each is recorded as a decision to follow it.
        histories: number of the history for each of their segments.
    """

    topic_id_partition: TopicIdPartition
    segments: tuple[StoredSegment, ...]
    leader_epochs: LeaderEpochs
    holes: tuple[OffsetRange, ...]
    detail: str
    decided: tuple[RecoveredHistory, ...] = ()
    histories: Mapping[RemoteLogSegmentId, int] = field(default_factory=dict)


class MetadataRecovery(Protocol):
    """Metadata of one cluster, rebuilt in an empty database. Until `finish` all other uses of them are refused.

    Every call is one transaction; repeating it after a crash is harmless.
    """

    def begun(self, found: StoreMarker) -> StoreMarker | None:
        """Return the marker of an unfinished rebuild; None if there is none. Read only; raises as `begin` does."""
        ...

    def begin(self, found: StoreMarker, wanted: StoreMarker, *, author: str) -> StoreMarker:
        """Record that the metadata of the store with the marker `found` are rebuilt here.

        Returns:
            The marker that the store is to get: `wanted`, or that of an unfinished rebuild.

        Raises:
            StateConflictError: the database is not empty, or metadata of another cluster are rebuilt in it.
        """
        ...

    def recovered(self) -> Mapping[TopicIdPartition, int]:
        """Return the number of segments of each partition that is stored."""
        ...

    def add_partition(self, partition: RecoveredPartition, *, author: str) -> None:
        """Store a partition with its topic (without owner), segments, leader epochs, counters, decisions, and an event.

        A partition that is stored already stays as it is.

        Raises:
            StateConflictError: no rebuild is under way.
        """
        ...

    def finish(self, *, author: str) -> None:
        """End the rebuild: from now on the database can be used as any other."""
        ...


class SegmentAdoption(Protocol):
    """Makes a segment of a complete copy without metadata."""

    def adopt(self, segment: StoredSegment, *, fence: Fence, author: str) -> None:
        """Store the copy as a FINISHED segment, as a copy run does, with an event. Repeating it is harmless.

        Raises:
            IllegalTransitionError: the id is known with other values, or was deleted.
            StateConflictError: it is out of order, its partition is stopped, or its topic has another owner now.
            LeaseLostError: the lease of `fence` was lost.
        """
        ...
