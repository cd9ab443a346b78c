"""Delete segments of one partition, group by group: the protocol and its crash table, and the batch that goes by it.

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

A batch takes a lease to expire a partition, deletes what is planned of it in groups, gives it back and takes the next,
until nothing is left, its time is over, its run was withdrawn, or its pool has no room for it any more. Before each
group it waits while paused, pays for one request, and asks whether the topic is still ours. When it takes a partition,
and when it comes out of a pause, it asks whether the plan still holds. It never waits for a copy quota. A batch that
is killed leaves a lease that expires, and what the table says of the group it was in.
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

SEGMENTS_PER_GROUP: Final = 333
"""Three objects each make 999 keys, which a store takes in one request."""

_DELETING: Final = RemoteLogSegmentState.DELETE_SEGMENT_STARTED
_GONE: Final = RemoteLogSegmentState.DELETE_SEGMENT_FINISHED
_FOUND_GONE: Final = "was gone already"
_log: Final = get_logger(__name__)


class DeleteStep(StrEnum):
    """Named points of the protocol, in order; reported after each is done, with the first start offset of the group
    (for LOG_START the new log start).
    """

    LOG_START = "log start raised"
    DELETE_STARTED = "deletion started"
    OBJECTS_DELETED = "objects of the group deleted"
    DELETE_FINISHED = "deletion finished"
    RECORDED = "outcomes recorded"


DeleteObserver = Callable[[DeleteStep, TopicIdPartition, int], None]
PendingDeletion = tuple[PlannedDeletion, RemoteLogSegmentMetadata]
"""A planned deletion with its segment as the metadata has it now."""


@dataclass(frozen=True, slots=True)
class FailedDeletion:
    """A planned deletion that was not carried out, and why. `retriable`: another try of this run may succeed, so it
    stays PLANNED; else the next run takes it up.
    """

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

    def begin(
        self, lease: PartitionLease, planned: PlannedExpiration
    ) -> tuple[list[PendingDeletion], list[PlannedDeletion]]:
        """Look at what is planned. Returns what is to be deleted, begun deletions first, and what was found deleted.

        Skipped is a copy that was taken for abandoned and is not: it was finished since, or somebody copies there
        again and cleans up by itself. So is a segment that a new copy superseded since: its objects are held now.
        """
        partition = planned.topic_id_partition
        rows = {row.metadata.remote_log_segment_id: row for row in self.metadata.list_segments(partition)}
        gone = [deletion for deletion in planned.deletions if deletion.segment_id not in rows]
        self._record(lease, gone, DeletionOutcome.DELETED, _FOUND_GONE)
        is_copying = self.work.holder(partition, LeaseRole.COPY) is not None
        pending: list[PendingDeletion] = []
        for deletion in planned.deletions:
            row = rows.get(deletion.segment_id)
            if row is None:
                continue
            if (changed := _changed(deletion, row, is_copying=is_copying)) is None:
                pending.append((deletion, row.metadata))
            else:
                self._record(lease, [deletion], DeletionOutcome.SKIPPED, changed)
        return sorted(pending, key=lambda one: one[1].state is not _DELETING), gone

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
        self, lease: PartitionLease, group: Sequence[PendingDeletion], *, log_start_offset: int, history: int
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
        deleted = tuple(
            deletion for deletion, _ in group if deletion.segment_id in ids and deletion.segment_id not in failures
        )
        changed = [deletion for deletion, _ in group if deletion.segment_id not in ids]
        self._record(lease, deleted, DeletionOutcome.DELETED, None)
        self._record(lease, changed, DeletionOutcome.SKIPPED, "changed since it was planned")
        failed = tuple(_failed(deletion, failures) for deletion, _ in group if deletion.segment_id in failures)
        self.leave(lease, failed)
        self.observe(DeleteStep.RECORDED, partition, first)
        return DeletedGroup(deleted, failed)

    def _raise_log_start(
        self, lease: PartitionLease, segments: Sequence[RemoteLogSegmentMetadata], log_start_offset: int, history: int
    ) -> None:
        behind = max((segment.end_offset + 1 for segment in segments if segment.is_finished), default=0)
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
        items = [DeletionItem(deletion, outcome, message=message) for deletion in planned]
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


@dataclass(frozen=True, slots=True)
class DeleteResult:
    """What one batch did. What it left is still planned, or in DELETE_SEGMENT_STARTED for the next run.

    `held` are superseded segments and abandoned copies whose objects stay because it is not proved that another copy
    has their offsets.
    """

    deleted: tuple[PlannedDeletion, ...]
    failed: tuple[FailedDeletion, ...]
    seconds: float
    ended: BatchEnd
    held: tuple[DeletionItem, ...] = ()

    @property
    def worth_retrying(self) -> bool:
        """True if something failed and nothing of it needs a person."""
        return bool(self.failed) and all(failure.retriable for failure in self.failed)


class DeleteBatch:
    """Runs once, for a run that was released.

    `check` asks whether the plan of a partition still holds. `require_allowed` is asked before each group, and raises
    DatabaseSetBackError once an audit has found so.
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
        self._deleted: list[PlannedDeletion] = []
        self._failed: list[FailedDeletion] = []
        self._held: list[DeletionItem] = []
        self._replacements = ReplacementCheck(deleter.metadata, WholeCopy(deleter.storage, quotas))

    def run(self) -> DeleteResult:
        """Pull partitions until there is a reason to end.

        Raises:
            ApprovalRequiredError: the run is not released.
            RunWithdrawnError: it was withdrawn before anything of it was claimed here.
            ClockDisagreesError: the database's clock is contradicted; what is left stays planned.
            DatabaseSetBackError: the same.
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
        """Ask whether it would still be planned; what would not is recorded as kept."""
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
        """Without what is held: superseded segments and abandoned copies whose offsets may be nowhere else."""
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
        self._deleter.hold(lease, list(held.values()))
        self._held.extend(held.values())
        return [pending for pending in group if pending[0] not in held]

    def _count(self, deleted: Sequence[PlannedDeletion]) -> None:
        self._deleted.extend(deleted)
        self._loop.heartbeat.add_done(sum(deletion.size_bytes for deletion in deleted))

    def _give_up(self, lease: PartitionLease, planned: Sequence[PlannedDeletion], error: TieringError) -> None:
        """For this batch if another try may help, else for the run."""
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
