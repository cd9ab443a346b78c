"""Claims of copy leases: which planned partition a batch gets next. The rows themselves are in `sql_lease_rows`."""

from collections.abc import Collection
from typing import Any, Final

from sqlalchemy import Connection, Select, and_, or_, select, tuple_, update

from include.tiering.database.partition_rows import of_partition, partition_from
from include.tiering.database.schema import leases, pauses, planned_partitions
from include.tiering.log_source.contract import ReplicaId
from include.tiering.model.ids import TopicIdPartition
from include.tiering.remote_metadata.contract import LeaseRole
from include.tiering.work.contract import ALL_TOPICS, ClaimOrder, Lease, Placement
from include.tiering.work.sql_lease_rows import is_free, of_fence, take
from include.tiering.work.sql_plans import HAS_PLANNED_SEGMENT, has_work, is_placed

_CANDIDATES: Final = 16
_BY_NAME: Final = (planned_partitions.c.topic, planned_partitions.c.topic_id, planned_partitions.c.partition)
_ORDERS: Final = {
    ClaimOrder.URGENCY: (planned_partitions.c.urgency.desc(), planned_partitions.c.claimed_at_ms, *_BY_NAME),
    ClaimOrder.LONGEST_WAIT: (planned_partitions.c.claimed_at_ms, planned_partitions.c.urgency.desc(), *_BY_NAME),
}


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
        claimable = _claimable(cluster_id, run_id, batch_id, passed_over, placement, now_ms)
        candidates = connection.execute(claimable.order_by(*_ORDERS[order]).limit(_CANDIDATES)).all()
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
            is_partition = of_partition(planned_partitions, cluster_id, partition)
            claimed = update(planned_partitions).where(is_partition, planned_partitions.c.run_id == run_id)
            connection.execute(claimed.values(claimed_at_ms=now_ms))
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
    claimed = select(leases.c.claimed_at_ms).where(of_fence(cluster_id, lease.fence))
    claimed_at_ms = connection.execute(claimed).scalar_one_or_none()
    if claimed_at_ms is None:
        return False
    claimable = _claimable(cluster_id, lease.run_id, lease.batch_id, exclude, placement, now_ms)
    waiting = claimable.where(planned_partitions.c.claimed_at_ms < claimed_at_ms).limit(1)
    return connection.execute(waiting).one_or_none() is not None


def _claimable(
    cluster_id: str,
    run_id: str,
    batch_id: str,
    passed_over: Collection[TopicIdPartition],
    placement: Placement | None,
    now_ms: int,
) -> Select[Any]:
    """Planned partitions that this batch could claim."""
    same_partition = and_(
        leases.c.cluster_id == planned_partitions.c.cluster_id,
        leases.c.topic_id == planned_partitions.c.topic_id,
        leases.c.partition == planned_partitions.c.partition,
        leases.c.role == LeaseRole.COPY,
    )
    paused = select(pauses.c.topic).where(pauses.c.cluster_id == cluster_id)
    query = (
        select(planned_partitions)
        .outerjoin(leases, same_partition)
        .where(planned_partitions.c.cluster_id == cluster_id, planned_partitions.c.run_id == run_id)
        .where(planned_partitions.c.stopped.is_(False), HAS_PLANNED_SEGMENT)
        .where(or_(leases.c.token.is_(None), is_free(run_id, batch_id, now_ms)))
        .where(planned_partitions.c.topic.not_in(paused), ~paused.where(pauses.c.topic == ALL_TOPICS).exists())
    )
    if placement is not None:
        query = query.where(is_placed(placement))
    if passed_over:
        key = tuple_(planned_partitions.c.topic_id, planned_partitions.c.partition)
        query = query.where(key.not_in([(str(one.topic_id), one.partition) for one in passed_over]))
    return query
