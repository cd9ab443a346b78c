"""Abandoned copies: which a plan includes to be finished, what a copy batch does with each, and which rules apply.

A copy is *abandoned* when it was begun (COPY_SEGMENT_STARTED), was not finished, and no worker continues it. Either its
worker was killed or had to leave it (see `SegmentCopier.copy`), or the database was restored to a moment when the copy
was under way; in the second case the copy may have been finished later, and the source may have deleted its segment.
Three rules apply to such a copy, at different times (a handover to the brokers uses only
`AbandonedCopies.abandon_empty`):

    rule                      applies                                  what it does
    copy batch                at any age, to copies of this platform,  finishes it, discards it (deletes its objects;
    (this module)             under the partition's copy lease         its row becomes DELETE_SEGMENT_FINISHED) or
                                                                       keeps it: see the table below
    expiration                without a live copy lease, and with no   deletes it if it is below the log start, if the
    (`expiration.rules`,      event of the copy for                    store is not in doubt and has no object of it, or
    `expiration.checks`)      `tiering.abandoned.copy.expiry.ms`       if whole segments that passed and decisions to
                                                                       skip cover all of its offsets; otherwise keeps it
    audit (`audit.rules`,     without a live lease, and older than     reports it and deletes nothing; reports copies
    kind `abandoned-copy`)    `tiering.audit.min.age.ms`               that a broker began, which have no lease, too

A begun copy without a live copy lease is also subject to retention, as the platform's other segments are: the log
start, `retention.ms` and the deletion of its topic apply to it. `retention.bytes` does not, because its bytes were
never counted. If the deletion of a copy has begun, the next holder of the partition's copy lease or of its expiration
lease completes it.

A copy batch never begins to delete an abandoned copy that is whole: it finishes or keeps the copy. Because the batch
holds the copy lease, no other worker of this database continues the copy meanwhile.

    objects in the store   segment in the source               what the batch does with the copy
    whole                  the same bytes, fewer of them       finishes it if it continues what is copied, or replaces
                           after compaction, or deleted        a failed segment; otherwise keeps it
    whole                  a different segment                 keeps it
    in parts               the same offsets and size           claims the store, then discards the copy if it is still
                                                               in parts
    in parts               a different segment, or deleted     keeps it
    wrong, or unreadable   any                                 keeps it
    any, and the deletion  any                                 discards it
    of the copy has begun

*Whole* means that lengths and checksums match, *in parts* that an object is missing. If the plan names the copy, a
segment of the same history counts as deleted if the source's log start lies inside it, or if compaction merged it with
later ones. The plan also names a copy that has the offsets before the source's first segment and ends inside of it, if
the leader epochs are the same there: what is left of a range is cut again. If the copy replaces a failed segment, a
segment in the source that has another end or is not eligible counts as deleted. Expiration deletes a kept copy by its
rule above: for example once the copy is below the log start, another copy of its offsets has passed verification, or a
person has decided to skip them. If the source has lost the whole partition, `./tiering adopt` finishes the copies that
are whole.
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Final

from include.tiering.copying.copy_checks import require_no_divergence
from include.tiering.copying.copy_segment import CopyStep, SegmentCopier
from include.tiering.errors import CompactedSegmentError, SourceChangedError, SourceVanishedError, StateConflictError
from include.tiering.kafka.log_dirs.contract import OpenSegment, ReplicaId
from include.tiering.model.histories import OffsetRange, newest_history, not_skipped, with_records
from include.tiering.model.leader_epochs import LeaderEpochs
from include.tiering.model.ownership import Fence, SegmentOrigin
from include.tiering.model.segments import (
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    TopicIdPartition,
)
from include.tiering.quotas.contract import ByteLimiter
from include.tiering.runs.contract import PlannedSegment
from include.tiering.segments.contract import RemoteLogMetadata, SegmentRow
from include.tiering.segments.stored_copies import WholeCopy
from include.tiering.telemetry import for_partition, get_logger


def abandoned_copies_of(metadata: RemoteLogMetadata, partition: TopicIdPartition) -> list[SegmentRow]:
    """Return the copies that this platform began and never finished, ordered by start offset.

    Copies that a broker began are left out, because no lease of this platform covers them. Copies that were once
    finished belong to expiration, which has its own lease.
    """
    rows = metadata.selected.segments_under_way(partition)
    return [row for row in rows if row.origin is SegmentOrigin.PLATFORM and row.finished_at_ms is None]


IsWhole = Callable[[SegmentRow], bool | None]
"""Returns whether the copy of a row is whole; None if that cannot be found out now."""


def unread_copy(
    metadata: RemoteLogMetadata, partition: TopicIdPartition, offsets: OffsetRange, is_whole: IsWhole
) -> SegmentRow | None:
    """Return the first abandoned copy with any of these offsets that may be whole and cannot be read; None without one.

    While there is one, the offsets must not be given up: expiration deletes a copy whose offsets are skipped.
    """
    for row in abandoned_copies_of(metadata, partition):
        segment = row.metadata
        overlaps = segment.start_offset <= offsets.last and offsets.first <= segment.end_offset
        if overlaps and is_started(row) and is_whole(row) is None:
            return row
    return None


def continuing_copies(
    metadata: RemoteLogMetadata,
    partition: TopicIdPartition,
    highest_copied_offset: int | None,
    following_offset: int,
    source_epochs: LeaderEpochs,
    is_whole: IsWhole,
) -> list[PlannedSegment]:
    """Return the whole abandoned copies that continue what is copied; the source no longer has all of their records.

    Only copies of the history that is followed now count. `highest_copied_offset` is inclusive; if it is None, a copy
    counts if it reaches `following_offset`, which is the first offset above it that the source still has whole. A copy
    may end above that offset, because a leader may begin a segment anywhere; then both have the same `source_epochs`
    there.
    """
    found = []
    next_offset = following_offset - 1 if highest_copied_offset is None else highest_copied_offset + 1
    history = newest_history(metadata.divergences(partition))
    for row in abandoned_copies_of(metadata, partition):
        if row.history != history:
            continue
        segment = row.metadata
        joins = segment.start_offset <= next_offset <= segment.end_offset and next_offset < following_offset
        both = following_offset, segment.end_offset + 1
        is_of_source = with_records(source_epochs.range(*both)) == with_records(
            segment.segment_leader_epochs.range(*both)
        )
        joins = joins and (segment.end_offset < following_offset or is_of_source)
        if joins and is_started(row) and other_history(metadata, segment) is None and is_whole(row):
            found.append(PlannedSegment(segment.start_offset, segment.end_offset, segment.segment_size_bytes))
            next_offset = segment.end_offset + 1
    return found


def replacement_copies(
    metadata: RemoteLogMetadata,
    partition: TopicIdPartition,
    failed: Iterable[RemoteLogSegmentMetadata],
    is_whole: IsWhole,
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
    """Return why a copy, of which the source has no segment, is of another history; None if nothing shows that it is.

    Compares the leader epochs of the copy with those that the metadata store for the partition. A raised log start
    removes none of these.
    """
    known = metadata.retention_state(attempt.topic_id_partition).leader_epochs
    own = with_records(attempt.segment_leader_epochs)
    offsets = [*(max(entry.start_offset, attempt.start_offset) for entry in own), attempt.end_offset]
    other = next((offset for offset in offsets if known.epoch_for(offset) not in (None, own.epoch_for(offset))), None)
    return None if other is None else f"offset {other} is known under leader epoch {known.epoch_for(other)}"


def is_started(row: SegmentRow) -> bool:
    """Return whether the copy is in COPY_SEGMENT_STARTED, so that its deletion has not begun."""
    return row.metadata.state is RemoteLogSegmentState.COPY_SEGMENT_STARTED


def records_of(segment: RemoteLogSegmentMetadata) -> tuple[object, ...]:
    """Return a key that is equal for copies of the same offsets, written under the same leader epochs."""
    return segment.start_offset, segment.end_offset, with_records(segment.segment_leader_epochs)


_log: Final = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class AbandonedCopies:
    """Finishes, discards or keeps the abandoned copies of a partition whose copy lease is held."""

    copier: SegmentCopier
    whole: WholeCopy
    claim: Callable[[], object]
    """Makes this database the owner of the store, or raises ForeignStoreError: see `claim_store`."""
    _other_in_source: set[RemoteLogSegmentId] = field(default_factory=set)
    """The copies of which the source was seen to have other bytes. They are kept, also if the source then loses its
    segment."""

    def settle(
        self, replica_id: ReplicaId, planned: Sequence[PlannedSegment], *, fence: Fence, limiter: ByteLimiter
    ) -> frozenset[int]:
        """Finish, discard or keep each copy, by ascending start offset. `planned` are the segments to be copied.

        Returns:
            The start offsets of the copies that were kept. A copy that was sent beside an earlier one, which is in
            parts, is kept until the earlier offsets are copied: settle again then.

        Raises:
            RemoteStorageError: the store does not answer, is another database's, or an object could not be deleted.
            SourceError: the source cannot be read or has changed, or the platform does not own the topic.
            LeaseLostError, SendingStoppedError: as `SegmentCopier.copy`.
        """
        abandoned = abandoned_copies_of(self.copier.metadata, fence.topic_id_partition)
        if abandoned:
            # If this were another store, a missing object would prove nothing, and discarding deletes objects.
            self.copier.storage.check_marker()
        kept = set[int]()
        for row in abandoned:
            why = self._settle(row, replica_id, planned, fence=fence, limiter=limiter)
            if why is not None:
                log = for_partition(_log, fence.topic_id_partition)
                log.warning("the abandoned copy %s stays: %s", row.metadata.remote_log_segment_id.id, why)
                kept.add(row.metadata.start_offset)
        return frozenset(kept)

    def abandon_empty(self, fence: Fence) -> None:
        """Abandon the copies without an object in the store and those whose deletion has begun; keep the others.

        For a partition in a handover, which its brokers tier afterwards: the source is not read.

        Raises:
            RemoteStorageError, LeaseLostError: as `settle`.
        """
        abandoned = abandoned_copies_of(self.copier.metadata, fence.topic_id_partition)
        if abandoned:
            # Another store lacks the objects, too, and a deletion that was begun because of that would be completed.
            self.whole.storage.check_marker()
        for row in abandoned:
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
        """Settle one copy; return why it was kept, None if it was finished or discarded."""
        attempt = row.metadata
        if not is_started(row):
            self.copier.abandon(attempt, fence)
            return None
        with ExitStack() as stack:
            as_planned = next((segment for segment in planned if _is_planned(segment, attempt)), None)
            try:
                failed = None if as_planned is None else self.copier.failed(attempt.topic_id_partition, as_planned)
                opened = self._opened(stack, replica_id, attempt, limiter, replaces=failed is not None)
            except (SourceChangedError, StateConflictError) as error:
                return str(error)
            if self._is_to_be_sent_again(row, opened):
                self.copier.abandon(attempt, fence)
                return None
            fault = self.whole.fault(row, lambda: limiter.take(0))
            if fault is None and opened is not None and _lacks_records_of(opened, attempt, as_planned):
                opened = None
            why = fault or self._objection(row, opened, replica_id, planned, failed)
            if why is None:
                self.copier.observe(CopyStep.VERIFIED, attempt.topic_id_partition, attempt.start_offset)
                stored = self.copier.storage.stat_log_segment(attempt)
                sent_bytes = sum(stored_object.size_bytes for stored_object in stored)
                supersedes = None if failed is None else failed.remote_log_segment_id
                try:
                    self.copier.finish(attempt, opened, sent_bytes, supersedes=supersedes, fence=fence, limiter=limiter)
                except StateConflictError as error:
                    return str(error)
            return why

    def _is_to_be_sent_again(self, row: SegmentRow, opened: OpenSegment | None) -> bool:
        """Return whether the store has only parts of a segment that the source still has.

        The database may be a restored backup while the original is still in use, and a worker of the original may be
        sending these parts now. So the store is claimed before anything is deleted: from then on the store's marker
        stops that worker. The worker may have completed the copy right before the claim, so the objects are read again.
        """
        if opened is None or not _has_offsets_of(opened, row.metadata) or not self.whole.is_in_parts(row):
            return False
        self.claim()
        return self.whole.is_in_parts(row)

    def _opened(
        self,
        stack: ExitStack,
        replica_id: ReplicaId,
        attempt: RemoteLogSegmentMetadata,
        limiter: ByteLimiter,
        *,
        replaces: bool,
    ) -> OpenSegment | None:
        """Open the source's segment; None if it is gone.

        Also None if the copy replaces a failed segment and the source has no eligible segment of these offsets.

        Raises:
            SourceChangedError: the segment has changed or is the active one, and the copy replaces no failed segment.
            SourceError: the source cannot be read.
        """
        source, base_offset = self.copier.source, attempt.start_offset
        try:
            opened = stack.enter_context(source.open_segment(replica_id, base_offset, go_on=lambda: limiter.take(0)))
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
        """Return why a whole copy cannot be finished now, None if it can. The copy replaces `failed`, if any."""
        attempt, metadata = row.metadata, self.copier.metadata
        if (why := self._objection_of_source(row, opened, replaces=failed is not None)) is not None:
            return why
        if failed is not None:
            return None if records_of(failed) == records_of(attempt) else "it is not a copy of the failed records"
        if row.history != newest_history(metadata.divergences(attempt.topic_id_partition)):
            return "it belongs to a history that the archive no longer follows"
        highest = metadata.highest_copied_offset(attempt.topic_id_partition)
        if (why := _out_of_turn(attempt, planned, highest)) is not None:
            return why
        if highest is not None and attempt.start_offset > highest + 1:
            decisions = metadata.skipped_offsets(attempt.topic_id_partition)
            if missing := not_skipped(highest + 1, attempt.start_offset - 1, decisions):
                return f"offsets {missing[0]} would be left out"
        if opened is None:
            if planned[0].base_offset <= attempt.end_offset and not any(_is_planned(each, attempt) for each in planned):
                return f"the source has its offsets in the segment at {planned[0].base_offset}"
            return other_history(metadata, attempt)
        try:
            require_no_divergence(replica_id, opened, highest, metadata)
        except SourceChangedError as error:
            return str(error)
        return None

    def _objection_of_source(self, row: SegmentRow, opened: OpenSegment | None, *, replaces: bool) -> str | None:
        segment_id = row.metadata.remote_log_segment_id
        if opened is None:
            was_other = not replaces and segment_id in self._other_in_source
            return "the source had other bytes before it lost the segment" if was_other else None
        if not _is_same(opened, row):
            self._other_in_source.add(segment_id)
        elif opened.segment.reason is None:
            return None
        return "the segment in the source has other bytes, or is not eligible any more"


def _has_offsets_of(opened: OpenSegment, attempt: RemoteLogSegmentMetadata) -> bool:
    wanted = (attempt.start_offset, attempt.end_offset, attempt.segment_size_bytes)
    return (opened.segment.base_offset, opened.segment.end_offset, opened.segment.size_bytes) == wanted


def _is_same(opened: OpenSegment, row: SegmentRow) -> bool:
    """Compare offsets, size and leader epochs, then the fingerprint; if that differs, the CRC-32C of the log."""
    if not _has_offsets_of(opened, row.metadata) or opened.segment.leader_epochs != row.metadata.segment_leader_epochs:
        return False
    return opened.fingerprint.as_text() == row.source_fingerprint or opened.check().data.log_crc32c == row.log_crc32c


def _lacks_records_of(opened: OpenSegment, attempt: RemoteLogSegmentMetadata, planned: PlannedSegment | None) -> bool:
    """Return whether the source's segment has the copy's offsets in the same history, but not all of their records.

    Compaction may have removed some: then the segment has fewer bytes, or it was merged with later ones and ends later.
    Or the source's log start lies inside the segment, where its leader epochs begin then. The last two are looked for
    only if the plan names the copy, as `planned`. A segment that ends later is read whole for this.
    """
    segment, end_offset = opened.segment, attempt.end_offset + 1
    first = max([attempt.start_offset, *(entry.start_offset for entry in segment.leader_epochs.entries[:1])])
    epochs = segment.leader_epochs.range(first, end_offset)
    if epochs != attempt.segment_leader_epochs.range(first, end_offset) or segment.end_offset < attempt.end_offset:
        return False
    if planned is not None and segment.end_offset > attempt.end_offset:
        try:
            opened.check()
        except CompactedSegmentError:
            return True
    is_cut = planned is not None and first > attempt.start_offset and segment.end_offset == attempt.end_offset
    return is_cut or segment.size_bytes < attempt.segment_size_bytes


def _out_of_turn(
    attempt: RemoteLogSegmentMetadata, planned: Sequence[PlannedSegment], highest_copied_offset: int | None
) -> str | None:
    """Return why an attempt cannot be the next one to be FINISHED; None if it can.

    Its offsets are copied already, or the plan has a segment before it that is not. The second happens if both were
    sent side by side, and only the later one was completed.
    """
    highest = -1 if highest_copied_offset is None else highest_copied_offset
    if attempt.end_offset <= highest:
        return f"offsets up to {highest} are copied"
    first = next((each for each in planned if each.supersedes is None and each.end_offset > highest), None)
    if first is not None and first.base_offset < attempt.start_offset:
        return f"the segment at {first.base_offset} is copied first"
    return None


def _is_planned(planned: PlannedSegment, attempt: RemoteLogSegmentMetadata) -> bool:
    return (planned.base_offset, planned.end_offset) == (attempt.start_offset, attempt.end_offset)
