"""The pace of one process: its shares of all scopes, and the threads that wait for them.

The holder of the shares (`share_holder`) sets rates and when they end; limiters take bytes. A grant needs every one of
its scopes, and rates that are still valid: without news from the ledger nothing is granted, limited or not, because a
quota may have been set meanwhile.
"""

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final, NamedTuple

from include.tiering.clock import Clock
from include.tiering.quota.contract import QuotasInForce
from include.tiering.quota.demand import ALL_THERE_IS, DemandMeter
from include.tiering.quota.pacer import Pacer
from include.tiering.quota.scopes import Scope

FORGET_SECONDS: Final = 30.0
"""A scope that nobody asked for this long is no longer asked for in the ledger."""

_NEVER: Final = float("inf")


class Grant(NamedTuple):
    """Bytes that may move now, and how long a quota (or the wait for news of one) held them up."""

    size_bytes: int
    waited_seconds: float


class ProcessPacing:
    """Thread-safe. `starved` is set when a sender waits for something that only a round of the ledger can give."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._changed = threading.Condition()
        self._meters: dict[Scope, DemandMeter] = {}
        self._asked_at: dict[Scope, float] = {}
        self._pacers: dict[Scope, Pacer | None] = {}
        self._valid_until = -_NEVER
        self._measured_at = clock.monotonic()
        self.starved = threading.Event()

    def take(self, scopes: Sequence[Scope], wanted_bytes: int, patience_seconds: float) -> Grant:
        """Bytes granted in all `scopes`, as soon as there are any; none if there were none for `patience_seconds`."""
        with self._changed:
            began = now = self._clock.monotonic()
            deadline = began + patience_seconds
            with self._waiting(scopes, now) as meters:
                while (wait_seconds := self._wait_seconds(scopes, now)) > 0:
                    if now >= deadline:
                        return Grant(0, now - began)
                    self._changed.wait(min(wait_seconds, deadline - now))
                    now = self._clock.monotonic()
            pacers = [pacer for scope in scopes if (pacer := self._pacers[scope]) is not None]
            granted_bytes = min([wanted_bytes, *(pacer.slice_bytes() for pacer in pacers)])
            for pacer in pacers:
                pacer.charge(granted_bytes, now)
            for meter in meters:
                meter.used_bytes += granted_bytes
            return Grant(granted_bytes, now - began if pacers else 0.0)

    def share(self, scope: Scope) -> float | None:
        """Bytes a second that this process may move in a scope now; None without a limit."""
        with self._changed:
            now = self._clock.monotonic()
            self._meter(scope, now)
            if now >= self._valid_until or scope not in self._pacers:
                self.starved.set()
                return 0.0
            pacer = self._pacers[scope]
            return None if pacer is None else pacer.bytes_per_second

    def wanted(self, quotas: QuotasInForce) -> dict[Scope, float]:
        """What to ask the ledger for, by scope in use; begins a new period of measurement.

        A period in which a sender had nothing of one scope tells nothing about what it needs of the others: it asks
        for what it holds. Else it would lose one share while it waits for the other, turn by turn.
        """
        with self._changed:
            now = self._clock.monotonic()
            seconds, self._measured_at = now - self._measured_at, now
            for scope in [scope for scope, asked_at in self._asked_at.items() if now - asked_at > FORGET_SECONDS]:
                if not self._meters[scope].waiting:
                    del self._meters[scope], self._asked_at[scope]
            is_starved = any(meter.waiting and self._gives_nothing(scope) for scope, meter in self._meters.items())
            return {
                scope: self._held(scope, meter)
                if is_starved and meter.waiting
                else meter.wanted(seconds, self._share(scope), float(quotas.of(scope) or 0))
                for scope, meter in self._meters.items()
            }

    def reduce(self, shares: Mapping[Scope, float]) -> None:
        """Bring no rate above what is given here: before the ledger lets others have the rest."""
        with self._changed:
            now = self._clock.monotonic()
            for scope, share in shares.items():
                pacer = self._pacers.get(scope)
                if pacer is not None and pacer.bytes_per_second > share:
                    pacer.change(share, now)
            self._changed.notify_all()

    def hold(self, rates: Mapping[Scope, float | None], valid_until: float) -> None:
        """Replace all rates, None for no limit; they end at this monotonic second."""
        with self._changed:
            now = self._clock.monotonic()
            self._pacers = {scope: self._paced(scope, rate, now) for scope, rate in rates.items()}
            self._valid_until = valid_until
            self.starved.clear()
            self._changed.notify_all()

    @contextmanager
    def _waiting(self, scopes: Sequence[Scope], now: float) -> Iterator[list[DemandMeter]]:
        meters = [self._meter(scope, now) for scope in scopes]
        for meter in meters:
            meter.waiting += 1
        try:
            yield meters
        finally:
            for meter in meters:
                meter.waiting -= 1

    def _meter(self, scope: Scope, now: float) -> DemandMeter:
        self._asked_at[scope] = now
        return self._meters.setdefault(scope, DemandMeter())

    def _wait_seconds(self, scopes: Sequence[Scope], now: float) -> float:
        wait_seconds = 0.0 if now < self._valid_until else _NEVER
        for scope in scopes:
            if scope not in self._pacers:
                wait_seconds = _NEVER
            elif (pacer := self._pacers[scope]) is not None:
                wait_seconds = max(wait_seconds, pacer.wait_seconds(now))
        if wait_seconds == _NEVER:
            self.starved.set()
        return wait_seconds

    def _held(self, scope: Scope, meter: DemandMeter) -> float:
        meter.used_bytes = 0
        return ALL_THERE_IS if self._gives_nothing(scope) else self._share(scope)

    def _gives_nothing(self, scope: Scope) -> bool:
        if scope not in self._pacers:
            return True
        pacer = self._pacers[scope]
        return pacer is not None and pacer.bytes_per_second <= 0

    def _share(self, scope: Scope) -> float:
        pacer = self._pacers.get(scope)
        return 0.0 if pacer is None else pacer.bytes_per_second

    def _paced(self, scope: Scope, rate: float | None, now: float) -> Pacer | None:
        pacer = self._pacers.get(scope)
        if rate is None or pacer is None:
            return None if rate is None else Pacer(rate, now)
        if pacer.bytes_per_second != rate:
            pacer.change(rate, now)
        return pacer
