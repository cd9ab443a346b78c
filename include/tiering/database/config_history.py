"""The history of dynamic configs: append only, and its last number is the configs' version."""

from typing import Final

from sqlalchemy import Connection, insert

from include.tiering.database.schema import dynamic_config_changes
from include.tiering.database.statements import serialise_writers

_APPEND: Final = insert(dynamic_config_changes)


def one_change_at_a_time(connection: Connection, cluster_id: str) -> None:
    """Until this transaction ends nobody else appends: who saw a version never misses a change below it."""
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
    """After `one_change_at_a_time`, in the same transaction."""
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
