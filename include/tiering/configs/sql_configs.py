"""The dynamic configs and the mirror of Airflow's pools in SQL, with a common history of changes.

Rows are only appended to the history, and the number of its last row is the version of the configs.

| step of `SqlConfigStore.alter` | what a crash after it leaves |
|---|---|
| check | nothing |
| values and history, in one transaction | the new version, complete; quotas in force once announced or re-read |

A change of a pool's size is stored with its history and its event in one transaction. A crash leaves all of them or
none; if it leaves none, the next read of Airflow's pools finds the same difference.

A value that is stored under a former name of a setting is returned under the setting's current name, and so is its
history. The next change of the value stores it under the current name and removes it under the former name.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, Row, Select, and_, bindparam, delete, func, insert, select, update

from include.tiering.configs.config_store import (
    ALL_BROKERS,
    ConfigAlteration,
    ConfigChange,
    ConfigCheck,
    ConfigEntity,
    ConfigSnapshot,
    EntityType,
    accept_all,
)
from include.tiering.configs.pools import POOLS, SeenPool
from include.tiering.database.event_log import EventKind, record_event
from include.tiering.database.schema import dynamic_config_changes, dynamic_configs, pools
from include.tiering.database.transactions import (
    ClusterStore,
    insert_if_absent,
    reading,
    serialise_writers,
    stored_text,
    upsert,
    writing,
)
from include.tiering.settings.catalogue import current_name, former_names

_APPEND: Final = insert(dynamic_config_changes)


def one_change_at_a_time(connection: Connection, cluster_id: str) -> None:
    """Block other changes until this transaction ends, so that a reader of a version also sees all earlier changes."""
    serialise_writers(connection, f"dynamic configs of {cluster_id}")


def append_change(
    connection: Connection,
    cluster_id: str,
    *,
    entity_type: str,
    entity_name: str,
    name: str,
    old_value: str | None,
    new_value: str | None,
    author: str,
    changed_at_ms: int,
) -> None:
    """Append a change to the history. Call `one_change_at_a_time` before, in the same transaction."""
    values = {
        "cluster_id": cluster_id,
        "entity_type": entity_type,
        "entity_name": entity_name,
        "name": name,
        "old_value": old_value,
        "new_value": new_value,
        "author": author,
        "changed_at_ms": changed_at_ms,
    }
    connection.execute(_APPEND, values)


_CHANGES: Final = dynamic_config_changes.c.cluster_id == bindparam("of_cluster")
_VERSION: Final = select(func.max(dynamic_config_changes.c.change_id)).where(_CHANGES)
_ALL: Final = select(dynamic_configs).where(dynamic_configs.c.cluster_id == bindparam("of_cluster"))


def _version_with_all() -> Select[Any]:
    """One statement, so that the values are those of the version; one row without a value if nothing is set."""
    newest = select(func.max(dynamic_config_changes.c.change_id).label("version")).where(_CHANGES).subquery("newest")
    is_of_cluster = dynamic_configs.c.cluster_id == bindparam("of_cluster")
    return select(newest.c.version, dynamic_configs).select_from(newest.outerjoin(dynamic_configs, is_of_cluster))


_SNAPSHOT: Final = _version_with_all()
_IS_OF: Final = (
    dynamic_configs.c.cluster_id == bindparam("of_cluster"),
    dynamic_configs.c.entity_type == bindparam("of_type"),
    dynamic_configs.c.entity_name == bindparam("of_entity"),
)
_OF_ENTITY: Final = select(dynamic_configs.c.name, dynamic_configs.c.value).where(*_IS_OF)
_UNSET: Final = delete(dynamic_configs).where(*_IS_OF, dynamic_configs.c.name == bindparam("of_name"))


class SqlConfigStore(ClusterStore):
    """`ConfigStore` over an engine."""

    def snapshot(self) -> ConfigSnapshot:
        """Return all values and their version, which is 0 before the first change."""
        with reading(self._engine) as connection:
            rows = connection.execute(_SNAPSHOT, {"of_cluster": self._cluster_id}).all()
        return ConfigSnapshot(rows[0].version or 0, _by_entity(row for row in rows if row.name is not None))

    def of_entity(self, entity: ConfigEntity) -> Mapping[str, str]:
        """Return the values that are set on this entity itself, without defaults."""
        with reading(self._engine) as connection:
            rows = connection.execute(_OF_ENTITY, self._key_of(entity))
            return _by_current_name((row.name, row.value) for row in rows)

    def alter(
        self,
        entity: ConfigEntity,
        changes: Mapping[str, str | None],
        *,
        author: str,
        check: ConfigCheck = accept_all,
    ) -> ConfigAlteration:
        """Make all of `changes` or none of them: set a value, or remove it if the new value is None."""
        with writing(self._engine) as connection:
            one_change_at_a_time(connection, self._cluster_id)
            before = self._all(connection)
            known = before.get(entity, {})
            own = {name: value for name, value in {**known, **changes}.items() if value is not None}
            after = {changed_entity: values for changed_entity, values in {**before, entity: own}.items() if values}
            check(before, after)
            made = [
                self._change(connection, entity, name, known.get(name), value, author)
                for name, value in changes.items()
                if known.get(name) != value
            ]
            return ConfigAlteration(tuple(made), ConfigSnapshot(self._version(connection), after))

    def history(
        self,
        entity: ConfigEntity | None = None,
        *,
        entity_type: EntityType | None = None,
        since_ms: int = 0,
        newest: int | None = None,
    ) -> Sequence[ConfigChange]:
        """Return changes, the oldest first, of an entity or type, from a time on, or only the newest of them."""
        table = dynamic_config_changes
        query = select(table).where(table.c.cluster_id == self._cluster_id).order_by(table.c.change_id.desc())
        if entity is not None:
            query = query.where(table.c.entity_type == entity.entity_type, table.c.entity_name == entity.entity_name)
        if since_ms:
            query = query.where(table.c.changed_at_ms >= since_ms)
        if entity_type is not None:
            query = query.where(table.c.entity_type == entity_type)
        with reading(self._engine) as connection:
            return list(map(_change_of, connection.execute(query.limit(newest)).all()))[::-1]

    def changes_of_topics(
        self, topics: Collection[str], names: Collection[str], *, at_most: int
    ) -> Sequence[ConfigChange]:
        """Return the newest changes of the configs with these names on these topics, the newest first."""
        table = dynamic_config_changes
        known = [known for name in names for known in (name, *former_names(name))]
        query = (
            select(table)
            .where(table.c.cluster_id == self._cluster_id, table.c.entity_type == EntityType.TOPICS)
            .where(table.c.entity_name.in_(topics), table.c.name.in_(known))
            .order_by(table.c.change_id.desc())
            .limit(at_most)
        )
        with reading(self._engine) as connection:
            return list(map(_change_of, connection.execute(query)))

    def _version(self, connection: Connection) -> int:
        return connection.execute(_VERSION, {"of_cluster": self._cluster_id}).scalar_one() or 0

    def _all(self, connection: Connection) -> dict[ConfigEntity, dict[str, str]]:
        return _by_entity(connection.execute(_ALL, {"of_cluster": self._cluster_id}))

    def _key_of(self, entity: ConfigEntity) -> dict[str, str]:
        return {"of_cluster": self._cluster_id, "of_type": entity.entity_type, "of_entity": entity.entity_name}

    def _change(
        self, connection: Connection, entity: ConfigEntity, name: str, old: str | None, new: str | None, author: str
    ) -> ConfigChange:
        key = {"cluster_id": self._cluster_id, "entity_type": entity.entity_type, "entity_name": entity.entity_name}
        for old_name in former_names(name) if new is not None else (name, *former_names(name)):
            connection.execute(_UNSET, self._key_of(entity) | {"of_name": old_name})
        if new is not None:
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


def _change_of(row: Row[Any]) -> ConfigChange:
    return ConfigChange(
        _entity(row), current_name(row.name), row.old_value, row.new_value, row.author, row.changed_at_ms
    )


def _by_entity(rows: Iterable[Row[Any]]) -> dict[ConfigEntity, dict[str, str]]:
    found: dict[ConfigEntity, list[tuple[str, str]]] = {}
    for row in rows:
        found.setdefault(_entity(row), []).append((row.name, row.value))
    return {entity: _by_current_name(values) for entity, values in found.items()}


def _by_current_name(values: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return values by the current names of their configs; a value under the current name wins over a former name."""
    ordered = sorted(values, key=lambda value: value[0] == current_name(value[0]))
    return {current_name(name): value for name, value in ordered}


def _entity(row: Row[tuple[str, ...]]) -> ConfigEntity:
    return ConfigEntity(EntityType(row.entity_type), row.entity_name)


_CONFIG_NAMES: Final = {spec.name: spec.config_name for spec in POOLS}
_SEEN: Final = select(pools.c.pool, pools.c.slots, pools.c.updated_at_ms).where(
    pools.c.cluster_id == bindparam("of_cluster")
)


class SqlPoolMirror(ClusterStore):
    """`PoolMirror` over an engine."""

    def seen(self) -> Mapping[str, SeenPool]:
        """Return the last known sizes by name; pools whose size was never stored are absent."""
        with reading(self._engine) as connection:
            rows = connection.execute(_SEEN, {"of_cluster": self._cluster_id}).all()
        return {pool: SeenPool(slots, updated_at_ms) for pool, slots, updated_at_ms in rows}

    def record(self, pool: str, slots: int, *, seen: int | None, author: str) -> bool:
        """Store the size that Airflow returned, unless the stored size has changed since the caller read `seen`."""
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
                self._record_change(connection, pool, seen, slots, stored_text(author), now_ms)
            return changed

    def _is(self, pool: str) -> ColumnElement[bool]:
        return and_(pools.c.cluster_id == self._cluster_id, pools.c.pool == pool)

    def _record_change(self, connection: Connection, pool: str, old: int, new: int, author: str, now_ms: int) -> None:
        record_event(connection, self._cluster_id, EventKind.POOL_SIZE, pool, f"{old} -> {new}", author, now_ms)
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
