"""Rows of leases in SQL: one per partition and role, whose token grows with every claim.

A claim is one conditional statement on that row: insert it, or take it if it has expired or was given back. So of any
number of processes that want a partition at once one gets it, and tokens ascend; the others see the row taken and try
the next.

A lease that ends further ahead than it may last was taken, or renewed, while the database's clock was ahead. It is no
lease: else its partition would be blocked until that time comes.

No token is given twice, whatever a restore from a backup took back and whatever the database's clock says: a worker
from before it cannot hold a token that somebody is given after it (`database.transactions`).

| a batch dies                  | what it leaves                 | what clears it up                                 |
|-------------------------------|--------------------------------|---------------------------------------------------|
| before the claim is committed | nothing                        |                                                   |
| holding a lease               | the lease, until it expires    | the next claim; the batch itself, started again   |
| after it gave the lease back  | planned segments               | the next claim                                    |
"""

from functools import cache
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, Select, Table, and_, bindparam, not_, or_, select
from sqlalchemy.sql.dml import ReturningInsert

from include.tiering.database.schema import leases, pauses
from include.tiering.database.transactions import (
    draw_token,
    in_partition,
    insert_for,
    is_live_lease,
    key_of,
    sql_token_after,
)
from include.tiering.model.ownership import Fence, LeaseRole
from include.tiering.model.segments import TopicIdPartition
from include.tiering.runs.contract import ALL_TOPICS

IN_ROLE: Final = and_(in_partition(leases), leases.c.role == bindparam("of_role"))
"""The row of a partition in one role; its parameters are the key of the partition and `of_role`."""
OF_FENCE: Final = and_(IN_ROLE, leases.c.token == bindparam("of_token"))
"""The row that was given this token, if nobody claimed after it; its parameters are `key_of_fence`."""


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
        "cluster_id": cluster_id,
        "topic_id": str(partition.topic_id),
        "partition": partition.partition,
        "role": role,
        "token": draw_token(now_ms),
        "run_id": run_id,
        "batch_id": batch_id,
        "claimed_at_ms": now_ms,
        "expires_at_ms": now_ms + lease_ms,
        "lease_ms": lease_ms,
    }
    token = connection.execute(_take(connection.dialect.name), values).scalar_one_or_none()
    return None if token is None else Fence(partition, token, role)


@cache
def _take(dialect_name: str) -> ReturningInsert[int]:
    statement, held = insert_for(dialect_name, leases), leases.c
    wanted = statement.excluded
    changed = {name: wanted[name] for name in ("run_id", "batch_id", "claimed_at_ms", "expires_at_ms", "lease_ms")}
    token = sql_token_after(held.token, wanted.token)
    return statement.on_conflict_do_update(
        index_elements=list(leases.primary_key),
        set_={**changed, "token": token},
        where=is_free(wanted.run_id, wanted.batch_id, wanted.claimed_at_ms),
    ).returning(held.token)


def is_free(
    run_id: ColumnElement[str], batch_id: ColumnElement[str], now_ms: ColumnElement[int]
) -> ColumnElement[bool]:
    """Not live, given back, or this batch's own from before it was started again."""
    own = and_(leases.c.run_id == run_id, leases.c.batch_id == batch_id)
    return or_(not_(is_live_lease(now_ms)), own)


def claimable(planned: Table, role: LeaseRole) -> Select[Any]:
    """Rows of a table of planned partitions, of one run, that a batch could lease in this role and that are not paused.

    Its parameters are `of_cluster`, `of_run`, `of_batch` and `at_ms`.
    """
    same_partition = and_(
        leases.c.cluster_id == planned.c.cluster_id,
        leases.c.topic_id == planned.c.topic_id,
        leases.c.partition == planned.c.partition,
        leases.c.role == role,
    )
    cluster_id: ColumnElement[str] = bindparam("of_cluster")
    paused = select(pauses.c.topic).where(pauses.c.cluster_id == cluster_id)
    return (
        select(planned)
        .outerjoin(leases, same_partition)
        .where(planned.c.cluster_id == cluster_id, planned.c.run_id == bindparam("of_run"))
        .where(or_(leases.c.token.is_(None), is_free(bindparam("of_run"), bindparam("of_batch"), bindparam("at_ms"))))
        .where(planned.c.topic.not_in(paused), ~paused.where(pauses.c.topic == ALL_TOPICS).exists())
    )


def key_of_fence(cluster_id: str, fence: Fence) -> dict[str, Any]:
    """The parameters of `OF_FENCE`."""
    return key_of(cluster_id, fence.topic_id_partition) | {"of_role": fence.role, "of_token": fence.token}
