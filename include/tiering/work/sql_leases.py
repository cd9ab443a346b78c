"""Leases in SQL: one row per partition, whose token grows with every claim.

A claim is one conditional statement on that row: insert it, or take it if it has expired or was given back. So of any
number of processes that want a partition at once one gets it, and tokens ascend; the others see the row taken and try
the next.

| a batch dies                  | what it leaves                 | what clears it up                                 |
|-------------------------------|--------------------------------|---------------------------------------------------|
| before the claim is committed | nothing                        |                                                   |
| holding a lease               | the lease, until it expires    | the next claim; the batch itself, started again   |
| after it gave the lease back  | planned segments               | the next claim                                    |
"""

from collections.abc import Collection
from typing import Any, Final

from sqlalchemy import Connection, Select, and_, or_, select, tuple_, update

from include.tiering.database.partition_rows import of_partition, partition_from
from include.tiering.database.schema import leases, pauses, planned_partitions
from include.tiering.database.statements import insert_for
from include.tiering.errors import LeaseLostError
from include.tiering.log_source.contract import ReplicaId
from include.tiering.model.ids import TopicIdPartition
from include.tiering.remote_metadata.contract import Fence
from include.tiering.work.contract import ALL_TOPICS, ClaimOrder, Lease, Placement
from include.tiering.work.sql_plans import HAS_PLANNED_SEGMENT, has_work, is_placed

_CANDIDATES: Final = 16
_RELEASED: Final = 0
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
                token = _take(connection, cluster_id, partition, run_id, batch_id, now_ms, now_ms + lease_ms)
                if token is None or not has_work(connection, cluster_id, run_id, partition):
                    savepoint.rollback()
                    continue
            is_partition = of_partition(planned_partitions, cluster_id, partition)
            claimed = update(planned_partitions).where(is_partition, planned_partitions.c.run_id == run_id)
            connection.execute(claimed.values(claimed_at_ms=now_ms))
            return Lease(
                run_id=run_id,
                batch_id=batch_id,
                replica_id=ReplicaId(partition, row.broker_id, row.directory_id),
                fence=Fence(partition, token),
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
    is_lease = and_(
        of_partition(leases, cluster_id, lease.fence.topic_id_partition), leases.c.token == lease.fence.token
    )
    claimed_at_ms = connection.execute(select(leases.c.claimed_at_ms).where(is_lease)).scalar_one_or_none()
    if claimed_at_ms is None:
        return False
    claimable = _claimable(cluster_id, lease.run_id, lease.batch_id, exclude, placement, now_ms)
    waiting = claimable.where(planned_partitions.c.claimed_at_ms < claimed_at_ms).limit(1)
    return connection.execute(waiting).one_or_none() is not None


def renew(connection: Connection, cluster_id: str, lease: Lease, expires_at_ms: int) -> None:
    """Raises LeaseLostError if the token is not the newest, or was given back."""
    partition = lease.fence.topic_id_partition
    prolong = update(leases).where(
        of_partition(leases, cluster_id, partition),
        leases.c.token == lease.fence.token,
        leases.c.expires_at_ms != _RELEASED,
    )
    if connection.execute(prolong.values(expires_at_ms=expires_at_ms)).rowcount == 0:
        raise LeaseLostError(f"{partition}: the lease with fencing token {lease.fence.token} was lost")


def release(connection: Connection, cluster_id: str, lease: Lease) -> None:
    """Nothing happens if it was lost."""
    connection.execute(
        update(leases)
        .where(of_partition(leases, cluster_id, lease.fence.topic_id_partition))
        .where(leases.c.token == lease.fence.token)
        .values(expires_at_ms=_RELEASED)
    )


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
    )
    paused = select(pauses.c.topic).where(pauses.c.cluster_id == cluster_id)
    query = (
        select(planned_partitions)
        .outerjoin(leases, same_partition)
        .where(planned_partitions.c.cluster_id == cluster_id, planned_partitions.c.run_id == run_id)
        .where(planned_partitions.c.stopped.is_(False), HAS_PLANNED_SEGMENT)
        .where(or_(leases.c.token.is_(None), _is_free(run_id, batch_id, now_ms)))
        .where(planned_partitions.c.topic.not_in(paused), ~paused.where(pauses.c.topic == ALL_TOPICS).exists())
    )
    if placement is not None:
        query = query.where(is_placed(placement))
    if passed_over:
        key = tuple_(planned_partitions.c.topic_id, planned_partitions.c.partition)
        query = query.where(key.not_in([(str(one.topic_id), one.partition) for one in passed_over]))
    return query


def _take(
    connection: Connection,
    cluster_id: str,
    partition: TopicIdPartition,
    run_id: str,
    batch_id: str,
    now_ms: int,
    expires_at_ms: int,
) -> int | None:
    """The new token, or None if somebody holds a live lease."""
    values = {"run_id": run_id, "batch_id": batch_id, "claimed_at_ms": now_ms, "expires_at_ms": expires_at_ms}
    key = {"cluster_id": cluster_id, "topic_id": str(partition.topic_id), "partition": partition.partition}
    statement = (
        insert_for(connection.dialect.name, leases)
        .values(**key, **values, token=1)
        .on_conflict_do_update(
            index_elements=list(key),
            set_={**values, "token": leases.c.token + 1},
            where=_is_free(run_id, batch_id, now_ms),
        )
        .returning(leases.c.token)
    )
    return connection.execute(statement).scalar_one_or_none()


def _is_free(run_id: str, batch_id: str, now_ms: int) -> Any:
    """Expired, given back, or this batch's own from before it was started again."""
    own = and_(leases.c.run_id == run_id, leases.c.batch_id == batch_id)
    return or_(leases.c.expires_at_ms <= now_ms, own)
