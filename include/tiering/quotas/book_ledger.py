"""Where the book of shares is kept, and the ledger for one process or for tests: in memory."""

from collections.abc import Callable
from typing import Protocol

from include.tiering.clock import Clock
from include.tiering.quotas.contract import QuotasInForce, QuotaWorker
from include.tiering.quotas.liveness import Liveness
from include.tiering.quotas.shares import Book

BookChange = Callable[[Book], Book]


class BookLedger(Protocol):
    """One book, changed by one process at a time."""

    def exchange(self, change: BookChange) -> Book:
        """Replace the book by what `change` makes of it, in one transaction; returns the new one.

        A book that `change` gives back as it is need not be written. `change` is called once, while no other process
        reads or writes the book.

        Raises:
            MetadataUnavailableError: nothing was changed, or it is not known.
        """
        ...


class AnnouncingLedger:
    """`QuotaLedger` over a book. Who looks at the workers for longer than a lease no longer sees dead ones."""

    def __init__(self, books: BookLedger, clock: Clock) -> None:
        self._books = books
        self._clock = clock
        self._liveness = Liveness()

    def announce(self, quotas: QuotasInForce) -> None:
        self._books.exchange(lambda book: book.with_quotas(quotas))

    def in_force(self) -> QuotasInForce:
        return self._books.exchange(lambda book: book).quotas

    def workers(self) -> tuple[QuotaWorker, ...]:
        book = self._books.exchange(self._without_silent)
        return tuple(QuotaWorker(name, entry.version) for name, entry in book.workers.items())

    def _without_silent(self, book: Book) -> Book:
        return book.without(self._liveness.silent(book.beats(), self._clock.monotonic()))
