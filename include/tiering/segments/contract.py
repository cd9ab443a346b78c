"""Contract of the remote log segment metadata: KIP-405's RemoteLogMetadataManager, with fencing.

This module also has the contract of the owners of topics (`TopicRegistry`); `sizes_contract` has that of sizes. Queries
follow the rules of Kafka's `storage` module: a lookup by offset returns FINISHED segments only. Segments in
DELETE_SEGMENT_FINISHED (tombstones) are returned by `segment` and `segments_of_run` only. Every change of a segment and
the change of the counters that follows from it are one transaction.
"""

from collections.abc import Mapping, Sequence
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
from include.tiering.model.sizes import PartitionSize
from include.tiering.segments.selected_segments import SelectedSegments
from include.tiering.segments.values import (
    PartitionRetentionState,
    QualityResult,
    RecordedVerdict,
    SegmentRow,
    Verification,
)

__all__ = [
    "Divergences",
    "PartitionRetentionState",
    "QualityResult",
    "RecordedVerdict",
    "RemoteLogMetadata",
    "SegmentRow",
    "TopicRegistry",
    "Verification",
]


class Divergences(Protocol):
    """Log divergences, a part of `RemoteLogMetadata`.

    While a divergence is open, `update_segment` makes a copy FINISHED only if it supersedes a failed segment.
    """

    def divergences(self, partition: TopicIdPartition) -> Sequence[Divergence]:
        """Return every divergence recorded for this partition, decided or not, ordered by number."""
        ...

    def is_continued(self, partition: TopicIdPartition, leader_epoch: int, highest_copied: int) -> bool:
        """Return whether a source, in which `highest_copied` has this leader epoch, continues the remote segments.

        It does if `highest_copied` is the epoch's `highest_offset_for_epoch` and every divergence of the partition is
        decided. If there are decided divergences, the newest history that begins at or below `highest_copied` must also
        have a FINISHED segment that ends at this offset with this epoch. One statement reads all of this. False alone
        does not prove a divergence: the caller then has to compare `divergences` and the segments.
        """
        ...

    def record_divergence(
        self, partition: TopicIdPartition, seen: SeenDivergence, *, history: int
    ) -> Divergence | None:
        """Record a divergence, or extend the open one; each change is an event. Idempotent.

        Args:
            partition: the partition.
            seen: what differs.
            history: number of the newest history (`newest_history`) when the divergence was seen.

        Returns:
            The divergence that is open now; None if it is recorded but not open, because none of its offsets is remote
            (`Divergence.is_remote`). Also None, and nothing is recorded, if another history is the newest now, or if
            the topic's owner is neither PLATFORM nor NONE.
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

        If segments were copied from the source's history before the divergence was detected, they begin the new
        history, and `highest_copied_offset` stays as it is. Otherwise the next copy begins at `from_offset`: a
        `highest_copied_offset` at or above `from_offset` is lowered to `from_offset` - 1, even if segments above that
        offset are remote. If `highest_copied_offset` is lower, the offsets above it and below `from_offset` that no
        decision covers are recorded as skipped. The partition's leader epochs become those that
        `leader_epochs.followed` returns.

        Args:
            partition: the partition.
            number: the divergence's number.
            from_offset: first offset (inclusive) of the source that is followed.
            source_epochs: the source's leader epochs up to its high watermark (exclusive).
            reason: why, in the words of the person who decides.
            author: who decides.

        Raises:
            StateConflictError: the divergence does not exist, is not open or was decided with another `from_offset`,
                the segments that were copied from the source's history begin at another offset, or the platform does
                not own the topic.
        """
        ...


class RemoteLogMetadata(Divergences, Protocol):
    """The metadata of one cluster's remote log segments.

    `selected` has the queries that read only a few segments of a partition, however many the partition has.
    A method that gets a segment and a fence of another partition raises ValueError.
    """

    selected: SelectedSegments

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
            IllegalTransitionError: `metadata` has another state, or its id is stored with other values or in another
                state, or is marked for deletion by an orphan removal.
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
        whole). If a FAILED verdict has stopped the partition, or a divergence is open, only a copy that `supersedes` a
        failed segment becomes FINISHED. That copy must have exactly the offsets and leader epochs of the failed segment
        (epochs without a record are not compared). The failed segment becomes DELETE_SEGMENT_STARTED in the same
        transaction, with an event. The order of end offsets is not checked for that copy.

        Raises:
            UnknownSegmentError: the segment of the update does not exist, or the one that `supersedes` names does not.
            IllegalTransitionError: `expected` may not become the new state.
            LeaseLostError: the fence is not the newest one, or its lease was released.
            StateConflictError: the state is neither `expected` nor the new one; a broker began the segment; FINISHED is
                out of order; the partition is stopped; a divergence is open; the copy is of an older history; or
                `supersedes` names a segment that is not FINISHED, has not failed, or has another partition, offsets or
                leader epochs.
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
        that it is passed with, or already in `state`. All others stay unchanged and are not returned: also a segment
        that is passed as FINISHED and was superseded, one that a broker began, and one that is not stored.

        Returns:
            The segments that were advanced or already in `state`, in the order of `segments`, each with `state` and
            `event_timestamp_ms`.

        Raises:
            IllegalTransitionError: `state` is no state of a deletion, or may not follow the state with which one of the
                segments is passed.
            LeaseLostError: the fence is not the newest one, or its lease was released.
        """
        ...

    def forget_tombstones(self, older_than_ms: int, *, at_most: int) -> int:
        """Remove at most `at_most` tombstones, oldest first, in one transaction; return their number.

        A tombstone is removed if it is older than `older_than_ms` by the database's clock. Three kinds stay: those with
        an id that a copy that may still be running might begin again, those of the platform's segments in topics of
        another owner, and those of segments about which the platform published a record. Of this contract's queries
        only `segment`, `segments_of_run` and `quality_results` return different results afterwards.
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

        A given `fence` must be the newest one. `history` is the number of the newest history when the offset was
        decided; with None, for an offset that a person named, the history is not compared. If a decision has replaced
        that history since, the offset may be the end of a replaced segment and does not apply to the records that are
        followed now.

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

        See `leader_epochs.merged`. After a decision to follow another history, epochs that may belong to the replaced
        history are ignored if `seen` has no newer epoch than the stored ones. An event is recorded if the stored epochs
        change and there are contradictions. The epochs of a segment that becomes FINISHED need no call:
        `update_segment` merges them in its transaction, unless the segment supersedes another one.
        """
        ...

    def segment(self, segment_id: RemoteLogSegmentId) -> SegmentRow | None:
        """Return the segment with this id, in any state including tombstones; None if there is none."""
        ...

    def list_segments(self, partition: TopicIdPartition, leader_epoch: int | None = None) -> Sequence[SegmentRow]:
        """Return segments in every state except DELETE_SEGMENT_FINISHED, ordered by start offset.

        With `leader_epoch`, only segments with this epoch are returned. Among segments with the same start offset
        FINISHED ones come first, by descending end offset (so a longer segment precedes the shorter ones that it
        covers), then the others in the order in which they were recorded.
        """
        ...

    def partitions(self) -> Sequence[TopicIdPartition]:
        """Return partitions with at least one segment that is not a tombstone, ordered by topic and partition."""
        ...

    def segment_for_offset(
        self, partition: TopicIdPartition, leader_epoch: int, offset: int
    ) -> RemoteLogSegmentMetadata | None:
        """Return the FINISHED segment that holds `offset` under `leader_epoch`; None in a gap.

        Among several it is the one with the highest end offset; usually that one became FINISHED last.
        """
        ...

    def highest_offset_for_epoch(self, partition: TopicIdPartition, leader_epoch: int) -> int | None:
        """Return the highest offset (inclusive) that was ever FINISHED under this epoch; None if there was none.

        It is never lowered.
        """
        ...

    def highest_copied_offset(self, partition: TopicIdPartition) -> int | None:
        """Return the highest end offset (inclusive) that was ever FINISHED under any epoch; None if there was none.

        Deletions do not lower it. A decision to follow another history may lower it to the offset before the
        decision's: to -1 for a decision at offset 0.
        """
        ...

    def skipped_offsets(self, partition: TopicIdPartition) -> Sequence[SkippedOffsets]:
        """Return every decision to skip offsets of this partition, ordered by offset."""
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

        They must be the next offsets, or a hole. The next offsets begin at the lowest offset above
        `highest_copied_offset` that no decision covers. A hole ends at or below `highest_copied_offset`, and none of
        its offsets is in a FINISHED segment or covered by a decision. With `may_be_first` the decision is also recorded
        if nothing was ever copied; the archive may then begin after these offsets. A topic of which nothing was copied
        may have no owner yet.

        No lease is needed: a copy takes all offsets that the source has, even those that a decision permits to skip.

        Raises:
            StateConflictError: the offsets are neither the next ones nor a hole, nothing was ever copied (without
                `may_be_first`), or the platform does not own the topic (with `may_be_first`: it has another owner).
        """
        ...

    def remote_log_size(self, partition: TopicIdPartition, leader_epoch: int) -> int:
        """Return the bytes of the FINISHED segments that have this epoch, each counted whole (KIP-852).

        O(1): reads a counter, scans nothing.
        """
        ...

    def partition_sizes(self, partition: TopicIdPartition | None = None) -> Sequence[PartitionSize]:
        """Return FINISHED sizes from the counters, of one partition or (None) of all that have FINISHED segments."""
        ...

    def stopped_reason(self, partition: TopicIdPartition) -> str | None:
        """Return which failed segment stops the partition, and why it failed; None if no segment stops it.

        `update_segment` says what a stop prevents. An open divergence is not considered here.
        """
        ...

    def is_ready(self, partition: TopicIdPartition) -> bool:
        """Return whether the metadata of this partition is complete (KIP-1105).

        It is not complete while the database is unavailable or its schema is not at head, nor while the metadata are
        being rebuilt. In a topic of the owner BROKER, the brokers' records about the partition must also be read, if
        the metadata topic was ever read: see `MetadataIngestion.unread`. A database that was restored from a backup
        counts as complete, although it may lack copies: ADR 27 says why. This default implementation returns True.
        """
        return True

    def record_verdict(self, segment_id: RemoteLogSegmentId, verdict: Verdict, *, detail: str = "") -> None:
        """Store a verdict without any results of rules; a later verification may replace the verdict.

        A FINISHED segment whose verdict is FAILED stops its partition, unless the segment was given up or a later
        history is followed from the segment's last offset or below. Each new verdict of a segment gets a later time
        than the verdict before it.

        Raises:
            UnknownSegmentError: there is no such segment.
        """
        ...

    def record_verification(self, verification: Verification) -> RecordedVerdict | None:
        """Store the results of a verification and the verdict that follows, in one transaction. Idempotent.

        The verdict follows from all rules that are broken afterwards, including those that other verifications found.
        It is FAILED if a critical rule is broken, otherwise PASSED; but a verification without `before` stores no
        PASSED, and the old verdict stays. Of two concurrent verifications with different results the failed one counts:
        a verification clears no broken critical rule that was recorded after it began (`values.conclude`).

        Returns:
            The segment's verdict and broken rules after the call. None, and nothing is stored, if the segment does not
            exist or is not FINISHED (any more): no reader uses it, and a segment that is being deleted is expected to
            lose its objects.
        """
        ...

    def expire_verdicts(self, older_than_ms: int, *, at_most: int) -> int:
        """Change PASSED verdicts of FINISHED segments to EXPIRED, at most `at_most`; return their number.

        Verdicts older than `older_than_ms` by the database's clock are changed, oldest first, in one statement. The
        time of such a verdict stays unchanged. A verdict that is recorded meanwhile is not changed.
        """
        ...

    def verdict_totals(self) -> Sequence[VerdictTotal]:
        """Return totals of FINISHED segments for every verdict, in the order of `Verdict`, also by depth and age."""
        ...

    def quality_results(self, segment_id: RemoteLogSegmentId) -> Sequence[QualityResult]:
        """Return the last result of each rule that this segment was ever found to break, ordered by rule."""
        ...

    def segments_of_run(self, run_id: str) -> Sequence[SegmentRow]:
        """Return segments whose copy began under a lease of this run, with tombstones, in the order of recording."""
        ...

    def unverified_segments(self) -> Sequence[SegmentRow]:
        """Return the platform's FINISHED segments without a verdict, of all runs, in the order of their recording."""
        ...


class TopicRegistry(Protocol):
    """The owners and the names of one cluster's topics."""

    def owner(self, topic_id: Uuid) -> TopicOwner:
        """Return the topic's owner; NONE for a topic that is not registered."""
        ...

    def recorded_name(self, topic_id: Uuid) -> str | None:
        """Return the recorded name of the topic, even if no segment of it is left; None if it was never recorded."""
        ...

    def names_in_use(self) -> Mapping[Uuid, str]:
        """Return the names of all topics that may still exist, by topic id.

        These topics have a segment that is not a tombstone, or they have an owner other than NONE and no recorded
        deletion. If several ids have the same name, at most one of these topics still exists.
        """
        ...

    def set_owner(self, topic_id: Uuid, name: str, owner: TopicOwner, *, expected: TopicOwner, author: str) -> None:
        """Compare and set the owner, with an event. Idempotent.

        Raises:
            StateConflictError: the owner is neither `expected` nor already `owner`.
        """
        ...
