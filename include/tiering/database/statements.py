"""Statements and values that SQLite and PostgreSQL take alike.

Statements are built once, values come with each run: building one takes several times as long as running it.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Final

from sqlalchemy import Connection, Table, func, select
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.sql.dml import ReturningInsert

from include.tiering.errors import printable

_MOST_CHARACTERS: Final = 2_000


def insert_for(dialect_name: str, table: Table) -> sqlite.Insert | postgresql.Insert:
    """An INSERT that knows ON CONFLICT, in this dialect."""
    return sqlite.insert(table) if dialect_name == "sqlite" else postgresql.insert(table)


def insert_if_absent(connection: Connection, table: Table, values: Mapping[str, Any]) -> bool:
    """Whether the row was not there."""
    return connection.execute(_insert_if_absent(connection.dialect.name, table), values).one_or_none() is not None


@cache
def _insert_if_absent(dialect_name: str, table: Table) -> ReturningInsert[Any]:
    return insert_for(dialect_name, table).on_conflict_do_nothing().returning(next(iter(table.primary_key)))


def upsert(connection: Connection, table: Table, values: Mapping[str, Any], *, keep: Sequence[str] = ()) -> None:
    """Insert the row, or set all but its key and the columns to `keep`."""
    key = [column.name for column in table.primary_key]
    changed = tuple(name for name in values if name not in key and name not in keep)
    connection.execute(_upsert(connection.dialect.name, table, changed), values)


@cache
def _upsert(dialect_name: str, table: Table, changed: Sequence[str]) -> sqlite.Insert | postgresql.Insert:
    statement = insert_for(dialect_name, table)
    new = {name: statement.excluded[name] for name in changed}
    return statement.on_conflict_do_update(index_elements=list(table.primary_key), set_=new)


def serialise_writers(connection: Connection, what: str) -> None:
    """Until this transaction ends, no other that names the same `what` goes on. On SQLite every writer is alone."""
    if connection.dialect.name == "postgresql":
        connection.execute(select(func.pg_advisory_xact_lock(func.hashtextextended(what, 0))))


def stored_text(text: str) -> str:
    """Text from outside as it may be stored: control characters and broken UTF-8 escaped, of bounded length."""
    return printable(text[:_MOST_CHARACTERS])
