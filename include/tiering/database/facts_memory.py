"""Whether the facts about a cluster's topics were ever read: one event, written once."""

from typing import Final

from sqlalchemy import Connection, Engine, select

from include.tiering.database.clock import database_now_ms
from include.tiering.database.events import record_event
from include.tiering.database.schema import events
from include.tiering.database.statements import serialise_writers
from include.tiering.database.transactions import reading, writing

_KIND: Final = "topic facts"
_AUTHOR: Final = "plan"


class FactsMemory:
    """Of one cluster. Every call may raise MetadataUnavailableError."""

    def __init__(self, engine: Engine, cluster_id: str) -> None:
        self._engine = engine
        self._cluster_id = cluster_id

    def were_known(self) -> bool:
        with reading(self._engine) as connection:
            return self._is_written(connection)

    def remember(self) -> None:
        """Harmless when repeated."""
        if self.were_known():
            return
        with writing(self._engine) as connection:
            serialise_writers(connection, f"{_KIND} of {self._cluster_id}")
            if not self._is_written(connection):
                now_ms = database_now_ms(connection)
                record_event(connection, self._cluster_id, _KIND, self._cluster_id, "known", _AUTHOR, now_ms)

    def _is_written(self, connection: Connection) -> bool:
        """In the order of time: it is among the first events of a cluster."""
        query = select(events.c.event_id).where(events.c.cluster_id == self._cluster_id, events.c.kind == _KIND)
        return connection.execute(query.order_by(events.c.occurred_at_ms).limit(1)).one_or_none() is not None
