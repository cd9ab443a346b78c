"""The pacing of a process within its shares of quotas. Only `ProcessPacing` reads a clock, and lets threads wait.

**`Pacer`** spreads bytes over time at a rate. A byte at the rate r takes 1/r s. The pacer stores the time at which the
next byte may leave; each grant adds the time that its bytes take. A sender that was delayed may catch up by at most
`CATCH_UP_SECONDS`; what it did not use before is lost. So any T seconds at a constant r of 100 bytes/s or more carry at
most r x (T + CATCH_UP_SECONDS + SLICE_SECONDS), including the first.

**`ProcessPacing`** holds this process's shares. `AllocationRenewer` sets the rates and the time at which all of them
expire; limiters take bytes. A grant needs a known, unexpired rate of each of its scopes. If the rounds with the ledger
fail until the rates expire, no byte is granted, even in scopes without a limit, because a quota may have been set
meanwhile; but for half a second after it has read that no quota is stored for any scope (`hold_no_limit`).

**`ScopedLimiter`**, the `ByteLimiter` of one stream, waits until all scopes of the stream grant.
"""

import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple
from weakref import WeakValueDictionary

from include.tiering.clock import Clock
from include.tiering.quotas.contract import GoOn, QuotaObserver, QuotasInForce, Scope
from include.tiering.quotas.shares import UNLIMITED_DEMAND

_FULL_USE: Final = 0.98
"""If a sender waits and at least this part of the share was used, the share is taken to have limited the process."""

_SPARE: Final = 0.10
_MOST_SPARE_OF_QUOTA: Final = 0.002
"""What a process requests above its use: 10 % of the use, but at most 0.2 % of the quota.

This is enough to detect growth, and too little to deprive busy senders."""


@dataclass(slots=True)
class DemandMeter:
    """The use of a scope by this process since the last call of `wanted`. `waiting` counts the waiting senders."""

    used_bytes: int = 0
    waiting: int = 0
    _last_rate: float = 0.0

    def wanted(self, seconds: float, share: float, quota: float) -> float:
        """Return the bytes a second to request, and begin a new period.

        This is `UNLIMITED_DEMAND` if a sender waits and the share was the limit (`_FULL_USE`). Otherwise the faster of
        the last two periods counts, because a sender may pause between two segments; 0 if both were idle.

        Args:
            seconds: the length of the period that ends now.
            share: the share held now, in bytes a second.
            quota: the quota of the scope, in bytes a second; 0 if it has none.
        """
        rate = self.used_bytes / seconds if seconds > 0 else 0.0
        usual_rate, self._last_rate, self.used_bytes = max(rate, self._last_rate), rate, 0
        if self.waiting and rate >= _FULL_USE * share:
            return UNLIMITED_DEMAND
        return usual_rate + min(_SPARE * usual_rate, _MOST_SPARE_OF_QUOTA * quota)


SLICE_SECONDS: Final = 0.010
"""A grant to a sender that is not late is at most this much of the rate, so that a change takes effect soon."""

CATCH_UP_SECONDS: Final = 0.040
"""How much lost time a sender may catch up: the pauses that uploads have.

Such a pause is a late wake-up, a response and the header of the next request, or the sending of the last grant. So a
stream that needs up to 50 ms for each grant, the slice and the catch-up, gets the whole rate. With `FILL`, a second
carries at most 104.5 % of a quota."""


@dataclass(slots=True)
class Pacer:
    """Paces one scope. Times are seconds of one monotonic clock. At a rate of 0 no byte is granted."""

    bytes_per_second: float
    free_at: float

    def wait_seconds(self, now: float) -> float:
        """Seconds until the next grant is possible; infinite at rate 0."""
        return max(0.0, self.free_at - now) if self.bytes_per_second > 0 else float("inf")

    def slice_bytes(self, now: float) -> int:
        """The largest grant, at least one byte: a slice, and what a sender that is late may catch up.

        A late sender gets both in one grant, because each grant may cost it the same time again.
        """
        late_seconds = min(CATCH_UP_SECONDS, max(0.0, now - self.free_at))
        return max(1, int(self.bytes_per_second * (SLICE_SECONDS + late_seconds)))

    def charge(self, size_bytes: int, now: float) -> None:
        """Count bytes that are granted now."""
        self.free_at = max(self.free_at, now - CATCH_UP_SECONDS) + size_bytes / self.bytes_per_second

    def change(self, bytes_per_second: float, now: float) -> None:
        """Continue at another rate, at which the next grant first waits for the bytes already granted ahead of time.

        For these it waits at most for one slice, so a change of the rate (not to 0) causes no long pause.
        """
        pending_bytes = max(0.0, self.free_at - now) * self.bytes_per_second
        self.bytes_per_second = bytes_per_second
        if bytes_per_second > 0:
            most_bytes = self.slice_bytes(self.free_at)
            self.free_at = min(self.free_at, now) + min(pending_bytes, most_bytes) / bytes_per_second


FORGET_SECONDS: Final = 30.0
"""A scope that was not used for longer than this is no longer requested from the ledger."""

MANY_SCOPES: Final = 500
FORGET_MANY_SECONDS: Final = 2.0
"""The same for a process that uses more than `MANY_SCOPES`: clients choose their names, and each is a scope.

Every process rewrites the ledger row twice a second, so the row must stay small."""

_SHORTEST_WAIT_SECONDS: Final = 0.018
"""Shorter waits are lengthened to this: a wake-up costs more than a grant.

Bytes that become due meanwhile are granted without another wait."""

_NEVER: Final = float("inf")


class Grant(NamedTuple):
    """Bytes that may move now, and the seconds that the call waited.

    With 0 bytes the wait ended without a grant. If bytes are granted and no scope has a limit, the seconds are 0.
    """

    size_bytes: int
    waited_seconds: float


@dataclass(slots=True, eq=False, weakref_slot=True)
class ScopePace:
    """A scope in this process, last used at `asked_at`; `in_use` says whether it is requested from the ledger.

    `known` says whether a rate was set, perhaps expired; if `known` and `pacer` is None, the scope has no limit.
    """

    scope: Scope
    asked_at: float
    in_use: bool = True
    known: bool = False
    pacer: Pacer | None = None
    meter: DemandMeter = field(default_factory=DemandMeter)

    @property
    def share(self) -> float:
        """Bytes a second held; also 0 if there is no limit or the rate is not known."""
        return 0.0 if self.pacer is None else self.pacer.bytes_per_second

    @property
    def gives_nothing(self) -> bool:
        return not self.known or (self.pacer is not None and self.pacer.bytes_per_second <= 0)

    def wait_seconds(self, now: float) -> float:
        """Seconds until this scope grants; infinite if its rate is 0 or not known."""
        if not self.known:
            return _NEVER
        return 0.0 if self.pacer is None else self.pacer.wait_seconds(now)

    def set(self, bytes_per_second: float | None, now: float) -> None:
        """Set the rate, None for no limit, and mark it as known."""
        self.known = True
        if bytes_per_second is None:
            self.pacer = None
        elif self.pacer is None:
            self.pacer = Pacer(bytes_per_second, now)
        elif self.pacer.bytes_per_second != bytes_per_second:
            self.pacer.change(bytes_per_second, now)


Stream = tuple[ScopePace, ...]
"""The scopes that must all grant a byte."""


class ProcessPacing:
    """The shares of this process. Thread-safe.

    `take` sets `starved` if the rate of a scope is not known, has expired, or is 0; `share` if the rate is not known or
    has expired; `stream` if a rate is not known. `hold` clears it.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._changed = threading.Condition()
        self._paces: WeakValueDictionary[Scope, ScopePace] = WeakValueDictionary()
        self._in_use: dict[Scope, ScopePace] = {}
        self._valid_until = -_NEVER
        self._measured_at = clock.monotonic()
        self.starved = threading.Event()

    def stream(self, scopes: Iterable[Scope]) -> Stream:
        """Return the scopes to take bytes from. Look them up once: three lookups by name cost more than a grant."""
        with self._changed:
            now = self._clock.monotonic()
            stream = tuple(self._pace(scope, now) for scope in scopes)
            if not all(pace.known for pace in stream):
                self.starved.set()
            return stream

    def take(self, stream: Stream, wanted_bytes: int, patience_seconds: float) -> Grant:
        """Wait at most `patience_seconds` for a grant in all scopes; 0 bytes if there was none."""
        with self._changed:
            began = now = self._clock.monotonic()
            for pace in stream:
                pace.asked_at = began
                if not pace.in_use:
                    self._use(pace)
            wait_seconds = self._wait_seconds(stream, now)
            if wait_seconds > 0:
                now, wait_seconds = self._wait(stream, wait_seconds, now, began + patience_seconds)
            if wait_seconds > 0:
                return Grant(0, now - began)
            return self._grant(stream, wanted_bytes, began, now)

    def waits_for(self, stream: Stream) -> Scope | None:
        """Return the scope that grants last, the widest among equals; None if all grant now."""
        with self._changed:
            now = self._clock.monotonic()
            if now >= self._valid_until:
                return stream[0].scope
            last = max(stream, key=lambda pace: pace.wait_seconds(now))
            return last.scope if last.wait_seconds(now) > 0 else None

    def share(self, scope: Scope) -> float | None:
        """Return the rate of a scope in bytes a second; None: no limit, 0: no share, not known or expired."""
        with self._changed:
            now = self._clock.monotonic()
            pace = self._pace(scope, now)
            pace.asked_at = now
            if now >= self._valid_until or not pace.known:
                self.starved.set()
                return 0.0
            return None if pace.pacer is None else pace.share

    def wanted(self, quotas: QuotasInForce) -> dict[Scope, float]:
        """Return the bytes a second to request from the ledger, by scope in use, and begin a new period.

        While a sender waits for a scope of which this process has no share, its use of other scopes does not show its
        demand for them. Then each scope in which a sender waits requests the share that it holds, an unlimited rate if
        it holds none, or 0 if the scope has no limit. Otherwise the process would lose one share while it waits for
        another, again and again.
        """
        with self._changed:
            now = self._clock.monotonic()
            seconds, self._measured_at = now - self._measured_at, now
            self._forget_unused(now)
            in_use = self._in_use
            is_starved = any(pace.meter.waiting and pace.gives_nothing for pace in in_use.values())
            return {
                scope: _held(pace)
                if is_starved and pace.meter.waiting
                else pace.meter.wanted(seconds, pace.share, float(quotas.of(scope) or 0))
                for scope, pace in in_use.items()
            }

    def reduce(self, shares: Mapping[Scope, float]) -> None:
        """Lower rates to these shares, before the ledger gives the difference to other processes; raise no known rate.

        A scope whose rate is not known gets its share as its rate here, before the new ledger row is committed.
        """
        with self._changed:
            now = self._clock.monotonic()
            for scope, share in shares.items():
                pace = self._pace(scope, now)
                if pace.pacer is None or pace.share > share:
                    pace.set(share, now)
            self._changed.notify_all()

    def hold(self, rates: Mapping[Scope, float | None], valid_until: float) -> None:
        """Replace all rates, None for no limit; rates of absent scopes become unknown.

        The rates expire at the monotonic second `valid_until`.
        """
        with self._changed:
            now = self._clock.monotonic()
            for pace in (pace for scope, pace in self._paces.items() if scope not in rates):
                pace.known, pace.pacer = False, None
            for scope, rate in rates.items():
                self._pace(scope, now).set(rate, now)
            self._valid_until = valid_until
            self.starved.clear()
            self._changed.notify_all()

    def hold_no_limit(self, valid_until: float) -> None:
        """Let all scopes in use go on without a limit until this monotonic second: no quota is set in any scope."""
        with self._changed:
            now = self._clock.monotonic()
            for pace in self._paces.values():
                pace.set(None, now)
            self._valid_until = valid_until
            self.starved.clear()
            self._changed.notify_all()

    def _pace(self, scope: Scope, now: float) -> ScopePace:
        """Return the only pace of a scope, and keep it in use. A stream may hold a pace that is no longer in use."""
        pace = self._paces.get(scope)
        if pace is None:
            self._paces[scope] = pace = ScopePace(scope, now)
        if scope not in self._in_use:
            pace.asked_at = now
            self._use(pace)
        return pace

    def _use(self, pace: ScopePace) -> None:
        pace.in_use = True
        self._in_use[pace.scope] = pace

    def _forget_unused(self, now: float) -> None:
        unused_seconds = FORGET_SECONDS if len(self._in_use) <= MANY_SCOPES else FORGET_MANY_SECONDS
        for scope, pace in list(self._in_use.items()):
            if not pace.meter.waiting and now - pace.asked_at > unused_seconds:
                pace.in_use = False
                del self._in_use[scope]

    def _wait(self, stream: Stream, wait_seconds: float, now: float, deadline: float) -> tuple[float, float]:
        """Wait until the stream may send, or until the deadline; return the time, and the seconds still to wait."""
        for pace in stream:
            pace.meter.waiting += 1
        try:
            while wait_seconds > 0 and now < deadline:
                self._changed.wait(min(max(wait_seconds, _SHORTEST_WAIT_SECONDS), deadline - now))
                now = self._clock.monotonic()
                wait_seconds = self._wait_seconds(stream, now)
            return now, wait_seconds
        finally:
            for pace in stream:
                pace.meter.waiting -= 1

    def _wait_seconds(self, stream: Stream, now: float) -> float:
        wait_seconds = 0.0 if now < self._valid_until else _NEVER
        for pace in stream:
            wait_seconds = max(wait_seconds, pace.wait_seconds(now))
        if wait_seconds == _NEVER:
            self.starved.set()
        return wait_seconds

    def _grant(self, stream: Stream, wanted_bytes: int, began: float, now: float) -> Grant:
        granted_bytes, is_limited = wanted_bytes, False
        for pace in stream:
            if pace.pacer is not None:
                granted_bytes, is_limited = min(granted_bytes, pace.pacer.slice_bytes(now)), True
        for pace in stream:
            pace.meter.used_bytes += granted_bytes
            if pace.pacer is not None:
                pace.pacer.charge(granted_bytes, now)
        return Grant(granted_bytes, now - began if is_limited else 0.0)


def _held(pace: ScopePace) -> float:
    pace.meter.used_bytes = 0
    return UNLIMITED_DEMAND if pace.gives_nothing else pace.share


PATIENCE_SECONDS: Final = 0.25
"""How long a wait may last before `go_on` is called again."""


class ScopedLimiter:
    """The `ByteLimiter` of one stream, whose bytes count for one kind and topic. For one thread at a time."""

    def __init__(
        self, pacing: ProcessPacing, scopes: tuple[Scope, ...], topic: str, go_on: GoOn, observer: QuotaObserver
    ) -> None:
        self._pacing = pacing
        self._stream = pacing.stream(scopes)
        self._kind = scopes[0].kind
        self._topic = topic
        self._go_on = go_on
        self._observer = observer
        self.waited_seconds = 0.0
        self._is_waiting = False

    @property
    def waits_for(self) -> Scope | None:
        return self._pacing.waits_for(self._stream) if self._is_waiting else None

    def take(self, wanted_bytes: int) -> int:
        self._go_on()
        if wanted_bytes <= 0:
            return 0
        waited_seconds = 0.0
        while True:
            self._is_waiting = True
            granted = self._pacing.take(self._stream, wanted_bytes, PATIENCE_SECONDS)
            self._is_waiting = False
            waited_seconds += granted.waited_seconds
            if granted.size_bytes:
                break
            self._go_on()
        self.waited_seconds += waited_seconds
        self._observer.granted(self._kind, self._topic, granted.size_bytes)
        if waited_seconds > 0:
            self._observer.throttled(self._kind, self._topic, granted.size_bytes, waited_seconds)
        return granted.size_bytes
