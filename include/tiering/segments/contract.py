"""Contract of the remote log segment metadata: KIP-405's RemoteLogMetadataManager, with fencing.

It also holds the owners of topics (`TopicRegistry`), and the sizes, read only (`RemoteLogSizes`).

Queries hide DELETE_SEGMENT_FINISHED (a tombstone) and follow the rules of Kafka's `storage` module for lookups: a
lookup by offset returns FINISHED segments only. Every change is one transaction with the counters that it moves.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from include.tiering.model.histories import Divergence, OffsetRange, SeenDivergence, SkippedOffsets
from include.tiering.model.leader_epochs import Contradiction, LeaderEpochs
from include.tiering.model.ownership import Fence, TopicOwner
from include.tiering.model.segments import (
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemoteLogSegmentState,
    TopicIdPartition,
    Uuid,
    Verdict,
    VerdictTotal,
)
from include.tiering.model.sizes import PartitionLag, PartitionSize, PartitionStates
from include.tiering.segments.values import (
    PartitionRetentionState,
    QualityResult,
    RecordedVerdict,
    SegmentRow,
    Verification,
)

__all__ = [
    "Divergences",
    "KeyRange",
    "PartitionRetentionState",
    "QualityResult",
    "RecordedVerdict",
    "RemoteLogMetadata",
    "RemoteLogSizes",
    "SegmentRow",
    "SizeRow",
    "TopicRegistry",
    "Verification",
]


class Divergences(Protocol):
    """Log divergences, a part of `RemoteLogMetadata`. While one is open, its partition takes no FINISHED first copy."""

    def divergences(self, partition: TopicIdPartition) -> Sequence[Divergence]:
        """Return every divergence recorded for this partition, decided or not, by number."""
        ...

    def is_continued(self, partition: TopicIdPartition, leader_epoch: int, highest_copied: int) -> bool:
        """Return whether a source, in which `highest_copied` has this leader epoch, continues what is remote.

        It does if `highest_copied` is the epoch's `highest_offset_for_epoch` and no divergence awaits a decision. One
        read. False alone does not prove a divergence: compare `divergences` and the segments then.
        """
        ...

    def record_divergence(
        self, partition: TopicIdPartition, seen: SeenDivergence, *, history: int
    ) -> Divergence | None:
        """Record a divergence, with an event, or extend the open one. Idempotent.

        Args:
            partition: the partition.
            seen: what differs.
            history: `newest_history` when it was seen.

        Returns:
            The divergence that is open now. None, and nothing is recorded, if a decision was recorded since or another
            owner has the topic.
        """
        ...

    def follow_source(
        self,
        partition: TopicIdPartition,
        number: int,
        from_offset: int,
        *,
        source_epochs: LeaderEpochs,
        reason: str,
        author: str,
    ) -> Divergence:
        """Decide about an open divergence, with an event: the archive follows the source. Idempotent; deletes nothing.

        `highest_copied_offset` becomes `from_offset` - 1, even if segments above it are remote. If it is lower already,
        the offsets between are recorded as skipped. Segments that were copied from the source before the divergence was
        detected begin the new history. From `from_offset` on the partition's leader epochs become the source's
        (`leader_epochs.followed`).

        Args:
            partition: the partition.
            number: of the divergence.
            from_offset: first offset (inclusive) of the source that is followed.
            source_epochs: the source's leader epochs up to its high watermark (exclusive).
            reason: why, in the words of the person who decides.
            author: who decides.

        Raises:
            StateConflictError: the divergence is not open or was decided otherwise, the segments copied since begin at
                another offset, or the platform does not own the topic.
        """
        ...


class RemoteLogMetadata(Divergences, Protocol):
    """The metadata of one cluster's remote log segments."""

    def add_segment(
        self,
        metadata: RemoteLogSegmentMetadata,
        *,
        fence: Fence,
        log_crc32c: int | None = None,
        source_fingerprint: str | None = None,
    ) -> int | None:
        """Record a new attempt in COPY_SEGMENT_STARTED. Idempotent for equal arguments.

        Returns:
            `highest_copied_offset` as of the same transaction.

        Raises:
            IllegalTransitionError: `metadata` has another state, or its id is stored with other values, was deleted, or
                is marked for deletion by an orphan removal.
            LeaseLostError: the fence is not the newest one, or its lease was released.
        """
        ...

    def update_segment(
        self,
        update: RemoteLogSegmentMetadataUpdate,
        *,
        expected: RemoteLogSegmentState,
        fence: Fence,
        supersedes: RemoteLogSegmentId | None = None,
    ) -> RemoteLogSegmentMetadata:
        """Compare and set the state; return the new metadata. Idempotent: repeating a stored change has no effect.

        Segments become FINISHED in ascending order of end offsets: the end must be above `highest_copied_offset`. The
        start may be at or below it (after a leader change the new leader's segment that holds the next offset is copied
        whole). In a partition that a FAILED verdict stopped, only a copy that `supersedes` the failed segment becomes
        FINISHED. It must have exactly its offsets and leader epochs; the failed segment becomes DELETE_SEGMENT_STARTED
        in the same transaction, with an event. The order of end offsets is not checked then.

        Raises:
            UnknownSegmentError: there is no such segment, or none that `supersedes` names.
            IllegalTransitionError: `expected` may not become the new state.
            LeaseLostError: the fence is not the newest one, or its lease was released.
            StateConflictError: the state is not `expected`; a broker began the segment; FINISHED is out of order or the
                partition is stopped; or `supersedes` names a segment that is not FINISHED and FAILED, or that has other
                offsets or leader epochs.
        """
        ...

    def advance_deletion(
        self,
        segments: Sequence[RemoteLogSegmentMetadata],
        state: RemoteLogSegmentState,
        *,
        event_timestamp_ms: int,
        fence: Fence,
    ) -> Sequence[RemoteLogSegmentMetadata]:
        """Advance segments of the fence's partition to DELETE_SEGMENT_STARTED or DELETE_SEGMENT_FINISHED. Idempotent.

        Compare and set, in one transaction with hundreds of segments per statement: each segment must be in the state
        that it is passed with, or already in `state`. A segment in another state is left unchanged and out of the
        result. So are segments that are passed as FINISHED and were superseded, and segments that a broker began.

        Returns:
            The advanced segments in the order of `segments`, in `state` and with `event_timestamp_ms`.

        Raises:
            IllegalTransitionError: `state` is neither of the two, or may not follow the state of a passed segment.
            LeaseLostError: the fence is not the newest one, or its lease was released.
        """
        ...

    def forget_tombstones(self, older_than_ms: int, *, at_most: int) -> int:
        """Remove at most `at_most` tombstones, oldest first, in one transaction; return their number.

        A tombstone is removed if it is older than `older_than_ms` by the database's clock. Tombstones stay whose id a
        copy might still try to begin again, and the platform's own in topics that it does not own. Only `segment` and
        `segments_of_run` return different results afterwards.
        """
        ...

    def retention_state(self, partition: TopicIdPartition) -> PartitionRetentionState:
        """Return log start and merged leader epochs; the defaults for a partition without stored state."""
        ...

    def raise_log_start(
        self,
        partition: TopicIdPartition,
        offset: int,
        *,
        reason: str,
        author: str,
        fence: Fence | None = None,
        history: int | None = None,
    ) -> int:
        """Raise the log start offset of the archive, with an event; a lower or equal offset changes nothing.

        With a fence only its holder may raise it. `history` is the newest history when the offset was decided; None if
        a person named the offset. If a later decision has left that history, the end of one of its segments does not
        apply to the records that are followed now.

        Returns:
            The log start offset that holds afterwards.

        Raises:
            LeaseLostError: the fence is not the newest one, or its lease was released.
            HistoryChangedError: a newer history than `history` is followed; nothing was raised.
        """
        ...

    def merge_leader_epochs(
        self, partition: TopicIdPartition, seen: LeaderEpochs, seen_log_start: int
    ) -> Sequence[Contradiction]:
        """Merge a leader's epoch cache into the partition's leader epochs; return every contradiction found.

        See `leader_epochs.merged`. A segment that becomes FINISHED merges its own epochs in the same transaction. A
        change that contradicts the stored epochs records an event.
        """
        ...

    def segment(self, segment_id: RemoteLogSegmentId) -> SegmentRow | None:
        """Return the segment with this id, in any state including tombstones; None if there is none."""
        ...

    def list_segments(self, partition: TopicIdPartition, leader_epoch: int | None = None) -> Sequence[SegmentRow]:
        """Return segments in any state but DELETE_SEGMENT_FINISHED, by start offset.

        Among segments with the same start offset FINISHED ones come first, by descending end offset (so the one that
        lookups return is the first), then the others by time of arrival.
        """
        ...

    def partitions(self) -> Sequence[TopicIdPartition]:
        """Return partitions with at least one segment that is not a tombstone, by topic and partition."""
        ...

    def segment_for_offset(
        self, partition: TopicIdPartition, leader_epoch: int, offset: int
    ) -> RemoteLogSegmentMetadata | None:
        """Return the FINISHED segment that holds `offset` under `leader_epoch`; None in a gap.

        Among several it is the one that became FINISHED last, which has the highest end offset.
        """
        ...

    def highest_offset_for_epoch(self, partition: TopicIdPartition, leader_epoch: int) -> int | None:
        """Return the highest offset (inclusive) that was ever FINISHED under this epoch; it is never lowered."""
        ...

    def highest_copied_offset(self, partition: TopicIdPartition) -> int | None:
        """Return the highest end offset (inclusive) that was ever FINISHED under any epoch; None if there was none.

        Deletions do not lower it. `follow_source` does, to -1 if the source is followed from offset 0.
        """
        ...

    def skipped_offsets(self, partition: TopicIdPartition) -> Sequence[SkippedOffsets]:
        """Return every decision to skip offsets of this partition, by offset."""
        ...

    def skip_offsets(
        self,
        partition: TopicIdPartition,
        offsets: OffsetRange,
        *,
        reason: str,
        author: str,
        may_be_first: bool = False,
    ) -> SkippedOffsets:
        """Record the decision to continue without these offsets, with an event. Idempotent.

        They must be the next ones, beginning at the lowest offset above `highest_copied_offset` that no decision
        covers; or a hole below that, of which no FINISHED segment and no decision holds any offset. With
        `may_be_first` nothing has to be copied yet; the archive then begins after these offsets.

        No lease is needed: a copy takes what the source has, whether or not its offsets may be skipped.

        Raises:
            StateConflictError: other offsets are next, some are copied or decided about, nothing was ever copied
                (without `may_be_first`), or the platform does not own the topic.
        """
        ...

    def remote_log_size(self, partition: TopicIdPartition, leader_epoch: int) -> int:
        """Return the FINISHED bytes listed under this epoch. O(1): reads a counter, scans nothing (KIP-852)."""
        ...

    def partition_sizes(self, partition: TopicIdPartition | None = None) -> Sequence[PartitionSize]:
        """Return FINISHED sizes from the counters, of one partition or of all."""
        ...

    def stopped_reason(self, partition: TopicIdPartition) -> str | None:
        """Return why nothing more may be copied here (a FAILED segment, a recorded stop); None if it may."""
        ...

    def is_ready(self, partition: TopicIdPartition) -> bool:
        """Return whether the metadata of this partition is complete (KIP-1105).

        It is not while the schema is not at head. In a topic that brokers tier it is not until all that they wrote to
        their metadata topic is read: see `MetadataIngestion.unread`.
        """
        ...

    def record_verdict(self, segment_id: RemoteLogSegmentId, verdict: Verdict, *, detail: str = "") -> None:
        """Store a verdict that rules unknown to the store led to; a later verification may replace it.

        A FAILED verdict stops the partition until the segment is superseded. The times of a segment's verdicts ascend.

        Raises:
            UnknownSegmentError: there is no such segment.
        """
        ...

    def record_verification(self, verification: Verification) -> RecordedVerdict | None:
        """Store the results of a verification and the verdict that follows, in one transaction. Idempotent.

        The verdict follows from all rules that are broken afterwards, including those that other verifications found:
        FAILED by a critical rule, otherwise PASSED; none if the verification has no `before`. Between two concurrent
        verifications the failed one counts: a verification clears no failure recorded after it began
        (`values.conclude`).

        Returns:
            The verdict and the broken rules that hold now. None, and nothing is stored, if the segment is not FINISHED
            (any more): no reader uses it, and a segment that is being deleted is expected to lose its objects.
        """
        ...

    def expire_verdicts(self, older_than_ms: int, *, at_most: int) -> int:
        """Change PASSED verdicts of FINISHED segments to EXPIRED, at most `at_most`; return their number.

        Applies to verdicts older than `older_than_ms` by the database's clock, oldest first, in one statement. The time
        of the verdict stays unchanged. A verdict that is recorded meanwhile is not changed.
        """
        ...

    def verdict_totals(self) -> Sequence[VerdictTotal]:
        """Return totals of FINISHED segments for every verdict, in the order of `Verdict`. Read from an index."""
        ...

    def quality_results(self, segment_id: RemoteLogSegmentId) -> Sequence[QualityResult]:
        """Return the last result of each rule about this segment, by rule."""
        ...

    def segments_of_run(self, run_id: str) -> Sequence[SegmentRow]:
        """Return segments whose copy began under a lease of this run, tombstones included, by arrival."""
        ...

    def unverified_segments(self) -> Sequence[SegmentRow]:
        """Return the platform's FINISHED segments without a verdict, of all runs, by arrival."""
        ...


class TopicRegistry(Protocol):
    """Who may copy and expire each topic of one cluster."""

    def owner(self, topic_id: Uuid) -> TopicOwner:
        """Return the topic's owner; NONE for a topic that is not registered."""
        ...

    def recorded_name(self, topic_id: Uuid) -> str | None:
        """Return the name that the topic was first recorded with, even if no segment is left; None if it never was."""
        ...

    def names_in_use(self) -> Mapping[Uuid, str]:
        """Return the names of all topics that may still exist, by topic id.

        Those have a segment that is not a tombstone, or an owner and no recorded deletion. Two ids with the same name
        are a topic that was deleted and a newer one.
        """
        ...

    def set_owner(self, topic_id: Uuid, name: str, owner: TopicOwner, *, expected: TopicOwner, author: str) -> None:
        """Compare and set the owner, with an event. Idempotent.

        Raises:
            StateConflictError: the owner is not the expected one.
        """
        ...


SizeRow = tuple[str, int, int, int, int, int, str, str]
"""topic id, partition, state, size in bytes, start offset, end offset (inclusive), leader epochs, segment id.

Ids as Kafka prints them, the state as on Kafka's wire, leader epochs as `epoch:start,epoch:start`.
"""


@dataclass(frozen=True, slots=True)
class KeyRange:
    """Segment keys, both ends inclusive. Keys ascend in order of arrival and may have gaps."""

    first_key: int
    last_key: int


class RemoteLogSizes(Protocol):
    """Sizes of one cluster's remote log.

    Every method may raise `MetadataUnavailableError`.
    """

    def partition_states(self, partition: TopicIdPartition | None = None) -> Sequence[PartitionStates]:
        """Return sizes by state from the counters, by topic and partition.

        A partition whose segments are all deleted is included without any state: its size is known to be 0.
        """
        ...

    def topic_names(self) -> Mapping[Uuid, str]:
        """Return the names of all topics in the database, by topic id."""
        ...

    def delete_lags(self) -> Sequence[PartitionLag]:
        """Return, by partition, segments whose deletion has begun or that the newest expiration plan may still delete.

        A plan that waits for an approval may delete nothing and does not count.
        """
        ...

    def split(self, ranges: int) -> Sequence[KeyRange]:
        """Return at most `ranges` key ranges that hold each current segment once; none without segments.

        Raises:
            ValueError: `ranges` is below 1.
        """
        ...

    def export(self, key_range: KeyRange) -> Iterator[Sequence[SizeRow]]:
        """Yield the segments of the range that are not tombstones, in pages. Each page is a transaction of its own."""
        ...
