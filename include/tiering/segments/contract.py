"""What use cases ask of the metadata of remote log segments: KIP-405's RemoteLogMetadataManager, with fencing.

Beside it: the owners of topics (`TopicRegistry`), and what sizes are made of, read only (`RemoteLogSizes`).

Queries hide DELETE_SEGMENT_FINISHED (a tombstone) and follow `storage`'s rules for lookups: only FINISHED segments
answer a lookup by offset. Every change happens in one transaction with the counters it moves.
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
    """Part of `RemoteLogMetadata`. While one is open, nothing of its partition becomes FINISHED for the first time."""

    def divergences(self, partition: TopicIdPartition) -> Sequence[Divergence]:
        """Every one that was ever recorded of this partition, by number, decided or not."""
        ...

    def is_continued(self, partition: TopicIdPartition, leader_epoch: int, highest_copied: int) -> bool:
        """Whether a source continues what is remote, of which `highest_copied` is under this leader epoch: that is the
        epoch's `highest_offset_for_epoch`, and no divergence waits for a decision. One read. False says nothing yet:
        `divergences` and the segments do.
        """
        ...

    def record_divergence(
        self, partition: TopicIdPartition, seen: SeenDivergence, *, history: int
    ) -> Divergence | None:
        """Record it, with an event, or what it adds to the one that is open. Repeating a call is harmless.

        Args:
            history: `newest_history` when it was seen.

        Returns:
            The one that is open now; None, and records nothing, if somebody decided since, or somebody else owns the
            topic.
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
        """Decide about an open divergence, with an event: from `from_offset` (inclusive) on the archive follows the
        source. Nothing is deleted. Repeating a call is harmless.

        `highest_copied_offset` becomes the offset before, whatever is remote above it. If it lies below already, what
        is between is recorded as skipped. What was copied from the source before the divergence was noticed begins the
        new history. The partition's history of leader epochs becomes the source's from there on
        (`leader_epochs.followed`).

        Args:
            source_epochs: the source's, up to its high watermark.

        Raises:
            StateConflictError: it is not open, was decided otherwise, or what was copied since begins at another
                offset; or the platform does not own the topic.
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
        """Record a new attempt in COPY_SEGMENT_STARTED; returns `highest_copied_offset` of the same moment. Repeating
        the same call is harmless.

        Raises:
            IllegalTransitionError: another state, or an id that is known with other values, was deleted, or is
                marked for deletion by an audit.
            LeaseLostError: the fence is not the newest, or was given back.
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
        """Compare-and-set of the state; returns the new metadata. Repeating a change that was made is harmless.

        FINISHED appears in ascending offset order: its end must lie above `highest_copied_offset`. Its start may lie
        below (after a leader change the new leader's segment that holds the next offset is copied whole). A partition
        stopped by a FAILED verdict takes no FINISHED but one that `supersedes` that segment: a new copy of exactly its
        offsets and leader epochs, which sends it to DELETE_SEGMENT_STARTED in the same transaction, with an event. That
        others follow it does not matter then.

        Raises:
            UnknownSegmentError, IllegalTransitionError, LeaseLostError
            StateConflictError: another state than `expected`; a segment that a broker began; a FINISHED out of order or
                in a stopped partition; or `supersedes` names a segment that is not FINISHED and FAILED, or has other
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
        """Many segments of the fence's partition at once to DELETE_SEGMENT_STARTED or DELETE_SEGMENT_FINISHED.

        Compare-and-set: each must be in the state in which it is given, or in `state` already. One that is not stays
        as it is and is missing from the answer; so is one that is given as FINISHED and was superseded, and one that a
        broker began. Returns the others as they were given, in that order, but in `state`. One transaction; a statement
        is about hundreds of segments.

        Raises:
            IllegalTransitionError: `state` is neither of the two, or not the next one for a segment as it is given.
            LeaseLostError
        """
        ...

    def forget_tombstones(self, older_than_ms: int, *, at_most: int) -> int:
        """Remove segments that became tombstones longer ago than `older_than_ms`, by the database's clock, oldest first
        and at most so many, in one transaction; returns how many.

        Those stay whose id a copy might still begin again, and ours of topics that the platform does not own. Answers
        of all queries but `segment` and `segments_of_run` are the same before and after.
        """
        ...

    def retention_state(self, partition: TopicIdPartition) -> PartitionRetentionState:
        """Log start and merged leader epochs; the defaults for a partition of which nothing was stored yet."""
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
        """Raise our log start, with an event; a lower or equal offset changes nothing. Returns what holds now.

        With a fence only its holder may. `history` is the newest one by which the offset was decided, None where a
        person names the offset: the end of a segment that a decision has left since says nothing about the records
        that are followed now.

        Raises:
            LeaseLostError
            HistoryChangedError: a newer history than `history` is followed; nothing was raised.
        """
        ...

    def merge_leader_epochs(
        self, partition: TopicIdPartition, seen: LeaderEpochs, seen_log_start: int
    ) -> Sequence[Contradiction]:
        """Complete the partition's history by what a leader's epoch cache says; see `leader_epochs.merged`.

        A segment that becomes FINISHED completes it by its own epochs, in the same transaction. A change of the history
        that contradicts what was known leaves an event. Returns every contradiction that was met.
        """
        ...

    def segment(self, segment_id: RemoteLogSegmentId) -> SegmentRow | None:
        """This attempt, tombstones included."""
        ...

    def list_segments(self, partition: TopicIdPartition, leader_epoch: int | None = None) -> Sequence[SegmentRow]:
        """Segments in any state but DELETE_SEGMENT_FINISHED, by start offset.

        Of those with one start offset the one that answers lookups comes first, then other FINISHED ones by falling
        end offset, then the rest by time of arrival.
        """
        ...

    def partitions(self) -> Sequence[TopicIdPartition]:
        """Partitions with at least one segment that is not a tombstone, by topic and partition."""
        ...

    def segment_for_offset(
        self, partition: TopicIdPartition, leader_epoch: int, offset: int
    ) -> RemoteLogSegmentMetadata | None:
        """The FINISHED segment that holds `offset` under `leader_epoch`; a gap answers None.

        Of several the one that was FINISHED last, which is the one with the highest end offset.
        """
        ...

    def highest_offset_for_epoch(self, partition: TopicIdPartition, leader_epoch: int) -> int | None:
        """Highest offset (inclusive) ever FINISHED under this epoch; nothing lowers it."""
        ...

    def highest_copied_offset(self, partition: TopicIdPartition) -> int | None:
        """Highest end offset (inclusive) ever FINISHED, whatever its epoch. Deletions do not lower it; `follow_source`
        does, to -1 where all of the source is followed.
        """
        ...

    def skipped_offsets(self, partition: TopicIdPartition) -> Sequence[SkippedOffsets]:
        """Every decision about this partition, by offset."""
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
        """Record that the archive goes on without these offsets, with an event. They must be the next ones: the first
        is the lowest offset above `highest_copied_offset` that no decision covers. Or a hole below it: no FINISHED
        segment holds any of them, and no decision covers one. Repeating a call is harmless.
        `may_be_first`: nothing may have been copied yet; the archive then begins behind them.

        It needs no lease: whoever copies takes what the source has, decision or not.

        Raises:
            StateConflictError: other offsets are next, some are copied or decided about, nothing was ever copied
                (unless it may be so), or the platform does not own the topic.
        """
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
        """KIP-1105: whether answers for this partition are complete. False while the schema is not at head, and for a
        topic of brokers while not all that they wrote to their metadata topic is read: `MetadataIngestion.unread`.
        """
        ...

    def record_verdict(self, segment_id: RemoteLogSegmentId, verdict: Verdict, *, detail: str = "") -> None:
        """Store a verdict beside the state, by rules that are not known here; a later verification may
        replace it. A FAILED one stops the partition until it is superseded. The times of a segment's verdicts ascend.

        Raises:
            UnknownSegmentError
        """
        ...

    def record_verification(self, verification: Verification) -> RecordedVerdict | None:
        """Store in one transaction what a verification found: broken rules, cleared rules, and the verdict that follows
        from all rules that are broken then, whoever found it: FAILED by a critical rule, else PASSED, or none where the
        verification has no `before`. Of two verifications the failed one counts: a verification clears nothing that was
        found since it began (`values.conclude`). Repeating a call is harmless.

        Returns what holds now; None, and stores nothing, of what is not FINISHED (any more): it has nobody who reads
        it, and what is being deleted lost its objects by right.
        """
        ...

    def expire_verdicts(self, older_than_ms: int, *, at_most: int) -> int:
        """Of FINISHED segments: PASSED of longer ago than `older_than_ms`, by the database's clock, becomes EXPIRED,
        the oldest first and at most so many, in one statement; returns how many.

        The time of the verdict stays what it was. A verdict that is recorded meanwhile is not touched.
        """
        ...

    def verdict_totals(self) -> Sequence[VerdictTotal]:
        """FINISHED segments by verdict, each verdict once, in the order of `Verdict`. Read from an index."""
        ...

    def quality_results(self, segment_id: RemoteLogSegmentId) -> Sequence[QualityResult]:
        """The last result of each rule, by rule."""
        ...

    def segments_of_run(self, run_id: str) -> Sequence[SegmentRow]:
        """Segments whose attempt began under a lease of this run, tombstones included, by arrival."""
        ...

    def unverified_segments(self) -> Sequence[SegmentRow]:
        """FINISHED segments of ours without a verdict, whichever run copied them, by arrival."""
        ...


class TopicRegistry(Protocol):
    """Who may copy and expire each topic of one cluster."""

    def owner(self, topic_id: Uuid) -> TopicOwner:
        """NONE for a topic that nobody registered."""
        ...

    def recorded_name(self, topic_id: Uuid) -> str | None:
        """The name that the topic had when it was recorded first, whatever is left of it; None if it never was."""
        ...

    def names_in_use(self) -> Mapping[Uuid, str]:
        """Names of all topics that may have one: with a segment that is not a tombstone, or with an owner unless a
        recorded deletion says that it is gone. Two ids with one name are an older topic and a newer one.
        """
        ...

    def set_owner(self, topic_id: Uuid, name: str, owner: TopicOwner, *, expected: TopicOwner, author: str) -> None:
        """Compare-and-set, with an event. Repeating a change that was made is harmless.

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
        """From the counters, by topic and partition.

        A partition whose segments have all gone is there, with no state: its size is known to be 0.
        """
        ...

    def topic_names(self) -> Mapping[Uuid, str]:
        """Every topic that the platform has dealt with."""
        ...

    def delete_lags(self) -> Sequence[PartitionLag]:
        """Segments whose delete has begun, or that the newest expiration plan may delete and has not, by partition.

        A plan that waits for an approval deletes nothing and counts for nothing.
        """
        ...

    def split(self, ranges: int) -> Sequence[KeyRange]:
        """At most `ranges` ranges that hold every segment of now once; none without segments.

        Raises:
            ValueError: fewer than one range.
        """
        ...

    def export(self, key_range: KeyRange) -> Iterator[Sequence[SizeRow]]:
        """Segments of the range that are not tombstones, in pages. Each page is a transaction of its own."""
        ...
