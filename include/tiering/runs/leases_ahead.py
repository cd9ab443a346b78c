"""Leases that are none because a clock was ahead, in words. Pure.

They hold nothing up, and nobody would look for them. But what dated them was wrong, and may have dated more.
"""

from collections.abc import Sequence
from typing import Final

from include.tiering.errors import LeaseAheadError
from include.tiering.runs.contract import LeaseAhead
from include.tiering.units import format_utc

MOST_NAMED: Final = 5


def say_ahead(lease: LeaseAhead) -> str:
    """Without the partition."""
    holder = lease.holder
    return (
        f"the lease to {lease.role} of batch {holder.batch_id} of run {holder.run_id} ends at"
        f" {format_utc(holder.expires_at_ms)}, further ahead than it may last: a clock was ahead, and it is ignored"
    )


def require_none_ahead(leases: Sequence[LeaseAhead]) -> str:
    """Raises LeaseAheadError that names the first `MOST_NAMED`, and how many more."""
    if not leases:
        return "none ends further ahead than it may last"
    named = [f"{lease.topic_id_partition}: {say_ahead(lease)}" for lease in leases[:MOST_NAMED]]
    more = len(leases) - len(named)
    raise LeaseAheadError("; ".join([*named, f"and {more} more"] if more else named))
