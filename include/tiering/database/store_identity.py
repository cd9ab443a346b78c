"""Which remote store this database belongs to: what the store's marker object must say before a write or delete.

The row is written before the marker object is. From then on both change together, with a generation that is pending
in the row while the marker is replaced (`claim_store`): a database that was restored, cloned or pointed at
another bucket disagrees with the marker as soon as the one in use has planned, and is refused.
"""

from collections.abc import Mapping
from typing import Any, Final

from sqlalchemy import Connection, Engine, Row, bindparam, select, update

from include.tiering.database.clock import NowMs, database_now_ms
from include.tiering.database.events import record_event
from include.tiering.database.rebuild_state import current_marker, is_being_rebuilt
from include.tiering.database.schema import segments, stores
from include.tiering.database.statements import insert_if_absent
from include.tiering.database.transactions import reading, writing
from include.tiering.errors import MetadataUnavailableError, StateConflictError
from include.tiering.model.ids import Uuid
from include.tiering.model.ownership import AcceptedMarkers, StoreMarker, StorePlace

_IDENTITY: Final = select(stores).where(stores.c.cluster_id == bindparam("of_cluster"))
_LOCKED: Final = _IDENTITY.with_for_update()
_CHANGE: Final = update(stores).where(stores.c.cluster_id == bindparam("of_cluster"))
_SEGMENT: Final = select(segments.c.segment_key).limit(1)
_TAKEN_OVER: Final = "store-taken-over"
_MOVED: Final = "store-moved"
_NOTHING_PENDING: Final = {
    "pending_generation": None,
    "pending_token": None,
    "pending_url": None,
    "pending_layout": None,
    "pending_key_prefix": None,
}


class StoreIdentities:
    """`StoreGenerations` of one cluster's remote store, over the platform's database."""

    def __init__(self, engine: Engine, cluster_id: str, *, now_ms: NowMs = database_now_ms) -> None:
        self._engine = engine
        self._cluster_id = cluster_id
        self._now_ms = now_ms

    def read(self) -> AcceptedMarkers | None:
        """None before the first `create`."""
        with reading(self._engine) as connection:
            row = connection.execute(_IDENTITY, {"of_cluster": self._cluster_id}).one_or_none()
        return None if row is None else accepted_by(row)

    def accepted(self) -> AcceptedMarkers:
        found = self.read()
        if found is None:
            raise MetadataUnavailableError("the database has no store identity: set it up with ./tiering migrate")
        return found

    def create(self, store_id: Uuid, token: Uuid | None = None, place: StorePlace | None = None) -> AcceptedMarkers:
        """Record this store, unless there is an identity; returns the one that holds. First generation: 1. Without
        token and place as the versions before did, until the generation is raised."""
        with writing(self._engine) as connection:
            values = {
                "cluster_id": self._cluster_id,
                "store_id": str(store_id),
                "generation": 1,
                "generation_token": None if token is None else str(token),
                "url": None if place is None else place.url,
                "layout": None if place is None else place.layout,
                "key_prefix": None if place is None else place.key_prefix,
                "created_at_ms": self._now_ms(connection),
            }
            insert_if_absent(connection, stores, values)
            return accepted_by(connection.execute(_IDENTITY, {"of_cluster": self._cluster_id}).one())

    def has_segments(self) -> bool:
        """In any state, tombstones included."""
        with reading(self._engine) as connection:
            return connection.execute(_SEGMENT).one_or_none() is not None

    def propose(self, token: Uuid, place: StorePlace | None) -> AcceptedMarkers:
        with writing(self._engine) as connection:
            accepted = self._locked(connection)
            if accepted.pending is None:
                self._store_pending(connection, accepted.current.generation + 1, token, place)
            return self._locked(connection)

    def propose_over(
        self, found: StoreMarker, token: Uuid, place: StorePlace | None, *, author: str
    ) -> AcceptedMarkers:
        with writing(self._engine) as connection:
            current = self._locked(connection).current
            generation = max(found.generation, current.generation) + 1
            self._store_pending(connection, generation, token, place)
            detail = f"begun: {found} is followed by generation {generation}; this database was at {current.generation}"
            self._say(connection, _TAKEN_OVER, detail, author)
            return self._locked(connection)

    def propose_move(
        self, token: Uuid, place: StorePlace, *, replaces: StoreMarker | None, author: str
    ) -> AcceptedMarkers:
        with writing(self._engine) as connection:
            accepted = self._locked(connection)
            current = accepted.current
            if accepted.pending != replaces:
                return accepted
            self._store_pending(connection, current.generation + 1, token, place)
            self._change(connection, {"conditional_writes": None})
            self._say(connection, _MOVED, f"begun: from {current.place or 'a place not recorded'} to {place}", author)
            return self._locked(connection)

    def settle(self, pending: StoreMarker) -> AcceptedMarkers:
        with writing(self._engine) as connection:
            accepted = self._locked(connection)
            if accepted.pending == pending:
                place = accepted.pending.place
                values = {"generation": pending.generation, "generation_token": pending.token, **_NOTHING_PENDING}
                if place is not None:
                    values |= {"url": place.url, "layout": place.layout, "key_prefix": place.key_prefix}
                self._change(connection, values)
            return self._locked(connection)

    def remember_conditional_writes(self, heeded: bool) -> None:
        with writing(self._engine) as connection:
            self._change(connection, {"conditional_writes": heeded})

    def _locked(self, connection: Connection) -> AcceptedMarkers:
        row = connection.execute(_LOCKED, {"of_cluster": self._cluster_id}).one_or_none()
        if row is None:
            raise MetadataUnavailableError("the database has no store identity: set it up with ./tiering migrate")
        if row.rebuilding_since_ms is not None:
            raise StateConflictError("the metadata are being rebuilt from the store: ./tiering rebuild goes on with it")
        return accepted_by(row)

    def _store_pending(self, connection: Connection, generation: int, token: Uuid, place: StorePlace | None) -> None:
        values: dict[str, Any] = {**_NOTHING_PENDING, "pending_generation": generation, "pending_token": str(token)}
        if place is not None:
            values |= {
                "pending_url": place.url,
                "pending_layout": place.layout,
                "pending_key_prefix": place.key_prefix,
            }
        self._change(connection, values)

    def _change(self, connection: Connection, values: Mapping[str, Any]) -> None:
        connection.execute(_CHANGE.values(**values), {"of_cluster": self._cluster_id})

    def _say(self, connection: Connection, kind: str, detail: str, author: str) -> None:
        record_event(connection, self._cluster_id, kind, self._cluster_id, detail, author, self._now_ms(connection))


def accepted_by(row: Row[Any]) -> AcceptedMarkers:
    """What a row of `stores` accepts."""
    current = current_marker(row)
    if row.pending_token is None:
        return AcceptedMarkers(current, None, row.conditional_writes)
    next_place = (
        None if row.pending_url is None else StorePlace(row.pending_url, row.pending_layout, row.pending_key_prefix)
    )
    pending = StoreMarker(row.cluster_id, row.store_id, row.pending_generation, row.pending_token, next_place)
    return AcceptedMarkers(current, pending, row.conditional_writes)


def require_whole(engine: Engine) -> None:
    """Raises MetadataUnavailableError while the metadata of this database are being rebuilt."""
    if is_being_rebuilt(engine):
        raise MetadataUnavailableError(
            "the metadata are being rebuilt from the store and not whole yet: ./tiering rebuild goes on with it"
        )


def known_clusters(engine: Engine) -> list[str]:
    """Ids of the clusters that this database was set up for: one, or none before set-up."""
    with reading(engine) as connection:
        return list(connection.scalars(select(stores.c.cluster_id).order_by(stores.c.cluster_id)))


def description_of(engine: Engine) -> str:
    """Which database this is, for a person: no user, no password, no parameters."""
    url = engine.url
    where = url.host or ""
    where += "" if url.port is None else f":{url.port}"
    return f"{url.get_backend_name()}://{where}/{url.database or ''}"
