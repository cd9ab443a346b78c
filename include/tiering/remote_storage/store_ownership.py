"""Ownership of a store: its marker object, and the check that the marker is this database's.

A platform whose database was restored from elsewhere, or whose URL points at another bucket, must not be able to write
or delete in a store of another database. The marker is created once in each place, by a write that refuses to
overwrite. After that it changes in four ways: runs that plan, and some other steps and commands, raise its generation
(`claim_store`), a person moves the store to another place (`claim_store`), a database that is rebuilt from the store
replaces the marker that it found by its own, and a person lets a database take the store over.

`segment_storage.GuardedStorage` reads the marker before every call that deletes. `copying.copy_segment` has it read
after the last object of every copy, before the copy becomes FINISHED: a store may get another owner, or its disk may be
unmounted, during a run. The check before the first object of a copy may be a second old, because a copy only adds keys
of its own. The markers that the database accepts are read each time too, because the database may be restored during a
run.

Some decisions take effect although the store could not be claimed. Their output then has a sentence that says what this
means for copies of the database, with the reason (`not_claimed`).
"""

import json
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import Any, Final

from include.tiering.clock import Clock
from include.tiering.errors import ForeignStoreError, FormatError, TieringError
from include.tiering.formats import strict_json
from include.tiering.model.ownership import RaisedBy, StoreMarker, StorePlace
from include.tiering.remote_storage.claim_store import ClaimStep, StoreClaim, StoreGenerations, StoreMove
from include.tiering.remote_storage.contract import RemoteStorage
from include.tiering.telemetry import get_logger

MARKER_KEY: Final = "_tiering-store.json"
MAX_MARKER_BYTES: Final = 4096
_PLACE: Final = ("url", "layout", "key_prefix")
_LAST_GENERATION: Final = 2**31 - 2
"""One less than the maximum of the database's column, which must hold the next generation too."""
_LAST_MS: Final = 253_402_300_799_000
"""The end of the year 9999, the last date that can be shown."""


def marker_to_bytes(marker: StoreMarker) -> bytes:
    """Encode a marker. A marker without a token is written in format version 1, as earlier releases wrote it."""
    document: dict[str, object] = {
        "version": 1 if marker.token is None else 2,
        "cluster_id": marker.cluster_id,
        "store_id": marker.store_id,
        "generation": marker.generation,
    }
    if marker.token is not None:
        document["token"] = marker.token
        if marker.place is not None:
            document |= {name: getattr(marker.place, name) for name in _PLACE}
        if marker.raised_by is not None:
            by = marker.raised_by
            document["raised_by"] = {"host": by.host, "database": by.database, "at_ms": by.at_ms}
    return (json.dumps(document, indent=1) + "\n").encode()


@lru_cache(maxsize=8)
def marker_from_bytes(content: bytes) -> StoreMarker:
    """Decode a marker; the result for the same bytes is cached.

    Raises:
        ForeignStoreError: the content is not a marker, or has a format version that this release does not read.
    """
    try:
        document = strict_json.parse_object(content, MAX_MARKER_BYTES)
        version = document.integer("version", 1, 2)
        marker = StoreMarker(
            document.text("cluster_id"), document.text("store_id"), document.integer("generation", 0, _LAST_GENERATION)
        )
        return marker if version == 1 else replace(marker, **_of_version_2(document))
    except FormatError as error:
        raise ForeignStoreError(f"{MARKER_KEY} is not a marker of this platform: {error}") from error


def _of_version_2(document: strict_json.JsonObject) -> dict[str, Any]:
    found: dict[str, Any] = {"token": document.text("token")}
    if document.has("url"):
        found["place"] = StorePlace(*map(document.text, _PLACE))
    if document.has("raised_by"):
        by = document.object("raised_by")
        found["raised_by"] = RaisedBy(by.text("host"), by.text("database"), by.integer("at_ms", 0, _LAST_MS))
    return found


_log: Final = get_logger(__name__)


class StoreOwnership:
    """Compares the store's marker with the database's, and raises the generation of both.

    Storage and generations are passed as functions that construct them when they are needed, because set-up claims a
    store before the database serves a cluster.

    Args:
        storage: returns the storage that refuses to change segments unless the marker is this database's.
        unguarded: returns the same storage without that check.
        generations: returns the store's row in the database.
        place: returns the place of the keys according to the settings.
        raised_by: returns host, database and time, which are written into a marker.
        open_place: opens another place of the same store, for its marker alone.
        observe: called after each step of a claim.
    """

    def __init__(
        self,
        *,
        storage: Callable[[], RemoteStorage],
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
        """Read the store's marker. Raises ForeignStoreError unless it is this database's."""
        self._storage().check_marker()

    def objection(self) -> str | None:
        """Return a sentence that says why the store is not this database's; None if it is this database's."""
        try:
            self.require()
        except ForeignStoreError as error:
            return str(error)
        return None

    def claim(self) -> StoreMarker:
        """Prove that this database owns the store, and raise the store's generation.

        Copies of the database are refused from then on.

        Raises:
            ForeignStoreError: as `StoreClaim.raise_generation`.
            RemoteStorageUnavailableError, MetadataUnavailableError: a later call continues.
        """
        return self.store_claim().raise_generation()

    def claim_if_possible(self) -> str | None:
        """Claim the store after a decision that takes effect in any case.

        Returns:
            The reason why the store could not be claimed: then a copy of the database from before the decision is not
            refused. None if the store was claimed.
        """
        try:
            self.claim()
        except (TieringError, OSError) as error:
            _log.warning("the store could not be claimed: %s", error)
            return str(error)
        return None

    def store_claim(self, generations: StoreGenerations | None = None) -> StoreClaim:
        """Return a claim with the generations of this database, or with `generations`, which set-up passes."""
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
        """Return a move of the store, with generations as in `store_claim`."""
        return StoreMove(self.store_claim(generations), self._open_place)


def unclaimed_words(not_claimed: str) -> str:
    """Return a warning for the output of a decision, with the reason why the store could not be claimed."""
    return (
        "warning: a backup of the database from before this change would not be refused, because the store could not be"
        f" claimed (if the command is run again, it tries again): {not_claimed}"
    )


def unclaimed_withdrawal(not_claimed: str | None) -> str:
    """Return what follows the sentence about a withdrawn run; empty if the store was claimed."""
    if not_claimed is None:
        return ""
    return f"; a copy of this database may still carry it out, as the store could not be claimed: {not_claimed}"
