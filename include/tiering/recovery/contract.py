"""The contract for metadata that are made from the store instead of by a copy run.

`MetadataRecovery` makes all metadata of a cluster, with one transaction per partition; `SegmentAdoption` makes a single
segment that the metadata lack. Both store segments as FINISHED without a verdict, so the segments are not served before
they are verified.
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
        log_crc32c: computed from the stored log, by the store or by reading it, because the checksum of the source is
            lost; None if the log is compressed or encrypted.
    """

    metadata: RemoteLogSegmentMetadata
    log_crc32c: int | None


@dataclass(frozen=True, slots=True)
class RecoveredPartition:
    """One partition, as recovered from the complete copies in the store.

    Attributes:
        segments: at least one, ordered by history, then by end offset.
        leader_epochs: those stored with the latest copy, merged with those of the segments; of each history, only those
            below the start of the next.
        holes: offsets between segments that no segment of their history has; each hole is recorded as a decision to
            skip these offsets.
        detail: text for the event log.
        decided: the histories after the first, by number; each is recorded as a decision to follow it.
        histories: number of the history of each segment that is not of the first history.
    """

    topic_id_partition: TopicIdPartition
    segments: tuple[StoredSegment, ...]
    leader_epochs: LeaderEpochs
    holes: tuple[OffsetRange, ...]
    detail: str
    decided: tuple[RecoveredHistory, ...] = ()
    histories: Mapping[RemoteLogSegmentId, int] = field(default_factory=dict)


class MetadataRecovery(Protocol):
    """Metadata of one cluster, rebuilt in an empty database. Until `finish` other uses of the database are refused.

    Every call is one transaction; repeating it after a crash is harmless, though `finish` then raises an error.
    """

    def begun(self, found: StoreMarker) -> StoreMarker | None:
        """Return the marker that an unfinished rebuild gives to the store; None if the database is empty.

        Read only; raises as `begin` does.
        """
        ...

    def begin(self, found: StoreMarker, wanted: StoreMarker, *, author: str) -> StoreMarker:
        """Record that the metadata of the store with the marker `found` are rebuilt here.

        Returns:
            The marker that the store is to get: `wanted`, or the marker of an unfinished rebuild, which continues.

        Raises:
            StateConflictError: the database is not empty, or metadata of another cluster are rebuilt in it.
        """
        ...

    def recovered(self) -> Mapping[TopicIdPartition, int]:
        """Return each partition that the rebuild has stored, with the number of its segments."""
        ...

    def add_partition(self, partition: RecoveredPartition, *, author: str) -> None:
        """Store a partition with its topic (without owner), segments, leader epochs, counters, decisions, and an event.

        A partition that is stored already stays as it is.

        Raises:
            StateConflictError: no rebuild is under way.
        """
        ...

    def finish(self, *, author: str) -> None:
        """End the rebuild: from now on the database can be used as any other.

        Raises:
            StateConflictError: no rebuild is under way.
        """
        ...


class SegmentAdoption(Protocol):
    """Makes a segment of a complete copy that the metadata lack, or have as begun by the platform."""

    def adopt(self, segment: StoredSegment, *, fence: Fence, author: str) -> None:
        """Store the copy as a FINISHED segment, as a copy run does, with an event. Repeating it is harmless.

        Raises:
            IllegalTransitionError: the id is known with other values, was deleted, or is marked for deletion.
            StateConflictError: the copy ends at or below the highest copied offset, its partition is stopped or waits
                for a decision about its history, or its topic has another owner or another name now.
            LeaseLostError: the lease of `fence` was lost.
        """
        ...
