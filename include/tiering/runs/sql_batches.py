"""What all batches share, in SQL: leases, progress, the pause switch, and the size of a pool.

Each partition has one lease row for each role in which it was claimed; the row's token grows with every claim.

A claim is one conditional statement on that row: it inserts the row, or takes it over if the lease has expired, was
given back, is ignored, or belongs to the same batch. So at most one of the batches that claim a partition at the same
time gets the lease; the others find it taken and try the next partition. `contract` says which leases are ignored.

`database.transactions` says how tokens stay distinct across a restore from a backup or a step of the database's clock.

| a batch dies                  | what it leaves                 | what continues or cleans up                       |
|-------------------------------|--------------------------------|---------------------------------------------------|
| before the claim is committed | nothing                        |                                                   |
| holding a lease               | the lease, until it expires    | the next claim; the batch itself, started again   |
| after it gave the lease back  | planned work, if any is left   | the next claim                                    |
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any, Final

from sqlalchemy import (
    ColumnElement,
    Connection,
    Row,
    Select,
    Table,
    and_,
    bindparam,
    delete,
    func,
    not_,
    or_,
    select,
    update,
)
from sqlalchemy.sql.dml import ReturningInsert

from include.tiering.database.event_log import EventKind, record_event
from include.tiering.database.schema import batches, leases, pauses, pools, topics
from include.tiering.database.transactions import (
    LEASE_MARGIN_MS,
    ClusterStore,
    draw_token,
    in_partition,
    insert_for,
    insert_if_absent,
    is_lease_ahead,
    is_live_lease,
    key_of,
    partition_from,
    reading,
    sql_token_after,
    stored_text,
    upsert,
)
from include.tiering.errors import LeaseLostError
from include.tiering.model.ownership import Fence, LeaseRole, PartitionLease
from include.tiering.model.segments import TopicIdPartition
from include.tiering.runs.contract import (
    ALL_TOPICS,
    LIVE_BATCH_MS,
    AnyLease,
    BatchProgress,
    LeaseAhead,
    LeaseHolder,
    LiveLease,
)

IN_ROLE: Final = and_(in_partition(leases), leases.c.role == bindparam("of_role"))
"""Condition: the row of a partition in one role. Its parameters are the key of the partition and `of_role`."""
OF_FENCE: Final = and_(IN_ROLE, leases.c.token == bindparam("of_token"))
"""Condition: that row, unless a later claim gave it another token. Its parameters are those of `key_of_fence`."""


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
    """Take the lease and return its fence; return None if another batch holds a live lease in this role."""
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
    """Return the condition that a batch may take a lease row: the lease is not live, or is this batch's own."""
    own = and_(leases.c.run_id == run_id, leases.c.batch_id == batch_id)
    return or_(not_(is_live_lease(now_ms)), own)


def claimable(planned: Table, role: LeaseRole) -> Select[Any]:
    """Return the query of a run's planned partitions that are not paused and that a batch could lease in this role.

    Its parameters are `of_cluster`, `of_run`, `of_batch` and `at_ms` (now).
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
    """Return the parameters of `OF_FENCE`."""
    return key_of(cluster_id, fence.topic_id_partition) | {"of_role": fence.role, "of_token": fence.token}


_RELEASED: Final = 0
_LIVE_LEASE: Final = select(leases).where(IN_ROLE, is_live_lease(bindparam("at_ms")))
_NAME: Final = func.coalesce(topics.c.name, leases.c.topic_id).label("name")
_LEASES: Final = (
    select(leases, _NAME)
    .outerjoin(topics, and_(topics.c.cluster_id == leases.c.cluster_id, topics.c.topic_id == leases.c.topic_id))
    .where(leases.c.cluster_id == bindparam("of_cluster"))
    .order_by(_NAME, leases.c.topic_id, leases.c.partition, leases.c.role)
)
_LEASES_AHEAD: Final = _LEASES.where(is_lease_ahead(bindparam("at_ms")))
_LIVE_LEASES: Final = _LEASES.where(is_live_lease(bindparam("at_ms")))
_RELEASE: Final = update(leases).where(OF_FENCE)
_RENEW: Final = _RELEASE.where(leases.c.expires_at_ms != _RELEASED)
_PAUSED: Final = select(pauses.c.topic).where(pauses.c.cluster_id == bindparam("of_cluster"))
_IS_LIVE: Final = and_(
    batches.c.updated_at_ms.between(bindparam("since_ms"), bindparam("until_ms")), batches.c.finished.is_(False)
)
_RUNNING_BATCHES: Final = (
    select(batches)
    .where(batches.c.cluster_id == bindparam("of_cluster"), _IS_LIVE)
    .order_by(batches.c.started_at_ms, batches.c.batch_id)
)
_LIVE_BATCHES: Final = (
    select(batches.c.batch_id)
    .where(batches.c.cluster_id == bindparam("of_cluster"), batches.c.pool == bindparam("of_pool"))
    .where(batches.c.updated_at_ms.between(bindparam("since_ms"), bindparam("until_ms")), batches.c.finished.is_(False))
    .order_by(batches.c.started_at_ms, batches.c.batch_id)
)
_RESUME: Final = delete(pauses).where(
    pauses.c.cluster_id == bindparam("of_cluster"), pauses.c.topic == bindparam("of_topic")
)
_SLOTS: Final = select(pools.c.slots).where(
    pools.c.cluster_id == bindparam("of_cluster"), pools.c.pool == bindparam("of_pool")
)


class SqlBatches(ClusterStore):
    """The part of `WorkStore` for batches of any kind: their leases and progress, the pause switch, pools.

    Every call is one transaction, dated by the database's clock. `report_progress` does not wait until its commit has
    reached the disk.
    """

    def renew(self, lease: AnyLease, *, lease_ms: int) -> AnyLease:
        """Prolong a lease of any role: it then ends `lease_ms` from now, by the database's clock."""
        fence = lease.fence
        with self._writing() as (connection, now_ms):
            expires_at_ms = now_ms + lease_ms
            prolonged = {"expires_at_ms": expires_at_ms, "lease_ms": lease_ms}
            if connection.execute(_RENEW, key_of_fence(self._cluster_id, fence) | prolonged).rowcount == 0:
                raise LeaseLostError(
                    f"{fence.topic_id_partition}: the lease to {fence.role} with fencing token {fence.token} was lost"
                )
            return replace(lease, expires_at_ms=expires_at_ms)

    def release(self, lease: PartitionLease) -> None:
        """Give back a lease of any role. Idempotent; does nothing if the lease was lost."""
        given_back = key_of_fence(self._cluster_id, lease.fence) | {"expires_at_ms": _RELEASED}
        with self._writing() as (connection, _now_ms):
            connection.execute(_RELEASE, given_back)

    def holder(self, partition: TopicIdPartition, role: LeaseRole) -> LeaseHolder | None:
        """Return the holder of the live lease of this partition in this role, None if there is none."""
        with reading(self._engine) as connection:
            at_ms = self._now_ms(connection)
            key = key_of(self._cluster_id, partition) | {"of_role": role, "at_ms": at_ms}
            row = connection.execute(_LIVE_LEASE, key).one_or_none()
        return None if row is None else _holder(row)

    def leases_ahead(self) -> Sequence[LeaseAhead]:
        """Return the leases that are ignored because they end too late, ordered by topic, partition and role."""
        return [LeaseAhead(*lease) for lease in self._leases(_LEASES_AHEAD)]

    def live_leases(self) -> Sequence[LiveLease]:
        """Return the live leases of all partitions, ordered by topic, partition and role."""
        return [LiveLease(*lease) for lease in self._leases(_LIVE_LEASES)]

    def report_progress(self, progress: BatchProgress) -> None:
        """Replace the earlier report of this batch."""
        with self._writing(durable=False) as (connection, now_ms):
            values = {
                "cluster_id": self._cluster_id,
                "run_id": progress.run_id,
                "batch_id": progress.batch_id,
                "pool": progress.pool,
                "host": progress.host,
                "pid": progress.pid,
                "partition": stored_text(progress.partition),
                "done_bytes": progress.done_bytes,
                "planned_bytes": progress.planned_bytes,
                "bytes_per_second": progress.bytes_per_second,
                "finished": progress.finished,
                "started_at_ms": now_ms,
                "updated_at_ms": now_ms,
            }
            upsert(connection, batches, values, keep=("started_at_ms",))

    def progress(self, run_id: str) -> Sequence[BatchProgress]:
        """Return the last report of each batch of a run, in the order in which the batches began."""
        query = select(batches).where(batches.c.cluster_id == self._cluster_id, batches.c.run_id == run_id)
        with reading(self._engine) as connection:
            rows = connection.execute(query.order_by(batches.c.started_at_ms, batches.c.batch_id)).all()
        return list(map(_report, rows))

    def running_batches(self) -> Sequence[BatchProgress]:
        """Return the last reports of all batches that run now, as `live_batches` defines it, oldest batch first."""
        with reading(self._engine) as connection:
            now_ms = self._now_ms(connection)
            bounds = {"since_ms": now_ms - LIVE_BATCH_MS, "until_ms": now_ms + LEASE_MARGIN_MS}
            rows = connection.execute(_RUNNING_BATCHES, {"of_cluster": self._cluster_id, **bounds}).all()
        return list(map(_report, rows))

    def pause(self, topic: str | None, *, author: str) -> None:
        """Pause a topic (by name), or all topics for None. Idempotent."""
        key = _pause_key(topic)
        with self._writing() as (connection, now_ms):
            values = {"cluster_id": self._cluster_id, "topic": key, "author": author, "paused_at_ms": now_ms}
            if insert_if_absent(connection, pauses, values):
                record_event(connection, self._cluster_id, EventKind.PAUSE, key, "", author, now_ms)

    def resume(self, topic: str | None, *, author: str) -> None:
        """End the pause of a topic, or for None the pause of all topics; other pauses stay. Idempotent."""
        key = _pause_key(topic)
        with self._writing() as (connection, now_ms):
            if connection.execute(_RESUME, {"of_cluster": self._cluster_id, "of_topic": key}).rowcount:
                record_event(connection, self._cluster_id, EventKind.RESUME, key, "", author, now_ms)

    def paused_topics(self) -> frozenset[str]:
        """Return the names of paused topics, and `ALL_TOPICS` if all topics are paused."""
        with reading(self._engine) as connection:
            return frozenset(connection.execute(_PAUSED, {"of_cluster": self._cluster_id}).scalars())

    def pool_size(self, pool: str) -> int | None:
        """Return the stored number of slots of an Airflow pool; None if no number was ever stored."""
        with reading(self._engine) as connection:
            given = {"of_cluster": self._cluster_id, "of_pool": pool}
            return connection.execute(_SLOTS, given).scalar_one_or_none()

    def live_batches(self, pool: str) -> Sequence[str]:
        """Return the ids of batches that hold a slot of this pool now, in the order in which they began."""
        with reading(self._engine) as connection:
            now_ms = self._now_ms(connection)
            given = {
                "of_cluster": self._cluster_id,
                "of_pool": pool,
                "since_ms": now_ms - LIVE_BATCH_MS,
                "until_ms": now_ms + LEASE_MARGIN_MS,
            }
            return connection.execute(_LIVE_BATCHES, given).scalars().all()

    def _leases(self, query: Select[Any]) -> list[tuple[TopicIdPartition, LeaseRole, LeaseHolder]]:
        with reading(self._engine) as connection:
            rows = connection.execute(query, {"of_cluster": self._cluster_id, "at_ms": self._now_ms(connection)}).all()
        return [
            (partition_from(row.topic_id, row.partition, row.name), LeaseRole(row.role), _holder(row)) for row in rows
        ]


def _report(row: Row[Any]) -> BatchProgress:
    return BatchProgress(
        run_id=row.run_id,
        batch_id=row.batch_id,
        pool=row.pool,
        host=row.host,
        pid=row.pid,
        partition=row.partition,
        done_bytes=row.done_bytes,
        planned_bytes=row.planned_bytes,
        bytes_per_second=row.bytes_per_second,
        finished=row.finished,
        started_at_ms=row.started_at_ms,
        updated_at_ms=row.updated_at_ms,
    )


def _holder(row: Row[Any]) -> LeaseHolder:
    return LeaseHolder(row.run_id, row.batch_id, row.claimed_at_ms, row.expires_at_ms, row.token)


def _pause_key(topic: str | None) -> str:
    return ALL_TOPICS if topic is None else topic
