"""Runs that remove what no metadata knows: one plan each, released by an approval of exactly that plan.

An id whose objects are about to go is condemned first: from then on no segment may begin under it, neither a copy nor
an adoption. Condemning and beginning exclude each other in one transaction of the database, so whoever was stopped in
between finds out, however late it goes on.
"""

import hashlib
import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from include.tiering.audit.finding import FindingIdentity, FindingKind
from include.tiering.model.ids import RemoteLogSegmentId, TopicIdPartition, Uuid
from include.tiering.runs.contract import PartitionLease
from include.tiering.runs.deletion_contract import DeletionRun


@dataclass(frozen=True, slots=True)
class PlannedRemoval:
    """One object, open upload or old version to remove, of a segment id that metadata does not know.

    `token`: version id or upload id; None for the object itself. `last_modified_ms` is by the store's clock.
    """

    segment_id: RemoteLogSegmentId
    kind: FindingKind
    key: str
    token: str | None
    size_bytes: int
    last_modified_ms: int

    @property
    def finding_identity(self) -> FindingIdentity:
        is_upload = self.kind is FindingKind.OPEN_MULTIPART_UPLOAD
        token = self.token or ""
        return (self.kind.value, self.key, "" if is_upload else token, token if is_upload else "")


class RemovalOutcome(StrEnum):
    """What became of it.

    GONE: it was not there any more. KEPT: it is not what was planned, or metadata knows its segment now. FAILED: the
    store refuses; the next audit finds it again.
    """

    PLANNED = "planned"
    REMOVED = "removed"
    GONE = "gone"
    KEPT = "kept"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class RemovalItem:
    """A planned removal with its outcome; `message` is for a person."""

    planned: PlannedRemoval
    outcome: RemovalOutcome
    message: str | None = None


@dataclass(frozen=True, slots=True)
class WithdrawnRemovals:
    """A run that was withdrawn, and all that it planned with what became of it.

    `not_claimed` says why the store could not be claimed since: a copy of the database may go on with the same plan.
    """

    run: DeletionRun
    items: tuple[RemovalItem, ...]
    not_claimed: str | None = None

    def of(self, *outcomes: RemovalOutcome) -> list[RemovalItem]:
        return [item for item in self.items if item.outcome in outcomes]


@dataclass(frozen=True, slots=True)
class RemovalTotals:
    """What the database itself adds up for one topic of a run.

    Attributes:
        planned_bytes, planned_objects: of the plan, as it is stored.
        known_objects: of these, how many belong to a segment that metadata knows (none should).
        recent_bytes: what audits removed and expiration began to delete within the window that was asked for.
        remote_bytes: stored now, in any state.
    """

    topic_id: Uuid
    topic: str
    planned_objects: int
    planned_bytes: int
    known_objects: int
    recent_bytes: int
    remote_bytes: int


class RemovalStore(Protocol):
    """Runs of one cluster that remove what has no metadata."""

    def save_plan(self, run_id: str, removals: Sequence[PlannedRemoval]) -> DeletionRun:
        """Store a plan. The same run id with the same plan is harmless, with another one a StateConflictError."""
        ...

    def run(self, run_id: str) -> DeletionRun:
        """Raises StateConflictError if no such run was planned."""
        ...

    def totals(self, run_id: str, *, window_ms: int) -> Sequence[RemovalTotals]:
        """Of every topic in the plan, by name; the window ends now by the database's clock."""
        ...

    def record_brake(self, run_id: str, *, needs_approval: bool, detail: str, author: str) -> None:
        """Store what the brake said, with an event.

        Raises:
            StateConflictError: no such run; the database may have been restored since it was planned.
        """
        ...

    def approve(self, run_id: str, plan_hash: str, *, author: str) -> DeletionRun:
        """Release the run, with an event. The first approval of a run stays.

        Raises:
            StateConflictError: no such run, or its plan has another hash.
            RunWithdrawnError: it was withdrawn.
        """
        ...

    def withdraw(self, run_id: str, *, author: str) -> DeletionRun:
        """Decide, for good and with an event, that nothing more of the run is removed. The first withdrawal stays.

        Leases of the run end. What is still PLANNED becomes KEPT; where its id is condemned already, FAILED, as
        somebody may be removing it. No id is pardoned by it.

        Raises:
            StateConflictError: no such run was planned.
        """
        ...

    def claim(
        self, run_id: str, batch_id: str, *, lease_ms: int, exclude: Collection[TopicIdPartition] = ()
    ) -> PartitionLease | None:
        """Lease a partition with planned removals left, in the role EXPIRE, beside whoever copies there.

        None if nothing is left to claim now, or if the run is not released. `WorkStore` renews and releases the lease.
        """
        ...

    def remaining(self, lease: PartitionLease) -> Sequence[PlannedRemoval]:
        """What is still PLANNED of the leased partition, in order."""
        ...

    def condemn(self, lease: PartitionLease, segment_ids: Collection[RemoteLogSegmentId]) -> frozenset[Uuid]:
        """Decide, for each of these ids of the leased partition, that no segment begins under it any more.

        Returns those for which that holds now. The others are in the metadata in some state that is not a tombstone:
        nothing of theirs may be removed. One transaction.

        Raises:
            LeaseLostError
        """
        ...

    def record_outcomes(self, lease: PartitionLease, items: Sequence[RemovalItem]) -> None:
        """Outcomes of planned removals of the leased partition; those that have one keep it.

        Raises:
            LeaseLostError
        """
        ...

    def items(self, run_id: str) -> Sequence[RemovalItem]:
        """All planned removals with their outcome, in order."""
        ...

    def forget(self, older_than_ms: int) -> int:
        """Remove planned removals that were settled longer ago, by the database's clock; returns how many. Their ids
        are condemned no more, as those of tombstones that are forgotten."""
        ...

    def has_work(self, run_id: str) -> bool:
        """Whether a planned removal is left, released or not."""
        ...


def removal_hash(removals: Sequence[PlannedRemoval]) -> str:
    """SHA-256 of what a plan removes, whatever its run id and order: two with one hash remove the same objects, each as
    it was written when the other saw it."""
    content = sorted(
        [one.kind.value, one.key, one.token or "", one.size_bytes, one.last_modified_ms] for one in removals
    )
    return hashlib.sha256(json.dumps(content, separators=(",", ":")).encode()).hexdigest()
