"""Copy one rolled segment: the protocol and its crash table.

An orphan object is tolerable, a dangling reference never is. So the metadata says STARTED before the first byte is
sent. It says FINISHED only after four checks: the store has the objects, the source segment is unchanged since it was
opened, the platform owns the topic, and the store belongs to this database. Only `finish_abandoned` leaves out the
second check, for a whole copy whose segment the source no longer has.

    step        done when it is reached                    a crash right after it leaves       cleaned up by
    OPENED      all files open, kept open                  nothing                             -
    CHECKED     every batch read, CRC-32C of the file      nothing                             -
    STARTED     metadata COPY_SEGMENT_STARTED              a STARTED row                       A
    SENT        all objects written                        a STARTED row, some or all objects  A
    VERIFIED    lengths and checksums in the store are     a STARTED row, all objects          A
                those of the objects that were sent
    RECHECKED   source is unchanged since OPENED, the      a STARTED row, all objects          A
                platform owns the topic, and the store
                has this database's marker
    FINISHED    metadata COPY_SEGMENT_FINISHED             a complete copy; the plan still     B
                                                           says PLANNED (also if the answer
                                                           of the database is lost)

    discarding  DELETE_SEGMENT_STARTED                     that row, its objects               A
                objects deleted                            that row                            A
                DELETE_SEGMENT_FINISHED                    a tombstone                         -

*Discarding* (`abandon`) ends an attempt by deleting its objects. An *abandoned copy* is an attempt that was neither
finished nor discarded, and that no worker continues.

A: the next holder of the partition's copy lease, before it copies anything: see `finish_abandoned`, which finishes a
   whole copy instead of sending it again. Expiration may clean up instead: after `tiering.abandoned.copy.expiry.ms`,
   under the conditions that `finish_abandoned` lists, or as soon as the row is DELETE_SEGMENT_STARTED.
B: the next holder of the copy lease, when it finds that the planned offsets are copied, or that the failed segment is
   replaced (outcome SKIPPED).
STARTED: the row is committed before the first byte is sent, and is on the database's disk with FINISHED at the latest.
   A power failure of the database's host may lose the row of an attempt under way; its objects are then orphans, which
   the audit finds. `add_segment` returns where the archive ends at this moment: a decision since the plan may have
   moved the end. A decision to follow the source that is recorded after STARTED makes FINISHED fail, unless the copy
   replaces a failed segment.
VERIFIED: if the store returned its own checksum in the response to every write, those are compared; otherwise the
   lengths and checksums are read from the store now.
RECHECKED: the marker is always read again. If the store no longer belongs to this database (its disk was unmounted,
   another database took it over), discarding stops at DELETE_SEGMENT_STARTED, because nothing may be deleted there: the
   row stays until A finds the store again, and so do the objects.
FINISHED: if the copy replaces a failed segment, that segment becomes DELETE_SEGMENT_STARTED in the same transaction. A
   crash before it leaves the failed segment as it was. After it only the new segment can be served, as soon as it has
   passed verification, and expiration deletes the old objects after `tiering.superseded.hold.ms`, if the new copy is
   proved to be whole and has passed, or if the old segment is below the log start. A copy never changes the old
   objects; it only looks up which of them exist.
An interrupted upload is never resumed: the next attempt has a new id, so its objects cannot mix with the earlier ones.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from typing import Final

from include.tiering.clock import Clock
from include.tiering.copying.copy_checks import (
    require_no_divergence,
    require_planned,
    require_replaceable,
    require_same_end,
    require_stored,
)
from include.tiering.errors import (
    LeaseLostError,
    RemoteStorageError,
    SourceChangedError,
    SourceVanishedError,
    StateConflictError,
    TieringError,
)
from include.tiering.kafka.log_dirs.contract import CheckedSegment, LogSource, OpenSegment, ReplicaId
from include.tiering.model.ownership import Fence, TopicOwner
from include.tiering.model.segments import (
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemoteLogSegmentState,
    TopicIdPartition,
    Uuid,
    Verdict,
)
from include.tiering.quotas.contract import ByteLimiter
from include.tiering.remote_storage.contract import RemoteStorage
from include.tiering.remote_storage.segment_storage import COPY_TRUST_SECONDS
from include.tiering.runs.contract import PlannedSegment
from include.tiering.segments.contract import RemoteLogMetadata, TopicRegistry
from include.tiering.telemetry import for_partition, get_logger

_log: Final = get_logger(__name__)


class CopyStep(StrEnum):
    """The steps of the protocol in order, and then those of discarding. Each is reported after it is done."""

    OPENED = "opened"
    CHECKED = "checked"
    STARTED = "started"
    SENT = "sent"
    VERIFIED = "verified"
    RECHECKED = "rechecked"
    FINISHED = "finished"
    DELETE_STARTED = "delete started"
    OBJECTS_DELETED = "objects deleted"
    DELETE_FINISHED = "delete finished"


StepObserver = Callable[[CopyStep, TopicIdPartition, int], None]


@dataclass(frozen=True, slots=True)
class CopiedSegment:
    """A FINISHED attempt. Offsets are inclusive; `size_bytes` counts the `.log`, `sent_bytes` all objects.

    `supersedes` is the failed segment that the attempt replaced, if any.
    """

    segment_id: RemoteLogSegmentId
    start_offset: int
    end_offset: int
    size_bytes: int
    sent_bytes: int
    supersedes: RemoteLogSegmentId | None = None


class _NotItsTurn(Exception):
    """A segment before this one was not FINISHED; `error` says why."""

    def __init__(self, error: TieringError) -> None:
        super().__init__(str(error))
        self.error = error


@dataclass(frozen=True, slots=True)
class SegmentCopier:
    """Copies single segments, discards attempts, and finishes attempts whose objects are all stored."""

    source: LogSource
    storage: RemoteStorage
    metadata: RemoteLogMetadata
    registry: TopicRegistry
    clock: Clock
    random_bytes: Callable[[int], bytes]
    observe: StepObserver

    def copy(
        self,
        replica_id: ReplicaId,
        planned: PlannedSegment,
        highest_copied_offset: int | None,
        *,
        fence: Fence,
        limiter: ByteLimiter,
        on_sent: Callable[[int], None],
        turn: Callable[[], None] | None = None,
    ) -> CopiedSegment:
        """Copy the planned segment under a new id. If it supersedes a failed segment, the copy replaces that segment.

        Discarding an attempt may fail: then the error of the copy is raised, and the attempt is left to the next
        holder.

        Args:
            replica_id: the replica to read.
            planned: the segment; its offsets and its size must still be those of the source.
            highest_copied_offset: inclusive end of what is copied of the partition, or will be when `turn` returns;
                None if nothing is.
            fence: proof of the copy lease, checked by every change of a segment's metadata.
            limiter: paces the bytes that are sent.
            on_sent: called with the number of bytes of each write.
            turn: waits until the segments before this one are FINISHED, and raises an error if they do not become so.
                It is called when the objects are stored; after its error the attempt stays as it is. None if no segment
                before this one is in flight.

        Raises:
            SourceError: the segment is corrupt, unreadable or changed, or the source diverges; an attempt that was
                begun was discarded. Or the segment vanished; then the attempt was left, as it may be whole.
            RemoteStorageError: the store refused or failed; an attempt that was begun was discarded.
            LeaseLostError: another worker may own the partition; the attempt was left as it was.
            CustomMetadataTooLargeError: brokers would refuse the custom metadata; nothing was begun.
            SendingStoppedError: the platform is paused or the batch stops; the attempt was discarded.
            StateConflictError: the segment to be replaced is not FINISHED and FAILED any more, or the metadata refuses
                FINISHED (see `RemoteLogMetadata.update_segment`); an attempt that was begun was discarded.
            StoreInDoubtError: the segment to be replaced lacks objects in the store, and a segment that passed is not
                whole there either; nothing was begun.
        """
        base_offset, failed = planned.base_offset, self.failed(replica_id.topic_id_partition, planned)
        with self.source.open_segment(replica_id, base_offset, go_on=lambda: limiter.take(0)) as opened:
            decisions = partial(self.metadata.skipped_offsets, replica_id.topic_id_partition)
            require_planned(replica_id, opened.segment, planned, highest_copied_offset, decisions)
            if failed is not None:
                require_replaceable(replica_id, opened.segment, failed, self.metadata, self.storage)
            elif turn is None:
                require_no_divergence(replica_id, opened, highest_copied_offset, self.metadata)
            self._reached(CopyStep.OPENED, replica_id, base_offset)
            checked = opened.check()
            self._reached(CopyStep.CHECKED, replica_id, base_offset)
            attempt = self._new_attempt(replica_id, opened, checked)
            self.storage.require_copyable(attempt)
            fingerprint, crc32c = opened.fingerprint.as_text(), checked.data.log_crc32c
            ends_at = self.metadata.add_segment(attempt, fence=fence, log_crc32c=crc32c, source_fingerprint=fingerprint)
            self._reached(CopyStep.STARTED, replica_id, base_offset)
            try:
                if failed is None and turn is None:
                    require_same_end(replica_id, opened.segment, highest_copied_offset, ends_at)
                supersedes = None if failed is None else failed.remote_log_segment_id
                return self._send_and_finish(
                    attempt,
                    opened,
                    checked,
                    wait_for_turn=lambda: self._wait_for(turn, replica_id, opened, highest_copied_offset, failed),
                    supersedes=supersedes,
                    fence=fence,
                    limiter=limiter,
                    on_sent=on_sent,
                )
            except _NotItsTurn as waited:
                raise waited.error from None  # the attempt is whole: `finish_abandoned` settles it
            except (LeaseLostError, SourceVanishedError):
                raise  # the attempt may be whole although its source vanished: `finish_abandoned` settles it
            except TieringError:
                self._try_to_abandon(attempt, fence)
                raise

    def require_ours(self, partition: TopicIdPartition) -> None:
        """Check that the platform owns the topic.

        Raises:
            SourceChangedError: it does not.
        """
        owner = self.registry.owner(partition.topic_id)
        if owner is not TopicOwner.PLATFORM:
            raise SourceChangedError(str(partition), f"the topic's owner is now: {owner}")

    def failed(self, partition: TopicIdPartition, planned: PlannedSegment) -> RemoteLogSegmentMetadata | None:
        """Return the failed segment that the planned copy replaces; None for a first copy.

        Raises:
            StateConflictError: that segment is not FINISHED and FAILED any more: there is nothing to replace.
        """
        if planned.supersedes is None:
            return None
        segment_id = RemoteLogSegmentId(partition, planned.supersedes)
        row = self.metadata.segment(segment_id)
        if row is None or not row.metadata.is_finished or row.verdict is not Verdict.FAILED:
            state = "unknown" if row is None else f"{row.metadata.state.name} and {row.verdict}"
            raise StateConflictError(f"{segment_id} is {state} now: there is nothing to replace")
        return row.metadata

    def abandon(self, attempt: RemoteLogSegmentMetadata, fence: Fence) -> None:
        """Discard an attempt: record DELETE_STARTED, delete its objects, record DELETE_FINISHED. May be repeated.

        If the attempt became FINISHED and only the database's answer was lost, it stays as it is.

        Raises:
            RemoteStorageError: an object could not be deleted; the row stays in DELETE_SEGMENT_STARTED.
            LeaseLostError: another worker may own the partition.
        """
        partition, start = attempt.topic_id_partition, attempt.start_offset
        if attempt.state is RemoteLogSegmentState.COPY_SEGMENT_STARTED:
            begun = self._advance_deletion(attempt, RemoteLogSegmentState.DELETE_SEGMENT_STARTED, fence)
            if not begun and self._is_finished(attempt):
                return
            self.observe(CopyStep.DELETE_STARTED, partition, start)
        failures = self.storage.delete_log_segments([attempt])
        if failures:
            raise RemoteStorageError(f"{failures[0].key}: could not be deleted: {failures[0].message}")
        self.observe(CopyStep.OBJECTS_DELETED, partition, start)
        deleting = replace(attempt, state=RemoteLogSegmentState.DELETE_SEGMENT_STARTED)
        self._advance_deletion(deleting, RemoteLogSegmentState.DELETE_SEGMENT_FINISHED, fence)
        self.observe(CopyStep.DELETE_FINISHED, partition, start)

    def _try_to_abandon(self, attempt: RemoteLogSegmentMetadata, fence: Fence) -> None:
        try:
            self.abandon(attempt, fence)
        except TieringError as error:
            log = for_partition(_log, attempt.topic_id_partition)
            log.warning("the attempt at offset %s is left for clean-up: %s", attempt.start_offset, error)

    def _send_and_finish(
        self,
        attempt: RemoteLogSegmentMetadata,
        opened: OpenSegment,
        checked: CheckedSegment,
        *,
        wait_for_turn: Callable[[], None],
        supersedes: RemoteLogSegmentId | None,
        fence: Fence,
        limiter: ByteLimiter,
        on_sent: Callable[[int], None],
    ) -> CopiedSegment:
        partition, start = attempt.topic_id_partition, attempt.start_offset
        sent = self.storage.copy_log_segment(attempt, checked.data, limiter=limiter, on_sent=on_sent)
        self.observe(CopyStep.SENT, partition, start)
        is_confirmed = all(stored.confirmed for stored in sent)
        require_stored(sent, sent if is_confirmed else self.storage.stat_log_segment(attempt), checked)
        self.observe(CopyStep.VERIFIED, partition, start)
        marker_read_at = self.clock.monotonic()
        self.storage.check_marker()
        wait_for_turn()
        sent_bytes = sum(stored.size_bytes for stored in sent)
        self._finish(attempt, opened, sent_bytes, supersedes, fence, limiter, marker_read_at)
        return CopiedSegment(
            attempt.remote_log_segment_id, start, attempt.end_offset, attempt.segment_size_bytes, sent_bytes, supersedes
        )

    def _wait_for(
        self,
        turn: Callable[[], None] | None,
        replica_id: ReplicaId,
        opened: OpenSegment,
        highest_copied_offset: int | None,
        failed: RemoteLogSegmentMetadata | None,
    ) -> None:
        """Wait until the segments before are FINISHED; then what is copied ends there, in the source's history."""
        if turn is None:
            return
        try:
            turn()
        except TieringError as error:
            raise _NotItsTurn(error) from error
        if failed is None:
            self._require_continued(replica_id, opened, highest_copied_offset)

    def _require_continued(self, replica_id: ReplicaId, opened: OpenSegment, highest_copied_offset: int | None) -> None:
        require_no_divergence(replica_id, opened, highest_copied_offset, self.metadata)
        ends_at = self.metadata.highest_copied_offset(replica_id.topic_id_partition)
        require_same_end(replica_id, opened.segment, highest_copied_offset, ends_at)

    def finish(
        self,
        attempt: RemoteLogSegmentMetadata,
        opened: OpenSegment | None,
        sent_bytes: int,
        *,
        supersedes: RemoteLogSegmentId | None = None,
        fence: Fence,
        limiter: ByteLimiter,
    ) -> None:
        """Take the attempt from VERIFIED to FINISHED.

        Args:
            attempt: the row, COPY_SEGMENT_STARTED.
            opened: the source segment; None if the source has no such segment, so that nothing is compared.
            sent_bytes: bytes of all objects.
            supersedes: the failed segment that becomes DELETE_SEGMENT_STARTED in the same transaction.
            fence: proof of the copy lease.
            limiter: raises SendingStoppedError if the platform is paused or the batch stops; no byte is charged.

        Raises:
            SourceError, RemoteStorageError, LeaseLostError, SendingStoppedError, StateConflictError: as `copy`.
        """
        marker_read_at = self.clock.monotonic()
        self.storage.check_marker()
        self._finish(attempt, opened, sent_bytes, supersedes, fence, limiter, marker_read_at)

    def _finish(
        self,
        attempt: RemoteLogSegmentMetadata,
        opened: OpenSegment | None,
        sent_bytes: int,
        supersedes: RemoteLogSegmentId | None,
        fence: Fence,
        limiter: ByteLimiter,
        marker_read_at: float,
    ) -> None:
        """As `finish`, after the marker was read at this monotonic second; if that is long ago, read it again.

        A pause is waited for before the source is checked, so that FINISHED follows the check at once.
        """
        partition, start = attempt.topic_id_partition, attempt.start_offset
        limiter.take(0)
        if opened is not None:
            opened.recheck()
        self.require_ours(partition)
        if self.clock.monotonic() - marker_read_at > COPY_TRUST_SECONDS:
            self.storage.check_marker()
        self.observe(CopyStep.RECHECKED, partition, start)
        limiter.take(0)  # again: this process may have stood still since, and lost the lease
        update = RemoteLogSegmentMetadataUpdate(
            attempt.remote_log_segment_id,
            RemoteLogSegmentState.COPY_SEGMENT_FINISHED,
            self.clock.now_ms(),
            attempt.broker_id,
            self.storage.custom_metadata(attempt, sent_bytes),
        )
        self.metadata.update_segment(
            update, expected=RemoteLogSegmentState.COPY_SEGMENT_STARTED, fence=fence, supersedes=supersedes
        )
        self.observe(CopyStep.FINISHED, partition, start)

    def _advance_deletion(self, attempt: RemoteLogSegmentMetadata, state: RemoteLogSegmentState, fence: Fence) -> bool:
        """Return whether the attempt is in `state` now.

        Expiration may delete the same attempt as an abandoned copy at the same time and be a step ahead. The caller
        deletes the objects in either case, unless the attempt is FINISHED.
        """
        now_ms = self.clock.now_ms()
        return bool(self.metadata.advance_deletion([attempt], state, event_timestamp_ms=now_ms, fence=fence))

    def _is_finished(self, attempt: RemoteLogSegmentMetadata) -> bool:
        row = self.metadata.segment(attempt.remote_log_segment_id)
        return row is not None and row.metadata.is_finished

    def _new_attempt(
        self, replica_id: ReplicaId, opened: OpenSegment, checked: CheckedSegment
    ) -> RemoteLogSegmentMetadata:
        segment = opened.segment
        return RemoteLogSegmentMetadata(
            remote_log_segment_id=RemoteLogSegmentId(replica_id.topic_id_partition, Uuid.random(self.random_bytes)),
            start_offset=segment.base_offset,
            end_offset=segment.end_offset,
            max_timestamp_ms=checked.max_timestamp_ms,
            broker_id=replica_id.broker_id,
            event_timestamp_ms=self.clock.now_ms(),
            segment_size_bytes=checked.data.log.size_bytes,
            segment_leader_epochs=segment.leader_epochs,
            txn_index_empty=not checked.data.transaction_index,
        )

    def _reached(self, step: CopyStep, replica_id: ReplicaId, base_offset: int) -> None:
        self.observe(step, replica_id.topic_id_partition, base_offset)
