"""Which leases are live by the database's clock.

A lease that ends further ahead than it may last was taken, or renewed, while the clock was ahead. It is no lease: else
its partition would be blocked until that time comes. Whoever holds it all the same is refused by its fencing token once
another has claimed the partition.
"""

from typing import Final

from sqlalchemy import ColumnElement, and_, func

from include.tiering.database.schema import leases

MARGIN_MS: Final = 60_000
"""So much further ahead than it may last a lease may end: the clock was set back a little since it was renewed."""
_LENGTH_UNKNOWN_MS: Final = 60 * 60 * 1000
_RENEWED_AT_MS: Final = leases.c.expires_at_ms - func.coalesce(leases.c.lease_ms, _LENGTH_UNKNOWN_MS)


def is_live(now_ms: ColumnElement[int]) -> ColumnElement[bool]:
    """Not over, not given back, and renewed no later than now."""
    return and_(leases.c.expires_at_ms > now_ms, now_ms >= _RENEWED_AT_MS - MARGIN_MS)


def is_ahead(now_ms: ColumnElement[int]) -> ColumnElement[bool]:
    """Not over, and no lease: it ends further ahead than it may last."""
    return and_(leases.c.expires_at_ms > now_ms, now_ms < _RENEWED_AT_MS - MARGIN_MS)


def is_within(until_ms: int, *, now_ms: int, lease_ms: int) -> bool:
    """The same of a lease of `lease_ms` that is kept elsewhere and ends at `until_ms`."""
    return now_ms < until_ms <= now_ms + lease_ms + MARGIN_MS
