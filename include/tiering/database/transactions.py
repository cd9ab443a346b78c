"""What every store does with the database: transactions, the time, statements, the event log.

Transactions have typed errors. Keep the ones that write short: on SQLite there is one writer at a time.

The database's clock is what leases, verdicts and tombstones are dated by, so that no worker's clock matters.
PostgreSQL: the server's. SQLite: that of the one host on which all its users run.

Statements are those that SQLite and PostgreSQL take alike. They are built once, values come with each run: building one
takes several times as long as running it.

The event log is append-only: decisions and outcomes, with their author; never payloads or secrets.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import cache
from typing import Any, Final

from sqlalchemy import BigInteger, Connection, Engine, Table, cast, extract, func, insert, select
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from sqlalchemy.sql.dml import ReturningInsert

from include.tiering.database.engine import WRITES
from include.tiering.database.schema import events
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


NowMs = Callable[[Connection], int]


def database_now_ms(connection: Connection) -> int:
    """UTC milliseconds now, not at the start of the transaction."""
    if connection.dialect.name == "sqlite":
        return time.time_ns() // 1_000_000
    milliseconds = func.floor(extract("epoch", func.clock_timestamp()) * 1000)
    return connection.execute(select(cast(milliseconds, BigInteger))).scalar_one()


class ClusterStore:
    """A store of one cluster in one database. Every call of its public methods is one transaction."""

    def __init__(self, engine: Engine, cluster_id: str, *, now_ms: NowMs = database_now_ms) -> None:
        self._engine = engine
        self._cluster_id = cluster_id
        self._now_ms = now_ms


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


_ADD: Final = insert(events)


def record_event(
    connection: Connection, cluster_id: str, kind: str, subject: str, detail: str, author: str, now_ms: int
) -> None:
    values = {
        "cluster_id": cluster_id,
        "occurred_at_ms": now_ms,
        "kind": kind,
        "subject": stored_text(subject),
        "detail": stored_text(detail),
        "author": stored_text(author),
    }
    connection.execute(_ADD, values)
