"""The identity of the database: its store, whether it is being rebuilt, and whether it has read cluster metadata.

**Store identity**: the row of `stores` holds what the store's marker object must contain before a write or delete. The
row is written before the marker object is created. Every run that plans *claims the store*: it raises the *generation*,
a number with a random token, in the row and in the marker (`claim_store`). While the marker is replaced, the new
generation is pending in the row, and both generations are accepted. If a database was restored from a backup, and the
store was claimed after the backup, the row differs from the marker. So does the row of a cloned database once the other
of the two has claimed the store. A database whose row differs is refused.

**Rebuild**: from the beginning of a rebuild until its last step, the row also records that the database is being
rebuilt from the store. Meanwhile only the rebuild may use the database: objects whose metadata is not rebuilt yet would
look like orphans.

**Cluster metadata**: an event, written once, records that the topics of the cluster have been read from brokers or from
`__cluster_metadata-0`. From then on, a run for which they cannot be read waits (`kafka/cluster/cluster_metadata.py`).
"""

from collections.abc import Mapping
from typing import Any, Final

from sqlalchemy import Connection, Engine, Row, bindparam, func, insert, select, update
from sqlalchemy.engine import make_url

from include.tiering.database.event_log import EventKind, record_event
from include.tiering.database.migrations import current_revision
from include.tiering.database.schema import events, metadata, segments, stores
from include.tiering.database.transactions import ClusterStore, insert_if_absent, reading, serialise_writers, writing
from include.tiering.database.unread_records import raise_unread
from include.tiering.errors import MetadataUnavailableError, StateConflictError
from include.tiering.model.ownership import AcceptedMarkers, StoreMarker, StorePlace
from include.tiering.model.segments import Uuid

_SERIAL: Final = "rebuild of the tiering database"


def is_being_rebuilt(engine: Engine) -> bool:
    with reading(engine) as connection:
        rebuilding = select(stores.c.cluster_id).where(stores.c.rebuilding_since_ms.is_not(None))
        return connection.execute(rebuilding.limit(1)).one_or_none() is not None


def rebuild_begun(connection: Connection, found: StoreMarker) -> StoreMarker | None:
    """Return the marker that an earlier, unfinished rebuild gives to the store; None if the database is empty.

    `found` is the marker that the store has now; its cluster id must be that of the rebuild.

    Raises:
        StateConflictError: the database has rows and no unfinished rebuild, or its rebuild is for another cluster.
    """
    rows = connection.execute(select(stores)).all()
    if len(rows) == 1 and rows[0].rebuilding_since_ms is not None:
        if rows[0].cluster_id != found.cluster_id:
            raise StateConflictError(
                f"the database is being rebuilt for cluster {rows[0].cluster_id}, the store belongs to"
                f" {found.cluster_id}: correct remote_storage.url, or use another database"
            )
        return current_marker(rows[0])
    if rows_found := rows_by_table(connection):
        counted = ", ".join(f"{table} {number}" for table, number in rows_found.items())
        raise StateConflictError(
            f"the database is not empty (rows: {counted}): metadata are rebuilt only in an empty database;"
            " ./tiering adopt adds stored segments to a database in use"
        )
    return None


def begin_rebuild(connection: Connection, found: StoreMarker, wanted: StoreMarker, now_ms: int) -> StoreMarker | None:
    """Record in an empty database that it is being rebuilt, with `wanted` as its marker; raise `unread-records`.

    Returns:
        None if the rebuild begins now; the marker of an earlier, unfinished rebuild, which continues with that marker.

    Raises:
        StateConflictError: as `rebuild_begun` says.
    """
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
        raise_unread(connection, wanted.cluster_id, "this database was rebuilt from the store", now_ms)
    return begun_before


def require_rebuild(connection: Connection, cluster_id: str) -> None:
    """Lock the row of the rebuild until the transaction ends. Raises StateConflictError if none is in progress."""
    marked = select(stores.c.cluster_id).where(
        stores.c.cluster_id == cluster_id, stores.c.rebuilding_since_ms.is_not(None)
    )
    if connection.execute(marked.with_for_update()).one_or_none() is None:
        raise StateConflictError("the metadata of this database are not being rebuilt")


def end_rebuild(connection: Connection, cluster_id: str) -> None:
    """Record that the rebuild has ended. Idempotent."""
    connection.execute(update(stores).where(stores.c.cluster_id == cluster_id).values(rebuilding_since_ms=None))


def current_marker(row: Row[Any]) -> StoreMarker:
    """Return the current marker in a row of `stores`, not the pending one."""
    place = None if row.url is None else StorePlace(row.url, row.layout, row.key_prefix)
    return StoreMarker(row.cluster_id, row.store_id, row.generation, row.generation_token, place)


def rows_by_table(connection: Connection) -> dict[str, int]:
    """Return the number of rows of each table of the schema, by table name; empty tables are absent."""
    counts = {
        table.name: connection.execute(select(func.count()).select_from(table)).scalar_one()
        for table in metadata.sorted_tables
    }
    return {name: number for name, number in sorted(counts.items()) if number}


_IDENTITY: Final = select(stores).where(stores.c.cluster_id == bindparam("of_cluster"))
_LOCKED: Final = _IDENTITY.with_for_update()
_CHANGE: Final = update(stores).where(stores.c.cluster_id == bindparam("of_cluster"))
_SEGMENT: Final = select(segments.c.segment_key).limit(1)
_NOTHING_PENDING: Final = {
    "pending_generation": None,
    "pending_token": None,
    "pending_url": None,
    "pending_layout": None,
    "pending_key_prefix": None,
}


class StoreIdentities(ClusterStore):
    """`StoreGenerations` in the platform's database, for the store of one cluster."""

    def read(self) -> AcceptedMarkers | None:
        """Return the markers that this database accepts; None before the first `create`, where `accepted` raises."""
        with reading(self._engine) as connection:
            row = connection.execute(_IDENTITY, {"of_cluster": self._cluster_id}).one_or_none()
        return None if row is None else accepted_by(row)

    def accepted(self) -> AcceptedMarkers:
        """Return the markers that are accepted now. Raises MetadataUnavailableError if no store is recorded."""
        found = self.read()
        if found is None:
            raise MetadataUnavailableError("the database has no store identity: set it up with ./tiering migrate")
        return found

    def create(self, store_id: Uuid, token: Uuid | None = None, place: StorePlace | None = None) -> AcceptedMarkers:
        """Record this store with generation 1 unless an identity is recorded; return the recorded identity.

        Without a token and a place the marker is one of version 1, which earlier releases wrote (see `StoreMarker`).
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
        """Return whether the database has a segment of any cluster, in any state, including tombstones."""
        with reading(self._engine) as connection:
            return connection.execute(_SEGMENT).one_or_none() is not None

    def propose(self, token: Uuid, place: StorePlace | None) -> AcceptedMarkers:
        """Make the next generation pending, with this token and place, unless a generation is pending."""
        with writing(self._engine) as connection:
            accepted = self._locked(connection)
            if accepted.pending is None:
                self._store_pending(connection, accepted.current.generation + 1, token, place)
            return self._locked(connection)

    def propose_over(
        self, found: StoreMarker, token: Uuid, place: StorePlace | None, *, author: str
    ) -> AcceptedMarkers:
        """Begin a take-over: make the generation after the higher one of `found` and of the database pending.

        In the same transaction an event is recorded, and the guard `unread-records` is raised.
        """
        with writing(self._engine) as connection:
            current = self._locked(connection).current
            generation = max(found.generation, current.generation) + 1
            self._store_pending(connection, generation, token, place)
            detail = f"begun: {found} is followed by generation {generation}; this database was at {current.generation}"
            self._record_event(connection, EventKind.STORE_TAKEN_OVER, detail, author)
            raise_unread(connection, self._cluster_id, "this database took over the store", self._now_ms(connection))
            return self._locked(connection)

    def propose_move(
        self, token: Uuid, place: StorePlace, *, replaces: StoreMarker | None, author: str
    ) -> AcceptedMarkers:
        """If the pending marker is `replaces` (None: none is pending), make the next generation pending with `place`.

        Then it also records an event, and that it is unknown whether the store supports conditional writes. Otherwise
        it changes nothing.
        """
        with writing(self._engine) as connection:
            accepted = self._locked(connection)
            current = accepted.current
            if accepted.pending != replaces:
                return accepted
            self._store_pending(connection, current.generation + 1, token, place)
            self._change(connection, {"conditional_writes": None})
            detail = f"begun: from {current.place or 'a place not recorded'} to {place}"
            self._record_event(connection, EventKind.STORE_MOVED, detail, author)
            return self._locked(connection)

    def settle(self, pending: StoreMarker) -> AcceptedMarkers:
        """Make `pending` the database's own generation, if it is still pending."""
        with writing(self._engine) as connection:
            accepted = self._locked(connection)
            if accepted.pending == pending:
                place = accepted.pending.place
                values = {"generation": pending.generation, "generation_token": pending.token, **_NOTHING_PENDING}
                if place is not None:
                    values |= {"url": place.url, "layout": place.layout, "key_prefix": place.key_prefix}
                self._change(connection, values)
            return self._locked(connection)

    def record_conditional_writes(self, supported: bool) -> None:
        """Record whether the store can compare the version of an object as it replaces the object."""
        with writing(self._engine) as connection:
            self._change(connection, {"conditional_writes": supported})

    def _locked(self, connection: Connection) -> AcceptedMarkers:
        row = connection.execute(_LOCKED, {"of_cluster": self._cluster_id}).one_or_none()
        if row is None:
            raise MetadataUnavailableError("the database has no store identity: set it up with ./tiering migrate")
        if row.rebuilding_since_ms is not None:
            raise StateConflictError("the metadata are being rebuilt from the store: run ./tiering rebuild to continue")
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
        connection.execute(_CHANGE, {"of_cluster": self._cluster_id, **values})

    def _record_event(self, connection: Connection, kind: EventKind, detail: str, author: str) -> None:
        record_event(connection, self._cluster_id, kind, self._cluster_id, detail, author, self._now_ms(connection))


def accepted_by(row: Row[Any]) -> AcceptedMarkers:
    """Return the markers that a database with this row of `stores` accepts: the current and the pending one, if any."""
    current = current_marker(row)
    if row.pending_token is None:
        return AcceptedMarkers(current, None, row.conditional_writes)
    next_place = (
        None if row.pending_url is None else StorePlace(row.pending_url, row.pending_layout, row.pending_key_prefix)
    )
    pending = StoreMarker(row.cluster_id, row.store_id, row.pending_generation, row.pending_token, next_place)
    return AcceptedMarkers(current, pending, row.conditional_writes)


def require_whole(engine: Engine) -> None:
    """Raise MetadataUnavailableError while the metadata of this database are being rebuilt."""
    if is_being_rebuilt(engine):
        raise MetadataUnavailableError(
            "the metadata are being rebuilt from the store and not complete yet: run ./tiering rebuild to continue"
        )


def known_clusters(engine: Engine) -> list[str]:
    """Return the ids of the clusters that this database was set up for: normally one, and none before set-up."""
    with reading(engine) as connection:
        return list(connection.scalars(select(stores.c.cluster_id).order_by(stores.c.cluster_id)))


def known_clusters_if_migrated(engine: Engine) -> list[str]:
    """Return `known_clusters`, which need the tables; none if the database has no tables yet."""
    return known_clusters(engine) if current_revision(engine) is not None else []


def description_of(database_url: str) -> str:
    """Return the database's URL for messages, without user, password and parameters."""
    url = make_url(database_url)
    where = url.host or ""
    where += "" if url.port is None else f":{url.port}"
    return f"{url.get_backend_name()}://{where}/{url.database or ''}"


_KIND: Final = EventKind.CLUSTER_METADATA_READ
_AUTHOR: Final = "plan"


class SeenClusterMetadata(ClusterStore):
    """Whether the topics of one cluster were ever read. Each call may raise MetadataUnavailableError."""

    def were_known(self) -> bool:
        with reading(self._engine) as connection:
            return self._is_written(connection)

    def record(self) -> None:
        """Record that they were read. Idempotent."""
        if self.were_known():
            return
        with writing(self._engine) as connection:
            serialise_writers(connection, f"{_KIND} of {self._cluster_id}")
            if not self._is_written(connection):
                now_ms = self._now_ms(connection)
                record_event(connection, self._cluster_id, _KIND, self._cluster_id, "known", _AUTHOR, now_ms)

    def _is_written(self, connection: Connection) -> bool:
        """Return whether the event exists. Search in order of time, because it is among a cluster's first events."""
        query = select(events.c.event_id).where(events.c.cluster_id == self._cluster_id, events.c.kind == _KIND)
        return connection.execute(query.order_by(events.c.occurred_at_ms).limit(1)).one_or_none() is not None
