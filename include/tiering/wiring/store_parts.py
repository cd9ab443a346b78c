"""The database and the remote store of one deployment: the way to both, and the proof that they belong together."""

import secrets
import socket
from collections.abc import Callable
from functools import cached_property
from typing import Any, Final

from sqlalchemy import Engine

from include.tiering.clock import Clock
from include.tiering.database.engine import open_engine
from include.tiering.database.migrations import current_revision, require_head
from include.tiering.database.store_identity import (
    StoreIdentities,
    description_of,
    known_clusters,
    require_whole,
)
from include.tiering.errors import ForeignStoreError, MetadataUnavailableError, SettingError, TieringError
from include.tiering.observability import get_logger
from include.tiering.remote_storage.contract import RemoteStorage
from include.tiering.remote_storage.credentials import S3Credentials
from include.tiering.remote_storage.location import open_storage, place_of
from include.tiering.remote_storage.marker import GuardedStorage
from include.tiering.remote_storage.store_marker import RaisedBy, StoreMarker, StorePlace
from include.tiering.settings import RemoteStorageSettings, TieringSettings
from include.tiering.tasks.claim_store import ClaimStep, StoreClaim, StoreGenerations
from include.tiering.tasks.move_store import StoreMove
from include.tiering.wiring.layouts import layout_options
from include.tiering.wiring.unwatched import ignore

_log: Final = get_logger(__name__)


class StoreParts:
    """Part of `Parts`."""

    settings: TieringSettings
    clock: Clock
    _random_bytes: Callable[[int], bytes] = staticmethod(secrets.token_bytes)
    observe_claim: Callable[[ClaimStep], None] = staticmethod(ignore)

    @cached_property
    def engine(self) -> Engine:
        return open_engine(self.settings.metadata.url.get_secret_value(), clock=self.clock)

    @cached_property
    def cluster_id(self) -> str:
        """The cluster that the database was set up for.

        Raises:
            MetadataUnavailableError: it was not set up or not migrated, or its metadata are being rebuilt.
        """
        known = known_clusters(self.engine) if current_revision(self.engine) is not None else []
        if len(known) != 1:
            raise MetadataUnavailableError(
                f"the database serves {len(known)} clusters instead of one: set it up with ./tiering migrate"
            )
        require_head(self.engine)
        require_whole(self.engine)
        return known[0]

    @cached_property
    def storage(self) -> GuardedStorage:
        """Refuses every change unless the store's marker is this database's."""
        return GuardedStorage(self.unguarded_storage, self.generations.accepted, self.clock, self.place)

    @cached_property
    def place(self) -> StorePlace:
        """Where the settings say that keys lie."""
        remote = self.settings.remote_storage
        return place_of(remote.required_url(), remote.layout, remote.key_prefix)

    @cached_property
    def generations(self) -> StoreGenerations:
        return StoreIdentities(self.engine, self.cluster_id)

    @cached_property
    def unguarded_storage(self) -> RemoteStorage:
        """For set-up alone, before there is a marker to compare with."""
        remote = self.settings.remote_storage
        return open_storage(remote.required_url(), **self._access(), **layout_options(remote))

    def require_our_store(self) -> None:
        """Raises ForeignStoreError unless the store's marker is this database's."""
        self.storage.check_marker()

    def objection_to_store(self) -> str | None:
        """Why the store is not this database's, in a sentence; None if it is."""
        try:
            self.require_our_store()
        except ForeignStoreError as error:
            return str(error)
        return None

    def claim_store(self) -> StoreMarker:
        """Prove that this database owns the store, and let no copy of it own it from now on; see the task."""
        return self.store_claim().raise_generation()

    def claim_store_if_possible(self) -> str | None:
        """As `claim_store`, behind a decision that counts without it. Returns why the store was not claimed, so that a
        copy of the database from before the decision is not refused; None: it was."""
        try:
            self.claim_store()
        except (TieringError, OSError) as error:
            _log.warning("the store could not be claimed: %s", error)
            return str(error)
        return None

    def store_claim(self, generations: StoreGenerations | None = None) -> StoreClaim:
        return StoreClaim(
            generations or self.generations,
            self.unguarded_storage,
            self.place,
            self.raised_by,
            self.clock,
            self._random_bytes,
            self.observe_claim,
        )

    def store_move(self, generations: StoreGenerations | None = None) -> StoreMove:
        return StoreMove(self.store_claim(generations), self._open_place)

    def raised_by(self) -> RaisedBy:
        """This host and this database."""
        return RaisedBy(socket.gethostname(), description_of(self.engine), self.clock.now_ms())

    def _open_place(self, place: StorePlace) -> RemoteStorage:
        """For its marker alone."""
        return open_storage(place.url, **self._access(), layout=place.layout)

    def _access(self) -> dict[str, Any]:
        """How to get at the store, beside its URL."""
        remote = self.settings.remote_storage
        return {
            "endpoint_url": remote.endpoint_url,
            "region": remote.region,
            "credentials": _credentials(remote),
        }


def _credentials(remote: RemoteStorageSettings) -> S3Credentials | None:
    """Raises SettingError if only one half is set."""
    if remote.access_key_id is None and remote.secret_access_key is None:
        return None
    if remote.access_key_id is None or remote.secret_access_key is None:
        raise SettingError("remote_storage.access_key_id and remote_storage.secret_access_key go together")
    token = remote.session_token.get_secret_value() if remote.session_token is not None else None
    return S3Credentials(remote.access_key_id, remote.secret_access_key.get_secret_value(), token)
