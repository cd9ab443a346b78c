"""Partitions: their rows, which are locked before anything below them changes, and the right to change them.

Order of locks, everywhere: leases, partitions, segments, size_counters.

**Rows** of topics and partitions are created when first needed. Statements that run for every segment are built once,
with parameters, from `in_partition`: building one anew takes several times as long as running it.

**Ids to be removed**: no segment may begin under an id whose objects an audit removes. Whoever marks an id for removal
and whoever begins a segment under it both lock the partition's row first, so one of the two sees what the other did.

**Fencing tokens**: none is given twice, not even in two lives of one database. A token is a time in milliseconds and,
in its lowest bits, a random number. The time is the database's, or one more than that of the token before it, whichever
is later. So tokens of one database ascend; as long as its clock goes forward they do across a restore from a backup,
too, which takes rows back. Where the clock was set back as well, the same time may be counted out before the restore
and after it. Then the random bits tell the two holders apart: a fence asks whether a token is the newest one, not
whether it is lower.

**Live leases**: a lease that ends further ahead than it may last was taken, or renewed, while the clock was ahead. It
is no lease: else its partition would be blocked until that time comes. Whoever holds it all the same is refused by its
fencing token once another has claimed the partition.

**Fences**: the right to change one partition in one role is proved inside the transaction of the change. A token holds
as long as nobody claimed the partition in its role after it and its lease was not given back. It also holds after the
lease has expired: as long as no other batch has claimed the partition, none has seen or changed anything there, so the
late one does no harm; the moment another claims, the token is refused for ever. The lease's row stays locked until the
transaction ends, so a claim waits for a change and a change never straddles a claim. Leases of the other role do not
count: what both want to change is decided by the segment's state.
"""

import secrets
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, Table, and_, bindparam, case, func, select, update

from include.tiering.database.schema import leases, partitions, planned_removals, topics
from include.tiering.database.transactions import insert_if_absent
from include.tiering.errors import LeaseLostError
from include.tiering.model.ids import RemoteLogSegmentId, TopicIdPartition, Uuid
from include.tiering.model.ownership import Fence, TopicOwner


def of_partition(table: Table, cluster_id: str, partition: TopicIdPartition) -> ColumnElement[bool]:
    """The condition on the three key columns that every table below a partition has."""
    return and_(
        table.c.cluster_id == cluster_id,
        table.c.topic_id == str(partition.topic_id),
        table.c.partition == partition.partition,
    )


def in_partition(table: Table) -> ColumnElement[bool]:
    """The same condition for a statement that is built once: its parameters are `key_of` the partition."""
    return and_(
        table.c.cluster_id == bindparam("of_cluster"),
        table.c.topic_id == bindparam("of_topic"),
        table.c.partition == bindparam("of_partition"),
    )


def key_of(cluster_id: str, partition: TopicIdPartition) -> dict[str, Any]:
    """The parameters of `in_partition`."""
    return {"of_cluster": cluster_id, "of_topic": str(partition.topic_id), "of_partition": partition.partition}


_STOPPED_REASON: Final = select(partitions.c.stopped_reason).where(in_partition(partitions))
_LOCK: Final = _STOPPED_REASON.with_for_update()


@lru_cache(maxsize=10_000)
def partition_from(topic_id: str, partition: int, name: str) -> TopicIdPartition:
    """The value that three columns mean. Remembered, because most rows share their partition with the row before."""
    return TopicIdPartition(Uuid.parse(topic_id), partition, name)


def ensure_topic(connection: Connection, cluster_id: str, topic_id: Uuid, name: str) -> None:
    """Register the topic without an owner, unless it is known."""
    values = {"cluster_id": cluster_id, "topic_id": str(topic_id), "name": name, "owner": TopicOwner.NONE}
    insert_if_absent(connection, topics, values)


def ensure_partition(connection: Connection, cluster_id: str, partition: TopicIdPartition) -> None:
    """Register the partition and its topic, unless they are known."""
    ensure_topic(connection, cluster_id, partition.topic_id, partition.topic)
    values = {
        "cluster_id": cluster_id,
        "topic_id": str(partition.topic_id),
        "partition": partition.partition,
        "log_start_offset": 0,
        "leader_epochs": "",
    }
    insert_if_absent(connection, partitions, values)


def lock_partition(connection: Connection, cluster_id: str, partition: TopicIdPartition) -> str | None:
    """Lock the partition's row until the transaction ends; returns why the partition is stopped, None if it is not."""
    return connection.execute(_LOCK, key_of(cluster_id, partition)).scalar_one_or_none()


def lock_or_create_partition(connection: Connection, cluster_id: str, partition: TopicIdPartition) -> None:
    """Lock the partition's row until the transaction ends; register it, and its topic, if they are not known."""
    key = key_of(cluster_id, partition)
    if connection.execute(_LOCK, key).one_or_none() is None:
        ensure_partition(connection, cluster_id, partition)
        connection.execute(_LOCK, key)


def set_stopped_reason(
    connection: Connection, cluster_id: str, partition: TopicIdPartition, reason: str | None
) -> None:
    condition = of_partition(partitions, cluster_id, partition)
    connection.execute(update(partitions).where(condition).values(stopped_reason=reason))


def stopped_reason_of(connection: Connection, cluster_id: str, partition: TopicIdPartition) -> str | None:
    """Why the partition takes no FINISHED, None if it does or is not known."""
    return connection.execute(_STOPPED_REASON, key_of(cluster_id, partition)).scalar_one_or_none()


_CONDEMNED: Final = (
    select(planned_removals.c.run_id)
    .where(in_partition(planned_removals), planned_removals.c.segment_id == bindparam("of_segment"))
    .where(planned_removals.c.condemned_at_ms.is_not(None))
    .limit(1)
)


def condemned_by(connection: Connection, cluster_id: str, segment_id: RemoteLogSegmentId) -> str | None:
    """The run that removes what is stored under this id; the caller holds the partition's lock."""
    key = key_of(cluster_id, segment_id.topic_id_partition) | {"of_segment": str(segment_id.id)}
    return connection.execute(_CONDEMNED, key).scalar_one_or_none()


TOKEN_RANDOM_BITS: Final = 16
"""The others of a 64 bit integer hold milliseconds until the year 6429."""
_STEP: Final = 1 << TOKEN_RANDOM_BITS


def draw_token(now_ms: int) -> int:
    """The token of a claim at this time, if there was none before it."""
    return now_ms * _STEP + secrets.randbits(TOKEN_RANDOM_BITS)


def token_after(held: int, drawn: int) -> int:
    """The token that follows `held`, with the random bits of `drawn`."""
    return drawn if drawn > held else (held // _STEP + 1) * _STEP + drawn % _STEP


def sql_token_after(held: ColumnElement[int], drawn: ColumnElement[int]) -> ColumnElement[int]:
    """`token_after` as the database computes it."""
    return case((drawn > held, drawn), else_=(held // _STEP + 1) * _STEP + drawn % _STEP)


LEASE_MARGIN_MS: Final = 60_000
"""So much further ahead than it may last a lease may end: the clock was set back a little since it was renewed."""
_LENGTH_UNKNOWN_MS: Final = 60 * 60 * 1000
_RENEWED_AT_MS: Final = leases.c.expires_at_ms - func.coalesce(leases.c.lease_ms, _LENGTH_UNKNOWN_MS)


def is_live_lease(now_ms: ColumnElement[int]) -> ColumnElement[bool]:
    """Not over, not given back, and renewed no later than now."""
    return and_(leases.c.expires_at_ms > now_ms, now_ms >= _RENEWED_AT_MS - LEASE_MARGIN_MS)


def is_lease_ahead(now_ms: ColumnElement[int]) -> ColumnElement[bool]:
    """Not over, and no lease: it ends further ahead than it may last."""
    return and_(leases.c.expires_at_ms > now_ms, now_ms < _RENEWED_AT_MS - LEASE_MARGIN_MS)


def is_within_lease(until_ms: int, *, now_ms: int, lease_ms: int) -> bool:
    """The same of a lease of `lease_ms` that is kept elsewhere and ends at `until_ms`."""
    return now_ms < until_ms <= now_ms + lease_ms + LEASE_MARGIN_MS


_NEWEST: Final = (
    select(leases.c.token, leases.c.expires_at_ms, leases.c.run_id, leases.c.batch_id)
    .where(in_partition(leases), leases.c.role == bindparam("of_role"))
    .with_for_update()
)


@dataclass(frozen=True, slots=True)
class FenceHolder:
    """Who was given the newest token."""

    run_id: str
    batch_id: str


def hold_fence(connection: Connection, cluster_id: str, fence: Fence) -> FenceHolder:
    """Lock the partition's lease in this role and prove that `fence` is the newest.

    Raises:
        LeaseLostError: naming both tokens.
    """
    where = fence.topic_id_partition
    row = connection.execute(_NEWEST, key_of(cluster_id, where) | {"of_role": fence.role}).one_or_none()
    if row is None:
        raise LeaseLostError(
            f"{where}: nobody was ever given a lease to {fence.role}, yet token {fence.token} is shown"
        )
    if row.token != fence.token:
        raise LeaseLostError(f"{where}: fencing token {fence.token} was superseded by {row.token} ({fence.role})")
    if row.expires_at_ms == 0:
        raise LeaseLostError(f"{where}: the lease to {fence.role} with fencing token {fence.token} was given back")
    return FenceHolder(row.run_id, row.batch_id)
