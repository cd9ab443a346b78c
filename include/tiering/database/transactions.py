"""Transactions with typed errors. Keep the ones that write short: on SQLite there is one writer at a time."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, Final

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from include.tiering.database.engine import WRITES
from include.tiering.errors import MetadataUnavailableError, RemoteMetadataError, printable

_UNDEFINED_TABLE_OR_COLUMN: Final = ("42P01", "42703")
_NORMAL: Final = 1
"""SQLite's `synchronous` from which on a commit does not wait for the disk."""


@contextmanager
def reading(engine: Engine) -> Iterator[Connection]:
    """One consistent view on SQLite; on PostgreSQL each statement sees what was committed before it.

    Raises:
        MetadataUnavailableError: locked, away, or without the tables.
    """
    with _typed_errors(engine), engine.connect() as connection, connection.begin():
        yield connection


@contextmanager
def writing(engine: Engine, *, durable: bool = True) -> Iterator[Connection]:
    """Commits at the end, rolls back on any error.

    Not `durable`: the commit does not wait for the disk. Only a power failure can undo it then, and not even that after
    the next durable commit. For what would be found out again.

    Raises:
        MetadataUnavailableError: locked, away, or without the tables.
    """
    with _typed_errors(engine), engine.connect() as connection:
        marked = connection.execution_options(**{WRITES: True})
        with nullcontext() if durable else _hasty(marked), marked.begin():
            if not durable and engine.dialect.name == "postgresql":
                marked.exec_driver_sql("SET LOCAL synchronous_commit = off")
            yield marked


@contextmanager
def _hasty(connection: Connection) -> Iterator[None]:
    """On SQLite the mode belongs to the connection and changes between transactions alone; it is put back."""
    if connection.dialect.name != "sqlite":
        yield
        return
    driver_connection: Any = connection.connection.driver_connection
    (mode,) = driver_connection.execute("PRAGMA synchronous").fetchone()
    driver_connection.execute(f"PRAGMA synchronous = {min(mode, _NORMAL)}")
    try:
        yield
    finally:
        driver_connection.execute(f"PRAGMA synchronous = {mode}")


@contextmanager
def _typed_errors(engine: Engine) -> Iterator[None]:
    try:
        yield
    except (OperationalError, InterfaceError, PoolTimeoutError) as error:
        raise MetadataUnavailableError(_describe(engine, error)) from error
    except DBAPIError as error:
        unmigrated = getattr(error.orig, "sqlstate", None) in _UNDEFINED_TABLE_OR_COLUMN
        kind = MetadataUnavailableError if unmigrated or error.connection_invalidated else RemoteMetadataError
        raise kind(_describe(engine, error)) from error


def _describe(engine: Engine, error: SQLAlchemyError) -> str:
    """The driver's first line, with neither SQL nor values nor the password."""
    cause = error.orig if isinstance(error, DBAPIError) and error.orig is not None else error
    first_line = next(iter(str(cause).strip().splitlines()), type(cause).__name__)
    password = engine.url.password
    if password:
        first_line = first_line.replace(str(password), "***")
    return f"database {engine.url.render_as_string(hide_password=True)}: {printable(first_line)}"
