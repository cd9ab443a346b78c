"""Configs that take effect while jobs run, with the history of who changed what.

Readers compare `version` and read again when it has moved.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import ColumnElement, Connection, Engine, and_, delete, func, insert, select

from include.tiering.database.clock import NowMs, database_now_ms
from include.tiering.database.schema import dynamic_config_changes, dynamic_configs
from include.tiering.database.statements import serialise_writers, stored_text, upsert
from include.tiering.database.transactions import reading, writing


@dataclass(frozen=True, slots=True)
class ConfigEntity:
    """What a config applies to: `entity_type` brokers, topics or clients; an empty name is the type's default."""

    entity_type: str
    entity_name: str = ""


@dataclass(frozen=True, slots=True)
class ConfigChange:
    """One change. None means: was not set, or was removed."""

    entity: ConfigEntity
    name: str
    old_value: str | None
    new_value: str | None
    author: str
    changed_at_ms: int


class DynamicConfigs:
    """The dynamic configs of one cluster. Names and values are checked by the caller."""

    def __init__(self, engine: Engine, cluster_id: str, *, now_ms: NowMs = database_now_ms) -> None:
        self._engine = engine
        self._cluster_id = cluster_id
        self._now_ms = now_ms

    def version(self) -> int:
        """Grows with every change; 0 before the first."""
        changes = dynamic_config_changes.c
        with reading(self._engine) as connection:
            query = select(func.max(changes.change_id)).where(changes.cluster_id == self._cluster_id)
            return connection.execute(query).scalar_one() or 0

    def of_entity(self, entity: ConfigEntity) -> Mapping[str, str]:
        """What is set on this very entity, without the defaults behind it."""
        with reading(self._engine) as connection:
            return self._values(connection, entity)

    def alter(self, entity: ConfigEntity, changes: Mapping[str, str | None], *, author: str) -> None:
        """Set, or with None remove, all of `changes` in one transaction. What stays the same leaves no history."""
        with writing(self._engine) as connection:
            # One writer at a time, so that a reader who saw a version never misses a change below it.
            serialise_writers(connection, f"dynamic configs of {self._cluster_id}")
            known = self._values(connection, entity)
            for name, new_value in changes.items():
                if known.get(name) != new_value:
                    self._set(connection, entity, name, new_value)
                    self._record(connection, entity, name, known.get(name), new_value, author)

    def history(self, entity: ConfigEntity | None = None) -> Sequence[ConfigChange]:
        """Oldest first, of one entity or of all."""
        table = dynamic_config_changes
        query = select(table).where(table.c.cluster_id == self._cluster_id).order_by(table.c.change_id)
        if entity is not None:
            query = query.where(table.c.entity_type == entity.entity_type, table.c.entity_name == entity.entity_name)
        with reading(self._engine) as connection:
            return [
                ConfigChange(
                    ConfigEntity(row.entity_type, row.entity_name),
                    row.name,
                    row.old_value,
                    row.new_value,
                    row.author,
                    row.changed_at_ms,
                )
                for row in connection.execute(query)
            ]

    def _is_of(self, entity: ConfigEntity) -> ColumnElement[bool]:
        configs = dynamic_configs.c
        return and_(
            configs.cluster_id == self._cluster_id,
            configs.entity_type == entity.entity_type,
            configs.entity_name == entity.entity_name,
        )

    def _values(self, connection: Connection, entity: ConfigEntity) -> dict[str, str]:
        query = select(dynamic_configs.c.name, dynamic_configs.c.value).where(self._is_of(entity))
        return {row.name: row.value for row in connection.execute(query)}

    def _set(self, connection: Connection, entity: ConfigEntity, name: str, value: str | None) -> None:
        if value is None:
            is_config = and_(self._is_of(entity), dynamic_configs.c.name == name)
            connection.execute(delete(dynamic_configs).where(is_config))
            return
        key = {"cluster_id": self._cluster_id, "entity_type": entity.entity_type, "entity_name": entity.entity_name}
        upsert(connection, dynamic_configs, {**key, "name": name, "value": value})

    def _record(
        self,
        connection: Connection,
        entity: ConfigEntity,
        name: str,
        old_value: str | None,
        new_value: str | None,
        author: str,
    ) -> None:
        change = {
            "cluster_id": self._cluster_id,
            "entity_type": entity.entity_type,
            "entity_name": entity.entity_name,
            "name": name,
            "old_value": old_value,
            "new_value": new_value,
            "author": stored_text(author),
            "changed_at_ms": self._now_ms(connection),
        }
        connection.execute(insert(dynamic_config_changes).values(**change))
