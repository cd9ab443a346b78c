"""Contract of runs: planned segments, leases with fencing tokens, progress, the pause switch.

A run is one plan. Batches of that run pull partitions: `claim` takes a lease on a partition with work left, by default
the most urgent one; `release` gives the lease back; `waits_longer` says whether another partition waited before it.
The database's clock decides when a lease ends. Each claim of a partition in one role gets a higher fencing token than
the claim before it, and a change under another token than the newest raises LeaseLostError. Runs that delete are in
`deletion_run`.

A lease is ignored, and blocks no claim, if it ends later than its own length and one minute (`LEASE_MARGIN_MS`) from
now; a lease that is stored without a length is taken to be one hour long. An ignored lease shows that the database's
clock was ahead when it dated the lease, or is behind now: `require_no_lease_ahead` raises an error that names it.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Protocol, TypeVar

from include.tiering.errors import LeaseAheadError
from include.tiering.kafka.log_dirs.contract import ReplicaId
from include.tiering.model.ownership import LeaseRole, PartitionLease
from include.tiering.model.segments import TopicIdPartition, Uuid
from include.tiering.presentation import listed
from include.tiering.units import format_utc

LIVE_BATCH_MS: Final = 3_000
ALL_TOPICS: Final = "*"


@dataclass(frozen=True, slots=True)
class PlannedSegment:
    """One segment to copy, or an abandoned copy to finish. Offsets are inclusive.

    The plan does not say which of the two it is: a batch looks for an abandoned copy of these offsets first (see
    `copying/finish_abandoned.py`).

    `supersedes` is the id of the remote segment that the copy replaces, which has the same offsets and failed its
    verification; None for a first copy.
    """

    base_offset: int
    end_offset: int
    size_bytes: int
    supersedes: Uuid | None = None


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a replica's files can be read: in which queue of Airflow, and with which resource of Spark.

    A job on a local Spark master needs a worker of `queue`, a job on a Spark cluster executors with `spark_resource`.
    A `queue` of None means any worker, a `spark_resource` of None any executor.
    """

    queue: str | None = None
    spark_resource: str | None = None


ANYWHERE: Final = Placement()


@dataclass(frozen=True, slots=True)
class PlannedPartition:
    """Planned segments of one replica by ascending offset. By default a higher `urgency` is claimed first.

    The urgency is the age of the first segment to copy as a share of the brokers' retention: from 1 on, a broker may
    delete the segment.
    """

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

    A partition has waited since its last claim in this run; a partition without such a claim has waited longest.
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
    """A lease that is ignored, because it ends later than its length and `LEASE_MARGIN_MS` from now.

    By the database's clock it was taken or renewed in the future. The next claim replaces the lease. A topic that is
    not registered has its id as its name.
    """

    topic_id_partition: TopicIdPartition
    role: LeaseRole
    holder: LeaseHolder


AnyLease = TypeVar("AnyLease", bound=PartitionLease)


@dataclass(frozen=True, slots=True)
class LiveLease:
    """A lease that blocks claims of other batches in its role now; its batch may have ended without releasing it.

    A topic that is not registered has its id as its name.
    """

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

    `error` is the class name of a TieringError; `path` and `position` say where a SourceError occurred. The error of a
    segment that is still PLANNED is the reason that `record_left_reason` stored last.
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
    """One report of a batch: the bytes that it has planned and done.

    A running batch reports about once a second, and more often until it has done any bytes. `pool` is None outside of
    Airflow. Batch ids are unique in the cluster, not only in their run. `started_at_ms` and `updated_at_ms` are the
    database's times of the batch's first report and of this report: the store sets both and ignores the caller's
    values.
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
        exclude_topics: Collection[str] = (),
        exclude_brokers: Collection[int] = (),
        placement: Placement | None = None,
        order: ClaimOrder = ClaimOrder.URGENCY,
    ) -> Lease | None:
        """Lease a partition of the run in the role COPY: the first, by `order`, that can be claimed.

        A partition can be claimed if planned segments are left, none has FAILED in this run, and no other batch of any
        run has a live lease to copy it. A batch also gets a partition under a live lease of the same run and batch id,
        which shows that the batch was started again. If its earlier process still lives, that process loses the lease
        and has to end, see `BatchHeartbeat.on_lease_lost`.

        Args:
            run_id: the run whose plan is claimed from.
            batch_id: the batch that gets the lease.
            lease_ms: how long the lease lasts unless it is renewed.
            exclude: partitions to pass over; paused topics are passed over in any case.
            exclude_topics: topics to pass over, by name.
            exclude_brokers: brokers whose replicas to pass over.
            placement: claim only partitions with an equal placement (so a batch with a queue gets none that any worker
                may copy); None for all placements.
            order: which partition comes first.

        Returns:
            The lease; None if no partition can be claimed now: because all work is done, or because what is left is
            claimed by other batches, paused or excluded.
        """
        ...

    def waits_longer(
        self, lease: Lease, *, exclude: Collection[TopicIdPartition] = (), placement: Placement | None = None
    ) -> bool:
        """Return whether the batch could claim another partition that has waited since before this lease was claimed.

        Return False if a later claim has replaced this lease.
        """
        ...

    def renew(self, lease: AnyLease, *, lease_ms: int) -> AnyLease:
        """Prolong a lease of any role: it then ends `lease_ms` from now, by the database's clock.

        This is possible until the partition is claimed again in this role, even if the lease has expired.

        Raises:
            LeaseLostError: the lease was taken over, given back, or ended by a withdrawal of its run.
        """
        ...

    def release(self, lease: PartitionLease) -> None:
        """Give back a lease of any role. Idempotent; does nothing if the lease was lost."""
        ...

    def holder(self, partition: TopicIdPartition, role: LeaseRole) -> LeaseHolder | None:
        """Return the holder of the live lease of this partition in this role, None if there is none."""
        ...

    def leases_ahead(self) -> Sequence[LeaseAhead]:
        """Return the leases that are ignored because they end too late, ordered by topic, partition and role."""
        ...

    def live_leases(self) -> Sequence[LiveLease]:
        """Return the live leases of all partitions, ordered by topic, partition and role."""
        ...

    def remaining(self, lease: Lease) -> Sequence[PlannedSegment]:
        """Return the segments of the leased partition that are still PLANNED, ordered by base offset."""
        ...

    def newest_plan(
        self, partition: TopicIdPartition, *, from_offset: int, at_most: int
    ) -> tuple[int | None, Sequence[PlannedSegment]]:
        """Return when the newest plan of this partition was made, and what it still has PLANNED, ordered by offset.

        Segments below `from_offset` are left out, and at most `at_most` segments are returned. Without such a plan the
        time is None.
        """
        ...

    def record_outcome(self, lease: Lease, item: WorkItem) -> None:
        """Store the outcome of one planned segment: COPIED, FAILED or SKIPPED. Idempotent for the same outcome.

        After a FAILED segment no batch claims the partition again in this run; the next run may plan it again.

        Raises:
            LeaseLostError: the partition was claimed again in this role, or the lease was given back.
            StateConflictError: the plan has no such segment, or another outcome (or the same outcome with other
                details, such as another error) is already stored for it.
        """
        ...

    def record_left_reason(self, run_id: str, partition: TopicIdPartition, *, error: str, message: str) -> None:
        """Store why a batch ended its work on this partition without an outcome for its PLANNED segments.

        Reports show `error` and `message` with each of these segments until the segment gets an outcome. No lease is
        needed, because no decision depends on them.
        """
        ...

    def items(self, run_id: str) -> Sequence[WorkItem]:
        """Return all segments of the run's plan with their outcomes, ordered by topic, partition and offset."""
        ...

    def has_work(self, run_id: str, placement: Placement | None = None) -> bool:
        """Return whether a PLANNED segment is left in a partition without a FAILED one, claimed or not.

        Only partitions of exactly this placement count; None counts those of all placements.
        """
        ...

    def could_claim(self, run_id: str, batch_id: str, placement: Placement | None = None) -> bool:
        """Return whether `claim` would give this batch a lease now."""
        ...

    def report_progress(self, progress: BatchProgress) -> None:
        """Replace the earlier report of this batch.

        After a report that is not `finished`, the batch counts as holding a slot of its pool for `LIVE_BATCH_MS`.
        """
        ...

    def progress(self, run_id: str) -> Sequence[BatchProgress]:
        """Return the last report of each batch of a run, in the order in which the batches began."""
        ...

    def pause(self, topic: str | None, *, author: str) -> None:
        """Pause a topic (by name), or all topics for None. Idempotent.

        Copies, deletions, and publication (writing records to the metadata topic) wait. What only reads goes on:
        verification, audits, sizes.
        """
        ...

    def resume(self, topic: str | None, *, author: str) -> None:
        """End the pause of a topic, or for None the pause of all topics; other pauses stay. Idempotent."""
        ...

    def paused_topics(self) -> frozenset[str]:
        """Return the names of paused topics, and `ALL_TOPICS` if all topics are paused."""
        ...

    def pool_size(self, pool: str) -> int | None:
        """Return the stored number of slots of an Airflow pool; None if no number was ever stored."""
        ...

    def running_batches(self) -> Sequence[BatchProgress]:
        """Return the last reports of all batches that run now, as `live_batches` defines it, oldest batch first.

        Batches that hold no slot of a pool, those of commands, are included.
        """
        ...

    def live_batches(self, pool: str) -> Sequence[str]:
        """Return the ids of batches that hold a slot of this pool now, in the order in which they began.

        A batch holds a slot while its last report is at most `LIVE_BATCH_MS` old by the database's clock, is dated at
        most `LEASE_MARGIN_MS` in the future, and is not `finished`.
        """
        ...


class NoWork(StrEnum):
    """Why a batch that begins now would end at once, without any work."""

    DONE = "all that the run has planned for it has an outcome"
    HELD = "other batches hold the partitions that are left"


def why_no_work(
    *, has_work: bool, could_claim: Callable[[], bool], paused_topics: Callable[[], Collection[str]]
) -> NoWork | None:
    """Return why a batch that begins now would end at once, as `BatchLoop.pull` decides; None if it would not.

    While any topic is paused, a batch does not end for want of a partition, but waits. This function is called before a
    process for the batch is started.

    Args:
        has_work: whether planned work is left for the batch, claimed by others or not.
        could_claim: returns whether the batch could claim a partition now.
        paused_topics: returns the paused topics.
    """
    if not has_work:
        return NoWork.DONE
    return None if could_claim() or paused_topics() else NoWork.HELD


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
    """Check that `leases`, the result of `leases_ahead`, is empty; return a sentence that says so.

    Raises:
        LeaseAheadError: there are such leases; the message names the first `MOST_NAMED` and the number of the others.
    """
    if not leases:
        return "no lease ends further ahead than it may last"
    named = [f"{lease.topic_id_partition}: {describe_lease_ahead(lease)}" for lease in leases]
    raise LeaseAheadError(listed(named, MOST_NAMED))
