"""Rows of leases in SQL: one per partition and role, whose token grows with every claim.

A claim is one conditional statement on that row: insert it, or take it if it has expired or was given back. So of any
number of processes that want a partition at once one gets it, and tokens ascend; the others see the row taken and try
the next.

A token is never lower than the database's time in milliseconds. So tokens ascend across a restore from a backup, too,
which takes rows back: a worker from before it cannot hold a token that somebody is given after it.

| a batch dies                  | what it leaves                 | what clears it up                                 |
|-------------------------------|--------------------------------|---------------------------------------------------|
| before the claim is committed | nothing                        |                                                   |
| holding a lease               | the lease, until it expires    | the next claim; the batch itself, started again   |
| after it gave the lease back  | planned segments               | the next claim                                    |
"""

from typing import Final

from sqlalchemy import ColumnElement, Connection, and_, case, or_, select, update

from include.tiering.database.partition_rows import of_partition
from include.tiering.database.schema import leases
from include.tiering.database.statements import insert_for
from include.tiering.errors import LeaseLostError
from include.tiering.model.ids import TopicIdPartition
from include.tiering.remote_metadata.contract import Fence, LeaseRole
from include.tiering.work.contract import LeaseHolder, PartitionLease

_RELEASED: Final = 0


def take(
    connection: Connection,
    cluster_id: str,
    partition: TopicIdPartition,
    role: LeaseRole,
    *,
    run_id: str,
    batch_id: str,
    now_ms: int,
    lease_ms: int,
) -> Fence | None:
    """The new fence, or None if somebody holds a live lease in this role."""
    values = {
        "run_id": run_id,
        "batch_id": batch_id,
        "claimed_at_ms": now_ms,
        "expires_at_ms": now_ms + lease_ms,
    }
    key = {
        "cluster_id": cluster_id,
        "topic_id": str(partition.topic_id),
        "partition": partition.partition,
        "role": role,
    }
    statement = (
        insert_for(connection.dialect.name, leases)
        .values(**key, **values, token=now_ms)
        .on_conflict_do_update(
            index_elements=list(key),
            set_={**values, "token": case((leases.c.token >= now_ms, leases.c.token + 1), else_=now_ms)},
            where=is_free(run_id, batch_id, now_ms),
        )
        .returning(leases.c.token)
    )
    token = connection.execute(statement).scalar_one_or_none()
    return None if token is None else Fence(partition, token, role)


def is_free(run_id: str, batch_id: str, now_ms: int) -> ColumnElement[bool]:
    """Expired, given back, or this batch's own from before it was started again."""
    own = and_(leases.c.run_id == run_id, leases.c.batch_id == batch_id)
    return or_(leases.c.expires_at_ms <= now_ms, own)


def is_held(connection: Connection, cluster_id: str, partition: TopicIdPartition, role: LeaseRole, now_ms: int) -> bool:
    """Whether somebody holds a live lease."""
    live = select(leases.c.token).where(_of(cluster_id, partition, role), leases.c.expires_at_ms > now_ms)
    return connection.execute(live).one_or_none() is not None


def holder(
    connection: Connection, cluster_id: str, partition: TopicIdPartition, role: LeaseRole, now_ms: int
) -> LeaseHolder | None:
    """Who holds a live lease."""
    live = select(leases).where(_of(cluster_id, partition, role), leases.c.expires_at_ms > now_ms)
    row = connection.execute(live).one_or_none()
    if row is None:
        return None
    return LeaseHolder(row.run_id, row.batch_id, row.claimed_at_ms, row.expires_at_ms, row.token)


def renew(connection: Connection, cluster_id: str, lease: PartitionLease, expires_at_ms: int) -> None:
    """Raises LeaseLostError if the token is not the newest, or was given back."""
    fence = lease.fence
    prolong = update(leases).where(of_fence(cluster_id, fence), leases.c.expires_at_ms != _RELEASED)
    if connection.execute(prolong.values(expires_at_ms=expires_at_ms)).rowcount == 0:
        raise LeaseLostError(
            f"{fence.topic_id_partition}: the lease to {fence.role} with fencing token {fence.token} was lost"
        )


def release(connection: Connection, cluster_id: str, lease: PartitionLease) -> None:
    """Nothing happens if it was lost."""
    given_back = update(leases).where(of_fence(cluster_id, lease.fence))
    connection.execute(given_back.values(expires_at_ms=_RELEASED))


def of_fence(cluster_id: str, fence: Fence) -> ColumnElement[bool]:
    """The row that was given this token, if nobody claimed after it."""
    return and_(_of(cluster_id, fence.topic_id_partition, fence.role), leases.c.token == fence.token)


def _of(cluster_id: str, partition: TopicIdPartition, role: LeaseRole) -> ColumnElement[bool]:
    return and_(of_partition(leases, cluster_id, partition), leases.c.role == role)
