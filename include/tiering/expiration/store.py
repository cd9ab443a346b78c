"""`DeletionStore` in SQL: what is to go, which partition a batch gets next, and what became of it."""

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby
from typing import Any, Final

from sqlalchemy import Connection, Engine, Row, Select, and_, bindparam, func, insert, or_, select, tuple_, update

from include.tiering.database.partitions import hold_fence, in_partition, key_of, partition_from
from include.tiering.database.schema import (
    events,
    leases,
    pauses,
    planned_deletions,
    planned_expirations,
    runs,
    segments,
)
from include.tiering.database.transactions import NowMs, database_now_ms, reading, stored_text, writing
from include.tiering.errors import RunWithdrawnError, StateConflictError
from include.tiering.model.histories import FIRST_HISTORY
from include.tiering.model.ids import RemoteLogSegmentId, TopicIdPartition, Uuid
from include.tiering.model.ownership import Fence, LeaseRole
from include.tiering.model.segment_metadata import RemoteLogSegmentState
from include.tiering.runs import sql_lease_rows, sql_release
from include.tiering.runs.contract import ALL_TOPICS, PartitionLease
from include.tiering.runs.deletion_run import (
    DeletionItem,
    DeletionOutcome,
    DeletionRun,
    PlannedDeletion,
    PlannedExpiration,
    TopicTotals,
    is_try_of,
    plan_hash,
)

_OF_RUN: Final = and_(
    planned_deletions.c.cluster_id == bindparam("of_cluster"), planned_deletions.c.run_id == bindparam("of_run")
)
_LEFT: Final = planned_deletions.c.outcome == str(DeletionOutcome.PLANNED)
_RECORD: Final = update(planned_deletions).where(
    in_partition(planned_deletions),
    planned_deletions.c.run_id == bindparam("of_run"),
    planned_deletions.c.segment_id == bindparam("of_segment"),
    _LEFT,
)
_SAME_PARTITION: Final = and_(
    planned_expirations.c.cluster_id == planned_deletions.c.cluster_id,
    planned_expirations.c.run_id == planned_deletions.c.run_id,
    planned_expirations.c.topic_id == planned_deletions.c.topic_id,
    planned_expirations.c.partition == planned_deletions.c.partition,
)
_WITH_PARTITION: Final = (
    select(
        planned_deletions,
        planned_expirations.c.topic,
        planned_expirations.c.log_start_before,
        planned_expirations.c.log_start_offset,
        planned_expirations.c.local_bytes,
        planned_expirations.c.local_behind_offset,
        planned_expirations.c.local_history,
    )
    .join(planned_expirations, _SAME_PARTITION)
    .order_by(
        planned_expirations.c.topic,
        planned_deletions.c.topic_id,
        planned_deletions.c.partition,
        planned_deletions.c.position,
    )
)
_PLAN: Final = _WITH_PARTITION.where(_OF_RUN)
_REMAINING: Final = _PLAN.where(in_partition(planned_deletions), _LEFT)
_EXPIRATION: Final = select(planned_expirations).where(
    in_partition(planned_expirations), planned_expirations.c.run_id == bindparam("of_run")
)
_ADD_EXPIRATIONS: Final = insert(planned_expirations)
_ADD_DELETIONS: Final = insert(planned_deletions)
_HAS_BEGUN: Final = (
    select(segments.c.segment_key)
    .where(
        segments.c.cluster_id == planned_deletions.c.cluster_id,
        segments.c.topic_id == planned_deletions.c.topic_id,
        segments.c.partition == planned_deletions.c.partition,
        segments.c.segment_id == planned_deletions.c.segment_id,
        segments.c.state == int(RemoteLogSegmentState.DELETE_SEGMENT_STARTED),
        segments.c.superseded_by.is_(None),
    )
    .exists()
)
_LEFT_OF_RUN: Final = update(planned_deletions).where(_OF_RUN, _LEFT)
_ANY_WORK: Final = select(planned_deletions.c.position).where(_OF_RUN, _LEFT).limit(1)
_ANY_WORK_OF_PARTITION: Final = _ANY_WORK.where(in_partition(planned_deletions))


def save_plan(
    connection: Connection, cluster_id: str, run_id: str, expirations: Sequence[PlannedExpiration], now_ms: int
) -> None:
    """See `DeletionStore.save_plan`."""
    hashed = plan_hash(expirations)
    if not sql_release.begin(connection, cluster_id, run_id, LeaseRole.EXPIRE, hashed, now_ms):
        return
    rows = [_expiration_values(cluster_id, run_id, planned) for planned in expirations]
    deletion_rows = [
        _deletion_values(cluster_id, run_id, position, deletion)
        for planned in expirations
        for position, deletion in enumerate(planned.deletions)
    ]
    if rows:
        connection.execute(_ADD_EXPIRATIONS, rows)
    if deletion_rows:
        connection.execute(_ADD_DELETIONS, deletion_rows)


def read_plan(connection: Connection, cluster_id: str, run_id: str) -> Sequence[PlannedExpiration]:
    """See `DeletionStore.plan`."""
    return _expirations_of(connection.execute(_PLAN, {"of_cluster": cluster_id, "of_run": run_id}).all())


def remaining(connection: Connection, cluster_id: str, run_id: str, partition: TopicIdPartition) -> PlannedExpiration:
    """See `DeletionStore.remaining`."""
    key = key_of(cluster_id, partition) | {"of_run": run_id}
    row = connection.execute(_EXPIRATION, key).one_or_none()
    if row is None:
        raise StateConflictError(f"run {run_id} plans nothing of {partition}: the database was set back since")
    deletions = tuple(_deletion_of(one) for one in connection.execute(_REMAINING, key))
    return _expiration_of(row, partition, deletions)


def record_outcomes(
    connection: Connection, cluster_id: str, run_id: str, items: Sequence[DeletionItem], now_ms: int
) -> None:
    """See `DeletionStore.record_outcomes`; the caller holds the fence."""
    rows = [
        key_of(cluster_id, item.planned.segment_id.topic_id_partition)
        | {
            "of_run": run_id,
            "of_segment": str(item.planned.segment_id.id),
            "outcome": item.outcome,
            "error": item.error,
            "message": None if item.message is None else stored_text(item.message),
            "recorded_at_ms": now_ms,
        }
        for item in items
    ]
    if rows:
        connection.execute(_RECORD, rows)


def withdraw_left(connection: Connection, cluster_id: str, run_id: str, author: str, now_ms: int) -> None:
    """See `DeletionStore.withdraw`."""
    key = {"of_cluster": cluster_id, "of_run": run_id}
    recorded = {"error": RunWithdrawnError.__name__, "recorded_at_ms": now_ms}
    begun = f"withdrawn by {author} after its deletion had begun: the next run ends it"
    failed = {"outcome": str(DeletionOutcome.FAILED), "message": stored_text(begun)}
    connection.execute(_LEFT_OF_RUN.where(_HAS_BEGUN).values(**failed, **recorded), key)
    skipped = {"outcome": str(DeletionOutcome.SKIPPED), "message": stored_text(f"withdrawn by {author}")}
    connection.execute(_LEFT_OF_RUN.values(**skipped, **recorded), key)


def list_items(connection: Connection, cluster_id: str, run_id: str) -> Sequence[DeletionItem]:
    """See `DeletionStore.items`."""
    return [
        DeletionItem(_deletion_of(row), DeletionOutcome(row.outcome), row.error, row.message)
        for row in connection.execute(_PLAN, {"of_cluster": cluster_id, "of_run": run_id})
    ]


def has_work(connection: Connection, cluster_id: str, run_id: str, partition: TopicIdPartition | None = None) -> bool:
    """See `DeletionStore.has_work`; of one partition, or of any."""
    query, key = _ANY_WORK, {"of_cluster": cluster_id, "of_run": run_id}
    if partition is not None:
        query, key = _ANY_WORK_OF_PARTITION, key | key_of(cluster_id, partition)
    return connection.execute(query, key).one_or_none() is not None


def runs_with_work(connection: Connection, cluster_id: str, since_ms: int) -> Sequence[str]:
    """See `DeletionStore.runs_with_work`."""
    left = select(planned_deletions.c.position).where(
        planned_deletions.c.cluster_id == runs.c.cluster_id,
        planned_deletions.c.run_id == runs.c.run_id,
        planned_deletions.c.outcome == DeletionOutcome.PLANNED,
    )
    query = (
        select(runs.c.run_id)
        .where(runs.c.cluster_id == cluster_id, runs.c.kind == LeaseRole.EXPIRE, runs.c.created_at_ms >= since_ms)
        .where(left.exists())
        .order_by(runs.c.created_at_ms, runs.c.run_id)
    )
    return connection.execute(query).scalars().all()


def tries_of(connection: Connection, cluster_id: str, run_id: str) -> Sequence[str]:
    """See `DeletionStore.tries_of`."""
    is_try = or_(runs.c.run_id == run_id, runs.c.run_id.startswith(f"{run_id}.", autoescape=True))
    query = (
        select(runs.c.run_id)
        .where(runs.c.cluster_id == cluster_id, runs.c.kind == LeaseRole.EXPIRE, is_try)
        .order_by(runs.c.created_at_ms, runs.c.run_id)
    )
    found = connection.execute(query).scalars()
    return [one for one in found if is_try_of(run_id, one)]


def _expirations_of(rows: Sequence[Row[Any]]) -> list[PlannedExpiration]:
    expirations = []
    for (topic_id, number, topic), grouped in groupby(rows, key=lambda row: (row.topic_id, row.partition, row.topic)):
        first, *others = grouped
        deletions = tuple(_deletion_of(row) for row in (first, *others))
        expirations.append(_expiration_of(first, partition_from(topic_id, number, topic), deletions))
    return expirations


def _expiration_of(
    row: Row[Any], partition: TopicIdPartition, deletions: tuple[PlannedDeletion, ...]
) -> PlannedExpiration:
    behind = -1 if row.local_behind_offset is None else row.local_behind_offset
    return PlannedExpiration(
        partition,
        row.log_start_before,
        row.log_start_offset,
        deletions,
        row.local_bytes,
        behind,
        row.local_history or FIRST_HISTORY,
    )


def _expiration_values(cluster_id: str, run_id: str, planned: PlannedExpiration) -> dict[str, Any]:
    partition = planned.topic_id_partition
    return {
        "cluster_id": cluster_id,
        "run_id": run_id,
        "topic_id": str(partition.topic_id),
        "partition": partition.partition,
        "topic": partition.topic,
        "log_start_before": planned.log_start_before,
        "log_start_offset": planned.log_start_offset,
        "local_bytes": planned.local_bytes,
        "local_behind_offset": planned.local_behind_offset,
        "local_history": planned.local_history,
    }


def _deletion_values(cluster_id: str, run_id: str, position: int, deletion: PlannedDeletion) -> dict[str, Any]:
    partition = deletion.segment_id.topic_id_partition
    return {
        "cluster_id": cluster_id,
        "run_id": run_id,
        "topic_id": str(partition.topic_id),
        "partition": partition.partition,
        "position": position,
        "segment_id": str(deletion.segment_id.id),
        "start_offset": deletion.start_offset,
        "end_offset": deletion.end_offset,
        "size_bytes": deletion.size_bytes,
        "state": int(deletion.state),
        "reason": deletion.reason,
        "detail": deletion.detail,
        "outcome": DeletionOutcome.PLANNED,
    }


def _deletion_of(row: Row[Any]) -> PlannedDeletion:
    partition = partition_from(row.topic_id, row.partition, row.topic)
    return PlannedDeletion(
        RemoteLogSegmentId(partition, Uuid.parse(row.segment_id)),
        row.start_offset,
        row.end_offset,
        row.size_bytes,
        RemoteLogSegmentState(row.state),
        row.reason,
        row.detail,
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
            save_plan(connection, self._cluster_id, run_id, expirations, now_ms)
            return self._run(connection, run_id)

    def run(self, run_id: str) -> DeletionRun:
        with reading(self._engine) as connection:
            return self._run(connection, run_id)

    def plan(self, run_id: str) -> Sequence[PlannedExpiration]:
        with reading(self._engine) as connection:
            return read_plan(connection, self._cluster_id, run_id)

    def totals(self, run_id: str, *, window_ms: int) -> Sequence[TopicTotals]:
        with reading(self._engine) as connection:
            since_ms = self._now_ms(connection) - window_ms
            return sql_release.totals(connection, self._cluster_id, run_id, since_ms)

    def record_brake(self, run_id: str, *, needs_approval: bool, detail: str, author: str) -> None:
        with self._writing() as (connection, now_ms):
            sql_release.record_brake(
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
            sql_release.approve(connection, self._cluster_id, run, plan_hash, author=author, now_ms=now_ms)
            return self._run(connection, run_id)

    def withdraw(self, run_id: str, *, author: str) -> DeletionRun:
        with self._writing() as (connection, now_ms):
            run = self._run(connection, run_id, lock=True)
            if sql_release.withdraw(connection, self._cluster_id, run, author=author, now_ms=now_ms):
                withdraw_left(connection, self._cluster_id, run_id, author, now_ms)
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
            return remaining(connection, self._cluster_id, lease.run_id, partition)

    def record_outcomes(self, lease: PartitionLease, items: Sequence[DeletionItem]) -> None:
        with self._writing(durable=False) as (connection, now_ms):
            hold_fence(connection, self._cluster_id, lease.fence)
            record_outcomes(connection, self._cluster_id, lease.run_id, items, now_ms)

    def items(self, run_id: str) -> Sequence[DeletionItem]:
        with reading(self._engine) as connection:
            return list_items(connection, self._cluster_id, run_id)

    def has_work(self, run_id: str) -> bool:
        with reading(self._engine) as connection:
            return has_work(connection, self._cluster_id, run_id)

    def runs_with_work(self, *, since_ms: int) -> Sequence[str]:
        with reading(self._engine) as connection:
            return runs_with_work(connection, self._cluster_id, since_ms)

    def tries_of(self, run_id: str) -> Sequence[str]:
        with reading(self._engine) as connection:
            return tries_of(connection, self._cluster_id, run_id)

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
        return sql_release.find(connection, self._cluster_id, run_id, LeaseRole.EXPIRE, lock=lock)

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
            if fence is None or not has_work(connection, self._cluster_id, run_id, partition):
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
