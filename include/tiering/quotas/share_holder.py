"""The thread of a process that keeps its shares: one round with the ledger about twice a second.

    step                        a crash after it leaves
    1 read the book             nothing
    2 reduce the own rates      nothing
    3 store the new entry       an entry without an owner; its shares come back when others see it silent
    4 raise the own rates       the same

Rates fall before the ledger gives the difference to others, and rise only after it gave: the sum of what processes
use never exceeds the sum of what the book says. A round that fails changes nothing; the rates end by themselves.
"""

import logging
import threading
from collections.abc import Callable
from typing import Final

from include.tiering.clock import Clock
from include.tiering.errors import TieringError
from include.tiering.quotas.book_ledger import BookLedger
from include.tiering.quotas.contract import QuotasInForce
from include.tiering.quotas.liveness import LEASE_SECONDS, Liveness
from include.tiering.quotas.process_pacing import ProcessPacing
from include.tiering.quotas.shares import Book, renewed

_log: Final = logging.getLogger(__name__)

PERIOD_SECONDS: Final = 0.6
"""Two statements a round: 3.3 a second, which leaves room for rounds out of turn and for reloads."""

_OUT_OF_TURN_SECONDS: Final = 0.2
"""A sender that has nothing at all asks again after this long, while the statements of the last seconds allow it.

Three such rounds reach beyond one period: by then everybody has made room once.
"""

_MEAN_SECONDS: Final = 0.55
_ROUNDS_AHEAD: Final = 3

RELOAD_SECONDS: Final = 10.0
"""How often the quotas are compared with where they are stored: repairs a change that was stored and not announced."""


class ShareHolder:
    """Runs from `start` to `close`. `stored_quotas` reads the quotas from where they are stored for good."""

    def __init__(
        self,
        ledger: BookLedger,
        pacing: ProcessPacing,
        clock: Clock,
        *,
        worker_id: str,
        stored_quotas: Callable[[], QuotasInForce],
        on_round: Callable[[Book], None] = lambda _: None,
    ) -> None:
        self._ledger = ledger
        self._pacing = pacing
        self._clock = clock
        self._worker_id = worker_id
        self._stored_quotas = stored_quotas
        self._on_round = on_round
        self._liveness = Liveness()
        self._beat = 0
        self._reload_at = float("-inf")
        self._allowed_at = float("-inf")
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="quota-shares", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Give the shares back; if the ledger is away, others take them when they see this process silent."""
        self._closing.set()
        self._pacing.starved.set()
        self._thread.join()
        self._pacing.hold({}, float("-inf"))
        if self._beat:
            try:
                self._ledger.exchange(lambda book: book.without([self._worker_id]))
            except TieringError as error:
                _log.info("the shares of %s are left to expire: %s", self._worker_id, error)

    def round(self) -> None:
        """Renew the entry of this process and take what the book gives.

        Raises:
            MetadataUnavailableError
        """
        began = self._clock.monotonic()
        stored = self._reloaded(began)
        self._beat += 1

        def change(book: Book) -> Book:
            current = book if stored is None else book.with_quotas(stored)
            others = current.without([self._worker_id]).beats()
            silent = self._liveness.silent(others, self._clock.monotonic())
            wanted = self._pacing.wanted(current.quotas)
            new = renewed(current.without(silent), self._worker_id, wanted, self._beat)
            holdings = new.workers[self._worker_id].holdings
            self._pacing.reduce({scope: held.share for scope, held in holdings.items()})
            self._asked = tuple(wanted)
            return new

        book = self._ledger.exchange(change)
        holdings = book.workers[self._worker_id].holdings
        rates = {scope: holdings[scope].share if scope in holdings else None for scope in self._asked}
        self._pacing.hold(rates, began + LEASE_SECONDS)
        self._on_round(book)

    def _run(self) -> None:
        while not self._closing.is_set():
            began = self._clock.monotonic()
            self._allowed_at = max(self._allowed_at, began) + _MEAN_SECONDS
            try:
                self.round()
            except TieringError as error:
                _log.warning("no news of the quotas: %s", error)
            except Exception:  # noqa: BLE001
                # Without this thread every sender would wait for ever, and nobody would know why.
                _log.exception("a round with the quota ledger broke")
            self._wait(began)

    def _wait(self, began: float) -> None:
        """Until the next round is due: soon if a sender has nothing and the mean rate of statements allows it."""
        soon = max(began + _OUT_OF_TURN_SECONDS, self._allowed_at - _ROUNDS_AHEAD * _MEAN_SECONDS)
        now = self._clock.monotonic()
        self._closing.wait(max(0.0, soon - now))
        rest_seconds = began + PERIOD_SECONDS - self._clock.monotonic()
        if rest_seconds > 0 and not self._closing.is_set():
            self._pacing.starved.wait(rest_seconds)

    def _reloaded(self, now: float) -> QuotasInForce | None:
        if now < self._reload_at:
            return None
        stored = self._stored_quotas()
        self._reload_at = now + RELOAD_SECONDS
        return stored
