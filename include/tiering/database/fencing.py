"""The right to change one partition in one role, proved inside the transaction of the change.

A token holds as long as nobody claimed the partition in its role after it and its lease was not given back. It also
holds after the lease has expired: as long as no other batch has claimed the partition, none has seen or changed
anything there, so the late one does no harm; the moment another claims, the token is refused for ever. The lease's row
stays locked until the transaction ends, so a claim waits for a change and a change never straddles a claim. Leases of
the other role do not count: what both want to change is decided by the segment's state.

Order of locks, everywhere: leases, partitions, segments, size_counters.
"""

from dataclasses import dataclass
from typing import Final

from sqlalchemy import Connection, bindparam, select

from include.tiering.database.partition_rows import in_partition, key_of
from include.tiering.database.schema import leases
from include.tiering.errors import LeaseLostError
from include.tiering.model.ownership import Fence

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
