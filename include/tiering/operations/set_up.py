"""Set up a deployment: the schema, the identity of the store, and its marker."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypedDict

from sqlalchemy import Engine

from include.tiering.database.migrations import upgrade
from include.tiering.database.store_identity import StoreIdentities, known_clusters, require_whole
from include.tiering.errors import ForeignStoreError, SettingError
from include.tiering.kafka.cluster.contract import Brokers
from include.tiering.kafka.log_dirs.dirs import identify
from include.tiering.model.ownership import RaisedBy, StoreMarker, StorePlace
from include.tiering.model.segments import Uuid
from include.tiering.presentation import Presentation
from include.tiering.remote_storage.contract import RemoteStorage
from include.tiering.remote_storage.store_ownership import StoreOwnership
from include.tiering.runs.cluster_log_dirs import configured_log_dirs, is_here
from include.tiering.segments.contract import RemoteLogMetadata
from include.tiering.segments.stored_copies import prove_place
from include.tiering.settings import TieringSettings


class SetUpDocument(TypedDict):
    """The identity of the store, which its marker has as well."""

    cluster_id: str
    store_id: str
    generation: int


def present_set_up(marker: StoreMarker) -> Presentation:
    """Present a deployment that was set up or upgraded."""
    return Presentation(
        lambda: SetUpDocument(cluster_id=marker.cluster_id, store_id=marker.store_id, generation=marker.generation),
        lambda: (),
        f"set up: cluster {marker.cluster_id}, store {marker.store_id}, generation {marker.generation}",
    )


class SetUpService:
    """Prepare the database and the store for one cluster.

    Args:
        brokers: connects to the brokers; None if the settings have no bootstrap servers.
        metadata_of: returns the metadata of a cluster id, before the database is known to serve that cluster.
    """

    def __init__(
        self,
        *,
        settings: TieringSettings,
        engine: Callable[[], Engine],
        unguarded: Callable[[], RemoteStorage],
        place: Callable[[], StorePlace],
        raised_by: Callable[[], RaisedBy],
        brokers: Callable[[], Brokers] | None,
        metadata_of: Callable[[str], RemoteLogMetadata],
        ownership: StoreOwnership,
        random_bytes: Callable[[int], bytes],
    ) -> None:
        self._settings = settings
        self._engine = engine
        self._unguarded = unguarded
        self._place = place
        self._raised_by = raised_by
        self._brokers = brokers
        self._metadata_of = metadata_of
        self._ownership = ownership
        self._random_bytes = random_bytes

    def migrate(self) -> StoreMarker:
        """Upgrade the schema, create the identity of the store, write its marker; in this order. Idempotent.

        If an earlier version recorded no token of the generation or no place of the store, what is missing is recorded
        now, and the generation is raised. The place can be changed this way as long as the database has no segment in
        any state.

        Raises:
            ForeignStoreError: the store belongs to another database, which may be lost; or the database has segments,
                and the store has no marker, the settings name another place than the recorded one, or no place is
                recorded and every segment that could be checked is missing or differs at the place of the settings.
            MetadataUnavailableError: the metadata are being rebuilt.
            SettingError: the log dirs are another cluster's; there are neither log dirs nor bootstrap servers, and the
                database serves no cluster yet; or the schema is of an unknown version.
            SourceError: the first log dir cannot be read.
        """
        engine = self._engine()
        upgrade(engine)
        require_whole(engine)
        known = known_clusters(engine)
        cluster_id = self._cluster_of(known)
        if known and known[0] != cluster_id:
            raise SettingError(f"log_dirs belong to cluster {cluster_id}, the database serves cluster {known[0]}")
        identities, found = StoreIdentities(engine, cluster_id), self._unguarded().read_marker()
        known_store = identities.read()
        if found is not None and known_store is None:
            raise ForeignStoreError(
                f"the store belongs to {found}, and this database has no store yet: if the database of that store is"
                " lost, ./tiering rebuild restores its metadata from the stored objects; otherwise correct"
                " remote_storage.url"
            )
        if known_store is not None and identities.has_segments():
            known_store.require(found, self._place() if known_store.places else None)
            if known_store.current.place is None:
                self._require_segments(cluster_id)
        place = self._place()
        accepted = identities.create(Uuid.random(self._random_bytes), Uuid.random(self._random_bytes), place)
        claim = self._ownership.store_claim(identities)
        if accepted.current.place not in (None, place):
            return self._ownership.store_move(identities).run(place, author="migrate")
        if found is None:
            first = replace(accepted.pending or accepted.current, raised_by=self._raised_by())
            found = self._unguarded().create_marker(first)
        accepted.require(found, None)
        own = claim.complete(accepted)
        return claim.raise_generation(first_place=True) if own.token is None or own.place is None else own

    def _require_segments(self, cluster_id: str) -> None:
        """Raise ForeignStoreError if segments were checked, and none is at the place of the settings as copied."""
        proof = prove_place(self._unguarded(), self._metadata_of(cluster_id), read_back=False)
        if proof.checked and proof.wrong == proof.checked:
            raise ForeignStoreError(
                f"none of {proof.checked} checked segments is in {self._place()} as copied: {proof.missing[0]}. Correct"
                " remote_storage.url, layout and key_prefix. Nothing in the store was written or deleted"
            )

    def _cluster_of(self, known: Sequence[str]) -> str:
        """Return the cluster id from the log directories; if none are set, from the database, or else the brokers.

        Log directories that only workers of a queue can read, on other hosts, count as none.
        """
        log_dirs = self._settings.log_dirs
        is_elsewhere = (
            bool(log_dirs) and log_dirs[0].queue is not None and not is_here(configured_log_dirs(self._settings)[0])
        )
        if (not log_dirs or is_elsewhere) and (known or self._brokers is not None):
            return known[0] if known or self._brokers is None else self._brokers().cluster_id()
        return identify(configured_log_dirs(self._settings)[0]).cluster_id
