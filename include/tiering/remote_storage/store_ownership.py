"""The proof that the remote store is this database's, before anything is written or deleted there."""

from collections.abc import Callable
from typing import Final

from include.tiering.clock import Clock
from include.tiering.errors import ForeignStoreError, TieringError
from include.tiering.model.ownership import RaisedBy, StoreMarker, StorePlace
from include.tiering.remote_storage.claim_store import ClaimStep, StoreClaim, StoreGenerations
from include.tiering.remote_storage.contract import RemoteStorage
from include.tiering.remote_storage.marker import GuardedStorage
from include.tiering.remote_storage.move_store import StoreMove
from include.tiering.telemetry import get_logger

_log: Final = get_logger(__name__)


class StoreOwnership:
    """Compares the store's marker with what the database says, and raises the generation of both.

    The adapters are asked for when they are needed: set-up claims a store before the database serves a cluster.

    Args:
        storage: refuses changes unless the marker is this database's.
        unguarded: the same store without that refusal.
        place: where the settings say that keys lie.
        raised_by: who is written into a marker.
        open_place: another place of the same store, for its marker alone.
    """

    def __init__(
        self,
        *,
        storage: Callable[[], GuardedStorage],
        unguarded: Callable[[], RemoteStorage],
        generations: Callable[[], StoreGenerations],
        place: Callable[[], StorePlace],
        raised_by: Callable[[], RaisedBy],
        open_place: Callable[[StorePlace], RemoteStorage],
        clock: Clock,
        random_bytes: Callable[[int], bytes],
        observe: Callable[[ClaimStep], None],
    ) -> None:
        self._storage = storage
        self._unguarded = unguarded
        self._generations = generations
        self._place = place
        self._raised_by = raised_by
        self._open_place = open_place
        self._clock = clock
        self._random_bytes = random_bytes
        self._observe = observe

    def require(self) -> None:
        """Raises ForeignStoreError unless the store's marker is this database's."""
        self._storage().check_marker()

    def objection(self) -> str | None:
        """Why the store is not this database's, in a sentence; None if it is."""
        try:
            self.require()
        except ForeignStoreError as error:
            return str(error)
        return None

    def claim(self) -> StoreMarker:
        """Prove that this database owns the store, and let no copy of the database own it from now on.

        Raises:
            ForeignStoreError: the store is not this database's.
            RemoteStorageUnavailableError, MetadataUnavailableError: a later call goes on.
        """
        return self.store_claim().raise_generation()

    def claim_if_possible(self) -> str | None:
        """Claim the store behind a decision that counts without it.

        Returns:
            Why the store was not claimed, so that a copy of the database from before the decision is not refused; None
            if it was.
        """
        try:
            self.claim()
        except (TieringError, OSError) as error:
            _log.warning("the store could not be claimed: %s", error)
            return str(error)
        return None

    def store_claim(self, generations: StoreGenerations | None = None) -> StoreClaim:
        """With the generations of this database, unless set-up brings its own."""
        return StoreClaim(
            generations or self._generations(),
            self._unguarded(),
            self._place(),
            self._raised_by,
            self._clock,
            self._random_bytes,
            self._observe,
        )

    def store_move(self, generations: StoreGenerations | None = None) -> StoreMove:
        return StoreMove(self.store_claim(generations), self._open_place)
