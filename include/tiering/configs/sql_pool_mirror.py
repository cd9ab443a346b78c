"""The mirror of Airflow's pools in SQL.

A change is stored with its history and its event in one transaction: a crash leaves all of it or nothing, and then the
next look at Airflow finds the same difference again.
"""

from collections.abc import Mapping
from typing import Final

from sqlalchemy import ColumnElement, Connection, Engine, and_, select, update

from include.tiering.configs.config_store import ALL_BROKERS
from include.tiering.configs.pools_contract import POOLS, SeenPool
from include.tiering.database.clock import NowMs, database_now_ms
from include.tiering.database.config_history import append_change, one_change_at_a_time
from include.tiering.database.events import record_event
from include.tiering.database.schema import pools
from include.tiering.database.statements import insert_if_absent, stored_text
from include.tiering.database.transactions import reading, writing

_CONFIG_NAMES: Final = {spec.name: spec.config_name for spec in POOLS}


class SqlPoolMirror:
    """`PoolMirror` over an engine."""

    def __init__(self, engine: Engine, cluster_id: str, *, now_ms: NowMs = database_now_ms) -> None:
        self._engine = engine
        self._cluster_id = cluster_id
        self._now_ms = now_ms

    def seen(self) -> Mapping[str, SeenPool]:
        query = select(pools).where(pools.c.cluster_id == self._cluster_id)
        with reading(self._engine) as connection:
            return {row.pool: SeenPool(row.slots, row.updated_at_ms) for row in connection.execute(query)}

    def record(self, pool: str, slots: int, *, seen: int | None, author: str) -> bool:
        with writing(self._engine, durable=seen != slots) as connection:
            now_ms = self._now_ms(connection)
            values = {"cluster_id": self._cluster_id, "pool": pool, "slots": slots, "updated_at_ms": now_ms}
            if seen is None:
                insert_if_absent(connection, pools, values)
                return False
            if seen != slots:
                one_change_at_a_time(connection, self._cluster_id)
            stored = (
                update(pools).where(self._is(pool), pools.c.slots == seen).values(slots=slots, updated_at_ms=now_ms)
            )
            changed = bool(connection.execute(stored).rowcount) and seen != slots
            if changed:
                self._write_down(connection, pool, seen, slots, stored_text(author), now_ms)
            return changed

    def _is(self, pool: str) -> ColumnElement[bool]:
        return and_(pools.c.cluster_id == self._cluster_id, pools.c.pool == pool)

    def _write_down(self, connection: Connection, pool: str, old: int, new: int, author: str, now_ms: int) -> None:
        record_event(connection, self._cluster_id, "pool size", pool, f"{old} -> {new}", author, now_ms)
        if pool in _CONFIG_NAMES:
            append_change(
                connection,
                self._cluster_id,
                entity_type=ALL_BROKERS.entity_type,
                entity_name=ALL_BROKERS.entity_name,
                name=_CONFIG_NAMES[pool],
                old_value=str(old),
                new_value=str(new),
                author=author,
                changed_at_ms=now_ms,
            )
