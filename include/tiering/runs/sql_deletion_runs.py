"""Runs that delete segments or orphan objects, in SQL: plan, approval, withdrawal, claims and outcomes.

The row of a run holds the result of the deletion limits, and who withdrew the run; another table has its approval. A
withdrawal locks the row of the run before it ends the leases, and a claim reads the row under the same lock. So a batch
that claims at the same moment either finds the run withdrawn, or loses its lease with the others.

The planned deletions of a run are rows of one table and are called its items. Runs that delete segments and runs that
delete orphan objects share the statements about items (`PlannedItems`) and a part of their stores (`SqlDeletionRuns`).

`totals` adds up what a run deletes, independently of the plan's sizes, for the deletion limits. It counts planned and
deleted segments by their rows, and stored bytes by the counters that every state change updates.

- A segment counts as planned if it is in the plan and is not a tombstone. Its bytes are also `begun_bytes`, which do
  not count again, if it is in DELETE_SEGMENT_STARTED, is not superseded, and either was FINISHED before a deletion that
  began within the window, or is in the plan of another released run.
- A segment of the platform counts as deleted recently if its deletion began within the window. A superseded segment is
  in DELETE_SEGMENT_STARTED from its new copy on, so it counts if its objects were deleted within the window. A copy
  that was never FINISHED counts if a run deleted it, not if the copier removed its own abandoned copy.
- A run is released by an approval of its current plan, or by a result of the limits that needs no approval, until it is
  withdrawn. A run without a recorded result, such as a dry run, was not released by the limits.
"""

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from sqlalchemy import (
    ColumnElement,
    Connection,
    Table,
    Update,
    and_,
    bindparam,
    case,
    func,
    insert,
    or_,
    select,
    tuple_,
    update,
)

from include.tiering.database.event_log import EventKind, record_event, run_subject
from include.tiering.database.schema import (
    PARTITION_TOTAL,
    approvals,
    leases,
    partitions,
    planned_deletions,
    planned_expirations,
    runs,
    segments,
    size_counters,
    topics,
)
from include.tiering.database.transactions import (
    DatedStore,
    hold_fence,
    in_partition,
    insert_if_absent,
    key_of,
    partition_from,
    reading,
    stored_text,
)
from include.tiering.errors import StateConflictError
from include.tiering.model.ownership import LeaseRole, PartitionLease, SegmentOrigin
from include.tiering.model.retention import DeletionReason
from include.tiering.model.segments import RemoteLogSegmentState, TopicIdPartition, Uuid
from include.tiering.runs import sql_batches
from include.tiering.runs.deletion_run import Approval, DeletionOutcome, DeletionRun, TopicTotals, Withdrawal


def _sum_where(condition: ColumnElement[bool], value: ColumnElement[int] | int) -> ColumnElement[int]:
    return func.coalesce(func.sum(case((condition, value), else_=0)), 0)


_CANDIDATES: Final = 16
_IS_RUN: Final = and_(runs.c.cluster_id == bindparam("of_cluster"), runs.c.run_id == bindparam("of_run"))
_APPROVED: Final = and_(approvals.c.cluster_id == runs.c.cluster_id, approvals.c.run_id == runs.c.run_id)
_RUN: Final = (
    select(runs, approvals.c.plan_hash.label("approved_hash"), approvals.c.author, approvals.c.approved_at_ms)
    .outerjoin(approvals, _APPROVED)
    .where(_IS_RUN, runs.c.kind == bindparam("of_kind"))
)
_RUN_LOCKED: Final = _RUN.with_for_update(of=runs)
_KNOWN: Final = select(runs.c.kind, runs.c.plan_hash).where(_IS_RUN)
_RECORD_LIMIT_CHECK: Final = update(runs).where(_IS_RUN)
_APPROVE: Final = insert(approvals)
_WITHDRAW: Final = update(runs).where(_IS_RUN, runs.c.withdrawn_at_ms.is_(None))
_TAKE_LEASES_AWAY: Final = (
    update(leases)
    .where(leases.c.cluster_id == bindparam("of_cluster"), leases.c.run_id == bindparam("of_run"))
    .where(leases.c.role == str(LeaseRole.EXPIRE), leases.c.expires_at_ms != 0)
    .values(expires_at_ms=0)
)
_FINISHED: Final = int(RemoteLogSegmentState.COPY_SEGMENT_FINISHED)
_BEGUN: Final = int(RemoteLogSegmentState.DELETE_SEGMENT_STARTED)
_TOMBSTONE: Final = int(RemoteLogSegmentState.DELETE_SEGMENT_FINISHED)
_BELOW_LOG_START: Final = (DeletionReason.TIME, DeletionReason.SIZE, DeletionReason.LOG_START)

_SAME_PARTITION: Final = and_(
    planned_deletions.c.cluster_id == planned_expirations.c.cluster_id,
    planned_deletions.c.run_id == planned_expirations.c.run_id,
    planned_deletions.c.topic_id == planned_expirations.c.topic_id,
    planned_deletions.c.partition == planned_expirations.c.partition,
)
_SAME_SEGMENT: Final = and_(
    segments.c.cluster_id == planned_deletions.c.cluster_id,
    segments.c.topic_id == planned_deletions.c.topic_id,
    segments.c.partition == planned_deletions.c.partition,
    segments.c.segment_id == planned_deletions.c.segment_id,
    segments.c.state != _TOMBSTONE,
)
_IS_ABOVE: Final = and_(
    segments.c.state == _FINISHED,
    planned_deletions.c.reason.in_(_BELOW_LOG_START),
    segments.c.end_offset >= planned_expirations.c.log_start_offset,
)
_OTHER_PLANS: Final = planned_deletions.alias("other_plans")
_NAMES_SEGMENT: Final = and_(
    _OTHER_PLANS.c.cluster_id == segments.c.cluster_id,
    _OTHER_PLANS.c.topic_id == segments.c.topic_id,
    _OTHER_PLANS.c.partition == segments.c.partition,
    _OTHER_PLANS.c.segment_id == segments.c.segment_id,
)
_OF_ITS_RUN: Final = and_(runs.c.cluster_id == _OTHER_PLANS.c.cluster_id, runs.c.run_id == _OTHER_PLANS.c.run_id)
_APPROVED_RUNS: Final = runs.alias("approved_runs")
_OF_ITS_PLAN: Final = and_(
    approvals.c.cluster_id == _APPROVED_RUNS.c.cluster_id,
    approvals.c.run_id == _APPROVED_RUNS.c.run_id,
    approvals.c.plan_hash == _APPROVED_RUNS.c.plan_hash,
)
_APPROVAL_OF_IT: Final = (
    select(approvals.c.run_id)
    .join(_APPROVED_RUNS, _OF_ITS_PLAN)
    .where(approvals.c.cluster_id == _OTHER_PLANS.c.cluster_id, approvals.c.run_id == _OTHER_PLANS.c.run_id)
    .where(_APPROVED_RUNS.c.withdrawn_at_ms.is_(None))
    .exists()
)
_IN_RELEASED_RUN: Final = (
    select(_OTHER_PLANS.c.position)
    .join(runs, _OF_ITS_RUN)
    .where(_NAMES_SEGMENT, _OTHER_PLANS.c.run_id != bindparam("of_run"))
    .where(runs.c.withdrawn_at_ms.is_(None), or_(runs.c.needs_approval.is_(False), _APPROVAL_OF_IT))
    .exists()
)
_IN_APPROVED_RUN: Final = select(_OTHER_PLANS.c.position).where(_NAMES_SEGMENT, _APPROVAL_OF_IT).exists()
_DELETED_BY_A_RUN: Final = (
    select(_OTHER_PLANS.c.position)
    .where(_NAMES_SEGMENT, _OTHER_PLANS.c.outcome == str(DeletionOutcome.DELETED))
    .exists()
)
_BEGUN_RECENTLY: Final = and_(
    segments.c.finished_at_ms.is_not(None), segments.c.delete_started_at_ms >= bindparam("since_ms")
)
_COUNTED_BEFORE: Final = and_(
    segments.c.state == _BEGUN, segments.c.superseded_by.is_(None), or_(_BEGUN_RECENTLY, _IN_RELEASED_RUN)
)
_PLANNED: Final = (
    select(
        planned_expirations.c.topic_id,
        func.max(planned_expirations.c.topic).label("topic"),
        func.count(segments.c.segment_key).label("planned_segments"),
        func.coalesce(func.sum(segments.c.size_bytes), 0).label("planned_bytes"),
        _sum_where(_COUNTED_BEFORE, segments.c.size_bytes).label("begun_bytes"),
        _sum_where(segments.c.state == _FINISHED, 1).label("planned_finished"),
        _sum_where(segments.c.state == _FINISHED, segments.c.size_bytes).label("planned_finished_bytes"),
        _sum_where(_IS_ABOVE, 1).label("above_log_start"),
    )
    .join(planned_deletions, _SAME_PARTITION)
    .join(segments, _SAME_SEGMENT)
    .where(planned_deletions.c.cluster_id == bindparam("of_cluster"), planned_deletions.c.run_id == bindparam("of_run"))
    .group_by(planned_expirations.c.topic_id)
)
_OURS: Final = and_(segments.c.cluster_id == bindparam("of_cluster"), segments.c.origin == str(SegmentOrigin.PLATFORM))
_GONE: Final = (
    select(
        segments.c.topic_id,
        segments.c.size_bytes,
        segments.c.state,
        case((_IN_APPROVED_RUN, 0), else_=segments.c.size_bytes).label("unapproved_bytes"),
    )
    .where(_OURS, segments.c.superseded_by.is_(None), segments.c.delete_started_at_ms >= bindparam("since_ms"))
    .where(or_(segments.c.finished_at_ms.is_not(None), _DELETED_BY_A_RUN))
    .union_all(
        select(
            segments.c.topic_id,
            segments.c.size_bytes,
            segments.c.state,
            case((_IN_APPROVED_RUN, 0), else_=segments.c.size_bytes),
        ).where(_OURS, segments.c.superseded_by.is_not(None), segments.c.deleted_at_ms >= bindparam("since_ms"))
    )
    .subquery("gone")
)
_RECENT: Final = select(
    _GONE.c.topic_id,
    func.sum(_GONE.c.size_bytes).label("recent_bytes"),
    func.sum(_GONE.c.unapproved_bytes).label("unapproved_bytes"),
    _sum_where(_GONE.c.state != _TOMBSTONE, _GONE.c.size_bytes).label("still_stored_bytes"),
).group_by(_GONE.c.topic_id)
# The lower of both sums, the platform's and that of the triggers: with one that is too high, a run that deletes much
# would be a small share of its topic.
_FINISHED_BYTES: Final = func.coalesce(partitions.c.finished_bytes, 0)
_KNOWN_BYTES: Final = case(
    (and_(size_counters.c.state == _FINISHED, _FINISHED_BYTES < size_counters.c.size_bytes), _FINISHED_BYTES),
    else_=size_counters.c.size_bytes,
)
_STORED: Final = (
    select(
        size_counters.c.topic_id,
        func.sum(_KNOWN_BYTES).label("stored_bytes"),
        _sum_where(size_counters.c.state == _FINISHED, _KNOWN_BYTES).label("finished_bytes"),
        _sum_where(size_counters.c.state == _FINISHED, size_counters.c.segments).label("finished_segments"),
    )
    .outerjoin(
        partitions,
        and_(
            partitions.c.cluster_id == size_counters.c.cluster_id,
            partitions.c.topic_id == size_counters.c.topic_id,
            partitions.c.partition == size_counters.c.partition,
        ),
    )
    .where(size_counters.c.cluster_id == bindparam("of_cluster"), size_counters.c.leader_epoch == PARTITION_TOTAL)
    .where(size_counters.c.state != _TOMBSTONE)
    .group_by(size_counters.c.topic_id)
)
_NAMES: Final = select(topics.c.topic_id, topics.c.name).where(topics.c.cluster_id == bindparam("of_cluster"))


class PlannedItems:
    """Statements about a table of planned deletions. All of them have the parameters `of_cluster` and `of_run`.

    Args:
        table: the table with a row for each planned deletion.
        left: the value of `outcome` of a deletion that is still planned.
        partitions: the table with the partitions of the plan, which may be the same table.
        has_left: condition on a row of `partitions`: the partition has a deletion that is still planned.
        first: columns by which a claim orders partitions first; topic, topic id and partition follow.
    """

    def __init__(
        self, table: Table, left: str, partitions: Table, has_left: ColumnElement[bool], *first: ColumnElement[Any]
    ) -> None:
        self.is_left: ColumnElement[bool] = table.c.outcome == left
        self.of_run = and_(table.c.cluster_id == bindparam("of_cluster"), table.c.run_id == bindparam("of_run"))
        self.settle_left = update(table).where(self.of_run, self.is_left)
        self.any_left = select(table.c.position).where(self.of_run, self.is_left).limit(1)
        self.any_left_of_partition = self.any_left.where(in_partition(table))
        topic, topic_id, number = (partitions.c[name] for name in ("topic", "topic_id", "partition"))
        claimable = sql_batches.claimable(partitions, LeaseRole.EXPIRE).with_only_columns(topic, topic_id, number)
        if partitions is table:
            claimable = claimable.distinct()
        self.claimable = claimable.where(has_left).order_by(*first, topic, topic_id, number).limit(_CANDIDATES)
        self.claimable_among_others = self.claimable.where(
            tuple_(topic_id, number).not_in(bindparam("passed_over", expanding=True))
        )


class SqlDeletionRuns(DatedStore, ABC):
    """`DeletionRuns` over the platform's database. Every call is one transaction, dated by the database's clock.

    A subclass sets the `_kind` of its runs in the table of runs, its `_planned_items`, and whether a claim that has
    taken a lease checks that the partition still has a planned deletion (`_rechecks_after_claim`).
    """

    _kind: ClassVar[str]
    _planned_items: ClassVar[PlannedItems]
    _rechecks_after_claim: ClassVar[bool]

    def run(self, run_id: str) -> DeletionRun:
        """Implement `DeletionRuns.run`."""
        with reading(self._engine) as connection:
            return self._run(connection, run_id)

    def record_limit_check(self, run_id: str, *, needs_approval: bool, detail: str, author: str) -> None:
        """Implement `DeletionRuns.record_limit_check`."""
        values = self._key_of(run_id) | {"needs_approval": needs_approval}
        with self._writing() as (connection, now_ms):
            if connection.execute(_RECORD_LIMIT_CHECK, values).rowcount == 0:
                raise _unknown(run_id)
            record_event(connection, self._cluster_id, EventKind.BRAKE, run_subject(run_id), detail, author, now_ms)

    def approve(self, run_id: str, plan_hash: str, *, author: str) -> DeletionRun:
        """Implement `DeletionRuns.approve`."""
        with self._writing() as (connection, now_ms):
            run = self._run(connection, run_id, lock=True)
            if run.plan_hash != plan_hash:
                raise StateConflictError(f"run {run_id} has the plan {run.plan_hash}, approved was {plan_hash}")
            run.require_not_withdrawn()
            if run.approval is not None:
                return run
            values = {"cluster_id": self._cluster_id, "run_id": run_id, "plan_hash": plan_hash}
            connection.execute(_APPROVE, values | {"author": stored_text(author), "approved_at_ms": now_ms})
            subject = run_subject(run_id)
            record_event(connection, self._cluster_id, EventKind.APPROVAL, subject, plan_hash, author, now_ms)
            return self._run(connection, run_id)

    def withdraw(self, run_id: str, *, author: str) -> DeletionRun:
        """Implement `DeletionRuns.withdraw`."""
        # A person typed it: bytes that are no text must not reach the driver, and no run has such an id.
        run_id = stored_text(run_id)
        key = self._key_of(run_id)
        with self._writing() as (connection, now_ms):
            run = self._run(connection, run_id, lock=True)
            if run.withdrawal is not None:
                return run
            connection.execute(_WITHDRAW, key | {"withdrawn_at_ms": now_ms, "withdrawn_by": stored_text(author)})
            connection.execute(_TAKE_LEASES_AWAY, key)
            subject = run_subject(run_id)
            record_event(connection, self._cluster_id, EventKind.WITHDRAWAL, subject, run.plan_hash, author, now_ms)
            self._settle_left(connection, run_id, author, now_ms)
            return self._run(connection, run_id)

    def claim(
        self, run_id: str, batch_id: str, *, lease_ms: int, exclude: Collection[TopicIdPartition] = ()
    ) -> PartitionLease | None:
        """Implement `DeletionRuns.claim`."""
        passed_over = set(exclude)
        with self._writing() as (connection, now_ms):
            if not self._run(connection, run_id, lock=True).is_released:
                return None
            while candidates := self._candidates(connection, run_id, batch_id, passed_over, now_ms):
                passed_over.update(candidates)
                for partition in candidates:
                    # Without a lease, or without a deletion that is left, roll back: a claim holds no lock of a
                    # lease while it waits for another.
                    with connection.begin_nested() as savepoint:
                        fence = sql_batches.take(
                            connection,
                            self._cluster_id,
                            partition,
                            LeaseRole.EXPIRE,
                            run_id=run_id,
                            batch_id=batch_id,
                            now_ms=now_ms,
                            lease_ms=lease_ms,
                        )
                        if fence is not None and self._is_still_left(connection, run_id, partition):
                            ends_ms = now_ms + lease_ms
                            return PartitionLease(run_id=run_id, batch_id=batch_id, fence=fence, expires_at_ms=ends_ms)
                        savepoint.rollback()
        return None

    def has_work(self, run_id: str) -> bool:
        """Implement `DeletionRuns.has_work`."""
        with reading(self._engine) as connection:
            return connection.execute(self._planned_items.any_left, self._key_of(run_id)).one_or_none() is not None

    def could_claim(self, run_id: str, batch_id: str) -> bool:
        """Implement `DeletionRuns.could_claim`."""
        with reading(self._engine) as connection:
            return bool(self._candidates(connection, run_id, batch_id, (), self._now_ms(connection)))

    @abstractmethod
    def _settle_left(self, connection: Connection, run_id: str, author: str, now_ms: int) -> None:
        """Store an outcome for each item that is still planned when its run is withdrawn."""

    def _store_plan(
        self, run_id: str, plan_hash: str, *planned: tuple[Table, Sequence[Mapping[str, Any]]]
    ) -> DeletionRun:
        """Store the run and its planned rows, which are given without the run's key columns. Idempotent.

        Raises:
            StateConflictError: the run exists with another plan, or is of another kind.
        """
        key = {"cluster_id": self._cluster_id, "run_id": run_id}
        with self._writing() as (connection, now_ms):
            values = key | {"kind": self._kind, "plan_hash": plan_hash, "created_at_ms": now_ms}
            if insert_if_absent(connection, runs, values):
                for table, rows in planned:
                    if rows:
                        connection.execute(insert(table), [{**key, **row} for row in rows])
            elif tuple(connection.execute(_KNOWN, self._key_of(run_id)).one()) != (self._kind, plan_hash):
                raise StateConflictError(f"run {run_id} has another plan already: use a new run id")
            return self._run(connection, run_id)

    def _record(self, lease: PartitionLease, statement: Update, outcomes: Sequence[Mapping[str, Any]]) -> None:
        """Store outcomes of items of the leased partition.

        The commit does not wait for the disk: if a power failure undoes it, the next batch settles the items again.

        Raises:
            LeaseLostError: the lease was taken over, given back, or ended by a withdrawal of the run.
        """
        key = key_of(self._cluster_id, lease.fence.topic_id_partition) | {"of_run": lease.run_id}
        with self._writing(durable=False) as (connection, now_ms):
            hold_fence(connection, self._cluster_id, lease.fence)
            if outcomes:
                connection.execute(statement, [{**key, **outcome, "recorded_at_ms": now_ms} for outcome in outcomes])

    def _run(self, connection: Connection, run_id: str, *, lock: bool = False) -> DeletionRun:
        """Read a run. With `lock`, no other transaction can change the run's row before this transaction ends.

        Raises:
            StateConflictError: no such run was planned.
        """
        query = _RUN_LOCKED if lock else _RUN
        row = connection.execute(query, self._key_of(run_id) | {"of_kind": self._kind}).one_or_none()
        if row is None:
            raise _unknown(run_id)
        is_approved = row.approved_hash == row.plan_hash
        approval = Approval(row.approved_hash, row.author, row.approved_at_ms) if is_approved else None
        withdrawal = None if row.withdrawn_at_ms is None else Withdrawal(row.withdrawn_by, row.withdrawn_at_ms)
        return DeletionRun(run_id, row.plan_hash, row.needs_approval, approval, withdrawal)

    def _is_still_left(self, connection: Connection, run_id: str, partition: TopicIdPartition) -> bool:
        """Return whether the claimed partition still has a planned deletion: another batch may have finished it.

        If this store does not check after a claim, return True.
        """
        if not self._rechecks_after_claim:
            return True
        key = key_of(self._cluster_id, partition) | {"of_run": run_id}
        return connection.execute(self._planned_items.any_left_of_partition, key).one_or_none() is not None

    def _candidates(
        self, connection: Connection, run_id: str, batch_id: str, exclude: Collection[TopicIdPartition], now_ms: int
    ) -> list[TopicIdPartition]:
        """Return the next partitions, at most `_CANDIDATES`, that this batch could claim."""
        query = self._planned_items.claimable
        given: dict[str, Any] = self._key_of(run_id) | {"of_batch": batch_id, "at_ms": now_ms}
        if exclude:
            query = self._planned_items.claimable_among_others
            given["passed_over"] = [(str(partition.topic_id), partition.partition) for partition in exclude]
        return [partition_from(row.topic_id, row.partition, row.topic) for row in connection.execute(query, given)]

    def _key_of(self, run_id: str) -> dict[str, Any]:
        return {"of_cluster": self._cluster_id, "of_run": run_id}


def _unknown(run_id: str) -> StateConflictError:
    return StateConflictError(f"no run {run_id} that deletes was planned")


@dataclass(frozen=True, slots=True)
class _Recent:
    recent_bytes: int = 0
    unapproved_bytes: int = 0
    still_stored_bytes: int = 0


@dataclass(frozen=True, slots=True)
class _Stored:
    stored_bytes: int = 0
    finished_bytes: int = 0
    finished_segments: int = 0


def totals(connection: Connection, cluster_id: str, run_id: str, since_ms: int) -> Sequence[TopicTotals]:
    """Return `DeletionStore.totals` for a window that begins at `since_ms` (inclusive)."""
    key = {"of_cluster": cluster_id, "of_run": run_id, "since_ms": since_ms}
    planned = {row.topic_id: row for row in connection.execute(_PLANNED, key)}
    recent, stored = _recent(connection, cluster_id, since_ms), _stored(connection, cluster_id)
    names = {row.topic_id: row.name for row in connection.execute(_NAMES, {"of_cluster": cluster_id})}
    found = []
    for topic_id in planned.keys() | recent.keys():
        row, gone = planned.get(topic_id), recent.get(topic_id, _Recent())
        there = stored.get(topic_id, _Stored())
        found.append(
            TopicTotals(
                Uuid.parse(topic_id),
                names.get(topic_id, "") if row is None else row.topic,
                0 if row is None else row.planned_segments,
                0 if row is None else int(row.planned_bytes),
                gone.recent_bytes,
                max(0, there.stored_bytes - gone.still_stored_bytes),
                0 if row is None else int(row.above_log_start),
                begun_bytes=0 if row is None else int(row.begun_bytes),
                unapproved_bytes=gone.unapproved_bytes,
                planned_finished=0 if row is None else int(row.planned_finished),
                planned_finished_bytes=0 if row is None else int(row.planned_finished_bytes),
                finished_segments=there.finished_segments,
                finished_bytes=there.finished_bytes,
            )
        )
    return sorted(found, key=lambda total: (total.topic, str(total.topic_id)))


def recent_bytes(connection: Connection, cluster_id: str, since_ms: int) -> dict[str, int]:
    """Return the bytes that count as deleted recently (see above) since `since_ms` (inclusive), by topic id."""
    return {topic_id: recent.recent_bytes for topic_id, recent in _recent(connection, cluster_id, since_ms).items()}


def stored_bytes(connection: Connection, cluster_id: str) -> dict[str, int]:
    """Return the bytes stored now, by topic id: of segments in any state except tombstones."""
    return {topic_id: stored.stored_bytes for topic_id, stored in _stored(connection, cluster_id).items()}


def _recent(connection: Connection, cluster_id: str, since_ms: int) -> dict[str, _Recent]:
    found = connection.execute(_RECENT, {"of_cluster": cluster_id, "since_ms": since_ms})
    return {
        row.topic_id: _Recent(int(row.recent_bytes), int(row.unapproved_bytes), int(row.still_stored_bytes))
        for row in found
    }


def _stored(connection: Connection, cluster_id: str) -> dict[str, _Stored]:
    found = connection.execute(_STORED, {"of_cluster": cluster_id})
    return {row.topic_id: _Stored(int(row.stored_bytes), int(row.finished_bytes), int(row.finished_segments)) for row in found}
