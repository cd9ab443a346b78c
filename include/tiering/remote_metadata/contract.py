"""KIP-405's RemoteLogMetadataManager, with fencing.

Queries hide DELETE_SEGMENT_FINISHED (a tombstone) and follow `storage`'s rules for lookups: only FINISHED segments
answer a lookup by offset. Every change happens in one transaction with the counters it moves.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from include.tiering.model.ids import RemoteLogSegmentId, TopicIdPartition
from include.tiering.model.segment_metadata import RemoteLogSegmentMetadata, RemoteLogSegmentMetadataUpdate
from include.tiering.model.segment_state import RemoteLogSegmentState
from include.tiering.model.verdict import Verdict


@dataclass(frozen=True, slots=True)
class Fence:
    """Right to change one partition. A change with a token that is not the newest fails with LeaseLostError."""

    topic_id_partition: TopicIdPartition
    token: int


@dataclass(frozen=True, slots=True)
class EpochSize:
    """FINISHED bytes and segments of one leader epoch; a segment that spans epochs counts in each of them."""

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
class SegmentRow:
    """A segment with what this platform knows beyond Kafka's metadata."""

    metadata: RemoteLogSegmentMetadata
    verdict: Verdict
    log_crc32c: int | None


class RemoteLogMetadata(Protocol):
    """The metadata of one cluster's remote log segments."""

    def add_segment(self, metadata: RemoteLogSegmentMetadata, *, fence: Fence, log_crc32c: int | None = None) -> None:
        """Record a new attempt in COPY_SEGMENT_STARTED. Repeating the same call is harmless.

        Raises:
            IllegalTransitionError: another state, or an id that is known with other values or was deleted.
            LeaseLostError: the fence is not the newest.
        """
        ...

    def update_segment(
        self, update: RemoteLogSegmentMetadataUpdate, *, expected: RemoteLogSegmentState, fence: Fence
    ) -> RemoteLogSegmentMetadata:
        """Compare-and-set of the state; returns the new metadata. Repeating a change that was made is harmless.

        FINISHED appears in ascending offset order: a FINISHED whose end is below the partition's highest is refused.

        Raises:
            UnknownSegmentError, StateConflictError, IllegalTransitionError, LeaseLostError
        """
        ...

    def segment(self, segment_id: RemoteLogSegmentId) -> SegmentRow | None:
        """This attempt, tombstones included."""
        ...

    def list_segments(self, partition: TopicIdPartition, leader_epoch: int | None = None) -> Sequence[SegmentRow]:
        """Segments in any state but DELETE_SEGMENT_FINISHED, by start offset, then by time of arrival."""
        ...

    def partitions(self) -> Sequence[TopicIdPartition]:
        """Partitions with at least one segment that is not a tombstone, by topic and partition."""
        ...

    def segment_for_offset(
        self, partition: TopicIdPartition, leader_epoch: int, offset: int
    ) -> RemoteLogSegmentMetadata | None:
        """The FINISHED segment that holds `offset` under `leader_epoch`; a gap answers None."""
        ...

    def highest_offset_for_epoch(self, partition: TopicIdPartition, leader_epoch: int) -> int | None:
        """Highest offset (inclusive) ever FINISHED under this epoch; deletions do not lower it."""
        ...

    def highest_copied_offset(self, partition: TopicIdPartition) -> int | None:
        """End offset (inclusive) of the last FINISHED segment of the partition, whatever its epoch."""
        ...

    def remote_log_size(self, partition: TopicIdPartition, leader_epoch: int) -> int:
        """FINISHED bytes listed under this epoch. O(1): a counter, no scan (KIP-852)."""
        ...

    def partition_sizes(self, partition: TopicIdPartition | None = None) -> Sequence[PartitionSize]:
        """FINISHED sizes from the counters, of one partition or of all."""
        ...

    def stopped_reason(self, partition: TopicIdPartition) -> str | None:
        """Why nothing more may be copied here (a segment with a FAILED verdict, a recorded stop), or None."""
        ...

    def is_ready(self, partition: TopicIdPartition) -> bool:
        """KIP-1105: whether answers for this partition are complete. False while the schema is not at head."""
        ...

    def record_verdict(self, segment_id: RemoteLogSegmentId, verdict: Verdict, *, detail: str = "") -> None:
        """Store a quality result beside the state. A FAILED one stops the partition until it is superseded.

        Raises:
            UnknownSegmentError
        """
        ...
