"""What the database says of itself: which store it belongs to, whether it is being rebuilt, and whether
cluster metadata was known.

**Store identity** is what the store's marker object must say before a write or delete. The row is written before the
marker object is. From then on both change together, with a generation that is pending in the row while the marker is
replaced (`claim_store`): a database that was restored, cloned or pointed at another bucket disagrees with the marker as
soon as the one in use has planned, and is refused.

**Rebuild**: a mark in that row says that the database is being rebuilt from the store. The row is there from the
beginning of a rebuild on, with the mark; taking the mark away is the last step. As long as it is there nobody but the
rebuild uses the database, because half of the metadata would make orphans of all other objects.

**Cluster metadata**: whether the metadata of a cluster's topics was ever read is one event, written once.
"""

from collections.abc import Mapping
from typing import Any, Final

from sqlalchemy import Connection, Engine, Row, bindparam, func, insert, select, update

from include.tiering.database.schema import events, metadata, segments, stores
from include.tiering.database.transactions import (
    ClusterStore,
    insert_if_absent,
    reading,
    record_event,
    serialise_writers,
    writing,
)
from include.tiering.errors import MetadataUnavailableError, StateConflictError
from include.tiering.model.ownership import AcceptedMarkers, StoreMarker, StorePlace
from include.tiering.model.segments import Uuid

_SERIAL: Final = "rebuild of the tiering database"


def is_being_rebuilt(engine: Engine) -> bool:
    with reading(engine) as connection:
        rebuilding = select(stores.c.cluster_id).where(stores.c.rebuilding_since_ms.is_not(None))
        return connection.execute(rebuilding.limit(1)).one_or_none() is not None


def rebuild_begun(connection: Connection, found: StoreMarker) -> StoreMarker | None:
    """The marker that the store is to have, of a rebuild that was begun before; None if the database is empty.

    Raises:
        StateConflictError: with the rows that are there, or the other cluster.
    """
    rows = connection.execute(select(stores)).all()
    if len(rows) == 1 and rows[0].rebuilding_since_ms is not None:
        if rows[0].cluster_id != found.cluster_id:
            raise StateConflictError(
                f"the database is being rebuilt for cluster {rows[0].cluster_id}, the store belongs to"
                f" {found.cluster_id}: correct remote_storage.url, or use another database"
            )
        return current_marker(rows[0])
    if there := rows_by_table(connection):
        counted = ", ".join(f"{table} {number}" for table, number in there.items())
        raise StateConflictError(
            f"the database is not empty (rows: {counted}): metadata are rebuilt in an empty one alone;"
            " what a database in use does not know is taken in by ./tiering adopt"
        )
    return None


def begin_rebuild(connection: Connection, found: StoreMarker, wanted: StoreMarker, now_ms: int) -> StoreMarker | None:
    """Mark an empty database, which is to own the store as `wanted`. Returns and raises as `rebuild_begun`."""
    serialise_writers(connection, _SERIAL)
    begun_before = rebuild_begun(connection, found)
    if begun_before is None:
        place = wanted.place
        values = {
            "cluster_id": wanted.cluster_id,
            "store_id": wanted.store_id,
            "generation": wanted.generation,
            "generation_token": wanted.token,
            "url": None if place is None else place.url,
            "layout": None if place is None else place.layout,
            "key_prefix": None if place is None else place.key_prefix,
            "created_at_ms": now_ms,
            "rebuilding_since_ms": now_ms,
        }
        connection.execute(insert(stores).values(**values))
    return begun_before


def require_rebuild(connection: Connection, cluster_id: str) -> None:
    """Lock the mark until the transaction ends. Raises StateConflictError if there is none."""
    marked = select(stores.c.cluster_id).where(
        stores.c.cluster_id == cluster_id, stores.c.rebuilding_since_ms.is_not(None)
    )
    if connection.execute(marked.with_for_update()).one_or_none() is None:
        raise StateConflictError("the metadata of this database are not being rebuilt")


def end_rebuild(connection: Connection, cluster_id: str) -> None:
    """Harmless if it has ended."""
    connection.execute(update(stores).where(stores.c.cluster_id == cluster_id).values(rebuilding_since_ms=None))


def current_marker(row: Row[Any]) -> StoreMarker:
    """What a row of `stores` says that the marker is, whatever is pending."""
    place = None if row.url is None else StorePlace(row.url, row.layout, row.key_prefix)
    return StoreMarker(row.cluster_id, row.store_id, row.generation, row.generation_token, place)


def rows_by_table(connection: Connection) -> dict[str, int]:
    """Rows of each of our tables that has any, by name."""
    counts = {
        table.name: connection.execute(select(func.count()).select_from(table)).scalar_one()
        for table in metadata.sorted_tables
    }
    return {name: number for name, number in sorted(counts.items()) if number}


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


class StoreIdentities(ClusterStore):
    """`StoreGenerations` of one cluster's remote store, over the platform's database."""

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
        token and place as the versions before did, until the generation is raised.
        """
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

    def record_conditional_writes(self, heeded: bool) -> None:
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


_KIND: Final = "topic facts"
_AUTHOR: Final = "plan"


class SeenClusterMetadata(ClusterStore):
    """Of one cluster. Every call may raise MetadataUnavailableError."""

    def were_known(self) -> bool:
        with reading(self._engine) as connection:
            return self._is_written(connection)

    def record(self) -> None:
        """Harmless when repeated."""
        if self.were_known():
            return
        with writing(self._engine) as connection:
            serialise_writers(connection, f"{_KIND} of {self._cluster_id}")
            if not self._is_written(connection):
                now_ms = self._now_ms(connection)
                record_event(connection, self._cluster_id, _KIND, self._cluster_id, "known", _AUTHOR, now_ms)

    def _is_written(self, connection: Connection) -> bool:
        """In the order of time: it is among the first events of a cluster."""
        query = select(events.c.event_id).where(events.c.cluster_id == self._cluster_id, events.c.kind == _KIND)
        return connection.execute(query.order_by(events.c.occurred_at_ms).limit(1)).one_or_none() is not None
