"""Abandoned copies: which ones a plan counts as copied, what a copy batch does with each, and which rules apply.

A copy is *abandoned* when it was begun (COPY_SEGMENT_STARTED), was not finished, and no worker continues it. Either its
worker was killed, or the database was restored to a moment when the copy was under way; in the second case the copy may
have been finished later, and the source may have deleted its segment. Three rules apply to such a copy, at different
times:

    rule                      applies                                  what it does
    copy batch                at any age, to copies of this platform,  finishes it, abandons it (deletes its objects
    (this module)             under the partition's copy lease         and its row) or keeps it: see the table below
    expiration                without a live lease, and with no event  deletes it, if it is below the log start, or
    (`expiration.rules`,      for `tiering.abandoned.copy.expiry.ms`   the store has nothing of it, or passed segments
    `expiration.checks`)                                               and decisions cover its offsets; else it stays
    audit (`audit.rules`,     without a live lease, and older than     reports it, and deletes nothing; also of copies
    kind `abandoned-copy`)    `tiering.audit.min.age.ms`               that a broker began, which no lease covers

A begun copy without a live lease is also subject to retention, as every segment is: the log start, `retention.ms` and
the deletion of its topic apply to it. `retention.bytes` does not, because its bytes were never counted. The objects of
a copy whose deletion has begun are deleted under either of the two leases.

A copy batch never deletes a whole copy: it finishes or keeps it. The copy lease guarantees that no worker continues it.

    objects in the store   segment in the source               becomes
    whole                  the same bytes, or deleted          FINISHED, if it joins what is copied
    whole                  a different segment                 stays
    in parts               the same offsets                    abandoned, once the store is claimed: it is copied again
    in parts               a different segment, or deleted     stays
    wrong, or unreadable   any                                 stays
    any                    any, its deletion has begun         abandoned

*Whole* means that lengths and checksums match, *in parts* that an object is missing. A copy that stays is deleted by
expiration, once it is below the log start, or another copy of its offsets has passed verification, or a person decided
to skip them. If the source has lost the whole partition, `./tiering adopt` finishes the whole copies.
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final

from include.tiering.copying.copy_checks import require_no_divergence
from include.tiering.copying.copy_segment import CopyStep, SegmentCopier
from include.tiering.errors import SourceChangedError, SourceVanishedError, StateConflictError
from include.tiering.kafka.log_dirs.contract import OpenSegment, ReplicaId
from include.tiering.model.histories import newest_history, not_skipped, with_records
from include.tiering.model.ownership import Fence, SegmentOrigin
from include.tiering.model.segments import RemoteLogSegmentMetadata, RemoteLogSegmentState, TopicIdPartition
from include.tiering.quotas.contract import ByteLimiter
from include.tiering.runs.contract import PlannedSegment
from include.tiering.segments.contract import RemoteLogMetadata, SegmentRow
from include.tiering.segments.stored_copies import WholeCopy
from include.tiering.telemetry import for_partition, get_logger


def abandoned_copies_of(metadata: RemoteLogMetadata, partition: TopicIdPartition) -> list[SegmentRow]:
    """Return the copies that this platform began and never finished, by ascending start offset.

    Copies that a broker began are left out, because no lease of this platform covers them. Copies that were once
    finished belong to expiration, which has its own lease.
    """
    rows = [row for row in metadata.list_segments(partition) if row.origin is SegmentOrigin.PLATFORM]
    return [row for row in rows if not row.metadata.is_finished and row.finished_at_ms is None]


def continuing_copies(
    metadata: RemoteLogMetadata,
    partition: TopicIdPartition,
    highest_copied_offset: int,
    following_offset: int,
    is_whole: Callable[[SegmentRow], bool],
) -> list[PlannedSegment]:
    """Return the whole abandoned copies that continue what is copied, of offsets that the source no longer has.

    Only copies of the history that is followed now count. The source continues at `following_offset`.
    """
    found, next_offset = [], highest_copied_offset + 1
    history = newest_history(metadata.divergences(partition))
    for row in abandoned_copies_of(metadata, partition):
        if row.history != history:
            continue
        segment = row.metadata
        joins = segment.start_offset <= next_offset <= segment.end_offset < following_offset
        if joins and is_started(row) and other_history(metadata, segment) is None and is_whole(row):
            found.append(PlannedSegment(segment.start_offset, segment.end_offset, segment.segment_size_bytes))
            next_offset = segment.end_offset + 1
    return found


def replacement_copies(
    metadata: RemoteLogMetadata,
    partition: TopicIdPartition,
    failed: Iterable[RemoteLogSegmentMetadata],
    is_whole: Callable[[SegmentRow], bool],
) -> list[PlannedSegment]:
    """Return the whole abandoned copies that have the records of a failed segment, and can replace it."""
    abandoned = {records_of(row.metadata): row for row in abandoned_copies_of(metadata, partition) if is_started(row)}
    found = []
    for segment in failed:
        row = abandoned.get(records_of(segment))
        if row is not None and other_history(metadata, row.metadata) is None and is_whole(row):
            size_bytes, old = row.metadata.segment_size_bytes, segment.remote_log_segment_id.id
            found.append(PlannedSegment(segment.start_offset, segment.end_offset, size_bytes, supersedes=old))
    return found


def other_history(metadata: RemoteLogMetadata, attempt: RemoteLogSegmentMetadata) -> str | None:
    """Return why a copy without a source is of another history; None if nothing shows that it is.

    Compares the copy's leader epochs with the stored ones of the log, which no log start truncates.
    """
    known = metadata.retention_state(attempt.topic_id_partition).leader_epochs
    own = with_records(attempt.segment_leader_epochs)
    offsets = [*(max(entry.start_offset, attempt.start_offset) for entry in own), attempt.end_offset]
    other = next((offset for offset in offsets if known.epoch_for(offset) not in (None, own.epoch_for(offset))), None)
    return None if other is None else f"offset {other} is known under leader epoch {known.epoch_for(other)}"


def is_started(row: SegmentRow) -> bool:
    """Return whether the deletion of the copy has not begun."""
    return row.metadata.state is RemoteLogSegmentState.COPY_SEGMENT_STARTED


def records_of(segment: RemoteLogSegmentMetadata) -> tuple[object, ...]:
    """Return a key that is equal for copies of the same offsets, written under the same leader epochs."""
    return segment.start_offset, segment.end_offset, with_records(segment.segment_leader_epochs)


_log: Final = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class AbandonedCopies:
    """Finishes, abandons or keeps the abandoned copies of a partition whose copy lease is held."""

    copier: SegmentCopier
    whole: WholeCopy
    claim: Callable[[], object]
    """Makes this database the owner of the store, or raises ForeignStoreError: see `claim_store`."""

    def settle(
        self, replica_id: ReplicaId, planned: Sequence[PlannedSegment], *, fence: Fence, limiter: ByteLimiter
    ) -> None:
        """Finish, abandon or keep each copy, by ascending start offset. `planned` are the segments to be copied.

        Raises:
            RemoteStorageError: the store does not answer, is another database's, or an object could not be deleted.
            SourceError: the source cannot be read.
            LeaseLostError, SendingStoppedError: as `SegmentCopier.copy`.
        """
        abandoned = abandoned_copies_of(self.copier.metadata, fence.topic_id_partition)
        if abandoned:
            # In another store a missing object proves nothing, and a copy that is abandoned here is deleted.
            self.copier.storage.check_marker()
        for row in abandoned:
            why = self._settle(row, replica_id, planned, fence=fence, limiter=limiter)
            if why is not None:
                log = for_partition(_log, fence.topic_id_partition)
                log.warning("the abandoned copy %s stays: %s", row.metadata.remote_log_segment_id.id, why)

    def abandon_empty(self, fence: Fence) -> None:
        """Abandon the copies that have no object in the store; keep the others.

        For a partition that its brokers continue to tier: the source is not read.

        Raises:
            RemoteStorageError, LeaseLostError: as `settle`.
        """
        for row in abandoned_copies_of(self.copier.metadata, fence.topic_id_partition):
            if not is_started(row) or not self.whole.storage.stat_log_segment(row.metadata):
                self.copier.abandon(row.metadata, fence)

    def _settle(
        self,
        row: SegmentRow,
        replica_id: ReplicaId,
        planned: Sequence[PlannedSegment],
        *,
        fence: Fence,
        limiter: ByteLimiter,
    ) -> str | None:
        """Settle one copy; return why it stays, None if it does not."""
        attempt = row.metadata
        if not is_started(row):
            self.copier.abandon(attempt, fence)
            return None
        with ExitStack() as stack:
            as_planned = next((segment for segment in planned if _is_planned(segment, attempt)), None)
            try:
                failed = None if as_planned is None else self.copier.failed(attempt.topic_id_partition, as_planned)
                opened = self._opened(stack, replica_id, attempt, replaces=failed is not None)
            except (SourceChangedError, StateConflictError) as error:
                return str(error)
            if self._is_to_be_sent_again(row, opened):
                self.copier.abandon(attempt, fence)
                return None
            fault = self.whole.fault(row)
            why = fault or self._objection(row, opened, replica_id, planned, failed)
            if why is None:
                self.copier.observe(CopyStep.VERIFIED, attempt.topic_id_partition, attempt.start_offset)
                sent_bytes = sum(
                    stored_object.size_bytes for stored_object in self.copier.storage.stat_log_segment(attempt)
                )
                supersedes = None if failed is None else failed.remote_log_segment_id
                try:
                    self.copier.finish(attempt, opened, sent_bytes, supersedes=supersedes, fence=fence, limiter=limiter)
                except StateConflictError as error:
                    return str(error)
            return why

    def _is_to_be_sent_again(self, row: SegmentRow, opened: OpenSegment | None) -> bool:
        """Return whether the store has only parts of a segment that the source still has.

        A copy of this database (a restored backup beside the original) may have a live worker that is sending these
        parts. So the store is claimed before anything is deleted: from then on that worker is refused. It may have
        completed the copy right before the claim, so the objects are read a second time.
        """
        if opened is None or not _has_offsets_of(opened, row.metadata) or not self.whole.is_in_parts(row):
            return False
        self.claim()
        return self.whole.is_in_parts(row)

    def _opened(
        self, stack: ExitStack, replica_id: ReplicaId, attempt: RemoteLogSegmentMetadata, *, replaces: bool
    ) -> OpenSegment | None:
        """Open the source's segment; None if it is gone.

        Also None if the copy replaces a failed segment and the source has no eligible segment of these offsets.

        Raises:
            SourceChangedError: the segment differs from what it was, and the copy replaces none.
        """
        try:
            opened = stack.enter_context(self.copier.source.open_segment(replica_id, attempt.start_offset))
        except SourceVanishedError:
            return None
        except SourceChangedError:
            if replaces:
                return None
            raise
        is_other = not opened.segment.eligible or opened.segment.end_offset != attempt.end_offset
        return None if replaces and is_other else opened

    def _objection(
        self,
        row: SegmentRow,
        opened: OpenSegment | None,
        replica_id: ReplicaId,
        planned: Sequence[PlannedSegment],
        failed: RemoteLogSegmentMetadata | None,
    ) -> str | None:
        """Return why a whole copy cannot be finished now; `failed` is the segment that it would replace."""
        attempt, metadata = row.metadata, self.copier.metadata
        if opened is not None and (opened.segment.reason is not None or not _is_same(opened, row)):
            return "the source has other bytes, or is not eligible any more"
        if failed is not None:
            return None if records_of(failed) == records_of(attempt) else "it is not a copy of the failed records"
        if row.history != newest_history(metadata.divergences(attempt.topic_id_partition)):
            return "it belongs to a history that the archive no longer follows"
        highest = metadata.highest_copied_offset(attempt.topic_id_partition)
        if highest is not None and attempt.end_offset <= highest:
            return f"offsets up to {highest} are copied"
        if highest is not None and attempt.start_offset > highest + 1:
            decisions = metadata.skipped_offsets(attempt.topic_id_partition)
            if missing := not_skipped(highest + 1, attempt.start_offset - 1, decisions):
                return f"offsets {missing[0]} would be left out"
        if opened is None:
            if planned[0].base_offset <= attempt.end_offset and not any(
                _is_planned(segment, attempt) for segment in planned
            ):
                return f"the source has its offsets in the segment at {planned[0].base_offset}"
            return other_history(metadata, attempt)
        try:
            require_no_divergence(replica_id, opened, highest, metadata)
        except SourceChangedError as error:
            return str(error)
        return None


def _has_offsets_of(opened: OpenSegment, attempt: RemoteLogSegmentMetadata) -> bool:
    segment = opened.segment
    offsets, size_bytes = (segment.base_offset, segment.end_offset), segment.size_bytes
    return (offsets, size_bytes) == ((attempt.start_offset, attempt.end_offset), attempt.segment_size_bytes)


def _is_same(opened: OpenSegment, row: SegmentRow) -> bool:
    """Compare the fingerprint; if it differs, the CRC-32C of the log."""
    if not _has_offsets_of(opened, row.metadata) or opened.segment.leader_epochs != row.metadata.segment_leader_epochs:
        return False
    return opened.fingerprint.as_text() == row.source_fingerprint or opened.check().data.log_crc32c == row.log_crc32c


def _is_planned(planned: PlannedSegment, attempt: RemoteLogSegmentMetadata) -> bool:
    return (planned.base_offset, planned.end_offset) == (attempt.start_offset, attempt.end_offset)
