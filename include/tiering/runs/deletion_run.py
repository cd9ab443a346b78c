"""Runs that delete: whether a run is released, and its planned deletions with their reasons and outcomes.

A run is one plan. It is released when the deletion limits were applied and need no approval, or when a person approved
exactly this plan, which its hash identifies. Before that no batch can claim its partitions. A withdrawn run is never
released again and loses its leases. Batches of the run claim partitions, each under a lease in the role EXPIRE.

If the planning of a run `RUN` is tried again, the later tries are runs with the ids `RUN.2`, `RUN.3` and so on, each
with a plan of its own. If `RUN` itself ends in a dot and a number of at most nine digits, its first try is `RUN.1`, so
that no two tries have the same id.
"""

import hashlib
import json
import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Protocol

from include.tiering.clock import Clock
from include.tiering.errors import RunWithdrawnError
from include.tiering.model.ownership import PartitionLease
from include.tiering.model.segments import RemoteLogSegmentId, RemoteLogSegmentState, TopicIdPartition, Uuid
from include.tiering.runs.batch import BatchLoop, StopConditions, cancellation_and_heartbeat
from include.tiering.runs.contract import WorkStore
from include.tiering.settings import TieringSettings
from include.tiering.units import format_utc


@dataclass(frozen=True, slots=True)
class PlannedDeletion:
    """One segment to delete. Offsets are inclusive; `state` is its state when the plan was made.

    `reason` is a value of `DeletionReason`, `detail` gives the numbers that led to it.
    """

    segment_id: RemoteLogSegmentId
    start_offset: int
    end_offset: int
    size_bytes: int
    state: RemoteLogSegmentState
    reason: str
    detail: str


@dataclass(frozen=True, slots=True)
class PlannedExpiration:
    """The deletions of one partition in planned order, and its log start offset before and after them.

    `local_bytes` are the bytes that only the broker had when this was planned, None if they are not known or were not
    counted. Their offsets are above `local_behind_offset`, the `highest_copied_offset` then (-1: there was none).
    `local_history` is the number of the history (`model.histories`) that was followed then.
    """

    topic_id_partition: TopicIdPartition
    log_start_before: int
    log_start_offset: int
    deletions: tuple[PlannedDeletion, ...]
    local_bytes: int | None = None
    local_behind_offset: int = -1
    local_history: int = 0

    @property
    def size_bytes(self) -> int:
        """Bytes of all planned deletions, in any segment state."""
        return sum(deletion.size_bytes for deletion in self.deletions)


class DeletionOutcome(StrEnum):
    """The outcome of one planned deletion. A deletion that has FAILED is left for the next run."""

    PLANNED = "planned"
    DELETED = "deleted"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class DeletionItem:
    """A planned deletion with its outcome. `error` is the class name of a TieringError, `message` is for people."""

    planned: PlannedDeletion
    outcome: DeletionOutcome
    error: str | None = None
    message: str | None = None


@dataclass(frozen=True, slots=True)
class Approval:
    """The approval of one plan of one run by `author`."""

    plan_hash: str
    author: str
    approved_at_ms: int


@dataclass(frozen=True, slots=True)
class Withdrawal:
    """The decision of `author` that a run begins no more deletions."""

    author: str
    withdrawn_at_ms: int


@dataclass(frozen=True, slots=True)
class DeletionRun:
    """A run and whether it may delete. `needs_approval` is None until a result of the deletion limits is recorded."""

    run_id: str
    plan_hash: str
    needs_approval: bool | None
    approval: Approval | None
    withdrawal: Withdrawal | None = None

    @property
    def is_released(self) -> bool:
        return self.withdrawal is None and (self.needs_approval is False or self.approval is not None)

    def require_not_withdrawn(self) -> None:
        """Raise RunWithdrawnError if the run was withdrawn."""
        if self.withdrawal is not None:
            raise RunWithdrawnError(
                f"run {self.run_id} was withdrawn by {self.withdrawal.author} at"
                f" {format_utc(self.withdrawal.withdrawn_at_ms)}: nothing more of it is deleted. Plan again"
            )


@dataclass(frozen=True, slots=True)
class WithdrawnRun:
    """A run that was withdrawn, and all its planned deletions with their outcomes.

    After a withdrawal the remote store is claimed for this database: from then on copies of the database, in which the
    run is not withdrawn, are refused. `not_claimed` says why that failed, so that such a copy could still carry out the
    plan; None if the store was claimed.
    """

    run: DeletionRun
    items: Sequence[DeletionItem]
    not_claimed: str | None = None

    @property
    def deleted(self) -> list[DeletionItem]:
        """Deletions that were done before the withdrawal."""
        return [item for item in self.items if item.outcome is DeletionOutcome.DELETED]

    @property
    def begun(self) -> list[DeletionItem]:
        """Deletions with the outcome FAILED. A later run completes those of them that had begun."""
        return [item for item in self.items if item.outcome is DeletionOutcome.FAILED]

    @property
    def kept(self) -> list[DeletionItem]:
        """Segments that stay because of the withdrawal."""
        skipped = [item for item in self.items if item.outcome is DeletionOutcome.SKIPPED]
        return [item for item in skipped if item.error == RunWithdrawnError.__name__]


@dataclass(frozen=True, slots=True)
class TopicTotals:
    """Sums of one topic that the database computes from its segments, independently of the plan's numbers.

    Attributes:
        planned_segments: segments of the plan, in any state but a tombstone.
        planned_bytes: bytes of those segments.
        recent_bytes: bytes of segments of the platform that were deleted within the requested window. A superseded
            segment counts if its objects were deleted within it, any other if its deletion began within it. A copy that
            was never FINISHED counts only if a run deleted it.
        remote_bytes: bytes stored now, in any state, without those in `recent_bytes`; for FINISHED segments as in
            `finished_bytes`.
        above_log_start: planned FINISHED segments whose end offset is at or above the log start offset that the plan
            sets, although their reason is time, size or log start.
        begun_bytes: the part of `planned_bytes` that must not be counted again: segments that are being deleted, are
            not superseded, and either are in the plan of another released run, or were FINISHED before their deletion
            began within the window.
        unapproved_bytes: the part of `recent_bytes` in no plan that a person approved; the plan of a withdrawn run does
            not count as approved.
        planned_finished: the part of `planned_segments` that is FINISHED.
        planned_finished_bytes: bytes of these.
        finished_segments: segments that are FINISHED now, `planned_finished` included, by the counters that the
            platform updates with each change of a segment's state.
        finished_bytes: bytes that are FINISHED now: for each partition by these counters, or by the sum that the
            triggers of the database maintain if that is lower.
    """

    topic_id: Uuid
    topic: str
    planned_segments: int
    planned_bytes: int
    recent_bytes: int
    remote_bytes: int
    above_log_start: int
    begun_bytes: int = 0
    unapproved_bytes: int = 0
    planned_finished: int = 0
    planned_finished_bytes: int = 0
    finished_segments: int = 0
    finished_bytes: int = 0

    @property
    def loses_everything(self) -> bool:
        """Whether no FINISHED segment is left after the plan, because of the plan or of deletions without an approval.

        The latter count only for a topic of which the plan deletes nothing.
        """
        goes = self.planned_finished > 0 or (self.planned_segments == 0 and self.unapproved_bytes > 0)
        is_all = self.planned_finished >= self.finished_segments or self.planned_finished_bytes >= self.finished_bytes
        return goes and is_all


class DeletionRuns(Protocol):
    """The runs of one cluster that delete: the common part for runs that delete segments or orphan objects."""

    def run(self, run_id: str) -> DeletionRun:
        """Return the run.

        Raises:
            StateConflictError: no such run was planned.
        """
        ...

    def record_limit_check(self, run_id: str, *, needs_approval: bool, detail: str, author: str) -> None:
        """Store the result of the deletion limits, with an event.

        Raises:
            StateConflictError: no such run was planned, or a restore of the database removed it.
        """
        ...

    def approve(self, run_id: str, plan_hash: str, *, author: str) -> DeletionRun:
        """Release the run, with an event. Idempotent: the first approval of a run stays.

        Raises:
            StateConflictError: no such run, or its plan has another hash.
            RunWithdrawnError: the run was withdrawn.
        """
        ...

    def withdraw(self, run_id: str, *, author: str) -> DeletionRun:
        """Withdraw the run for good, with an event. Idempotent: the first withdrawal stays.

        No further deletion of the run begins, and no approval releases it again. The same transaction ends all leases
        of the run, so that its batches can change no more metadata, and stores an outcome for each deletion that is
        still planned.

        Raises:
            StateConflictError: no such run.
        """
        ...

    def claim(
        self, run_id: str, batch_id: str, *, lease_ms: int, exclude: Collection[TopicIdPartition] = ()
    ) -> PartitionLease | None:
        """Lease a partition with planned deletions left, in the role EXPIRE; a copy lease does not prevent it.

        See `WorkStore.claim`; `WorkStore` renews and releases the lease.

        Returns:
            The lease; None if nothing is left to claim now, or if the run is not released.

        Raises:
            StateConflictError: no such run was planned.
        """
        ...

    def has_work(self, run_id: str) -> bool:
        """Return whether a planned deletion is left, also in a run that is not released."""
        ...

    def could_claim(self, run_id: str, batch_id: str) -> bool:
        """Return whether `claim` would give this batch a lease now if the run were released, which is not checked."""
        ...


@dataclass(frozen=True, slots=True)
class PlannedTopic:
    """What a plan deletes of a topic.

    Each segment has a largest record timestamp. `oldest_ms` is the lowest of these, `newest_ms` the highest; None if no
    segment has one, or if the metadata do not have the segments any more, not even as tombstones.
    """

    run_id: str
    topic_id: Uuid
    topic: str
    partitions: int
    segments: int
    size_bytes: int
    oldest_ms: int | None
    newest_ms: int | None


class DeletionStore(DeletionRuns, Protocol):
    """Runs of one cluster that delete segments.

    Claims first take partitions in which the plan found begun deletions, so that the work of a dead batch is resumed
    before other deletions begin. A withdrawal gives planned deletions the error RunWithdrawnError and the outcome
    SKIPPED. Only those of segments that are not superseded and whose deletion has begun become FAILED: a later run
    completes them, since they cannot be undone.
    """

    def save_plan(self, run_id: str, expirations: Sequence[PlannedExpiration]) -> DeletionRun:
        """Store the plan of a run. Idempotent for the same plan.

        Raises:
            StateConflictError: the run has another plan already.
        """
        ...

    def plan(self, run_id: str) -> Sequence[PlannedExpiration]:
        """Return the stored plan, with its partitions ordered by topic and number."""
        ...

    def planned_topics(self, run_ids: Collection[str]) -> Sequence[PlannedTopic]:
        """Return what the plan of each run deletes of each topic, ordered by run id and topic. Sends one statement."""
        ...

    def totals(self, run_id: str, *, window_ms: int) -> Sequence[TopicTotals]:
        """Return totals of each topic of which the plan deletes segments, or of which the window had deletions.

        They are ordered by the topic's name. The window is the last `window_ms` by the database's clock.
        """
        ...

    def remaining(self, lease: PartitionLease) -> PlannedExpiration:
        """Return the leased partition with the deletions that are still PLANNED.

        Raises:
            StateConflictError: the plan does not contain this partition, as the database was restored since the claim.
        """
        ...

    def record_outcomes(self, lease: PartitionLease, items: Sequence[DeletionItem]) -> None:
        """Store outcomes of planned deletions of the leased partition; an outcome that is stored already stays.

        Raises:
            LeaseLostError: the lease was taken over, given back, or ended by a withdrawal of the run.
        """
        ...

    def items(self, run_id: str) -> Sequence[DeletionItem]:
        """Return all planned deletions with their outcomes, ordered by topic, partition and position in the plan."""
        ...

    def runs_with_work(self, *, since_ms: int) -> Sequence[str]:
        """Return the ids of runs planned at `since_ms` or later that have a planned deletion left, oldest first.

        They include runs that perhaps are never carried out: dry runs, and runs that were rejected.
        """
        ...

    def tries_of(self, run_id: str) -> Sequence[str]:
        """Return the ids of the planned runs that are tries of this run (see `id_of_try`), oldest first."""
        ...

    def now_ms(self) -> int:
        """Return the database's time, by which retention is decided, in UTC milliseconds."""
        ...

    def newest_event_ms(self, after_ms: int) -> int | None:
        """Return when the last event was recorded or lease was taken after `after_ms` (exclusive); None if none was."""
        ...


def hash_of(content: object) -> str:
    """Return the SHA-256 of the content of a plan as JSON."""
    return hashlib.sha256(json.dumps(content, separators=(",", ":")).encode()).hexdigest()


def plan_hash(expirations: Sequence[PlannedExpiration]) -> str:
    """Return the SHA-256 of a plan.

    The run id, the order of the partitions, the states of the segments, details of reasons and local bytes have no
    effect on it. Plans with the same hash delete the same segments for the same reasons, and set the same log starts.
    """
    content = sorted(
        [
            str(planned.topic_id_partition.topic_id),
            planned.topic_id_partition.partition,
            planned.log_start_before,
            planned.log_start_offset,
            [[str(d.segment_id.id), d.start_offset, d.end_offset, d.size_bytes, d.reason] for d in planned.deletions],
        ]
        for planned in expirations
    )
    return hash_of(content)


_NUMBER: Final = re.compile(r"\.([0-9]{1,9})\Z")


def id_of_try(run_id: str, number: int) -> str:
    """Return the run id of the try with this number, counted from 1."""
    return run_id if number == 1 and not _NUMBER.search(run_id) else f"{run_id}.{number}"


def is_try_of(run_id: str, planned: str) -> bool:
    """Return whether a planned run is a try of this run."""
    numbered = _NUMBER.fullmatch(planned, len(run_id)) if planned.startswith(run_id) else None
    number = 1 if numbered is None else int(numbered[1])
    return planned == id_of_try(run_id, number)


def deletion_loop(
    work: WorkStore,
    clock: Clock,
    settings: TieringSettings,
    run_id: str,
    batch_id: str,
    *,
    pool: str | None,
    parent_alive: Callable[[], bool],
) -> BatchLoop:
    """Make the loop of a batch that deletes segments or orphan objects."""
    cancellation, heartbeat = cancellation_and_heartbeat(
        work, clock, run_id, batch_id, pool=pool, lease_ms=settings.copier.lease_ms, parent_alive=parent_alive
    )
    max_seconds = float(settings.expiration.batch_max_seconds)
    stop_conditions = StopConditions(work, cancellation, clock, batch_id=batch_id, pool=pool, max_seconds=max_seconds)
    return BatchLoop(work, cancellation, heartbeat, stop_conditions, clock)
