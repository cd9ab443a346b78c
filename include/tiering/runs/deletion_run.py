"""Runs that delete: what is to go and why, whether it may, and what became of it.

A run is one plan. It is released when the deletion limit let it pass, or when a person approved exactly this plan,
known by its hash; before that nobody can claim anything of it. A run that was withdrawn is never released again, and
what it held is taken from it. Batches of the run pull partitions, each under a lease in the role EXPIRE.

A run whose planning is tried again has the ids `RUN.2`, `RUN.3`, each with a plan of its own. A run may have a name
that ends so itself. Then its first try ends in `.1`, and no id is that of two tries.
"""

import hashlib
import json
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Protocol

from include.tiering.errors import RunWithdrawnError
from include.tiering.model.ownership import PartitionLease
from include.tiering.model.segments import RemoteLogSegmentId, RemoteLogSegmentState, TopicIdPartition, Uuid
from include.tiering.units import format_utc


@dataclass(frozen=True, slots=True)
class PlannedDeletion:
    """One segment to delete. Offsets are inclusive; `state` is the one in which the plan found it.

    `reason` is a word of `DeletionReason`, `detail` the numbers behind it.
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
    """What goes of one partition, in order, and where its log starts behind it.

    `local_bytes` were with the broker alone when this was planned, None if that was not known or counted for nothing;
    behind `local_behind_offset` (inclusive, -1: all), when history `local_history` was followed.
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
        """Of all that goes, whatever its state."""
        return sum(deletion.size_bytes for deletion in self.deletions)


class DeletionOutcome(StrEnum):
    """What became of one planned deletion. FAILED is left in DELETE_SEGMENT_STARTED: the next run takes it up."""

    PLANNED = "planned"
    DELETED = "deleted"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class DeletionItem:
    """A planned deletion with its outcome. `error` is the class name of a TieringError, `message` for a person."""

    planned: PlannedDeletion
    outcome: DeletionOutcome
    error: str | None = None
    message: str | None = None


@dataclass(frozen=True, slots=True)
class Approval:
    """Somebody took the responsibility for one plan of one run."""

    plan_hash: str
    author: str
    approved_at_ms: int


@dataclass(frozen=True, slots=True)
class Withdrawal:
    """The decision that nothing more of a run is deleted."""

    author: str
    withdrawn_at_ms: int


@dataclass(frozen=True, slots=True)
class DeletionRun:
    """A run and whether it may delete. `needs_approval` is None before the deletion limit was applied."""

    run_id: str
    plan_hash: str
    needs_approval: bool | None
    approval: Approval | None
    withdrawal: Withdrawal | None = None

    @property
    def is_released(self) -> bool:
        return self.withdrawal is None and (self.needs_approval is False or self.approval is not None)

    def require_not_withdrawn(self) -> None:
        """Raises RunWithdrawnError."""
        if self.withdrawal is not None:
            raise RunWithdrawnError(
                f"run {self.run_id} was withdrawn by {self.withdrawal.author} at"
                f" {format_utc(self.withdrawal.withdrawn_at_ms)}: nothing more of it is deleted. Plan again"
            )


@dataclass(frozen=True, slots=True)
class WithdrawnRun:
    """A run that was withdrawn, and all that it planned with what became of it.

    `not_claimed` says why the store could not be claimed since: a copy of the database may go on with the same plan.
    """

    run: DeletionRun
    items: Sequence[DeletionItem]
    not_claimed: str | None = None

    @property
    def deleted(self) -> list[DeletionItem]:
        """What was gone before."""
        return [item for item in self.items if item.outcome is DeletionOutcome.DELETED]

    @property
    def begun(self) -> list[DeletionItem]:
        """What the next run ends, since no deletion that was begun can be taken back."""
        return [item for item in self.items if item.outcome is DeletionOutcome.FAILED]

    @property
    def kept(self) -> list[DeletionItem]:
        """What stays because of the withdrawal."""
        skipped = [item for item in self.items if item.outcome is DeletionOutcome.SKIPPED]
        return [item for item in skipped if item.error == RunWithdrawnError.__name__]


@dataclass(frozen=True, slots=True)
class TopicTotals:
    """What the database itself adds up for one topic, from the segments and not from the plan's own numbers.

    Attributes:
        planned_segments: of the plan, in any state that is not a tombstone.
        planned_bytes: of those.
        recent_bytes: whose deletion began within the window that was asked for, whatever it is that was deleted.
        remote_bytes: stored now, in any state, without what is in `recent_bytes`.
        above_log_start: FINISHED ones planned for time, size or log start that reach the log start which the plan sets.
        begun_bytes: of `planned_bytes`, what an earlier run that was released has begun: it counted there.
        unapproved_bytes: of `recent_bytes`, what no plan names that a person approved.
        planned_finished: of `planned_segments`, those that are FINISHED.
        finished_segments: FINISHED now, `planned_finished` included.
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
    finished_segments: int = 0

    @property
    def loses_everything(self) -> bool:
        """Nothing that is served stays behind the plan, and something of it goes, or went without an approval."""
        goes = self.planned_finished > 0 or (self.planned_segments == 0 and self.unapproved_bytes > 0)
        return goes and self.planned_finished == self.finished_segments


class DeletionRuns(Protocol):
    """Runs of one cluster that delete, whatever it is: what of them is the same for all."""

    def run(self, run_id: str) -> DeletionRun:
        """Raises StateConflictError if no such run was planned."""
        ...

    def record_limit_check(self, run_id: str, *, needs_approval: bool, detail: str, author: str) -> None:
        """Store what the deletion limits said, with an event.

        Raises:
            StateConflictError: no such run; the database may have been restored since it was planned.
        """
        ...

    def approve(self, run_id: str, plan_hash: str, *, author: str) -> DeletionRun:
        """Release the run, with an event. The first approval of a run stays.

        Raises:
            StateConflictError: no such run, or its plan has another hash.
            RunWithdrawnError
        """
        ...

    def withdraw(self, run_id: str, *, author: str) -> DeletionRun:
        """Decide, for good and with an event, that nothing more of the run is deleted. The first withdrawal stays.

        One transaction: no lease of the run holds behind it, so a batch that still works on it can change nothing more,
        and what is planned gets its outcome.

        Raises:
            StateConflictError: no such run.
        """
        ...

    def claim(
        self, run_id: str, batch_id: str, *, lease_ms: int, exclude: Collection[TopicIdPartition] = ()
    ) -> PartitionLease | None:
        """Lease a partition with planned deletions left, in the role EXPIRE, beside whoever copies there; see
        `WorkStore.claim`.

        None if nothing is left to claim now, or if the run is not released. `WorkStore` renews and releases the lease.
        """
        ...

    def has_work(self, run_id: str) -> bool:
        """Whether a planned deletion is left, released or not."""
        ...


class DeletionStore(DeletionRuns, Protocol):
    """Runs of one cluster that delete segments.

    A claim takes partitions first in which the plan found begun deletions: what a dead batch left is resumed before
    anything new begins. A withdrawal makes SKIPPED what is planned; what was begun becomes FAILED and is taken up by
    the next run, since no deletion that was begun can be taken back. Both carry the error RunWithdrawnError.
    """

    def save_plan(self, run_id: str, expirations: Sequence[PlannedExpiration]) -> DeletionRun:
        """Store a plan. The same run id with the same plan is harmless, with another one a StateConflictError."""
        ...

    def plan(self, run_id: str) -> Sequence[PlannedExpiration]:
        """As it was stored, by topic and partition."""
        ...

    def totals(self, run_id: str, *, window_ms: int) -> Sequence[TopicTotals]:
        """Of every topic that the plan deletes from, or of which something was deleted within the window, by name; the
        window ends now by the database's clock.
        """
        ...

    def remaining(self, lease: PartitionLease) -> PlannedExpiration:
        """The leased partition with the deletions that are still PLANNED.

        Raises:
            StateConflictError: the run plans nothing of it any more (a database that was restored).
        """
        ...

    def record_outcomes(self, lease: PartitionLease, items: Sequence[DeletionItem]) -> None:
        """Outcomes of planned deletions of the leased partition; those that have one keep it.

        Raises:
            LeaseLostError
        """
        ...

    def items(self, run_id: str) -> Sequence[DeletionItem]:
        """All planned deletions with their outcome, by topic, partition and order."""
        ...

    def runs_with_work(self, *, since_ms: int) -> Sequence[str]:
        """Ids of runs planned since then (inclusive) of which a planned deletion is left, oldest first.

        Among them are those that nobody will ever carry out: dry runs, and runs that were rejected.
        """
        ...

    def tries_of(self, run_id: str) -> Sequence[str]:
        """Planned runs that are tries of this one (see `id_of_try`), as far as they were planned; oldest first."""
        ...

    def now_ms(self) -> int:
        """The database's clock, by which retention is decided."""
        ...

    def newest_event_ms(self, after_ms: int) -> int | None:
        """When the newest event was recorded, or the newest lease taken, of those after this time; None: none was."""
        ...


def hash_of(content: object) -> str:
    """SHA-256 of what a plan does, told as JSON."""
    return hashlib.sha256(json.dumps(content, separators=(",", ":")).encode()).hexdigest()


def plan_hash(expirations: Sequence[PlannedExpiration]) -> str:
    """SHA-256 of what a plan does, whatever its run id, the order of its partitions, and the numbers of the moment.

    Two plans with one hash delete the same attempts for the same reasons and set the same log starts.
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
    """Of the try with this number, from 1 on."""
    return run_id if number == 1 and not _NUMBER.search(run_id) else f"{run_id}.{number}"


def is_try_of(run_id: str, planned: str) -> bool:
    """Whether a planned run is a try of this one."""
    numbered = _NUMBER.fullmatch(planned, len(run_id)) if planned.startswith(run_id) else None
    number = 1 if numbered is None else int(numbered[1])
    return planned == id_of_try(run_id, number)
