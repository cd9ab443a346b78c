"""What hundreds of SQLite databases of one process share: the work of Alembic, and of SQLAlchemy's compiler."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from alembic import command
from alembic.config import Config
from sqlalchemy import URL, Connection, Engine, create_engine, inspect
from sqlalchemy.sql.compiler import Compiled

from include.tiering.database import engine

_by_alembic = command.upgrade
_templates: dict[str, sqlite3.Connection] = {}
"""By revision, a database in memory as Alembic left it."""


@contextmanager
def quick_migrations() -> Iterator[None]:
    """For tests of anything else: a hundred of them would make the same tables."""
    with patch.object(command, "upgrade", _upgrade):
        yield


@contextmanager
def shared_statements() -> Iterator[None]:
    """Engines for SQLite compile a statement once per process. Each has its own dialect, and all are the same."""
    compiled = _Statements()

    def create(url: URL, **options: Any) -> Engine:
        shared = {"compiled_cache": compiled} if url.get_backend_name() == "sqlite" else {}
        return create_engine(url, execution_options=shared, **options)

    with patch.object(engine, "create_engine", create):
        yield


class _Statements(dict[tuple[Any, ...], Compiled]):
    """By SQLAlchemy's key without its first part, the dialect."""

    def get(self, key: tuple[Any, ...], default: Any = None) -> Any:
        return super().get(key[1:], default)

    def __setitem__(self, key: tuple[Any, ...], value: Compiled) -> None:
        super().__setitem__(key[1:], value)


def _upgrade(config: Config, revision: str) -> None:
    connection: Connection = config.attributes["connection"]
    if connection.dialect.name != "sqlite" or inspect(connection).get_table_names():
        _by_alembic(config, revision)
        return
    driver = connection.connection.driver_connection
    assert isinstance(driver, sqlite3.Connection)
    if revision not in _templates:
        _by_alembic(config, revision)
        template = sqlite3.connect(":memory:", check_same_thread=False)
        template.executescript("\n".join(driver.iterdump()))
        _templates[revision] = template
        return
    # Pages are copied between transactions only. The transaction that is open has written nothing.
    driver.rollback()
    _templates[revision].backup(driver)
    driver.execute("BEGIN IMMEDIATE")
