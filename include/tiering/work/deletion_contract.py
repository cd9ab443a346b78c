"""Runs that delete: what is to go and why, whether it may, and what became of it.

A run is one plan. It is released when the brake let it pass, or when a person approved exactly this plan, known by its
hash; before that nobody can claim anything of it. Batches of the run pull partitions, each under a lease in the role
EXPIRE, beside a batch that copies into the same partition.
"""

import hashlib
import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from include.tiering.model.ids import RemoteLogSegmentId, TopicIdPartition, Uuid
from include.tiering.model.segment_state import RemoteLogSegmentState
from include.tiering.work.contract import PartitionLease


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
    """What goes of one partition, in order, after its log start was raised from `log_start_before`."""

    topic_id_partition: TopicIdPartition
    log_start_before: int
    log_start_offset: int
    deletions: tuple[PlannedDeletion, ...]

    @property
    def finished_bytes(self) -> int:
        """Bytes that count in the remote log size now and will not then."""
        finished = RemoteLogSegmentState.COPY_SEGMENT_FINISHED
        return sum(deletion.size_bytes for deletion in self.deletions if deletion.state is finished)


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
class DeletionRun:
    """A run and whether it may delete. `needs_approval` is None before the brake looked at it."""

    run_id: str
    plan_hash: str
    needs_approval: bool | None
    approval: Approval | None

    @property
    def is_released(self) -> bool:
        return self.needs_approval is False or self.approval is not None


@dataclass(frozen=True, slots=True)
class TopicTotals:
    """What the database itself adds up for one topic of a run, from the segments and not from the plan's own numbers.

    Attributes:
        planned_segments: of the plan, in any state that is not a tombstone.
        planned_bytes: of those that are FINISHED.
        recent_bytes: of segments that were FINISHED and whose deletion began within the window that was asked for,
            without those whose place a new copy took.
        remote_bytes: FINISHED now.
        above_log_start: FINISHED ones planned for time, size or log start that reach the log start which the plan sets.
    """

    topic_id: Uuid
    topic: str
    planned_segments: int
    planned_bytes: int
    recent_bytes: int
    remote_bytes: int
    above_log_start: int


class DeletionStore(Protocol):
    """Runs of one cluster that delete."""

    def save_plan(self, run_id: str, expirations: Sequence[PlannedExpiration]) -> DeletionRun:
        """Store a plan. The same run id with the same plan is harmless, with another one a StateConflictError."""
        ...

    def run(self, run_id: str) -> DeletionRun:
        """Raises StateConflictError if no such run was planned."""
        ...

    def plan(self, run_id: str) -> Sequence[PlannedExpiration]:
        """As it was stored, by topic and partition."""
        ...

    def totals(self, run_id: str, *, window_ms: int) -> Sequence[TopicTotals]:
        """Of every topic that the plan deletes from, by name; the window ends now by the database's clock."""
        ...

    def record_brake(self, run_id: str, *, needs_approval: bool, detail: str, author: str) -> None:
        """Store what the brake said, with an event."""
        ...

    def approve(self, run_id: str, plan_hash: str, *, author: str) -> DeletionRun:
        """Release the run, with an event. The first approval of a run stays.

        Raises:
            StateConflictError: no such run, or its plan has another hash.
        """
        ...

    def claim(
        self, run_id: str, batch_id: str, *, lease_ms: int, exclude: Collection[TopicIdPartition] = ()
    ) -> PartitionLease | None:
        """Lease a partition with planned deletions left, in the role EXPIRE; see `WorkStore.claim`. Those in which the
        plan found begun deletions come first: what a dead batch left is resumed before anything new begins.

        None if nothing is left to claim now, or if the run is not released. `WorkStore` renews and releases the lease.
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

    def has_work(self, run_id: str) -> bool:
        """Whether a planned deletion is left, released or not."""
        ...

    def runs_with_work(self, *, since_ms: int) -> Sequence[str]:
        """Ids of runs planned since then (inclusive) of which a planned deletion is left, oldest first.

        Among them are those that nobody will ever carry out: dry runs, and runs that were rejected.
        """
        ...

    def now_ms(self) -> int:
        """The database's clock, by which retention is decided."""
        ...


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
    return hashlib.sha256(json.dumps(content, separators=(",", ":")).encode()).hexdigest()
