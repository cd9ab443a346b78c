"""Whether this database is being rebuilt from a store: a mark in the row that says which store it belongs to.

The row is there from the beginning of a rebuild on, with the mark; taking the mark away is the last step. As long as it
is there nobody but the rebuild uses the database, because half of the metadata would make orphans of all other objects.
"""

from typing import Any, Final

from sqlalchemy import Connection, Engine, Row, func, insert, select, update

from include.tiering.database.schema import metadata, stores
from include.tiering.database.statements import serialise_writers
from include.tiering.database.transactions import reading
from include.tiering.errors import StateConflictError
from include.tiering.model.ownership import StoreMarker, StorePlace

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
