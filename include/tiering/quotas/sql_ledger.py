"""The book of shares in SQL: one row per cluster, two statements a round.

PostgreSQL: in the platform's database, the row locked while it is read and written. SQLite: in a file of its own beside
the metadata, so that rounds never wait for a commit that must reach the disk; what a power cut takes from it, the next
rounds write anew.

The book is JSON text, short because every process reads and writes it twice a second:

    {"version": 7, "quotas": {"copy/total/": 1000000},
     "workers": {"<worker id>": [<beat>, <version>, {"copy/total/": [<share>, <wanted, null for all there is>]}]}}
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from sqlalchemy import Engine, bindparam, inspect, select, update
from sqlalchemy.engine import make_url

from include.tiering.clock import Clock
from include.tiering.database.engine import open_engine
from include.tiering.database.schema import quota_ledger
from include.tiering.database.transactions import insert_if_absent, reading, writing
from include.tiering.errors import RemoteMetadataError
from include.tiering.quotas.contract import QuotasInForce, Scope
from include.tiering.quotas.shares import ALL_THERE_IS, Book, Holding, WorkerEntry


def book_to_text(book: Book) -> str:
    return json.dumps(
        {
            "version": book.quotas.version,
            "quotas": {str(scope): quota for scope, quota in book.quotas.bytes_per_second.items()},
            "workers": {
                name: [entry.beat, entry.version, _holdings_to_json(entry.holdings)]
                for name, entry in book.workers.items()
            },
        },
        separators=(",", ":"),
    )


def book_from_text(text: str) -> Book:
    """The reverse. Raises RemoteMetadataError for what no version of this platform wrote."""
    try:
        document = json.loads(text)
        quotas = {Scope.parse(scope): int(quota) for scope, quota in document["quotas"].items()}
        workers = {
            name: WorkerEntry(int(beat), int(version), _holdings_from_json(holdings))
            for name, (beat, version, holdings) in document["workers"].items()
        }
        return Book(QuotasInForce(int(document["version"]), quotas), workers)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise RemoteMetadataError(f"the quota ledger holds no book: {type(error).__name__}") from None


def _holdings_to_json(holdings: Mapping[Scope, Holding]) -> dict[str, Any]:
    return {
        str(scope): [round(held.share, 1), None if held.wanted == ALL_THERE_IS else round(held.wanted, 1)]
        for scope, held in holdings.items()
    }


def _holdings_from_json(document: Mapping[str, Any]) -> dict[Scope, Holding]:
    return {
        Scope.parse(scope): Holding(float(share), ALL_THERE_IS if wanted is None else float(wanted))
        for scope, (share, wanted) in document.items()
    }


PATIENCE_MS: Final = 500
"""A round that takes longer has failed: the shares of the last one are nearly over."""

_READ: Final = select(quota_ledger.c.book).where(quota_ledger.c.cluster_id == bindparam("cluster")).with_for_update()
_WRITE: Final = (
    update(quota_ledger).where(quota_ledger.c.cluster_id == bindparam("cluster")).values(book=bindparam("new_book"))
)


class SqlBookLedger:
    """`BookLedger` over an engine of `open_ledger_engine`."""

    def __init__(self, engine: Engine, cluster_id: str) -> None:
        self._engine = engine
        self._cluster_id = cluster_id

    def exchange(self, change: Callable[[Book], Book]) -> Book:
        with writing(self._engine) as connection:
            text = connection.execute(_READ, {"cluster": self._cluster_id}).scalar_one_or_none()
            if text is None:
                insert_if_absent(
                    connection, quota_ledger, {"cluster_id": self._cluster_id, "book": book_to_text(Book())}
                )
                text = connection.execute(_READ, {"cluster": self._cluster_id}).scalar_one()
            before = book_from_text(text)
            book = change(before)
            if book is not before:
                connection.execute(_WRITE, {"cluster": self._cluster_id, "new_book": book_to_text(book)})
        return book


def open_ledger_engine(metadata_url: str, clock: Clock, *, patience_ms: int = PATIENCE_MS) -> Engine:
    """The engine of the ledger that belongs to this metadata database; impatient by default, as rounds have to be.

    Raises:
        SettingError: as `open_engine`.
        MetadataUnavailableError: the file of a SQLite ledger cannot be made.
    """
    url = make_url(metadata_url)
    if url.get_backend_name() != "sqlite":
        return open_engine(metadata_url, clock=clock, patience_ms=patience_ms)
    path = Path(str(url.database))
    ledger_url = str(url.set(database=str(path.with_name(f"{path.stem}-quota{path.suffix}"))))
    _make_table(ledger_url, clock)
    return open_engine(ledger_url, clock=clock, patience_ms=patience_ms, durable=False)


def _make_table(ledger_url: str, clock: Clock) -> None:
    """With patience: many processes may begin at once. Whoever finds the table does not write."""
    engine = open_engine(ledger_url, clock=clock, durable=False)
    try:
        with reading(engine) as connection:
            is_there = inspect(connection).has_table(quota_ledger.name)
        if not is_there:
            with writing(engine) as connection:
                quota_ledger.create(connection, checkfirst=True)
    finally:
        engine.dispose()
