"""Migrations of an empty SQLite database: Alembic's for the first one of a process, its tables once more after that."""

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from unittest.mock import patch

from alembic import command
from alembic.config import Config
from sqlalchemy import Connection, inspect

from include.tiering.database import migrations

_statements: dict[str, list[str]] = {}
"""By revision, what Alembic left behind."""


@contextmanager
def quick_migrations() -> Iterator[None]:
    """For tests of anything else: a hundred of them would make the same tables."""
    with patch.object(migrations, "command", SimpleNamespace(upgrade=_upgrade)):
        yield


def _upgrade(config: Config, revision: str) -> None:
    connection: Connection = config.attributes["connection"]
    if connection.dialect.name != "sqlite" or inspect(connection).get_table_names():
        command.upgrade(config, revision)
        return
    if revision not in _statements:
        command.upgrade(config, revision)
        _statements[revision] = _dumped(connection)
        return
    for statement in _statements[revision]:
        connection.exec_driver_sql(statement)


def _dumped(connection: Connection) -> list[str]:
    driver = connection.connection.driver_connection
    assert driver is not None
    return [line for line in driver.iterdump() if line not in ("BEGIN TRANSACTION;", "COMMIT;")]
