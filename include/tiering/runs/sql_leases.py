"""Claims of copy leases: which planned partition a batch gets next. The rows themselves are in `sql_lease_rows`."""

from collections.abc import Collection
from functools import cache
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, Select, and_, bindparam, or_, select, tuple_, update

from include.tiering.database.partition_rows import in_partition, key_of, partition_from
from include.tiering.database.schema import leases, pauses, planned_partitions
from include.tiering.kafka.log_dirs.contract import ReplicaId
from include.tiering.model.ids import TopicIdPartition
from include.tiering.model.ownership import LeaseRole
from include.tiering.runs.contract import ALL_TOPICS, ClaimOrder, Lease, Placement
from include.tiering.runs.sql_lease_rows import OF_FENCE, is_free, key_of_fence, take
from include.tiering.runs.sql_plans import HAS_PLANNED_SEGMENT, IS_PLACED, has_work, key_of_placement

_CANDIDATES: Final = 16
_BY_NAME: Final = (planned_partitions.c.topic, planned_partitions.c.topic_id, planned_partitions.c.partition)
_ORDERS: Final = {
    ClaimOrder.URGENCY: (planned_partitions.c.urgency.desc(), planned_partitions.c.claimed_at_ms, *_BY_NAME),
    ClaimOrder.LONGEST_WAIT: (planned_partitions.c.claimed_at_ms, planned_partitions.c.urgency.desc(), *_BY_NAME),
}
_CLAIMED: Final = update(planned_partitions).where(
    in_partition(planned_partitions), planned_partitions.c.run_id == bindparam("of_run")
)
_CLAIMED_AT: Final = select(leases.c.claimed_at_ms).where(OF_FENCE)


def claim(
    connection: Connection,
    cluster_id: str,
    run_id: str,
    batch_id: str,
    *,
    lease_ms: int,
    exclude: Collection[TopicIdPartition],
    placement: Placement | None,
    order: ClaimOrder,
    now_ms: int,
) -> Lease | None:
    """See `WorkStore.claim`."""
    passed_over = set(exclude)
    while True:
        claimable = _next_claimable(order, is_placed=placement is not None, passes_over=bool(passed_over))
        given = _parameters(cluster_id, run_id, batch_id, passed_over, placement, now_ms)
        candidates = connection.execute(claimable, given).all()
        if not candidates:
            return None
        for row in candidates:
            partition = partition_from(row.topic_id, row.partition, row.topic)
            passed_over.add(partition)
            # Another batch may have finished or stopped it since it was listed. What was not won is rolled back with
            # its locks: a claim never holds one while it waits for another.
            with connection.begin_nested() as savepoint:
                fence = take(
                    connection,
                    cluster_id,
                    partition,
                    LeaseRole.COPY,
                    run_id=run_id,
                    batch_id=batch_id,
                    now_ms=now_ms,
                    lease_ms=lease_ms,
                )
                if fence is None or not has_work(connection, cluster_id, run_id, partition):
                    savepoint.rollback()
                    continue
            claimed = key_of(cluster_id, partition) | {"of_run": run_id, "claimed_at_ms": now_ms}
            connection.execute(_CLAIMED, claimed)
            return Lease(
                run_id=run_id,
                batch_id=batch_id,
                replica_id=ReplicaId(partition, row.broker_id, row.directory_id),
                fence=fence,
                expires_at_ms=now_ms + lease_ms,
            )


def waits_longer(
    connection: Connection,
    cluster_id: str,
    lease: Lease,
    exclude: Collection[TopicIdPartition],
    placement: Placement | None,
    now_ms: int,
) -> bool:
    """See `WorkStore.waits_longer`."""
    claimed_at_ms = connection.execute(_CLAIMED_AT, key_of_fence(cluster_id, lease.fence)).scalar_one_or_none()
    if claimed_at_ms is None:
        return False
    waiting = _waiting_longer(is_placed=placement is not None, passes_over=bool(exclude))
    given = _parameters(cluster_id, lease.run_id, lease.batch_id, exclude, placement, now_ms)
    return connection.execute(waiting, given | {"since_ms": claimed_at_ms}).one_or_none() is not None


def _parameters(
    cluster_id: str,
    run_id: str,
    batch_id: str,
    passed_over: Collection[TopicIdPartition],
    placement: Placement | None,
    now_ms: int,
) -> dict[str, Any]:
    """Of `_claimable`."""
    given: dict[str, Any] = {"of_cluster": cluster_id, "of_run": run_id, "of_batch": batch_id, "at_ms": now_ms}
    if placement is not None:
        given |= key_of_placement(placement)
    if passed_over:
        given["passed_over"] = [(str(one.topic_id), one.partition) for one in passed_over]
    return given


@cache
def _next_claimable(order: ClaimOrder, *, is_placed: bool, passes_over: bool) -> Select[Any]:
    return _claimable(is_placed, passes_over).order_by(*_ORDERS[order]).limit(_CANDIDATES)


@cache
def _waiting_longer(*, is_placed: bool, passes_over: bool) -> Select[Any]:
    waits = planned_partitions.c.claimed_at_ms < bindparam("since_ms")
    return _claimable(is_placed, passes_over).where(waits).limit(1)


def _claimable(is_placed: bool, passes_over: bool) -> Select[Any]:
    """Planned partitions that a batch could claim."""
    same_partition = and_(
        leases.c.cluster_id == planned_partitions.c.cluster_id,
        leases.c.topic_id == planned_partitions.c.topic_id,
        leases.c.partition == planned_partitions.c.partition,
        leases.c.role == LeaseRole.COPY,
    )
    cluster_id: ColumnElement[str] = bindparam("of_cluster")
    is_mine = is_free(bindparam("of_run"), bindparam("of_batch"), bindparam("at_ms"))
    paused = select(pauses.c.topic).where(pauses.c.cluster_id == cluster_id)
    query = (
        select(planned_partitions)
        .outerjoin(leases, same_partition)
        .where(planned_partitions.c.cluster_id == cluster_id, planned_partitions.c.run_id == bindparam("of_run"))
        .where(planned_partitions.c.stopped.is_(False), HAS_PLANNED_SEGMENT)
        .where(or_(leases.c.token.is_(None), is_mine))
        .where(planned_partitions.c.topic.not_in(paused), ~paused.where(pauses.c.topic == ALL_TOPICS).exists())
    )
    if is_placed:
        query = query.where(IS_PLACED)
    if passes_over:
        key = tuple_(planned_partitions.c.topic_id, planned_partitions.c.partition)
        query = query.where(key.not_in(bindparam("passed_over", expanding=True)))
    return query
