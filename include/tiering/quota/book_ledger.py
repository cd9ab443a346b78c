"""Where the book of shares is kept, and the ledger for one process or for tests: in memory."""

import threading
from collections.abc import Callable
from typing import Protocol

from include.tiering.quota.contract import QuotasInForce, QuotaWorker
from include.tiering.quota.shares import Book

BookChange = Callable[[Book], Book]


class BookLedger(Protocol):
    """One book, changed by one process at a time."""

    def exchange(self, change: BookChange) -> Book:
        """Replace the book by what `change` makes of it, in one transaction; returns the new one.

        `change` is called once, while no other process reads or writes the book.

        Raises:
            MetadataUnavailableError: nothing was changed, or it is not known.
        """
        ...


class AnnouncingLedger:
    """`QuotaLedger` over a book."""

    def __init__(self, books: BookLedger) -> None:
        self._books = books

    def announce(self, quotas: QuotasInForce) -> None:
        self._books.exchange(lambda book: book.with_quotas(quotas))

    def in_force(self) -> QuotasInForce:
        return self._books.exchange(lambda book: book).quotas

    def workers(self) -> tuple[QuotaWorker, ...]:
        book = self._books.exchange(lambda book: book)
        return tuple(QuotaWorker(name, entry.version) for name, entry in book.workers.items())


class MemoryBookLedger:
    """A book for the threads of one process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._book = Book()

    def exchange(self, change: BookChange) -> Book:
        with self._lock:
            self._book = change(self._book)
            return self._book
