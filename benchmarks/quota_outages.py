"""Ways to take the ledger from everybody for a while. It comes back unharmed when the context ends."""

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from pathlib import Path

import psutil
from sqlalchemy import create_engine, text
from sqlalchemy.engine import make_url

from include.tiering.clock import SystemClock
from include.tiering.quotas.shared_quotas import open_ledger_engine

Outage = Callable[[], AbstractContextManager[None]]


def outage_of(metadata_url: str) -> Outage:
    """The one that fits this database."""
    is_sqlite = make_url(metadata_url).get_backend_name() == "sqlite"
    return lambda: locked_file(metadata_url) if is_sqlite else stopped_server(metadata_url)


@contextmanager
def locked_file(metadata_url: str) -> Iterator[None]:
    """SQLite: an exclusive lock on the ledger's file."""
    engine = open_ledger_engine(metadata_url, SystemClock())
    path = Path(str(engine.url.database))
    engine.dispose()
    with closing(sqlite3.connect(path, isolation_level=None, timeout=60)) as connection:
        connection.execute("BEGIN EXCLUSIVE")
        try:
            yield
        finally:
            connection.execute("ROLLBACK")


@contextmanager
def stopped_server(metadata_url: str) -> Iterator[None]:
    """PostgreSQL: SIGSTOP for the server and all its backends; connections stay open and nobody answers."""
    engine = create_engine(metadata_url)
    with engine.connect() as connection:
        directory = Path(connection.execute(text("SHOW data_directory")).scalar_one())
    engine.dispose()
    postmaster = psutil.Process(int((directory / "postmaster.pid").read_text().splitlines()[0]))
    postmaster.suspend()
    # Nobody is born now; a backend may still end.
    processes = [*postmaster.children(recursive=True), postmaster]
    _each(processes, psutil.Process.suspend)
    try:
        yield
    finally:
        _each(processes, psutil.Process.resume)


def _each(processes: Sequence[psutil.Process], action: Callable[[psutil.Process], None]) -> None:
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            action(process)
