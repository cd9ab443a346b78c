"""Delete segments of one partition, group by group: the protocol and its crash table.

An orphan object is tolerable, a dangling reference never. So the log start is raised first, and metadata says
DELETE_SEGMENT_STARTED, from which no reader is served, before the first object goes. The log start is raised for each
group, just behind what goes with it: it never comes down, and what is mended before the next group keeps its records.

    step             done when it is reached                 a crash right after it leaves         cleaned up by
    LOG_START        log start behind the group, an event    a log start that hides the group      A
    DELETE_STARTED   up to 333 segments DELETE_STARTED       these rows, all objects               A
    OBJECTS_DELETED  their objects gone                      these rows                            A
    DELETE_FINISHED  the same segments DELETE_FINISHED       tombstones; the plan says PLANNED     B
    RECORDED         outcomes stored with the plan           nothing                               -

A: whoever holds the partition's lease to expire next: of what the plan still names, begun deletions go first; the next
   plan names every unfinished delete, whatever run began it.
B: the same, when it finds the segment gone (outcome DELETED).
What a new copy superseded is in DELETE_STARTED from the start; its objects are held before a plan names it.
An object that the store does not delete keeps its segment in DELETE_STARTED: a row never goes before its objects.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from include.tiering.clock import Clock
from include.tiering.errors import RemoteStorageError
from include.tiering.model.ids import RemoteLogSegmentId, TopicIdPartition
from include.tiering.model.ownership import LeaseRole, TopicOwner
from include.tiering.model.retention import DeletionReason
from include.tiering.model.segment_metadata import RemoteLogSegmentMetadata, RemoteLogSegmentState
from include.tiering.remote_storage.contract import DeleteFailure, RemoteStorage
from include.tiering.runs.contract import PartitionLease, WorkStore
from include.tiering.runs.deletion_contract import (
    DeletionItem,
    DeletionOutcome,
    DeletionStore,
    PlannedDeletion,
    PlannedExpiration,
)
from include.tiering.segments.contract import RemoteLogMetadata, SegmentRow, TopicRegistry

SEGMENTS_PER_GROUP: Final = 333
"""Three objects each make 999 keys, which a store takes in one request."""

_DELETING: Final = RemoteLogSegmentState.DELETE_SEGMENT_STARTED
_GONE: Final = RemoteLogSegmentState.DELETE_SEGMENT_FINISHED
_FOUND_GONE: Final = "was gone already"


class DeleteStep(StrEnum):
    """Named points of the protocol, in order; reported after each is done, with the first start offset of the group
    (for LOG_START the new log start)."""

    LOG_START = "log start raised"
    DELETE_STARTED = "deletion started"
    OBJECTS_DELETED = "objects of the group deleted"
    DELETE_FINISHED = "deletion finished"
    RECORDED = "outcomes recorded"


DeleteObserver = Callable[[DeleteStep, TopicIdPartition, int], None]
Doomed = tuple[PlannedDeletion, RemoteLogSegmentMetadata]
"""A planned deletion with its segment as the metadata has it now."""


@dataclass(frozen=True, slots=True)
class FailedDeletion:
    """A planned deletion that was not carried out, and why. `retriable`: another try of this run may succeed, so it
    stays PLANNED; else the next run takes it up."""

    item: DeletionItem
    retriable: bool


@dataclass(frozen=True, slots=True)
class DeletedGroup:
    """What became of a group. Both empty: everything in it had changed since it was planned."""

    deleted: tuple[PlannedDeletion, ...]
    failed: tuple[FailedDeletion, ...]


@dataclass(frozen=True, slots=True)
class SegmentDeleter:
    """Everything that a deletion touches. Each method may raise LeaseLostError and MetadataUnavailableError."""

    storage: RemoteStorage
    metadata: RemoteLogMetadata
    registry: TopicRegistry
    deletions: DeletionStore
    work: WorkStore
    clock: Clock
    observe: DeleteObserver

    def begin(self, lease: PartitionLease, planned: PlannedExpiration) -> tuple[list[Doomed], list[PlannedDeletion]]:
        """Look at what is planned. Returns what is to be deleted, begun deletions first, and what was found deleted.

        Skipped is a copy that was taken for abandoned and is not: it was finished since, or somebody copies there
        again and cleans up by itself. So is a segment that a new copy superseded since: its objects are held now.
        """
        partition = planned.topic_id_partition
        rows = {row.metadata.remote_log_segment_id: row for row in self.metadata.list_segments(partition)}
        gone = [one for one in planned.deletions if one.segment_id not in rows]
        self._record(lease, gone, DeletionOutcome.DELETED, _FOUND_GONE)
        is_copying = self.work.holder(partition, LeaseRole.COPY) is not None
        doomed: list[Doomed] = []
        for one in planned.deletions:
            row = rows.get(one.segment_id)
            if row is None:
                continue
            if (changed := _changed(one, row, is_copying=is_copying)) is None:
                doomed.append((one, row.metadata))
            else:
                self._record(lease, [one], DeletionOutcome.SKIPPED, changed)
        return sorted(doomed, key=lambda one: one[1].state is not _DELETING), gone

    def is_ours(self, lease: PartitionLease, planned: Iterable[PlannedDeletion]) -> bool:
        """Whether the platform still owns the topic; if not, all of `planned` are skipped."""
        owner = self.registry.owner(lease.fence.topic_id_partition.topic_id)
        if owner is TopicOwner.PLATFORM:
            return True
        self._record(lease, planned, DeletionOutcome.SKIPPED, f"the topic's owner is now: {owner}")
        return False

    def keep(self, lease: PartitionLease, kept: Iterable[PlannedDeletion], why: str) -> None:
        """Record that these stay although they were planned."""
        self._record(lease, kept, DeletionOutcome.SKIPPED, why)

    def hold(self, lease: PartitionLease, held: Sequence[DeletionItem]) -> None:
        """Record that these stay until something is mended."""
        if held:
            self.deletions.record_outcomes(lease, held)

    def delete(
        self, lease: PartitionLease, group: Sequence[Doomed], *, log_start_offset: int, history: int
    ) -> DeletedGroup:
        """Delete at most `SEGMENTS_PER_GROUP` segments of the leased partition.

        The log start is raised behind those that could be read, and never beyond `log_start_offset`; both were decided
        by what `history` holds.

        Raises:
            HistoryChangedError: somebody decided to follow another one since. Nothing was done.
            RemoteStorageError: nothing of the group could be deleted; all of it stays DELETE_SEGMENT_STARTED.
        """
        partition, first = lease.fence.topic_id_partition, group[0][0].start_offset
        segments, now_ms = [segment for _, segment in group], self.clock.now_ms()
        self._raise_log_start(lease, segments, log_start_offset, history)
        begun = self.metadata.advance_deletion(segments, _DELETING, event_timestamp_ms=now_ms, fence=lease.fence)
        self.observe(DeleteStep.DELETE_STARTED, partition, first)
        ids = {segment.remote_log_segment_id for segment in begun}
        # As they were found: of an attempt that was FINISHED no unfinished upload has to be looked for.
        found = [segment for segment in segments if segment.remote_log_segment_id in ids]
        failures = {one.segment_id: one for one in self.storage.delete_log_segments(found)} if found else {}
        self.observe(DeleteStep.OBJECTS_DELETED, partition, first)
        clean = [segment for segment in begun if segment.remote_log_segment_id not in failures]
        self.metadata.advance_deletion(clean, _GONE, event_timestamp_ms=now_ms, fence=lease.fence)
        self.observe(DeleteStep.DELETE_FINISHED, partition, first)
        deleted = tuple(one for one, _ in group if one.segment_id in ids and one.segment_id not in failures)
        changed = [one for one, _ in group if one.segment_id not in ids]
        self._record(lease, deleted, DeletionOutcome.DELETED, None)
        self._record(lease, changed, DeletionOutcome.SKIPPED, "changed since it was planned")
        failed = tuple(_failed(one, failures) for one, _ in group if one.segment_id in failures)
        self.leave(lease, failed)
        self.observe(DeleteStep.RECORDED, partition, first)
        return DeletedGroup(deleted, failed)

    def _raise_log_start(
        self, lease: PartitionLease, segments: Sequence[RemoteLogSegmentMetadata], log_start_offset: int, history: int
    ) -> None:
        behind = max((one.end_offset + 1 for one in segments if one.is_finished), default=0)
        if behind == 0:
            return
        partition, offset = lease.fence.topic_id_partition, min(behind, log_start_offset)
        self.metadata.raise_log_start(
            partition, offset, reason=f"run {lease.run_id}", author=lease.batch_id, fence=lease.fence, history=history
        )
        self.observe(DeleteStep.LOG_START, partition, offset)

    def leave(self, lease: PartitionLease, failed: Iterable[FailedDeletion]) -> None:
        """Record those that this run does not try again."""
        items = [failure.item for failure in failed if not failure.retriable]
        if items:
            self.deletions.record_outcomes(lease, items)

    def _record(
        self,
        lease: PartitionLease,
        planned: Iterable[PlannedDeletion],
        outcome: DeletionOutcome,
        message: str | None,
    ) -> None:
        items = [DeletionItem(one, outcome, message=message) for one in planned]
        if items:
            self.deletions.record_outcomes(lease, items)


def _changed(planned: PlannedDeletion, row: SegmentRow, *, is_copying: bool) -> str | None:
    """Why it does not go although it was planned."""
    state = row.metadata.state
    if row.superseded_by is not None and planned.reason != DeletionReason.SUPERSEDED:
        return f"was superseded by {row.superseded_by}: its objects are held"
    is_copied_now = state is RemoteLogSegmentState.COPY_SEGMENT_STARTED and is_copying
    return None if state in (planned.state, _DELETING) and not is_copied_now else f"is {state.name} now"


def _failed(planned: PlannedDeletion, failures: Mapping[RemoteLogSegmentId, DeleteFailure]) -> FailedDeletion:
    failure = failures[planned.segment_id]
    item = DeletionItem(planned, DeletionOutcome.FAILED, RemoteStorageError.__name__, failure.message)
    return FailedDeletion(item, failure.retriable)
