"""`Quotas` that all threads, processes and hosts of a deployment share through one ledger."""

import os
import socket
import threading
from collections.abc import Callable

from include.tiering.clock import Clock
from include.tiering.quotas.book_ledger import BookLedger
from include.tiering.quotas.contract import (
    ByteLimiter,
    GoOn,
    QuotaObserver,
    QuotasInForce,
    RequestLimiter,
    RequestsAsBytes,
)
from include.tiering.quotas.limiter import ScopedLimiter
from include.tiering.quotas.process_pacing import ProcessPacing
from include.tiering.quotas.scopes import Scope, copy_scopes, delete_scopes, fetch_scopes
from include.tiering.quotas.share_holder import ShareHolder
from include.tiering.quotas.shares import NO_QUOTAS, Book


class SharedQuotas:
    """One per process. The first limiter that is asked for begins the rounds with the ledger; `close` ends them."""

    def __init__(
        self,
        ledger: BookLedger,
        clock: Clock,
        *,
        random_bytes: Callable[[int], bytes],
        stored_quotas: Callable[[], QuotasInForce],
        observer: QuotaObserver,
    ) -> None:
        self._observer = observer
        self._reported = NO_QUOTAS
        self._pacing = ProcessPacing(clock)
        self._holder = ShareHolder(
            ledger,
            self._pacing,
            clock,
            worker_id=f"{socket.gethostname()}:{os.getpid()}:{random_bytes(4).hex()}",
            stored_quotas=stored_quotas,
            on_round=self._report,
        )
        self._lock = threading.Lock()
        self._started = False

    def copy(self, broker_id: int, topic: str, *, go_on: GoOn) -> ByteLimiter:
        self._start()
        return self._limiter(copy_scopes(broker_id, topic), topic, go_on)

    def fetch(self, broker_id: int, topic: str, client: str | None = None) -> ByteLimiter:
        self._start()
        return self._limiter(fetch_scopes(broker_id, topic, client), topic, lambda: None)

    def delete(self, topic: str, *, go_on: GoOn) -> RequestLimiter:
        self._start()
        return RequestsAsBytes(self._limiter(delete_scopes(), topic, go_on))

    def share(self, scope: Scope) -> float | None:
        """Bytes a second that this process may move in a scope now; None without a limit, 0 without news."""
        self._start()
        return self._pacing.share(scope)

    def close(self) -> None:
        with self._lock:
            if self._started:
                self._holder.close()

    def _limiter(self, scopes: tuple[Scope, ...], topic: str, go_on: GoOn) -> ByteLimiter:
        return ScopedLimiter(self._pacing, scopes, topic, go_on, self._observer)

    def _report(self, book: Book) -> None:
        before, now = self._reported.bytes_per_second, book.quotas.bytes_per_second
        if before != now:
            for scope in {*before, *now}:
                self._observer.in_force(scope, now.get(scope))
            self._reported = book.quotas

    def _start(self) -> None:
        with self._lock:
            if not self._started:
                self._holder.start()
                self._started = True
