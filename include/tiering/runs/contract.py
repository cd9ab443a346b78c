"""Contract of runs: planned segments, leases with fencing tokens, progress, the pause switch.

A run is one plan. Batches of that run pull partitions: `claim` takes a lease on the most urgent partition with work
left, `release` gives the lease back, `waits_longer` says whether another partition has waited longer. The database's
clock limits the time of a lease, and a fencing token protects it: each claim of a partition in one role gets a higher
token than the claim before, and a change made with an older token fails. Runs that delete are in `deletion_run`.

A lease that ends more than its own length and one minute (`LEASE_MARGIN_MS`) in the future is ignored and blocks no
claim; a row without a length counts as one hour. Such a lease shows that the clock that dated it was wrong, and that
clock may have dated other rows: `require_no_lease_ahead` reports it.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Protocol, TypeVar

from include.tiering.errors import LeaseAheadError
from include.tiering.kafka.log_dirs.contract import ReplicaId
from include.tiering.model.ownership import LeaseRole, PartitionLease
from include.tiering.model.segments import TopicIdPartition, Uuid
from include.tiering.units import format_utc

LIVE_BATCH_MS: Final = 3_000
ALL_TOPICS: Final = "*"


@dataclass(frozen=True, slots=True)
class PlannedSegment:
    """One rolled segment to copy. Offsets are inclusive.

    `supersedes` is the failed segment of the same offsets that the copy replaces, None for a first copy.
    """

    base_offset: int
    end_offset: int
    size_bytes: int
    supersedes: Uuid | None = None


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a replica's files can be read: by an Airflow worker of `queue`, by Spark executors with `spark_resource`.

    None stands for any worker, or any executor.
    """

    queue: str | None = None
    spark_resource: str | None = None


ANYWHERE: Final = Placement()


@dataclass(frozen=True, slots=True)
class PlannedPartition:
    """Segments of one replica in ascending order. Higher `urgency` is claimed first."""

    replica_id: ReplicaId
    urgency: float
    segments: tuple[PlannedSegment, ...]
    placement: Placement = ANYWHERE

    @property
    def size_bytes(self) -> int:
        """Bytes of all segments."""
        return sum(segment.size_bytes for segment in self.segments)


class ClaimOrder(StrEnum):
    """Which of the partitions with work a claim takes.

    A partition has waited since its last claim; a partition that was never claimed has waited longest.
    """

    URGENCY = "the most urgent; among equals the one that has waited longest"
    LONGEST_WAIT = "the one that has waited longest; among equals the most urgent"


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease(PartitionLease):
    """The right to copy one replica of a partition."""

    replica_id: ReplicaId


@dataclass(frozen=True, slots=True)
class LeaseHolder:
    """The batch that holds a lease, when it claimed it and when the lease ends, by the database's clock."""

    run_id: str
    batch_id: str
    claimed_at_ms: int
    expires_at_ms: int
    token: int


@dataclass(frozen=True, slots=True)
class LeaseAhead:
    """A lease row that counts as no lease: it ends more than its length and `LEASE_MARGIN_MS` in the future.

    A clock was ahead when it was taken or renewed. No claim waits for it, and the next claim replaces it. The name of a
    topic that is not registered is its id.
    """

    topic_id_partition: TopicIdPartition
    role: LeaseRole
    holder: LeaseHolder


AnyLease = TypeVar("AnyLease", bound=PartitionLease)


@dataclass(frozen=True, slots=True)
class LiveLease:
    """A partition that a batch works on now. The name of a topic that is not registered is its id."""

    topic_id_partition: TopicIdPartition
    role: LeaseRole
    holder: LeaseHolder


class SegmentOutcome(StrEnum):
    """The outcome of one planned segment."""

    PLANNED = "planned"
    COPIED = "copied"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class WorkItem:
    """A planned segment with its outcome.

    `error` is the class name of a TieringError, `path` and `position` say where it occurred. A segment that is still
    PLANNED may have an error too: why the last batch that leased its partition did not copy it.
    """

    topic_id_partition: TopicIdPartition
    segment: PlannedSegment
    outcome: SegmentOutcome
    segment_id: str | None = None
    path: str | None = None
    position: int | None = None
    error: str | None = None
    message: str | None = None


@dataclass(frozen=True, slots=True)
class BatchProgress:
    """Bytes of the segments that a batch has worked on; written once a second. `pool` is None outside of Airflow.

    Batch ids are unique in the cluster, not only in their run. `started_at_ms` and `updated_at_ms` are the database's
    times of the first report and of this one: the store sets them and ignores the caller's values.
    """

    run_id: str
    batch_id: str
    pool: str | None
    host: str
    pid: int
    partition: str
    done_bytes: int
    planned_bytes: int
    bytes_per_second: float
    finished: bool
    started_at_ms: int = 0
    updated_at_ms: int = 0


class WorkStore(Protocol):
    """Runs and leases of one cluster."""

    def save_plan(self, run_id: str, partitions: Sequence[PlannedPartition]) -> None:
        """Store the plan of a run. Idempotent for the same plan.

        Raises:
            StateConflictError: the run has another plan already.
        """
        ...

    def claim(
        self,
        run_id: str,
        batch_id: str,
        *,
        lease_ms: int,
        exclude: Collection[TopicIdPartition] = (),
        placement: Placement | None = None,
        order: ClaimOrder = ClaimOrder.URGENCY,
    ) -> Lease | None:
        """Lease the first partition of the run, by `order`, with planned segments left and no live lease of any run.

        A batch takes over a live lease of its own batch id: its process died and was started again. If the earlier
        process still lives, it loses the lease and has to end, see `BatchHeartbeat.on_lease_lost`.

        Args:
            run_id: the run whose plan is claimed from.
            batch_id: the batch that gets the lease.
            lease_ms: how long the lease lasts unless it is renewed.
            exclude: partitions to pass over; paused topics are passed over in any case.
            placement: claim only partitions of exactly this placement; None for all placements.
            order: which partition comes first.

        Returns:
            The lease; None if nothing is left to claim now.
        """
        ...

    def waits_longer(
        self, lease: Lease, *, exclude: Collection[TopicIdPartition] = (), placement: Placement | None = None
    ) -> bool:
        """Return whether the batch could claim another partition that has waited since before this lease was claimed.

        False for a lease that was lost.
        """
        ...

    def renew(self, lease: AnyLease, *, lease_ms: int) -> AnyLease:
        """Prolong a lease of any role, also an expired one as long as no other batch has claimed the partition since.

        Raises:
            LeaseLostError: the lease was taken over or given back.
        """
        ...

    def release(self, lease: PartitionLease) -> None:
        """Give back a lease of any role. Idempotent; does nothing if the lease was lost."""
        ...

    def holder(self, partition: TopicIdPartition, role: LeaseRole) -> LeaseHolder | None:
        """Return the holder of the live lease of this partition in this role, None if there is none."""
        ...

    def leases_ahead(self) -> Sequence[LeaseAhead]:
        """Return the ignored leases of all partitions, by topic, partition and role."""
        ...

    def live_leases(self) -> Sequence[LiveLease]:
        """Return the live leases of all partitions, by topic, partition and role."""
        ...

    def remaining(self, lease: Lease) -> Sequence[PlannedSegment]:
        """Return the segments of the leased partition that are still PLANNED, by ascending offset."""
        ...

    def record_outcome(self, lease: Lease, item: WorkItem) -> None:
        """Store the outcome of one planned segment: COPIED, FAILED or SKIPPED. Idempotent for the same outcome.

        A FAILED segment stops the partition in this run: no batch claims it again.

        Raises:
            LeaseLostError: another batch holds the partition, or the lease was given back.
            StateConflictError: the plan has no such segment, or the segment has another outcome already.
        """
        ...

    def record_left_reason(self, run_id: str, partition: TopicIdPartition, *, error: str, message: str) -> None:
        """Store why a batch ended its work on this partition without an outcome for its PLANNED segments.

        Reports show the text until a segment has an outcome.

        No lease is needed, because no decision depends on this text.
        """
        ...

    def items(self, run_id: str) -> Sequence[WorkItem]:
        """Return all planned segments of a run with their outcomes, by topic, partition and offset."""
        ...

    def has_work(self, run_id: str, placement: Placement | None = None) -> bool:
        """Return whether a segment is PLANNED in a partition that has not stopped, in all placements or in one."""
        ...

    def report_progress(self, progress: BatchProgress) -> None:
        """Replace the earlier report of this batch.

        A report that is not `finished` holds a slot of the batch's pool for `LIVE_BATCH_MS`.
        """
        ...

    def progress(self, run_id: str) -> Sequence[BatchProgress]:
        """Return the last report of each batch of a run, in the order in which the batches began."""
        ...

    def pause(self, topic: str | None, *, author: str) -> None:
        """Pause copies, deletions and publication, of one topic (by name) or with None of all topics. Idempotent."""
        ...

    def resume(self, topic: str | None, *, author: str) -> None:
        """End the pause of one topic, or with None that of all topics; other pauses stay. Idempotent."""
        ...

    def paused_topics(self) -> frozenset[str]:
        """Return the names of paused topics, and `ALL_TOPICS` if all topics are paused."""
        ...

    def pool_size(self, pool: str) -> int | None:
        """Return the slots of an Airflow pool as they were last stored; None if they never were."""
        ...

    def live_batches(self, pool: str) -> Sequence[str]:
        """Return the ids of batches that hold a slot of this pool now, in the order in which they began.

        A batch holds a slot while its last report is at most `LIVE_BATCH_MS` old by the database's clock and not
        `finished`.
        """
        ...


MOST_NAMED: Final = 5


def describe_lease_ahead(lease: LeaseAhead) -> str:
    """Describe a lease that is ignored, without naming its partition."""
    holder = lease.holder
    return (
        f"the lease to {lease.role} of batch {holder.batch_id} of run {holder.run_id} ends at"
        f" {format_utc(holder.expires_at_ms)}, further ahead than it may last: a clock was ahead, and the lease is"
        " ignored"
    )


def require_no_lease_ahead(leases: Sequence[LeaseAhead]) -> str:
    """Check that no lease is ahead, and return that as a sentence.

    Raises:
        LeaseAheadError: names the first `MOST_NAMED` leases and the number of the others.
    """
    if not leases:
        return "no lease ends further ahead than it may last"
    named = [f"{lease.topic_id_partition}: {describe_lease_ahead(lease)}" for lease in leases[:MOST_NAMED]]
    more = len(leases) - len(named)
    raise LeaseAheadError("; ".join([*named, f"and {more} more"] if more else named))
