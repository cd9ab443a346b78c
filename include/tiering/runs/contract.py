"""Who does what now: runs, planned segments, leases with fencing tokens, progress, the pause switch.

A run is one plan. Batches of that run pull partitions: `claim` gives a lease on the most urgent partition with work
left, `release` gives it back, `waits_longer` says whether that would be fair. A lease is time-limited by the
database's clock and fenced: each claim of a partition in one role gets a higher token than the one before, and a
change made with an older token fails. Runs that delete are in `deletion_run`.

A lease that ends further ahead than it may last holds nothing up. But the clock that dated it was wrong, and may have
dated more: `require_no_lease_ahead` says so.
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

    `supersedes` is the failed segment of the same offsets whose place the copy is to take, None for a first copy.
    """

    base_offset: int
    end_offset: int
    size_bytes: int
    supersedes: Uuid | None = None


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a replica's files can be read: by an Airflow worker of `queue`, by Spark executors with `spark_resource`.

    None = anywhere.
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
        return sum(segment.size_bytes for segment in self.segments)


class ClaimOrder(StrEnum):
    """Which of the partitions with work a claim takes. One has waited since its last claim; one without, for ever."""

    URGENCY = "the most urgent; among equals the one that has waited longest"
    LONGEST_WAIT = "the one that has waited longest; among equals the most urgent"


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease(PartitionLease):
    """The right to copy one replica of a partition."""

    replica_id: ReplicaId


@dataclass(frozen=True, slots=True)
class LeaseHolder:
    """Who works on a partition now, since when and until when at most, by the database's clock."""

    run_id: str
    batch_id: str
    claimed_at_ms: int
    expires_at_ms: int
    token: int


@dataclass(frozen=True, slots=True)
class LeaseAhead:
    """What stands where a lease would, and is none: it ends further ahead than it may last, because a clock was ahead
    when it was taken or renewed. Nothing waits for it; the next claim takes its place. A topic that nobody registered
    has its id for a name.
    """

    topic_id_partition: TopicIdPartition
    role: LeaseRole
    holder: LeaseHolder


AnyLease = TypeVar("AnyLease", bound=PartitionLease)


@dataclass(frozen=True, slots=True)
class LiveLease:
    """A partition that a batch works on now. A topic that nobody registered has its id for a name."""

    topic_id_partition: TopicIdPartition
    role: LeaseRole
    holder: LeaseHolder


class SegmentOutcome(StrEnum):
    """What became of one planned segment."""

    PLANNED = "planned"
    COPIED = "copied"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class WorkItem:
    """A planned segment with its outcome. `error` is the class name of a TieringError, `path`/`position` where.

    A PLANNED one may have an error too: what it was last left for.
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
    """Bytes of the segments a batch has worked on; written once a second. `pool` is None outside of Airflow.

    Batch ids are unique in the cluster, not only in their run. `started_at_ms` and `updated_at_ms` are the database's
    times of the first and of this report: the store sets them, what a sender puts there is ignored.
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
        """Store a plan. The same run id with the same plan is harmless, with another one a StateConflictError."""
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

        A live lease of the same batch id is taken over by the same batch (its process died and was started again; if
        it lives, the one that loses its lease like this has to end, see `BatchHeartbeat.lost`).
        Paused topics and `exclude` are passed over; with a `placement`, so are partitions of any other, `ANYWHERE`
        included. None if nothing is left to claim now.
        """
        ...

    def waits_longer(
        self, lease: Lease, *, exclude: Collection[TopicIdPartition] = (), placement: Placement | None = None
    ) -> bool:
        """Whether the batch could `claim` another partition that was claimed last, if ever, before this lease was.

        False for a lease that was lost.
        """
        ...

    def renew(self, lease: AnyLease, *, lease_ms: int) -> AnyLease:
        """Prolong, whatever its role; an expired lease too, as long as nobody claimed the partition since.

        Raises:
            LeaseLostError: it was taken over or given back.
        """
        ...

    def release(self, lease: PartitionLease) -> None:
        """Give it back, whatever its role; harmless if it was lost."""
        ...

    def holder(self, partition: TopicIdPartition, role: LeaseRole) -> LeaseHolder | None:
        """Who holds a live lease of this partition in this role."""
        ...

    def leases_ahead(self) -> Sequence[LeaseAhead]:
        """Those of all partitions, by topic, partition and role."""
        ...

    def live_leases(self) -> Sequence[LiveLease]:
        """Those of all partitions, by topic, partition and role."""
        ...

    def remaining(self, lease: Lease) -> Sequence[PlannedSegment]:
        """Segments of the leased partition that are still PLANNED, ascending."""
        ...

    def record_outcome(self, lease: Lease, item: WorkItem) -> None:
        """Outcome of one planned segment, any but PLANNED. A FAILED one stops the partition in this run.

        Repeating the same outcome is harmless.

        Raises:
            LeaseLostError
            StateConflictError: the plan has no such segment, or it has another outcome already.
        """
        ...

    def record_left_reason(self, run_id: str, partition: TopicIdPartition, *, error: str, message: str) -> None:
        """Say why the segments of this partition that are still PLANNED were left, until they have an outcome.

        It needs no lease, as it changes nothing that anybody decides by.
        """
        ...

    def items(self, run_id: str) -> Sequence[WorkItem]:
        """All planned segments of a run with their outcome, by topic, partition, offset."""
        ...

    def has_work(self, run_id: str, placement: Placement | None = None) -> bool:
        """Whether a planned segment is left in a partition that has not stopped, in all placements or exactly one."""
        ...

    def report_progress(self, progress: BatchProgress) -> None:
        """Replace what this batch reported before; until it says `finished` it holds a slot of its pool."""
        ...

    def progress(self, run_id: str) -> Sequence[BatchProgress]:
        """The last report of each batch of a run, in the order in which the batches began."""
        ...

    def pause(self, topic: str | None, *, author: str) -> None:
        """Stop all sending, or that of one topic (by name)."""
        ...

    def resume(self, topic: str | None, *, author: str) -> None:
        """Lift the pause of all, or of one topic. Each pause is lifted for itself."""
        ...

    def paused_topics(self) -> frozenset[str]:
        """Names of paused topics; `ALL_TOPICS` among them if everything is."""
        ...

    def pool_size(self, pool: str) -> int | None:
        """Slots of an Airflow pool as they were seen last (`pools.contract.PoolMirror`); None if nobody has."""
        ...

    def live_batches(self, pool: str) -> Sequence[str]:
        """Ids of batches that hold a slot of this pool now, in the order in which they began.

        Holds a slot: the last report is at most `LIVE_BATCH_MS` old by the database's clock and not `finished`.
        """
        ...

    def record_event(self, kind: str, subject: str, detail: str, *, author: str) -> None:
        """Append to the event log: decisions and outcomes, never payloads or secrets."""
        ...


MOST_NAMED: Final = 5


def describe_lease_ahead(lease: LeaseAhead) -> str:
    """Without the partition."""
    holder = lease.holder
    return (
        f"the lease to {lease.role} of batch {holder.batch_id} of run {holder.run_id} ends at"
        f" {format_utc(holder.expires_at_ms)}, further ahead than it may last: a clock was ahead, and it is ignored"
    )


def require_no_lease_ahead(leases: Sequence[LeaseAhead]) -> str:
    """Raises LeaseAheadError that names the first `MOST_NAMED`, and how many more."""
    if not leases:
        return "none ends further ahead than it may last"
    named = [f"{lease.topic_id_partition}: {describe_lease_ahead(lease)}" for lease in leases[:MOST_NAMED]]
    more = len(leases) - len(named)
    raise LeaseAheadError("; ".join([*named, f"and {more} more"] if more else named))
