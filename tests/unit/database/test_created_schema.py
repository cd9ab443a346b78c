"""The created schema is, line by line, the table of tests/data/schema.tsv.

Nothing writes that file: who adds a migration adds its lines by hand. So a NOT NULL, a default, a key or an index that
is lost in a migration or in a declared table differs from it, also if it is lost in both.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from alembic import command
from sqlalchemy import Connection, create_engine, inspect, text
from sqlalchemy.dialects import postgresql
from sqlalchemy.schema import CreateColumn

from include.tiering.database.migrations import migration_config
from include.tiering.database.schema import metadata

SCHEMA = Path(__file__).parents[2] / "data" / "schema.tsv"
ON_SQLITE, ON_POSTGRESQL = 3, 4


def expected(place: int) -> list[tuple[str, ...]]:
    """The lines without the description for the other database; those that have none for this one are left out."""
    head, *lines = (tuple(line.split("\t")) for line in SCHEMA.read_text().splitlines())
    assert head == ("table", "part", "name", "on SQLite", "on PostgreSQL")
    return sorted((*line[:ON_SQLITE], line[place]) for line in lines if line[place])


def by_migrations(connection: Connection) -> None:
    config = migration_config()
    config.attributes["connection"] = connection
    command.upgrade(config, "head")


@pytest.mark.parametrize("create", [by_migrations, metadata.create_all], ids=["by migrations", "as declared"])
def test_the_schema_that_is_created_is_the_one_that_is_written_down(create: Callable[[Connection], None]) -> None:
    engine = create_engine("sqlite://")
    with engine.begin() as connection:
        create(connection)
        assert sorted(schema_of(connection)) == expected(ON_SQLITE)
    engine.dispose()


def test_columns_on_postgresql_are_those_that_are_written_down() -> None:
    dialect = postgresql.dialect()
    found = [
        (table.name, "column", column.name, " ".join(str(CreateColumn(column).compile(dialect=dialect)).split()[1:]))
        for table in metadata.sorted_tables
        for column in table.columns
    ]
    assert sorted(found) == expected(ON_POSTGRESQL)


def schema_of(connection: Connection) -> Iterator[tuple[str, ...]]:
    inspector = inspect(connection)
    for table in set(inspector.get_table_names()) - {"alembic_version"}:
        for column in inspector.get_columns(table):
            yield table, "column", column["name"], _column(column)
        yield table, "primary key", "", _primary_key(connection, table)
        for unique in inspector.get_unique_constraints(table):
            yield table, "unique", str(unique["name"]), ", ".join(unique["column_names"])
        for key in inspector.get_foreign_keys(table):
            columns, referred = ", ".join(key["constrained_columns"]), ", ".join(key["referred_columns"])
            deleted = f" on delete {key['options']['ondelete']}" if "ondelete" in key.get("options", {}) else ""
            yield table, "foreign key", str(key["name"]), f"{columns} -> {key['referred_table']}: {referred}{deleted}"
        for check in inspector.get_check_constraints(table):
            yield table, "check", str(check["name"]), check["sqltext"]
        for index in inspector.get_indexes(table):
            where = index.get("dialect_options", {}).get("sqlite_where")
            unique_index = "unique: " if index["unique"] else ""
            columns = unique_index + ", ".join(str(name) for name in index["column_names"])
            yield table, "index", str(index["name"]), columns + (f" where {where}" if where is not None else "")


def _primary_key(connection: Connection, table: str) -> str:
    """With AUTOINCREMENT, a key is never given twice, not even after its row was deleted."""
    statement = text("SELECT sql FROM sqlite_master WHERE type = 'table' AND name = :name")
    never_twice = (
        " AUTOINCREMENT" if "AUTOINCREMENT" in connection.execute(statement, {"name": table}).scalar_one() else ""
    )
    return ", ".join(inspect(connection).get_pk_constraint(table)["constrained_columns"]) + never_twice


def _column(column: Any) -> str:
    nullable = "" if column["nullable"] else " NOT NULL"
    default = "" if column["default"] is None else f" DEFAULT {column['default']}"
    return f"{column['type']}{default}{nullable}"
