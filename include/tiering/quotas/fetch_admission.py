"""Whether a read of remote bytes may begin now, or for how long its reader should not try again (KIP-956).

Admission never blocks a reader: while the rate of any of its scopes is above that scope's quota, the reader gets the
throttle time instead of bytes, and tries again. Admitted bytes are recorded at once, before they are read, so that
readers that try at the same time do not all pass.

What all processes read in the last window is in the ledger row, so that a process that serves only one read knows of
earlier reads by others. The times there are the database's. If the database's clock is set to another time, a window
may start empty again and admit readers too early; the `ByteLimiter`, which paces the admitted bytes, has no wall clock
and keeps the quota.

The limiter would hold a large read under a small quota for longer than any reader waits. So readers look up the
`lowest_quota` first, and read no more at once than this quota grants within a short time.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final, TypeVar

from include.tiering.errors import MetadataUnavailableError
from include.tiering.quotas.contract import QuotasInForce, Scope
from include.tiering.quotas.shares import LedgerRow
from include.tiering.quotas.window import QuotaWindow

DEFAULT_SAMPLES: Final = 11
DEFAULT_SAMPLE_MS: Final = 1_000

_T = TypeVar("_T")
Exchange = Callable[[Callable[[LedgerRow], LedgerRow]], LedgerRow]
"""`LedgerStore.exchange`."""


class FetchAdmission:
    """A `ReadAdmission` by the windows in the ledger row. Thread-safe.

    Each reader gets the largest throttle time of its scopes. A refused read is not recorded. So a client above its own
    quota that tries without pause leaves the wider scopes to others. Scopes that are known to have no limit cost no
    access to the ledger, and those without a quota no place in it. If the ledger does not answer, the stored quotas are
    read again: while none is set in any scope, every read is admitted, and the limiter grants every byte.

    Args:
        exchange: changes the ledger row.
        now_ms: the time of the database, which is the same for all processes.
        stored: reads the stored quotas, which count if the ledger row has older ones.
        has_no_limit: whether a scope is known to have no quota now.
    """

    def __init__(
        self,
        exchange: Exchange,
        now_ms: Callable[[], int],
        *,
        stored: Callable[[], QuotasInForce],
        has_no_limit: Callable[[Scope], bool],
        samples: int = DEFAULT_SAMPLES,
        sample_ms: int = DEFAULT_SAMPLE_MS,
    ) -> None:
        self._exchange = exchange
        self._now_ms = now_ms
        self._read_stored = stored
        self._stored = stored()
        self._has_no_limit = has_no_limit
        self._samples = samples
        self._sample_ms = sample_ms

    def throttle_ms(self, scopes: Sequence[Scope]) -> int:
        """Implement `ReadAdmission.throttle_ms`."""
        limited = self._limited(scopes)
        return self._asked(lambda: self._throttle_ms(self._row(), limited, self._now_ms()), 0) if limited else 0

    @property
    def window_seconds(self) -> float:
        """Implement `ReadAdmission.window_seconds`."""
        return self._samples * self._sample_ms / 1000

    def lowest_quota(self, scopes: Sequence[Scope]) -> int | None:
        """Implement `ReadAdmission.lowest_quota`."""
        limited = self._limited(scopes)
        if not limited:
            return None
        return self._asked(lambda: min(self._quotas(self._row(), limited).values(), default=None), None)

    def admit(self, scopes: Sequence[Scope], size_bytes: int) -> int:
        """Implement `ReadAdmission.admit`."""
        limited = self._limited(scopes)
        return self._asked(lambda: self._admit(limited, size_bytes), 0) if limited else 0

    def record(self, scopes: Sequence[Scope], size_bytes: int) -> None:
        """Implement `ReadAdmission.record`."""
        if limited := self._limited(scopes):
            self._asked(lambda: self._record(limited, size_bytes), None)

    def _asked(self, ask: Callable[[], _T], unlimited: _T) -> _T:
        """Return what the ledger answers; `unlimited` if it does not answer and no quota is stored in any scope."""
        try:
            return ask()
        except MetadataUnavailableError:
            if not self._read_stored().set_no_limit:
                raise
            return unlimited

    def _admit(self, limited: Sequence[Scope], size_bytes: int) -> int:
        now_ms, throttle_ms = self._now_ms(), 0

        def change(row: LedgerRow) -> LedgerRow:
            nonlocal throttle_ms
            throttle_ms = self._throttle_ms(row, limited, now_ms)
            return row if throttle_ms else self._recorded(row, limited, size_bytes, now_ms)

        self._exchange(change)
        return throttle_ms

    def _record(self, limited: Sequence[Scope], size_bytes: int) -> None:
        now_ms = self._now_ms()
        self._exchange(lambda row: self._recorded(row, limited, size_bytes, now_ms))

    def _limited(self, scopes: Sequence[Scope]) -> list[Scope]:
        return [scope for scope in scopes if not self._has_no_limit(scope)]

    def _row(self) -> LedgerRow:
        return self._exchange(lambda row: row)

    def _quotas(self, row: LedgerRow, scopes: Sequence[Scope]) -> dict[Scope, int]:
        quotas = row.quotas if row.quotas.version > self._stored.version else self._stored
        return {scope: quota for scope in scopes if (quota := quotas.of(scope)) is not None}

    def _throttle_ms(self, row: LedgerRow, scopes: Sequence[Scope], now_ms: int) -> int:
        quotas = self._quotas(row, scopes)
        throttle_times = (
            self._window(row, scope, now_ms).throttle_ms(quota, now_ms)
            for scope, quota in quotas.items()
            if scope in row.reads
        )
        return max(throttle_times, default=0)

    def _recorded(self, row: LedgerRow, scopes: Sequence[Scope], size_bytes: int, now_ms: int) -> LedgerRow:
        oldest_ms = now_ms - self._samples * self._sample_ms
        reads = {scope: state for scope, state in row.reads.items() if oldest_ms < state.last_record_ms <= now_ms}
        for scope in self._quotas(row, scopes):
            window = self._window(row, scope, now_ms)
            window.record(size_bytes, now_ms)
            reads[scope] = window.state
        return replace(row, reads=reads)

    def _window(self, row: LedgerRow, scope: Scope, now_ms: int) -> QuotaWindow:
        state = row.reads.get(scope)
        if state is None or state.last_record_ms > now_ms:
            return QuotaWindow(self._samples, self._sample_ms)
        return QuotaWindow.of(self._samples, self._sample_ms, state)
