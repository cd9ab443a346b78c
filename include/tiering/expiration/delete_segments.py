"""Delete segments of one partition, group by group: the protocol, its crash table, and the batch that carries it out.

An orphan object is tolerable, a dangling reference never is. So before the first object is deleted, the log start is
raised, and then the metadata says DELETE_SEGMENT_STARTED: readers are served from no segment in this state. In an
earlier backup of the database the segments are still FINISHED. So after DELETE_SEGMENT_STARTED, and before the first
object is deleted, the store is claimed: from then on it refuses such a backup. The log start is raised for each group,
only to the end of that group, because it can never be lowered: if the run is withdrawn, or the plan no longer holds
after a pause, later groups keep their records above it.

    step             done when it is reached                 a crash right after it leaves         cleaned up by
    LOG_START        log start at the group's end + 1; event a log start that hides the group      A
    DELETE_STARTED   up to 333 segments DELETE_STARTED       these rows, their objects             A
    (claimed)        the store's generation raised           these rows, their objects             A
    OBJECTS_DELETED  their objects gone                      these rows                            A
    DELETE_FINISHED  the same segments DELETE_FINISHED       tombstones; the plan says PLANNED     B
    RECORDED         outcomes stored with the plan           nothing                               -

A: the next holder of the partition's expiration lease: it carries out the rest of the same plan, begun deletions
   first. If the run has no further batch, the next run does: its plan names unfinished deletes of any run, and FINISHED
   segments below the log start.
B: the next holder of the expiration lease, when it finds the segment deleted (outcome DELETED).
A superseded segment is in DELETE_STARTED already before a plan names it. Its objects stay in the store until a batch
carries out a plan that names it.
If the store does not delete an object, its segment stays in DELETE_STARTED: a row is never removed before its objects.

A batch takes an expiration lease on a partition, deletes its planned segments in groups, releases the lease and takes
the next, until no work is left, its time is over, its run was withdrawn, its pool has no slot for it any more, or it is
cancelled.
Before each group it waits while paused, takes one request from the quota, and checks that the platform still owns the
topic. After it takes a partition, and after each pause, it checks that the plan still holds. It never waits for a copy
quota. A killed batch leaves a lease that expires; the table says what it leaves of its current group.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from include.tiering.clock import Clock
from include.tiering.errors import (
    ApprovalRequiredError,
    ClockDisagreesError,
    DatabaseSetBackError,
    RemoteStorageError,
    TieringError,
    UnprovedReplacementError,
)
from include.tiering.expiration.checks import PlanCheck, ReplacementCheck, StillPlanned
from include.tiering.model.ownership import LeaseRole, PartitionLease, TopicOwner
from include.tiering.model.retention import DeletionReason
from include.tiering.model.segments import (
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    TopicIdPartition,
)
from include.tiering.quotas.contract import Quotas
from include.tiering.remote_storage.contract import DeleteFailure, RemoteStorage
from include.tiering.runs.batch import BatchEnd, BatchLoop
from include.tiering.runs.contract import WorkStore
from include.tiering.runs.deletion_run import (
    DeletionItem,
    DeletionOutcome,
    DeletionStore,
    PlannedDeletion,
    PlannedExpiration,
)
from include.tiering.segments.contract import RemoteLogMetadata, SegmentRow, TopicRegistry
from include.tiering.segments.stored_copies import WholeCopy
from include.tiering.telemetry import for_partition, get_logger
from include.tiering.telemetry.metrics import ignore

SEGMENTS_PER_GROUP: Final = 333
"""Three objects each (layout aiven) make 999 keys; S3 takes 1000 in a request."""

_DELETING: Final = RemoteLogSegmentState.DELETE_SEGMENT_STARTED
_GONE: Final = RemoteLogSegmentState.DELETE_SEGMENT_FINISHED
_log: Final = get_logger(__name__)


class DeleteStep(StrEnum):
    """Named points of the protocol, in order; each is reported after it is done.

    The offset that is reported is the start offset of the first segment of the group; for LOG_START, the offset to
    which the group raises a lower log start.
    """

    LOG_START = "log start raised"
    DELETE_STARTED = "deletion started"
    OBJECTS_DELETED = "objects of the group deleted"
    DELETE_FINISHED = "deletion finished"
    RECORDED = "outcomes recorded"


DeleteObserver = Callable[[DeleteStep, TopicIdPartition, int], None]
PendingDeletion = tuple[PlannedDeletion, RemoteLogSegmentMetadata]
"""A planned deletion with its segment's metadata as `begin` read them."""


@dataclass(frozen=True, slots=True)
class FailedDeletion:
    """A planned deletion that failed, and why.

    If it is `retriable`, another try of this run may succeed, so it stays PLANNED; otherwise the next run takes it.
    """

    item: DeletionItem
    retriable: bool


@dataclass(frozen=True, slots=True)
class DeletedGroup:
    """Outcomes of a group. Segments in neither tuple had changed since they were planned."""

    deleted: tuple[PlannedDeletion, ...]
    failed: tuple[FailedDeletion, ...]


@dataclass(frozen=True, slots=True)
class SegmentDeleter:
    """Deletes groups of segments. Each method may raise LeaseLostError and MetadataUnavailableError.

    `claim` raises the store's generation, see `StoreOwnership.claim`.
    """

    storage: RemoteStorage
    metadata: RemoteLogMetadata
    registry: TopicRegistry
    deletions: DeletionStore
    work: WorkStore
    clock: Clock
    observe: DeleteObserver
    claim: Callable[[], object]

    def begin(
        self, lease: PartitionLease, planned: PlannedExpiration
    ) -> tuple[list[PendingDeletion], list[PlannedDeletion]]:
        """Check the plan; return what to delete, begun deletions first, and what is deleted already.

        A planned unfinished copy is skipped if it was finished since, or if the partition is being copied: the copy
        batch settles abandoned copies itself. A segment that a new copy superseded since is skipped, too: its objects
        are held.
        """
        partition = planned.topic_id_partition
        found = self.metadata.selected.segments_with_ids(partition, [each.segment_id.id for each in planned.deletions])
        rows = {row.metadata.remote_log_segment_id: row for row in found}
        gone = [deletion for deletion in planned.deletions if deletion.segment_id not in rows]
        self._record(lease, gone, DeletionOutcome.DELETED, "was gone already")
        is_copying = self.work.holder(partition, LeaseRole.COPY) is not None
        pending: list[PendingDeletion] = []
        for deletion in planned.deletions:
            if (row := rows.get(deletion.segment_id)) is None:
                continue
            if (changed := _changed(deletion, row, is_copying=is_copying)) is None:
                pending.append((deletion, row.metadata))
            else:
                self._record(lease, [deletion], DeletionOutcome.SKIPPED, changed)
        return sorted(pending, key=lambda deletion: deletion[1].state is not _DELETING), gone

    def is_ours(self, lease: PartitionLease, planned: Iterable[PlannedDeletion]) -> bool:
        """Return whether the platform still owns the topic; if not, record all of `planned` as skipped."""
        if (owner := self.registry.owner(lease.fence.topic_id_partition.topic_id)) is TopicOwner.PLATFORM:
            return True
        self._record(lease, planned, DeletionOutcome.SKIPPED, f"the topic's owner is now: {owner}")
        return False

    def keep(self, lease: PartitionLease, kept: Iterable[PlannedDeletion], why: str) -> None:
        """Record the outcome SKIPPED for planned deletions that are not carried out."""
        self._record(lease, kept, DeletionOutcome.SKIPPED, why)

    def record(self, lease: PartitionLease, items: Sequence[DeletionItem]) -> None:
        """Record outcomes; without any, nothing is written."""
        if items:
            self.deletions.record_outcomes(lease, items)

    def delete(
        self, lease: PartitionLease, group: Sequence[PendingDeletion], *, log_start_offset: int, history: int
    ) -> DeletedGroup:
        """Delete at most `SEGMENTS_PER_GROUP` segments of the leased partition.

        The log start is raised to the highest end + 1 of the FINISHED segments, but not above `log_start_offset`. The
        plan of these deletions was checked while `history` was the newest history.

        Raises:
            HistoryChangedError: since the plan was checked, a decision changed the followed history; nothing was done.
            ForeignStoreError: the store belongs to another database; the group stays DELETE_SEGMENT_STARTED.
            RemoteStorageError: the store failed; the whole group stays DELETE_SEGMENT_STARTED, and some of its objects
                may be deleted.
        """
        partition, first = lease.fence.topic_id_partition, group[0][0].start_offset
        segments, now_ms = [segment for _, segment in group], self.clock.now_ms()
        self._raise_log_start(lease, segments, log_start_offset, history)
        begun = self.metadata.advance_deletion(segments, _DELETING, event_timestamp_ms=now_ms, fence=lease.fence)
        self.observe(DeleteStep.DELETE_STARTED, partition, first)
        if begun:
            # From now on the store refuses a backup that has these segments as FINISHED. If one was restored just
            # before, its segments are not in DELETE_STARTED, and stay.
            self.claim()
            begun = self.metadata.advance_deletion(begun, _DELETING, event_timestamp_ms=now_ms, fence=lease.fence)
        ids = {segment.remote_log_segment_id for segment in begun}
        # The segments have their earlier states: for a FINISHED attempt fewer uploads are looked for.
        found = [segment for segment in segments if segment.remote_log_segment_id in ids]
        failures = {failure.segment_id: failure for failure in self.storage.delete_log_segments(found)} if found else {}
        self.observe(DeleteStep.OBJECTS_DELETED, partition, first)
        clean = [segment for segment in begun if segment.remote_log_segment_id not in failures]
        self.metadata.advance_deletion(clean, _GONE, event_timestamp_ms=now_ms, fence=lease.fence)
        self.observe(DeleteStep.DELETE_FINISHED, partition, first)
        deleted = tuple(
            deletion for deletion, _ in group if deletion.segment_id in ids and deletion.segment_id not in failures
        )
        changed = [deletion for deletion, _ in group if deletion.segment_id not in ids]
        self._record(lease, deleted, DeletionOutcome.DELETED, None)
        self._record(lease, changed, DeletionOutcome.SKIPPED, "changed after it was planned")
        failed = tuple(_failed(deletion, failures) for deletion, _ in group if deletion.segment_id in failures)
        self.leave(lease, failed)
        self.observe(DeleteStep.RECORDED, partition, first)
        return DeletedGroup(deleted, failed)

    def _raise_log_start(
        self, lease: PartitionLease, segments: Sequence[RemoteLogSegmentMetadata], log_start_offset: int, history: int
    ) -> None:
        end_offset = max((segment.end_offset + 1 for segment in segments if segment.is_finished), default=0)
        if end_offset == 0:
            return
        partition, offset = lease.fence.topic_id_partition, min(end_offset, log_start_offset)
        self.metadata.raise_log_start(
            partition, offset, reason=f"run {lease.run_id}", author=lease.batch_id, fence=lease.fence, history=history
        )
        self.observe(DeleteStep.LOG_START, partition, offset)

    def leave(self, lease: PartitionLease, failed: Iterable[FailedDeletion]) -> None:
        """Record the failures that this run does not retry."""
        self.record(lease, [failure.item for failure in failed if not failure.retriable])

    def _record(
        self,
        lease: PartitionLease,
        planned: Iterable[PlannedDeletion],
        outcome: DeletionOutcome,
        message: str | None,
    ) -> None:
        self.record(lease, [DeletionItem(deletion, outcome, message=message) for deletion in planned])


def _changed(planned: PlannedDeletion, row: SegmentRow, *, is_copying: bool) -> str | None:
    """Return why a planned segment is not deleted; None if it may be."""
    state = row.metadata.state
    if row.superseded_by is not None and planned.reason != DeletionReason.SUPERSEDED:
        return f"was superseded by {row.superseded_by}: its objects are held"
    is_copied_now = state is RemoteLogSegmentState.COPY_SEGMENT_STARTED and is_copying
    return None if state in (planned.state, _DELETING) and not is_copied_now else f"is {state.name} now"


def _failed(planned: PlannedDeletion, failures: Mapping[RemoteLogSegmentId, DeleteFailure]) -> FailedDeletion:
    failure = failures[planned.segment_id]
    item = DeletionItem(planned, DeletionOutcome.FAILED, RemoteStorageError.__name__, failure.message)
    return FailedDeletion(item, failure.retriable)


@dataclass(frozen=True, slots=True)
class DeleteResult:
    """What one batch did. Planned segments in none of the tuples were skipped, or are still planned.

    `held` are superseded segments and abandoned copies whose deletion `ReplacementCheck` forbids.
    """

    deleted: tuple[PlannedDeletion, ...]
    failed: tuple[FailedDeletion, ...]
    seconds: float
    ended: BatchEnd
    held: tuple[DeletionItem, ...] = ()

    @property
    def worth_retrying(self) -> bool:
        """Whether deletions failed and all of their errors are retriable."""
        return bool(self.failed) and all(failure.retriable for failure in self.failed)


class DeleteBatch:
    """One batch of a released run, to be run once.

    `check` compares the plan of a partition with the current state. `require_allowed` is called before each group and
    raises DatabaseSetBackError while a guard forbids deletions (`ActiveGuards`). `on_deleted` gets the segments of each
    group that were deleted.
    """

    def __init__(
        self,
        deleter: SegmentDeleter,
        quotas: Quotas,
        loop: BatchLoop,
        check: PlanCheck,
        require_allowed: Callable[[], None],
        *,
        run_id: str,
        batch_id: str,
        lease_ms: int,
        segments_per_group: int = SEGMENTS_PER_GROUP,
        on_deleted: Callable[[Sequence[PlannedDeletion]], None] = ignore,
    ) -> None:
        self._deleter = deleter
        self._quotas = quotas
        self._loop = loop
        self._check = check
        self._require_allowed = require_allowed
        self._run_id = run_id
        self._batch_id = batch_id
        self._lease_ms = lease_ms
        self._segments_per_group = segments_per_group
        self._on_deleted = on_deleted
        self._deleted: list[PlannedDeletion] = []
        self._failed: list[FailedDeletion] = []
        self._held: list[DeletionItem] = []
        self._replacements = ReplacementCheck(deleter.metadata, WholeCopy(deleter.storage, quotas))

    def run(self) -> DeleteResult:
        """Claim partitions and delete their segments until no work is left or a stop condition is met.

        Raises:
            ApprovalRequiredError: the run is not released.
            RunWithdrawnError: the run was withdrawn before this batch began.
            ClockDisagreesError: other clocks contradict the database's clock; the rest stays planned.
            DatabaseSetBackError: a guard forbids deletions; the rest stays planned.
            StateConflictError: no such run was planned.
        """
        run = self._deleter.deletions.run(self._run_id)
        run.require_not_withdrawn()
        if not run.is_released:
            raise ApprovalRequiredError(
                f"run {self._run_id}: nothing is deleted before plan {run.plan_hash} passed the deletion limits"
                " or was approved"
            )
        started = self._deleter.clock.monotonic()
        with self._loop.heartbeat:
            ended = self._loop.pull(
                self._claim,
                self._expire,
                has_work=lambda: self._deleter.deletions.has_work(self._run_id),
                is_withdrawn=self._is_withdrawn,
            )
        seconds = self._deleter.clock.monotonic() - started
        return DeleteResult(tuple(self._deleted), tuple(self._failed), seconds, ended, tuple(self._held))

    def _claim(self, excluded: Set[TopicIdPartition]) -> PartitionLease | None:
        return self._deleter.deletions.claim(self._run_id, self._batch_id, lease_ms=self._lease_ms, exclude=excluded)

    def _is_withdrawn(self) -> bool:
        return self._deleter.deletions.run(self._run_id).withdrawal is not None

    def _may_go_on(self) -> bool:
        if self._is_withdrawn():
            return False
        self._require_allowed()
        return True

    def _expire(self, lease: PartitionLease) -> None:
        planned = self._deleter.deletions.remaining(lease)
        self._loop.heartbeat.add_planned(sum(deletion.size_bytes for deletion in planned.deletions))
        partition, cancellation = lease.fence.topic_id_partition, self._loop.cancellation
        limiter = self._quotas.delete(partition.topic, go_on=cancellation.check)
        left = planned.deletions
        with self._loop.setting_aside(
            partition,
            lambda error: self._give_up(lease, left, error),
            reraise=(ClockDisagreesError, DatabaseSetBackError),
        ):
            if not self._deleter.is_ours(lease, planned.deletions):
                return
            pauses, checked = cancellation.pauses, self._still_planned(lease, planned)
            left = checked.planned.deletions
            queue, gone = self._deleter.begin(lease, checked.planned)
            self._count(gone)
            left = _planned_of(queue)

            def delete_next() -> bool:
                nonlocal pauses, checked, queue, left
                limiter.take()
                if cancellation.pauses != pauses:
                    rest = replace(checked.planned, deletions=left)
                    pauses, checked = cancellation.pauses, self._still_planned(lease, rest)
                    queue = [pending for pending in queue if pending[0] in checked.planned.deletions]
                    left = _planned_of(queue)
                    return bool(queue)
                if not self._deleter.is_ours(lease, left):
                    return False
                group, queue = queue[: self._segments_per_group], queue[self._segments_per_group :]
                left = _planned_of(queue)
                self._delete(lease, group, checked)
                return bool(queue) and partition not in self._loop.set_aside

            if queue:
                self._loop.in_groups(delete_next, may_go_on=self._may_go_on)

    def _still_planned(self, lease: PartitionLease, planned: PlannedExpiration) -> StillPlanned:
        """Check the plan again; record the outcome SKIPPED for deletions that would not be planned any more."""
        checked = self._check(planned)
        if checked.kept:
            for_partition(_log, lease.fence.topic_id_partition).warning(
                "%d planned segments are kept: %s", len(checked.kept), checked.why
            )
            self._deleter.keep(lease, checked.kept, checked.why)
        return checked

    def _delete(self, lease: PartitionLease, group: Sequence[PendingDeletion], checked: StillPlanned) -> None:
        partition = lease.fence.topic_id_partition
        with self._loop.setting_aside(partition, lambda error: self._give_up(lease, _planned_of(group), error)):
            group = self._proved(lease, group)
            if not group:
                return
            log_start_offset = checked.planned.log_start_offset
            outcome = self._deleter.delete(lease, group, log_start_offset=log_start_offset, history=checked.history)
            self._count(outcome.deleted)
            self._failed.extend(outcome.failed)
            if any(failure.retriable for failure in outcome.failed):
                self._loop.set_aside.add(partition)

    def _proved(self, lease: PartitionLease, group: Sequence[PendingDeletion]) -> Sequence[PendingDeletion]:
        """Return the group without the segments whose deletion `ReplacementCheck` forbids; record those as SKIPPED."""
        held: dict[PlannedDeletion, DeletionItem] = {}
        for planned, segment in group:
            try:
                if planned.reason == DeletionReason.SUPERSEDED:
                    self._replacements.require(planned.segment_id)
                elif planned.reason == DeletionReason.ABANDONED_COPY:
                    self._replacements.require_covered(segment)
            except UnprovedReplacementError as error:
                for_partition(_log, lease.fence.topic_id_partition).warning("%s", error)
                held[planned] = DeletionItem(planned, DeletionOutcome.SKIPPED, type(error).__name__, str(error))
        self._deleter.record(lease, list(held.values()))
        self._held.extend(held.values())
        return [pending for pending in group if pending[0] not in held]

    def _count(self, deleted: Sequence[PlannedDeletion]) -> None:
        self._deleted.extend(deleted)
        self._on_deleted(deleted)
        self._loop.heartbeat.add_done(sum(deletion.size_bytes for deletion in deleted))

    def _give_up(self, lease: PartitionLease, planned: Sequence[PlannedDeletion], error: TieringError) -> None:
        """Record the failures, if a retry cannot help; otherwise the deletions stay planned for another batch."""
        for_partition(_log, lease.fence.topic_id_partition).warning("deletion stopped: %s", error)
        failed = [
            FailedDeletion(
                DeletionItem(deletion, DeletionOutcome.FAILED, type(error).__name__, str(error)), error.retriable
            )
            for deletion in planned
        ]
        self._failed.extend(failed)
        self._deleter.leave(lease, failed)


def _planned_of(queue: Sequence[PendingDeletion]) -> tuple[PlannedDeletion, ...]:
    return tuple(deletion for deletion, _ in queue)
