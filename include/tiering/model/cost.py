"""What remote storage costs, estimated from a price table."""

from dataclasses import dataclass
from decimal import Decimal
from typing import Final

from include.tiering.units import GIB

OBJECTS_PER_SEGMENT: Final = 3
"""Log, indexes, manifest: each is written by one request (a large log by more) and read by one."""

SEGMENTS_PER_DELETE: Final = 333
"""Objects are deleted in requests of up to 999 keys."""

_PER_REQUESTS: Final = 1000


@dataclass(frozen=True, slots=True)
class PriceTable:
    """Prices in `currency`: of one GiB for a month, and of 1000 requests by kind. None = not known."""

    currency: str
    gib_month: Decimal | None = None
    put_requests: Decimal | None = None
    get_requests: Decimal | None = None
    delete_requests: Decimal | None = None

    @property
    def is_empty(self) -> bool:
        return self.gib_month is self.put_requests is self.get_requests is self.delete_requests is None


@dataclass(frozen=True, slots=True)
class CostEstimate:
    """What a remote log costs. `storage_per_month` is for as long as it stays as it is; the others are for requests
    that write it, read it and delete it once. None = its price is not known."""

    currency: str
    storage_per_month: Decimal | None
    writing: Decimal | None
    reading: Decimal | None
    deleting: Decimal | None


def estimate_cost(size_bytes: int, segments: int, prices: PriceTable) -> CostEstimate | None:
    """Of FINISHED segments; None if there is no price at all. Indexes and manifests, per mille of the log, are not
    in `size_bytes`."""
    if prices.is_empty:
        return None
    objects = segments * OBJECTS_PER_SEGMENT
    return CostEstimate(
        prices.currency,
        None if prices.gib_month is None else prices.gib_month * size_bytes / GIB,
        _requests(objects, prices.put_requests),
        _requests(objects, prices.get_requests),
        _requests(-(-segments // SEGMENTS_PER_DELETE), prices.delete_requests),
    )


def _requests(number: int, price: Decimal | None) -> Decimal | None:
    return None if price is None else price * number / _PER_REQUESTS
