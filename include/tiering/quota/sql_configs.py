"""The dynamic configs in SQL, with the history of who changed what.

| step of `alter` | what a crash after it leaves |
|---|---|
| check | nothing |
| values and history, in one transaction | the new version, complete; whoever announces next puts it in force |
"""

from collections.abc import Callable, Mapping, Sequence

from sqlalchemy import ColumnElement, Connection, Engine, Row, and_, delete, func, select

from include.tiering.database.clock import NowMs, database_now_ms
from include.tiering.database.config_history import append_change, one_change_at_a_time
from include.tiering.database.schema import dynamic_config_changes, dynamic_configs
from include.tiering.database.statements import stored_text, upsert
from include.tiering.database.transactions import reading, writing
from include.tiering.quota.config_store import (
    ConfigAlteration,
    ConfigChange,
    ConfigEntity,
    ConfigSnapshot,
    ConfigValues,
    EntityType,
    accept_all,
)


class SqlConfigStore:
    """`ConfigStore` over an engine."""

    def __init__(self, engine: Engine, cluster_id: str, *, now_ms: NowMs = database_now_ms) -> None:
        self._engine = engine
        self._cluster_id = cluster_id
        self._now_ms = now_ms

    def snapshot(self) -> ConfigSnapshot:
        with reading(self._engine) as connection:
            # In this order: values of a version, or newer ones.
            return ConfigSnapshot(self._version(connection), self._all(connection))

    def of_entity(self, entity: ConfigEntity) -> Mapping[str, str]:
        query = select(dynamic_configs.c.name, dynamic_configs.c.value).where(self._is_of(entity))
        with reading(self._engine) as connection:
            return {row.name: row.value for row in connection.execute(query)}

    def alter(
        self,
        entity: ConfigEntity,
        changes: Mapping[str, str | None],
        *,
        author: str,
        check: Callable[[ConfigValues], None] = accept_all,
    ) -> ConfigAlteration:
        with writing(self._engine) as connection:
            one_change_at_a_time(connection, self._cluster_id)
            before = self._all(connection)
            known = before.get(entity, {})
            own = {name: value for name, value in {**known, **changes}.items() if value is not None}
            after = {one: values for one, values in {**before, entity: own}.items() if values}
            check(after)
            made = [
                self._change(connection, entity, name, known.get(name), value, author)
                for name, value in changes.items()
                if known.get(name) != value
            ]
            return ConfigAlteration(tuple(made), ConfigSnapshot(self._version(connection), after))

    def history(self, entity: ConfigEntity | None = None) -> Sequence[ConfigChange]:
        table = dynamic_config_changes
        query = select(table).where(table.c.cluster_id == self._cluster_id).order_by(table.c.change_id)
        if entity is not None:
            query = query.where(table.c.entity_type == entity.entity_type, table.c.entity_name == entity.entity_name)
        with reading(self._engine) as connection:
            return [
                ConfigChange(_entity(row), row.name, row.old_value, row.new_value, row.author, row.changed_at_ms)
                for row in connection.execute(query)
            ]

    def _version(self, connection: Connection) -> int:
        changes = dynamic_config_changes.c
        query = select(func.max(changes.change_id)).where(changes.cluster_id == self._cluster_id)
        return connection.execute(query).scalar_one() or 0

    def _all(self, connection: Connection) -> dict[ConfigEntity, dict[str, str]]:
        found: dict[ConfigEntity, dict[str, str]] = {}
        query = select(dynamic_configs).where(dynamic_configs.c.cluster_id == self._cluster_id)
        for row in connection.execute(query):
            found.setdefault(_entity(row), {})[row.name] = row.value
        return found

    def _is_of(self, entity: ConfigEntity) -> ColumnElement[bool]:
        configs = dynamic_configs.c
        return and_(
            configs.cluster_id == self._cluster_id,
            configs.entity_type == entity.entity_type,
            configs.entity_name == entity.entity_name,
        )

    def _change(
        self, connection: Connection, entity: ConfigEntity, name: str, old: str | None, new: str | None, author: str
    ) -> ConfigChange:
        key = {"cluster_id": self._cluster_id, "entity_type": entity.entity_type, "entity_name": entity.entity_name}
        if new is None:
            connection.execute(delete(dynamic_configs).where(self._is_of(entity), dynamic_configs.c.name == name))
        else:
            upsert(connection, dynamic_configs, {**key, "name": name, "value": new})
        change = ConfigChange(entity, name, old, new, stored_text(author), self._now_ms(connection))
        append_change(
            connection,
            **key,
            name=name,
            old_value=old,
            new_value=new,
            author=change.author,
            changed_at_ms=change.changed_at_ms,
        )
        return change


def _entity(row: Row[tuple[str, ...]]) -> ConfigEntity:
    return ConfigEntity(EntityType(row.entity_type), row.entity_name)
