"""Runs that delete segments or orphan objects, in SQL: plan, approval, withdrawal, claims and outcomes.

The row of a run holds the result of the deletion limits, and who withdrew the run; another table has its approval. A
withdrawal locks the row of the run before it ends the leases, and a claim reads the row under the same lock. So a batch
that claims at the same moment either finds the run withdrawn, or loses its lease as all batches of the run do.

The planned deletions of a run are rows of one table and are called its items. Runs that delete segments and runs that
delete orphan objects share the statements about items (`PlannedItems`) and a part of their stores (`SqlDeletionRuns`).

A run is released by an approval of its current plan, or by a result of the limits that needs no approval, until it is
withdrawn. A run without a recorded result, such as a dry run, was not released by the limits.
"""

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from typing import Any, ClassVar, Final

from sqlalchemy import (
    ColumnElement,
    Connection,
    Table,
    Update,
    and_,
    bindparam,
    insert,
    select,
    tuple_,
    update,
)

from include.tiering.database.event_log import EventKind, record_event, run_subject
from include.tiering.database.schema import (
    approvals,
    leases,
    runs,
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
from include.tiering.model.ownership import LeaseRole, PartitionLease
from include.tiering.model.segments import TopicIdPartition
from include.tiering.runs import sql_batches
from include.tiering.runs.deletion_run import Approval, DeletionRun, Withdrawal

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
        """Return the run."""
        with reading(self._engine) as connection:
            return self._run(connection, run_id)

    def record_limit_check(self, run_id: str, *, needs_approval: bool, detail: str, author: str) -> None:
        """Store the result of the deletion limits, with an event."""
        values = self._key_of(run_id) | {"needs_approval": needs_approval}
        with self._writing() as (connection, now_ms):
            if connection.execute(_RECORD_LIMIT_CHECK, values).rowcount == 0:
                raise _unknown(run_id)
            record_event(connection, self._cluster_id, EventKind.BRAKE, run_subject(run_id), detail, author, now_ms)

    def approve(self, run_id: str, plan_hash: str, *, author: str) -> DeletionRun:
        """Release the run, with an event. Idempotent: the first approval of a run stays."""
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
        """Withdraw the run for good, with an event. Idempotent: the first withdrawal stays."""
        # A person typed the id: bytes that are no text must not reach the driver, and no run has such an id.
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
        """Lease a partition with planned deletions left, in the role EXPIRE; a copy lease does not prevent it."""
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
        """Return whether a planned deletion is left, also in a run that is not released."""
        with reading(self._engine) as connection:
            return connection.execute(self._planned_items.any_left, self._key_of(run_id)).one_or_none() is not None

    def could_claim(self, run_id: str, batch_id: str) -> bool:
        """Return whether `claim` would give this batch a lease now if the run were released, which is not checked."""
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
