"""One batch of a run that deletes: a stream that pulls partitions and deletes their planned segments in order.

It takes a lease to expire a partition, deletes what is planned of it in groups, gives it back and takes the next, until
nothing is left, its time is over, its run was withdrawn, or its pool has no room for it any more. Before each group it
waits while paused, pays for one request, and asks whether the topic is still ours. When it takes a partition, and when
it comes out of a pause, it asks whether the plan still holds. It never waits for a copy quota.

What a killed batch leaves: a lease that expires, and what `delete_segments` says of the group it was in.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from include.tiering.errors import (
    ApprovalRequiredError,
    ClockDisagreesError,
    DatabaseSetBackError,
    LeaseLostError,
    SendingStoppedError,
    TieringError,
    UnprovedReplacementError,
)
from include.tiering.expiration.delete_segments import SEGMENTS_PER_GROUP, Doomed, FailedDeletion, SegmentDeleter
from include.tiering.expiration.recheck_plan import PlanCheck, StillPlanned
from include.tiering.expiration.require_replacement import ReplacementCheck
from include.tiering.model.ids import TopicIdPartition
from include.tiering.model.retention import DeletionReason
from include.tiering.quotas.contract import Quotas
from include.tiering.runs.batch_heartbeat import BatchHeartbeat
from include.tiering.runs.batch_room import BatchEnd, BatchRoom
from include.tiering.runs.contract import PartitionLease, WorkStore
from include.tiering.runs.deletion_contract import DeletionItem, DeletionOutcome, PlannedDeletion, PlannedExpiration
from include.tiering.runs.send_gate import SendGate
from include.tiering.segments.stored_copies import WholeCopy
from include.tiering.telemetry import for_partition, get_logger

_log: Final = get_logger(__name__)
_PAUSE_POLL_SECONDS: Final = 0.5


@dataclass(frozen=True, slots=True)
class DeleteResult:
    """What one batch did. What it left is still planned, or in DELETE_SEGMENT_STARTED for the next run.

    `held` are superseded segments and unfinished copies whose objects stay because it is not proved that another copy
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
        work: WorkStore,
        quotas: Quotas,
        gate: SendGate,
        heartbeat: BatchHeartbeat,
        room: BatchRoom,
        check: PlanCheck,
        require_allowed: Callable[[], None],
        *,
        run_id: str,
        batch_id: str,
        lease_ms: int,
        segments_per_group: int = SEGMENTS_PER_GROUP,
    ) -> None:
        self._deleter = deleter
        self._work = work
        self._quotas = quotas
        self._gate = gate
        self._heartbeat = heartbeat
        self._room = room
        self._check = check
        self._require_allowed = require_allowed
        self._run_id = run_id
        self._batch_id = batch_id
        self._lease_ms = lease_ms
        self._segments_per_group = segments_per_group
        self._given_up: set[TopicIdPartition] = set()
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
                f"run {self._run_id}: nothing is deleted before plan {run.plan_hash} passed the brake or was approved"
            )
        started = self._deleter.clock.monotonic()
        with self._heartbeat:
            ended = self._pull()
        seconds = self._deleter.clock.monotonic() - started
        return DeleteResult(tuple(self._deleted), tuple(self._failed), seconds, ended, tuple(self._held))

    def _pull(self) -> BatchEnd:
        while (ended := self._room.reason_to_end()) is None:
            lease = self._heartbeat.claim(self._claim)
            if lease is None:
                if not self._wait_out_a_pause():
                    return BatchEnd.WITHDRAWN if self._is_withdrawn() else BatchEnd.NO_WORK
                continue
            try:
                self._expire(lease)
            except (LeaseLostError, SendingStoppedError) as error:
                for_partition(_log, lease.fence.topic_id_partition).warning("%s", error)
                self._heartbeat.lost(lease)
            finally:
                self._heartbeat.release()
        return ended

    def _claim(self) -> PartitionLease | None:
        return self._deleter.deletions.claim(
            self._run_id, self._batch_id, lease_ms=self._lease_ms, exclude=self._given_up
        )

    def _is_withdrawn(self) -> bool:
        return self._deleter.deletions.run(self._run_id).withdrawal is not None

    def _wait_out_a_pause(self) -> bool:
        """True if paused topics still hold work of this run, after a short wait."""
        if not self._work.paused_topics() or not self._deleter.deletions.has_work(self._run_id):
            return False
        self._deleter.clock.sleep(_PAUSE_POLL_SECONDS)
        return True

    def _expire(self, lease: PartitionLease) -> None:
        planned = self._deleter.deletions.remaining(lease)
        self._heartbeat.add_planned(sum(one.size_bytes for one in planned.deletions))
        partition = lease.fence.topic_id_partition
        limiter = self._quotas.delete(partition.topic, go_on=self._gate.check)
        left = planned.deletions
        try:
            if not self._deleter.is_ours(lease, planned.deletions):
                return
            pauses, checked = self._gate.pauses, self._still_planned(lease, planned)
            left = checked.planned.deletions
            queue, gone = self._deleter.begin(lease, checked.planned)
            self._count(gone)
            left = _planned_of(queue)
            while queue and partition not in self._given_up and self._room.reason_to_end() is None:
                if self._is_withdrawn():
                    return
                self._require_allowed()
                if self._gate.paused:
                    self._deleter.clock.sleep(_PAUSE_POLL_SECONDS)
                    continue
                limiter.take()
                if self._gate.pauses != pauses:
                    rest = replace(checked.planned, deletions=left)
                    pauses, checked = self._gate.pauses, self._still_planned(lease, rest)
                    queue = [doomed for doomed in queue if doomed[0] in checked.planned.deletions]
                    left = _planned_of(queue)
                    continue
                if not self._deleter.is_ours(lease, left):
                    return
                group, queue = queue[: self._segments_per_group], queue[self._segments_per_group :]
                left = _planned_of(queue)
                self._delete(lease, group, checked)
        except (LeaseLostError, SendingStoppedError, ClockDisagreesError, DatabaseSetBackError):
            raise
        except TieringError as error:
            self._give_up(lease, left, error)

    def _still_planned(self, lease: PartitionLease, planned: PlannedExpiration) -> StillPlanned:
        """Ask whether it would still be planned; what would not is recorded as kept."""
        checked = self._check(planned)
        if checked.kept:
            for_partition(_log, lease.fence.topic_id_partition).warning(
                "%d planned segments are kept: %s", len(checked.kept), checked.why
            )
            self._deleter.keep(lease, checked.kept, checked.why)
        return checked

    def _delete(self, lease: PartitionLease, group: Sequence[Doomed], checked: StillPlanned) -> None:
        try:
            group = self._proved(lease, group)
            if not group:
                return
            log_start_offset = checked.planned.log_start_offset
            outcome = self._deleter.delete(lease, group, log_start_offset=log_start_offset, history=checked.history)
        except (LeaseLostError, SendingStoppedError):
            raise
        except TieringError as error:
            self._give_up(lease, [one for one, _ in group], error)
            return
        self._count(outcome.deleted)
        self._failed.extend(outcome.failed)
        if any(failure.retriable for failure in outcome.failed):
            self._given_up.add(lease.fence.topic_id_partition)

    def _proved(self, lease: PartitionLease, group: Sequence[Doomed]) -> Sequence[Doomed]:
        """Without what is held: superseded segments and unfinished copies whose offsets may be nowhere else."""
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
        return [doomed for doomed in group if doomed[0] not in held]

    def _count(self, deleted: Sequence[PlannedDeletion]) -> None:
        self._deleted.extend(deleted)
        self._heartbeat.add_done(sum(one.size_bytes for one in deleted))

    def _give_up(self, lease: PartitionLease, planned: Sequence[PlannedDeletion], error: TieringError) -> None:
        """Leave the partition: for this batch if another try may help, else for the run."""
        for_partition(_log, lease.fence.topic_id_partition).warning("deletion stopped: %s", error)
        self._given_up.add(lease.fence.topic_id_partition)
        failed = [
            FailedDeletion(DeletionItem(one, DeletionOutcome.FAILED, type(error).__name__, str(error)), error.retriable)
            for one in planned
        ]
        self._failed.extend(failed)
        self._deleter.leave(lease, failed)


def _planned_of(queue: Sequence[Doomed]) -> tuple[PlannedDeletion, ...]:
    return tuple(one for one, _ in queue)
