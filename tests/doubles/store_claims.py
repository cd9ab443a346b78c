"""Claims of one store and moves of it, by processes that share a database, each of which may die at any step."""

import itertools
from collections.abc import Callable

from include.tiering.clock import SystemClock
from include.tiering.database.store_identity import StoreIdentities
from include.tiering.model.ownership import RaisedBy, StoreMarker, StorePlace
from include.tiering.remote_storage.claim_store import ClaimStep, StoreClaim, StoreMove
from include.tiering.remote_storage.segment_storage import SegmentStorage
from tests.doubles.manual_clock import ManualClock
from tests.doubles.storage_decorators import StorageDecorator

PLACE = StorePlace("file:///store", "aiven", "")

_NUMBERS = itertools.count(1)
"""No two claims draw the same token."""


def claim_of(
    identities: StoreIdentities,
    storage: SegmentStorage | StorageDecorator,
    *,
    place: StorePlace = PLACE,
    observe: Callable[[ClaimStep], None] = lambda step: None,
    clock: ManualClock | SystemClock | None = None,
) -> StoreClaim:
    return StoreClaim(
        identities,
        storage,
        place,
        lambda: RaisedBy("host", "sqlite:///tiering.db", 5),
        clock or SystemClock(),
        lambda size: next(_NUMBERS).to_bytes(4, "big").rjust(size, b"c"),
        observe,
    )


def move(claim: StoreClaim, place: StorePlace, *, left: SegmentStorage | StorageDecorator | None = None) -> StoreMarker:
    return StoreMove(claim, lambda place: left or claim.storage).run(place, author="me")


def marker(storage: SegmentStorage) -> StoreMarker:
    found = storage.read_marker()
    assert found is not None
    return found


class Killed(BaseException):
    """Passes every handler of the library, as a SIGKILL does."""
