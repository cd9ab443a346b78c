"""The pace of one process: how bytes of a rate are spread, the threads that wait for them, and one stream's limiter.

**`Pacer`** spreads bytes of one rate inside the second, without a clock. A byte at the rate r takes 1/r seconds. The
pacer keeps the moment at which the next byte may leave; each grant moves it on by the time that its bytes take. A
sender that was held up may catch up by `CATCH_UP_SECONDS`, no more: what a longer silence did not use is lost. So any T
seconds carry at most r x (T + CATCH_UP_SECONDS + SLICE_SECONDS), the first included.

**`ProcessPacing`** has this process's shares of all scopes. The holder of the shares (`ShareHolder`) sets rates and
when they end; limiters take bytes. A grant needs every one of its scopes, and rates that are still valid: without news
from the ledger nothing is granted, limited or not, because a quota may have been set meanwhile.

**`ScopedLimiter`** is the `ByteLimiter` of one stream: it waits until all scopes of the stream grant.
"""

import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from include.tiering.clock import Clock
from include.tiering.quotas.contract import GoOn, QuotaObserver, QuotasInForce, Scope
from include.tiering.quotas.shares import ALL_THERE_IS, DemandMeter

SLICE_SECONDS: Final = 0.010
"""A grant is at most this much of the rate, so that a change of the rate bites at once."""

CATCH_UP_SECONDS: Final = 0.030
"""About a late wake-up, or an answer and the head of the next request: the pauses that every upload has."""


@dataclass(slots=True)
class Pacer:
    """Times are seconds of one monotonic clock. A rate of 0 grants nothing."""

    bytes_per_second: float
    free_at: float

    def wait_seconds(self, now: float) -> float:
        """Seconds until the next grant; infinite at rate 0."""
        return max(0.0, self.free_at - now) if self.bytes_per_second > 0 else float("inf")

    def slice_bytes(self) -> int:
        """The most that one grant may hold, at least one byte."""
        return max(1, int(self.bytes_per_second * SLICE_SECONDS))

    def charge(self, size_bytes: int, now: float) -> None:
        """Count bytes that leave now."""
        self.free_at = max(self.free_at, now - CATCH_UP_SECONDS) + size_bytes / self.bytes_per_second

    def change(self, bytes_per_second: float, now: float) -> None:
        """Go on at another rate: what was granted and is not yet waited for takes its time at the new one.

        That is at most the time of one slice, so neither a fall nor a rise of the rate leaves a silence or a burst.
        """
        pending_bytes = max(0.0, self.free_at - now) * self.bytes_per_second
        self.bytes_per_second = bytes_per_second
        if bytes_per_second > 0:
            self.free_at = min(self.free_at, now) + min(pending_bytes, self.slice_bytes()) / bytes_per_second


FORGET_SECONDS: Final = 30.0
"""A scope that nobody asked for this long is no longer asked for in the ledger."""

_SHORTEST_WAIT_SECONDS: Final = 0.018
"""A wake-up costs more than a grant: what is due meanwhile is caught up with."""

_NEVER: Final = float("inf")


class Grant(NamedTuple):
    """Bytes that may move now, and how long a quota (or the wait for news of one) held them up."""

    size_bytes: int
    waited_seconds: float


@dataclass(slots=True, eq=False)
class ScopePace:
    """One scope in this process. `known`: the last round told its rate; without a pacer it has no limit."""

    asked_at: float
    known: bool = False
    pacer: Pacer | None = None
    meter: DemandMeter = field(default_factory=DemandMeter)

    @property
    def share(self) -> float:
        """Bytes a second held; 0 as well if there is no limit or no news."""
        return 0.0 if self.pacer is None else self.pacer.bytes_per_second

    @property
    def gives_nothing(self) -> bool:
        return not self.known or (self.pacer is not None and self.pacer.bytes_per_second <= 0)

    def set(self, bytes_per_second: float | None, now: float) -> None:
        """What the last round told: a rate, or None for no limit."""
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
    """Thread-safe. `starved` is set when a sender needs something that only a round of the ledger can give."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._changed = threading.Condition()
        self._paces: dict[Scope, ScopePace] = {}
        self._valid_until = -_NEVER
        self._measured_at = clock.monotonic()
        self.starved = threading.Event()

    def stream(self, scopes: Iterable[Scope]) -> Stream:
        """To take bytes through; asked for once, because a look at three scopes by name costs more than a grant."""
        with self._changed:
            now = self._clock.monotonic()
            stream = tuple(self._pace(scope, now) for scope in scopes)
            if not all(pace.known for pace in stream):
                self.starved.set()
            return stream

    def take(self, stream: Stream, wanted_bytes: int, patience_seconds: float) -> Grant:
        """Bytes granted in all scopes, as soon as there are any; none if there were none for `patience_seconds`."""
        with self._changed:
            began = now = self._clock.monotonic()
            for pace in stream:
                pace.asked_at = began
            wait_seconds = self._wait_seconds(stream, now)
            if wait_seconds > 0:
                now, wait_seconds = self._wait(stream, wait_seconds, now, began + patience_seconds)
            if wait_seconds > 0:
                return Grant(0, now - began)
            return self._grant(stream, wanted_bytes, began, now)

    def share(self, scope: Scope) -> float | None:
        """Bytes a second that this process may move in a scope now; None without a limit."""
        with self._changed:
            now = self._clock.monotonic()
            pace = self._pace(scope, now)
            pace.asked_at = now
            if now >= self._valid_until or not pace.known:
                self.starved.set()
                return 0.0
            return None if pace.pacer is None else pace.share

    def wanted(self, quotas: QuotasInForce) -> dict[Scope, float]:
        """What to ask the ledger for, by scope in use; begins a new period of measurement.

        A period in which a sender had nothing of one scope tells nothing about what it needs of the others: it asks
        for what it holds. Else it would lose one share while it waits for the other, turn by turn.
        """
        with self._changed:
            now = self._clock.monotonic()
            seconds, self._measured_at = now - self._measured_at, now
            in_use = {
                scope: pace
                for scope, pace in self._paces.items()
                if pace.meter.waiting or now - pace.asked_at <= FORGET_SECONDS
            }
            is_starved = any(pace.meter.waiting and pace.gives_nothing for pace in in_use.values())
            return {
                scope: _held(pace)
                if is_starved and pace.meter.waiting
                else pace.meter.wanted(seconds, pace.share, float(quotas.of(scope) or 0))
                for scope, pace in in_use.items()
            }

    def reduce(self, shares: Mapping[Scope, float]) -> None:
        """Bring no rate above what is given here: before the ledger lets others have the rest."""
        with self._changed:
            now = self._clock.monotonic()
            for scope, share in shares.items():
                pace = self._pace(scope, now)
                if pace.pacer is None or pace.share > share:
                    pace.set(share, now)
            self._changed.notify_all()

    def hold(self, rates: Mapping[Scope, float | None], valid_until: float) -> None:
        """Replace all rates, None for no limit; they end at this monotonic second."""
        with self._changed:
            now = self._clock.monotonic()
            for pace in (pace for scope, pace in self._paces.items() if scope not in rates):
                pace.known, pace.pacer = False, None
            for scope, rate in rates.items():
                self._pace(scope, now).set(rate, now)
            self._valid_until = valid_until
            self.starved.clear()
            self._changed.notify_all()

    def _pace(self, scope: Scope, now: float) -> ScopePace:
        return self._paces.setdefault(scope, ScopePace(now))

    def _wait(self, stream: Stream, wait_seconds: float, now: float, deadline: float) -> tuple[float, float]:
        """Until the stream may go on, or the deadline; returns the time, and how long it would still have to wait."""
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
            if not pace.known:
                wait_seconds = _NEVER
            elif pace.pacer is not None:
                wait_seconds = max(wait_seconds, pace.pacer.wait_seconds(now))
        if wait_seconds == _NEVER:
            self.starved.set()
        return wait_seconds

    def _grant(self, stream: Stream, wanted_bytes: int, began: float, now: float) -> Grant:
        granted_bytes, is_limited = wanted_bytes, False
        for pace in stream:
            if pace.pacer is not None:
                granted_bytes, is_limited = min(granted_bytes, pace.pacer.slice_bytes()), True
        for pace in stream:
            pace.meter.used_bytes += granted_bytes
            if pace.pacer is not None:
                pace.pacer.charge(granted_bytes, now)
        return Grant(granted_bytes, now - began if is_limited else 0.0)


def _held(pace: ScopePace) -> float:
    pace.meter.used_bytes = 0
    return ALL_THERE_IS if pace.gives_nothing else pace.share


PATIENCE_SECONDS: Final = 0.25
"""How long a wait may last before `go_on` is asked again."""


class ScopedLimiter:
    """Of one kind and topic. For one thread at a time."""

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

    def take(self, wanted_bytes: int) -> int:
        self._go_on()
        if wanted_bytes <= 0:
            return 0
        waited_seconds = 0.0
        while True:
            granted = self._pacing.take(self._stream, wanted_bytes, PATIENCE_SECONDS)
            waited_seconds += granted.waited_seconds
            if granted.size_bytes:
                break
            self._go_on()
        self.waited_seconds += waited_seconds
        self._observer.granted(self._kind, self._topic, granted.size_bytes)
        if waited_seconds > 0:
            self._observer.throttled(self._kind, self._topic, granted.size_bytes, waited_seconds)
        return granted.size_bytes
