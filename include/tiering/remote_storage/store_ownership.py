"""Who owns a store: its marker object, and the proof that the marker is this database's.

A database that was restored from another place, or a URL that points at another bucket, must not be able to write or
delete there. The marker is created once, by a write that refuses to overwrite. From then on it changes in three ways:
its generation is raised by each run that plans (`claim_store`), a database that is rebuilt from the store puts
its own in the place of the one it found, and a person lets a database take the store over.

`segment_storage.GuardedStorage` reads it before every delete, and behind the last object of every copy, before that
becomes FINISHED: a store may change hands while we run, or its disk may go away. A copy begins on what was read at most
a second ago, as it can only add keys of its own. What the database accepts is read each time too: it may be restored
while we run.

A decision may count although the store could not be claimed: then a sentence says what that means for copies of the
database, with the reason (`not_claimed`).
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
"""The database's column holds one more, which is the next."""
_LAST_MS: Final = 253_402_300_799_000
"""The end of the year 9999: what a date can be shown of."""


def marker_to_bytes(marker: StoreMarker) -> bytes:
    """Of version 1 without a token, as the versions before wrote it."""
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
    """What the bytes say, for the same bytes once. Raises ForeignStoreError unless it is a marker that this version
    understands.
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


def unclaimed_words(not_claimed: str) -> str:
    """In one sentence."""
    return (
        "warning: a backup of the database from before this would not be refused, as the store could not be claimed"
        f" (the same command again tries it again): {not_claimed}"
    )


def unclaimed_withdrawal(not_claimed: str | None) -> str:
    """What goes behind the sentence about a withdrawn run; empty if the store was claimed."""
    if not_claimed is None:
        return ""
    return f"; a copy of this database may go on with it, the store could not be claimed: {not_claimed}"
