"""Which remote store this database belongs to: what the store's marker object must say before a write or delete.

The row is written before the marker object is, and neither ever changes by itself (a rebuild replaces the marker, with
a row of a database that was empty): a database that was restored, cloned or pointed at another bucket disagrees with
the marker and is refused.
"""

from typing import Final

from sqlalchemy import Engine, bindparam, select

from include.tiering.database.clock import NowMs, database_now_ms
from include.tiering.database.rebuild_state import is_being_rebuilt
from include.tiering.database.schema import stores
from include.tiering.database.statements import insert_if_absent
from include.tiering.database.transactions import reading, writing
from include.tiering.errors import MetadataUnavailableError
from include.tiering.model.ids import Uuid
from include.tiering.remote_storage.contract import StoreMarker

_IDENTITY: Final = select(stores.c.store_id, stores.c.generation).where(stores.c.cluster_id == bindparam("of_cluster"))


class StoreIdentities:
    """The identity of one cluster's remote store."""

    def __init__(self, engine: Engine, cluster_id: str, *, now_ms: NowMs = database_now_ms) -> None:
        self._engine = engine
        self._cluster_id = cluster_id
        self._now_ms = now_ms

    def read(self) -> StoreMarker | None:
        """None before the first `create`."""
        with reading(self._engine) as connection:
            row = connection.execute(_IDENTITY, {"of_cluster": self._cluster_id}).one_or_none()
        return None if row is None else StoreMarker(self._cluster_id, row.store_id, row.generation)

    def create(self, store_id: Uuid) -> StoreMarker:
        """Record `store_id`, unless there is an identity; returns the one that holds. First generation: 1."""
        with writing(self._engine) as connection:
            values = {
                "cluster_id": self._cluster_id,
                "store_id": str(store_id),
                "generation": 1,
                "created_at_ms": self._now_ms(connection),
            }
            insert_if_absent(connection, stores, values)
            row = connection.execute(_IDENTITY, {"of_cluster": self._cluster_id}).one()
        return StoreMarker(self._cluster_id, row.store_id, row.generation)


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
