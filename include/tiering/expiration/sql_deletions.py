"""Runs that delete, of one cluster, in SQL."""

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from sqlalchemy import Connection, Engine, Select, and_, bindparam, func, or_, select, tuple_

from include.tiering.database.clock import NowMs, database_now_ms
from include.tiering.database.fencing import hold_fence
from include.tiering.database.partition_rows import partition_from
from include.tiering.database.schema import (
    events,
    leases,
    pauses,
    planned_deletions,
    planned_expirations,
)
from include.tiering.database.transactions import reading, writing
from include.tiering.expiration import sql_deletion_plans
from include.tiering.model.ids import TopicIdPartition
from include.tiering.model.ownership import Fence, LeaseRole
from include.tiering.model.segment_metadata import RemoteLogSegmentState
from include.tiering.runs import sql_deletion_totals, sql_lease_rows, sql_released_runs
from include.tiering.runs.contract import ALL_TOPICS, PartitionLease
from include.tiering.runs.deletion_contract import (
    DeletionItem,
    DeletionOutcome,
    DeletionRun,
    PlannedExpiration,
    TopicTotals,
)

_CANDIDATES: Final = 16


def _claimable() -> Select[Any]:
    planned = planned_expirations.c
    same_lease = and_(
        leases.c.cluster_id == planned.cluster_id,
        leases.c.topic_id == planned.topic_id,
        leases.c.partition == planned.partition,
        leases.c.role == LeaseRole.EXPIRE,
    )
    left = select(planned_deletions.c.position).where(
        planned_deletions.c.cluster_id == planned.cluster_id,
        planned_deletions.c.run_id == planned.run_id,
        planned_deletions.c.topic_id == planned.topic_id,
        planned_deletions.c.partition == planned.partition,
        planned_deletions.c.outcome == DeletionOutcome.PLANNED,
    )
    begun = left.where(planned_deletions.c.state == int(RemoteLogSegmentState.DELETE_SEGMENT_STARTED))
    is_free = sql_lease_rows.is_free(bindparam("of_run"), bindparam("of_batch"), bindparam("at_ms"))
    paused = select(pauses.c.topic).where(pauses.c.cluster_id == bindparam("of_cluster"))
    return (
        select(planned.topic_id, planned.partition, planned.topic)
        .outerjoin(leases, same_lease)
        .where(planned.cluster_id == bindparam("of_cluster"), planned.run_id == bindparam("of_run"), left.exists())
        .where(or_(leases.c.token.is_(None), is_free))
        .where(planned.topic.not_in(paused), ~paused.where(pauses.c.topic == ALL_TOPICS).exists())
        .order_by(begun.exists().desc(), planned.topic, planned.topic_id, planned.partition)
        .limit(_CANDIDATES)
    )


_CLAIMABLE: Final = _claimable()
_CLAIMABLE_AMONG_OTHERS: Final = _CLAIMABLE.where(
    tuple_(planned_expirations.c.topic_id, planned_expirations.c.partition).not_in(
        bindparam("passed_over", expanding=True)
    )
)


class SqlDeletionStore:
    """`DeletionStore` over the platform's database. Every call is one transaction, dated by the database's clock."""

    def __init__(self, engine: Engine, cluster_id: str, *, now_ms: NowMs = database_now_ms) -> None:
        self._engine = engine
        self._cluster_id = cluster_id
        self._now_ms = now_ms

    def save_plan(self, run_id: str, expirations: Sequence[PlannedExpiration]) -> DeletionRun:
        with self._writing() as (connection, now_ms):
            sql_deletion_plans.save_plan(connection, self._cluster_id, run_id, expirations, now_ms)
            return self._run(connection, run_id)

    def run(self, run_id: str) -> DeletionRun:
        with reading(self._engine) as connection:
            return self._run(connection, run_id)

    def plan(self, run_id: str) -> Sequence[PlannedExpiration]:
        with reading(self._engine) as connection:
            return sql_deletion_plans.read_plan(connection, self._cluster_id, run_id)

    def totals(self, run_id: str, *, window_ms: int) -> Sequence[TopicTotals]:
        with reading(self._engine) as connection:
            since_ms = self._now_ms(connection) - window_ms
            return sql_deletion_totals.totals(connection, self._cluster_id, run_id, since_ms)

    def record_brake(self, run_id: str, *, needs_approval: bool, detail: str, author: str) -> None:
        with self._writing() as (connection, now_ms):
            sql_released_runs.record_brake(
                connection,
                self._cluster_id,
                run_id,
                needs_approval=needs_approval,
                detail=detail,
                author=author,
                now_ms=now_ms,
            )

    def approve(self, run_id: str, plan_hash: str, *, author: str) -> DeletionRun:
        with self._writing() as (connection, now_ms):
            run = self._run(connection, run_id, lock=True)
            sql_released_runs.approve(connection, self._cluster_id, run, plan_hash, author=author, now_ms=now_ms)
            return self._run(connection, run_id)

    def withdraw(self, run_id: str, *, author: str) -> DeletionRun:
        with self._writing() as (connection, now_ms):
            run = self._run(connection, run_id, lock=True)
            if sql_released_runs.withdraw(connection, self._cluster_id, run, author=author, now_ms=now_ms):
                sql_deletion_plans.withdraw_left(connection, self._cluster_id, run_id, author, now_ms)
            return self._run(connection, run_id)

    def claim(
        self, run_id: str, batch_id: str, *, lease_ms: int, exclude: Collection[TopicIdPartition] = ()
    ) -> PartitionLease | None:
        passed_over = set(exclude)
        with self._writing() as (connection, now_ms):
            if not self._run(connection, run_id, lock=True).is_released:
                return None
            while candidates := self._claimable(connection, run_id, batch_id, passed_over, now_ms):
                passed_over.update(candidates)
                for partition in candidates:
                    fence = self._take(connection, run_id, batch_id, partition, now_ms=now_ms, lease_ms=lease_ms)
                    if fence is not None:
                        expires_at_ms = now_ms + lease_ms
                        return PartitionLease(
                            run_id=run_id, batch_id=batch_id, fence=fence, expires_at_ms=expires_at_ms
                        )
        return None

    def remaining(self, lease: PartitionLease) -> PlannedExpiration:
        with reading(self._engine) as connection:
            partition = lease.fence.topic_id_partition
            return sql_deletion_plans.remaining(connection, self._cluster_id, lease.run_id, partition)

    def record_outcomes(self, lease: PartitionLease, items: Sequence[DeletionItem]) -> None:
        with self._writing(durable=False) as (connection, now_ms):
            hold_fence(connection, self._cluster_id, lease.fence)
            sql_deletion_plans.record_outcomes(connection, self._cluster_id, lease.run_id, items, now_ms)

    def items(self, run_id: str) -> Sequence[DeletionItem]:
        with reading(self._engine) as connection:
            return sql_deletion_plans.list_items(connection, self._cluster_id, run_id)

    def has_work(self, run_id: str) -> bool:
        with reading(self._engine) as connection:
            return sql_deletion_plans.has_work(connection, self._cluster_id, run_id)

    def runs_with_work(self, *, since_ms: int) -> Sequence[str]:
        with reading(self._engine) as connection:
            return sql_deletion_plans.runs_with_work(connection, self._cluster_id, since_ms)

    def tries_of(self, run_id: str) -> Sequence[str]:
        with reading(self._engine) as connection:
            return sql_deletion_plans.tries_of(connection, self._cluster_id, run_id)

    def now_ms(self) -> int:
        with reading(self._engine) as connection:
            return self._now_ms(connection)

    def newest_event_ms(self, after_ms: int) -> int | None:
        newest_event = select(func.max(events.c.occurred_at_ms)).where(
            events.c.cluster_id == self._cluster_id, events.c.occurred_at_ms > after_ms
        )
        newest_lease = select(func.max(leases.c.claimed_at_ms)).where(
            leases.c.cluster_id == self._cluster_id, leases.c.claimed_at_ms > after_ms
        )
        with reading(self._engine) as connection:
            found = [connection.execute(query).scalar_one() for query in (newest_event, newest_lease)]
        return max((one for one in found if one is not None), default=None)

    def _run(self, connection: Connection, run_id: str, *, lock: bool = False) -> DeletionRun:
        return sql_released_runs.find(connection, self._cluster_id, run_id, LeaseRole.EXPIRE, lock=lock)

    def _take(
        self,
        connection: Connection,
        run_id: str,
        batch_id: str,
        partition: TopicIdPartition,
        *,
        now_ms: int,
        lease_ms: int,
    ) -> Fence | None:
        """None if another batch was quicker. What was not won is rolled back with its locks: a claim never holds one
        while it waits for another."""
        with connection.begin_nested() as savepoint:
            fence = sql_lease_rows.take(
                connection,
                self._cluster_id,
                partition,
                LeaseRole.EXPIRE,
                run_id=run_id,
                batch_id=batch_id,
                now_ms=now_ms,
                lease_ms=lease_ms,
            )
            if fence is None or not sql_deletion_plans.has_work(connection, self._cluster_id, run_id, partition):
                savepoint.rollback()
                return None
            return fence

    def _claimable(
        self, connection: Connection, run_id: str, batch_id: str, exclude: Collection[TopicIdPartition], now_ms: int
    ) -> list[TopicIdPartition]:
        """The next partitions with work that this batch could claim, begun deletions first; by topic and partition."""
        query = _CLAIMABLE
        given = {"of_cluster": self._cluster_id, "of_run": run_id, "of_batch": batch_id, "at_ms": now_ms}
        if exclude:
            query = _CLAIMABLE_AMONG_OTHERS
            given["passed_over"] = [(str(one.topic_id), one.partition) for one in exclude]
        found = connection.execute(query, given)
        return [partition_from(row.topic_id, row.partition, row.topic) for row in found]

    @contextmanager
    def _writing(self, *, durable: bool = True) -> Iterator[tuple[Connection, Any]]:
        with writing(self._engine, durable=durable) as connection:
            yield connection, self._now_ms(connection)
