"""`Quotas` that give one limiter to all, and real ones that are asked for at once."""

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from include.tiering.clock import Clock, SystemClock
from include.tiering.quotas import shared_quotas
from include.tiering.quotas.contract import (
    ByteLimiter,
    GoOn,
    QuotaKind,
    ReadAdmission,
    RequestLimiter,
    RequestsAsBytes,
    Scope,
    UnlimitedBytes,
    keep_on,
)
from include.tiering.quotas.shared_quotas import LedgerRowChange
from include.tiering.quotas.shares import LedgerRow

if TYPE_CHECKING:
    import pytest


def ask_the_ledger_at_once(patch: "pytest.MonkeyPatch") -> None:
    """Whoever has no share has one a moment later. Else a process spares the ledger: every topic that it copies for
    the first time waits up to 0.6 s for the next round, of which a test that is not about quotas learns nothing."""
    patch.setattr(shared_quotas, "_EARLY_ROUND_SECONDS", 0.0)
    patch.setattr(shared_quotas, "_ROUNDS_AHEAD", 1_000_000)


@dataclass
class SameLimiter:
    limiter: ByteLimiter
    held: list[float] = field(default_factory=list)

    def copy(self, broker_id: int, topic: str, *, go_on: GoOn) -> ByteLimiter:
        return _Asking(self.limiter, go_on)

    def fetch(self, broker_id: int, topic: str, client: str | None = None, *, go_on: GoOn = keep_on) -> ByteLimiter:
        return self.limiter

    def delete(self, topic: str, *, go_on: GoOn) -> RequestLimiter:
        return RequestsAsBytes(_Asking(self.limiter, go_on))

    def held_back(self, kind: QuotaKind, seconds: float) -> None:
        self.held.append(seconds)

    def admission(self, *, samples: int, sample_ms: int) -> ReadAdmission:
        return NoAdmission()

    def share(self, scope: Scope) -> float | None:
        return None


@dataclass
class _Asking:
    """One stream's view: what others waited before it was made is not counted."""

    limiter: ByteLimiter
    go_on: GoOn
    waited_before: float = field(init=False)

    def __post_init__(self) -> None:
        self.waited_before = self.limiter.waited_seconds

    @property
    def waited_seconds(self) -> float:
        return self.limiter.waited_seconds - self.waited_before

    @property
    def waits_for(self) -> Scope | None:
        return self.limiter.waits_for

    def take(self, wanted_bytes: int) -> int:
        self.go_on()
        return self.limiter.take(wanted_bytes)


class NoAdmission:
    """A `ReadAdmission` that admits every read."""

    def throttle_ms(self, scopes: Sequence[Scope]) -> int:
        return 0

    window_seconds = 11.0

    def lowest_quota(self, scopes: Sequence[Scope]) -> int | None:
        return None

    def admit(self, scopes: Sequence[Scope], size_bytes: int) -> int:
        return 0

    def record(self, scopes: Sequence[Scope], size_bytes: int) -> None:
        pass


class NoQuotas:
    """`Quotas` without a limit and without a ledger."""

    def copy(self, broker_id: int, topic: str, *, go_on: GoOn) -> ByteLimiter:
        return UnlimitedBytes(go_on)

    def fetch(self, broker_id: int, topic: str, client: str | None = None, *, go_on: GoOn = keep_on) -> ByteLimiter:
        return UnlimitedBytes(go_on)

    def delete(self, topic: str, *, go_on: GoOn) -> RequestLimiter:
        return RequestsAsBytes(UnlimitedBytes(go_on))

    def held_back(self, kind: QuotaKind, seconds: float) -> None:
        pass

    def admission(self, *, samples: int, sample_ms: int) -> ReadAdmission:
        return NoAdmission()

    def share(self, scope: Scope) -> float | None:
        return None


class MemoryLedgerStore:
    """A row for the threads of one process."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._row = LedgerRow()

    def exchange(self, change: LedgerRowChange) -> LedgerRow:
        with self._lock:
            self._row = change(self._row)
            return self._row

    def database_ms(self) -> int:
        return self._clock.now_ms()
