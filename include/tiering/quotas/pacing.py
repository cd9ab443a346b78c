"""The pacing of a process within its shares of quotas. Only `ProcessPacing` reads a clock, and lets threads wait.

**`ProcessPacing`** holds this process's shares, and measures what its streams could use. `AllocationRenewer` sets the
rates and the time at which all of them expire; limiters take bytes. A grant needs a known, unexpired rate of each of
its scopes. If the rounds with the ledger fail until the rates expire, no byte is granted, even in scopes without a
limit, because a quota may have been set meanwhile. There is one exception: for half a second after the process has read
that no quota is stored for any scope, all scopes grant without a limit (`hold_no_limit`). A scope with a limit has a
`Pacer`.

**The order of senders.** Senders of the same scopes that wait stand in one line, and only the first of it gets bytes:
of copies the transfer that began first, of everything else the call that came first. So a transfer sends its segment at
the whole rate and then waits for the store, while the next one sends. If all sent side by side, they would all end at
the same time, and nothing would be sent while all of them wait for the store. But a transfer may wait in the middle of
a request, and stores end a request whose body stands still, S3 after about 20 s. So one that has
waited for `LONGEST_STANDSTILL_SECONDS` gets the next grant, before older ones.

**`ScopedLimiter`**, the `ByteLimiter` of one stream, waits until all scopes of the stream grant.
"""

import math
import threading
from bisect import insort
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import count
from operator import attrgetter
from typing import Final, NamedTuple
from weakref import WeakValueDictionary

from include.tiering.clock import Clock
from include.tiering.quotas.contract import GoOn, QuotaObserver, Scope
from include.tiering.quotas.pacer import Pacer
from include.tiering.quotas.shares import UNLIMITED_DEMAND, Demand, usable_rates

_FULL_USE: Final = 0.98
"""A sender that waits or gets less than it wants is held up by quotas if it uses this part of what they allow."""

_MOST_USE: Final = 1.05
"""A period in which more than this was used counts as this much: one period alone says little."""


@dataclass(slots=True)
class DemandMeter:
    """What streams with the same scopes have used since the last call of `wanted`.

    `waiting` counts the senders that wait now; `limited` says whether one of them waited, or got less than it wanted.
    """

    used_bytes: int = 0
    waiting: int = 0
    limited: bool = False
    _last_rate: float = 0.0
    _last_use: float = _MOST_USE
    _full_rate: float = 0.0

    def expect(self, rate: float, spare: float, *, is_unlimited: bool) -> None:
        """Set what is possible: `rate` is what the streams can use of their demand, `spare` what is left besides.

        Streams with a finite demand must use at least half of `spare` before they count as held up by quotas.
        """
        most_used = _FULL_USE * (rate + spare)
        self._full_rate = most_used if is_unlimited else max(most_used, rate + spare / 2)

    def wanted(self, seconds: float, *, gives_nothing: bool) -> float:
        """Return the bytes a second that the streams could use, and begin a new period.

        This is `UNLIMITED_DEMAND` if one of them was limited and used what is possible, on the average of the last two
        periods: a period may hold a slice or a segment more than the next. Otherwise the faster of the last two periods
        counts, because a sender may pause between two segments; 0 if both were idle.

        Args:
            seconds: the length of the period that ends now.
            gives_nothing: whether a scope gives no bytes, so that the use says nothing about the demand.
        """
        rate = self.used_bytes / seconds if seconds > 0 else 0.0
        use = _MOST_USE if gives_nothing else min(_MOST_USE, rate / self._full_rate) if self._full_rate else _MOST_USE
        usual_rate, mean_use = max(rate, self._last_rate), (use + self._last_use) / 2
        self._last_rate, self._last_use, self.used_bytes = rate, use, 0
        limited, self.limited = self.limited, self.waiting > 0
        return UNLIMITED_DEMAND if limited and (gives_nothing or mean_use >= 1) else usual_rate


FORGET_SECONDS: Final = 30.0
"""The scopes of a stream that was not used for longer than this are no longer requested from the ledger."""

MANY_SCOPES: Final = 500
FORGET_MANY_SECONDS: Final = 2.0
"""The same for a process that uses more than `MANY_SCOPES` streams: clients choose their names, and each is a scope.

Every process rewrites the ledger row about every 0.6 s, so the row must stay small."""

_SHORTEST_WAIT_SECONDS: Final = 0.018
"""Shorter waits are lengthened to this: a wake-up costs more than a grant.

Bytes that become due meanwhile are granted without another wait."""

_NEVER: Final = math.inf


class Grant(NamedTuple):
    """Bytes that may move now, and the seconds that the call waited.

    With 0 bytes the wait ended without a grant. If bytes are granted and no scope has a limit, the seconds are 0.
    """

    size_bytes: int
    waited_seconds: float


@dataclass(slots=True, eq=False, weakref_slot=True)
class ScopePace:
    """A scope in this process.

    `known` says whether a rate was set, perhaps expired; if `known` and `pacer` is None, the scope has no limit.
    """

    known: bool = False
    pacer: Pacer | None = None

    @property
    def share(self) -> float:
        """Bytes a second held; also 0 if there is no limit or the rate is not known."""
        return 0.0 if self.pacer is None else self.pacer.bytes_per_second

    @property
    def gives_nothing(self) -> bool:
        return not self.known or (self.pacer is not None and self.pacer.bytes_per_second <= 0)

    def wait_seconds(self, now: float) -> float:
        """Seconds until this scope grants; infinite if its rate is 0 or not known."""
        return max(0.0, self.due_seconds(now))

    def due_seconds(self, now: float) -> float:
        """The same, and negative if this scope has been able to grant for a while: without a limit, always."""
        if not self.known:
            return _NEVER
        return -_NEVER if self.pacer is None else self.pacer.due_seconds(now)

    def set(self, bytes_per_second: float | None, now: float) -> None:
        """Set the rate, None for no limit, and mark it as known."""
        self.known = True
        if bytes_per_second is None:
            self.pacer = None
        elif self.pacer is None:
            self.pacer = Pacer(bytes_per_second, now)
        elif self.pacer.bytes_per_second != bytes_per_second:
            self.pacer.change(bytes_per_second, now)


@dataclass(frozen=True, slots=True, eq=False)
class _Waiting:
    """A sender that waits. Lower turns stand before higher ones; `changed` wakes it to look again."""

    turn: int
    changed: threading.Condition


@dataclass(slots=True, eq=False, weakref_slot=True)
class Stream:
    """The scopes that must all grant a byte, for all senders of this process with the same scopes.

    It was last used at `asked_at`; `in_use` says whether its scopes are requested from the ledger. `line` are the
    senders that wait; the first of them gets the next bytes.
    """

    scopes: tuple[Scope, ...]
    paces: tuple[ScopePace, ...]
    asked_at: float
    in_use: bool = True
    meter: DemandMeter = field(default_factory=DemandMeter)
    line: list[_Waiting] = field(default_factory=list)

    @property
    def gives_nothing(self) -> bool:
        return any(pace.gives_nothing for pace in self.paces)

    def wake_first(self) -> None:
        if self.line:
            self.line[0].changed.notify()


class ProcessPacing:
    """The shares of this process. Thread-safe.

    `take` sets `starved` if the rate of a scope is not known, has expired, or is 0; `share` if the rate is not known or
    has expired; `stream` if a rate is not known. `hold` and `hold_no_limit` clear it.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._paces: WeakValueDictionary[Scope, ScopePace] = WeakValueDictionary()
        self._streams: WeakValueDictionary[tuple[Scope, ...], Stream] = WeakValueDictionary()
        self._in_use: dict[tuple[Scope, ...], Stream] = {}
        self._demands: tuple[tuple[Stream, Demand], ...] = ()
        self._valid_until = -_NEVER
        self._measured_at = clock.monotonic()
        self.starved = threading.Event()
        self.next_turn: Final = count().__next__
        """Returns a turn after all that it has returned so far."""

    def stream(self, scopes: tuple[Scope, ...]) -> Stream:
        """Return the stream to take bytes from. Look it up once: lookups by name cost more than a grant."""
        with self._lock:
            stream = self._stream(scopes, self._clock.monotonic())
            if not all(pace.known for pace in stream.paces):
                self.starved.set()
            return stream

    def take(self, stream: Stream, wanted_bytes: int, patience_seconds: float, turn: int) -> Grant:
        """Wait at most `patience_seconds` for a grant in all scopes; 0 bytes if there was none.

        No sender of the stream that waits with a lower `turn` is passed.
        """
        with self._lock:
            began = now = self._clock.monotonic()
            stream.asked_at = began
            if not stream.in_use:
                self._use(stream)
            is_next = not stream.line or turn < stream.line[0].turn
            if not is_next or self._wait_seconds(stream, now) > 0:
                now, is_next = self._wait(stream, turn, began + patience_seconds)
            return self._grant(stream, wanted_bytes, began, now) if is_next else Grant(0, now - began)

    def waits_for(self, stream: Stream) -> Scope | None:
        """Return the scope that grants last, the widest among equals; None if all grant now and no sender waits.

        If all grant now and a sender waits, it has not woken up yet, and has waited for the scope that was last able to
        grant. That one has a limit: without a limit in any scope the sender waits for none.
        """
        with self._lock:
            now = self._clock.monotonic()
            if now >= self._valid_until:
                return stream.scopes[0]
            due = [pace.due_seconds(now) for pace in stream.paces]
            last = max(due)
            is_waited_for = last > (-_NEVER if stream.line else 0.0)
            return stream.scopes[due.index(last)] if is_waited_for else None

    def share(self, scope: Scope) -> float | None:
        """Return the rate of a scope in bytes a second; None: no limit, 0: no share, not known or expired."""
        with self._lock:
            now = self._clock.monotonic()
            stream = self._stream((scope,), now)
            stream.asked_at = now
            (pace,) = stream.paces
            if now >= self._valid_until or not pace.known:
                self.starved.set()
                return 0.0
            return None if pace.pacer is None else pace.share

    def demands(self) -> tuple[Demand, ...]:
        """Return what the streams in use could use, and begin a new period.

        The use of a stream of which a scope gives nothing says nothing about its demand: if one of its senders waits,
        the demand is unlimited.
        """
        with self._lock:
            now = self._clock.monotonic()
            seconds, self._measured_at = now - self._measured_at, now
            self._forget_unused(now)
            self._demands = tuple(
                (stream, Demand(scopes, stream.meter.wanted(seconds, gives_nothing=stream.gives_nothing)))
                for scopes, stream in self._in_use.items()
            )
            return tuple(demand for _, demand in self._demands)

    def reduce(self, shares: Mapping[Scope, float]) -> None:
        """Lower rates to these shares, before the ledger gives the difference to other processes; raise no known rate.

        A scope whose rate is not known gets its share as its rate here, before the new ledger row is committed.
        """
        with self._lock:
            now = self._clock.monotonic()
            for scope, share in shares.items():
                pace = self._pace(scope, now)
                if pace.pacer is None or pace.share > share:
                    pace.set(share, now)
            self._wake()

    def hold(self, rates: Mapping[Scope, float | None], valid_until: float) -> None:
        """Replace all rates, None for no limit; rates of absent scopes become unknown.

        The rates expire at the monotonic second `valid_until`.
        """
        with self._lock:
            now = self._clock.monotonic()
            if now >= self._valid_until:
                self._forget_lost_time(now)
            for pace in (pace for scope, pace in self._paces.items() if scope not in rates):
                pace.known, pace.pacer = False, None
            for scope, rate in rates.items():
                self._pace(scope, now).set(rate, now)
            self._expect({scope: rate for scope, rate in rates.items() if rate is not None})
            self._valid_until = valid_until
            self.starved.clear()
            self._wake()

    def hold_no_limit(self, valid_until: float) -> None:
        """Let all scopes in use go on without a limit until this monotonic second: no quota is set in any scope."""
        with self._lock:
            now = self._clock.monotonic()
            for pace in self._paces.values():
                pace.set(None, now)
            self._valid_until = valid_until
            self.starved.clear()
            self._wake()

    def _forget_lost_time(self, now: float) -> None:
        """Let no sender make up for the time without rates: other processes may have sent the bytes of that time."""
        for pace in self._paces.values():
            if pace.pacer is not None:
                pace.pacer.forget_lost_time(now)

    def _expect(self, parts: Mapping[Scope, float]) -> None:
        """Tell the meters what is possible within these shares."""
        usable = usable_rates([demand for _, demand in self._demands], parts)
        for (stream, demand), rate in zip(self._demands, usable.rates, strict=True):
            spare = min((usable.left[scope] for scope in stream.scopes if scope in parts), default=0.0)
            stream.meter.expect(rate, spare, is_unlimited=demand.wanted == UNLIMITED_DEMAND)

    def _stream(self, scopes: tuple[Scope, ...], now: float) -> Stream:
        """Return the only stream of these scopes, in use again if it was out of use while a sender still held it."""
        stream = self._streams.get(scopes)
        if stream is None:
            paces = tuple(self._paces.setdefault(scope, ScopePace()) for scope in scopes)
            self._streams[scopes] = stream = Stream(scopes, paces, now)
        if scopes not in self._in_use:
            stream.asked_at = now
            self._use(stream)
        return stream

    def _pace(self, scope: Scope, now: float) -> ScopePace:
        """Return the only pace of a scope; a scope without a stream gets one of its own."""
        return self._paces.get(scope) or self._stream((scope,), now).paces[0]

    def _use(self, stream: Stream) -> None:
        stream.in_use = True
        self._in_use[stream.scopes] = stream

    def _forget_unused(self, now: float) -> None:
        unused_seconds = FORGET_SECONDS if len(self._in_use) <= MANY_SCOPES else FORGET_MANY_SECONDS
        for scopes, stream in list(self._in_use.items()):
            if not stream.meter.waiting and now - stream.asked_at > unused_seconds:
                stream.in_use = False
                del self._in_use[scopes]

    def _wait(self, stream: Stream, turn: int, deadline: float) -> tuple[float, bool]:
        """Wait until it is this sender's turn and all scopes grant, at most until the deadline.

        Return the time, and whether the sender may take bytes now.
        """
        meter, mine = stream.meter, _Waiting(turn, self._condition())
        meter.waiting += 1
        meter.limited = True
        insort(stream.line, mine, key=attrgetter("turn"))
        try:
            while True:
                now = self._clock.monotonic()
                is_first, wait_seconds = stream.line[0] is mine, self._wait_seconds(stream, now)
                if is_first and wait_seconds <= 0:
                    return now, True
                if now >= deadline:
                    return now, False
                # Only the first looks at the time; it wakes the next one when it leaves the line.
                wait_seconds = max(wait_seconds, _SHORTEST_WAIT_SECONDS) if is_first else _NEVER
                mine.changed.wait(min(wait_seconds, deadline - now))
        finally:
            meter.waiting -= 1
            stream.line.remove(mine)
            stream.wake_first()

    def _condition(self) -> threading.Condition:
        return threading.Condition(self._lock)

    def _wake(self) -> None:
        """Let the first sender of each stream look at the rates again."""
        for stream in self._streams.values():
            stream.wake_first()

    def _wait_seconds(self, stream: Stream, now: float) -> float:
        wait_seconds = 0.0 if now < self._valid_until else _NEVER
        for pace in stream.paces:
            wait_seconds = max(wait_seconds, pace.wait_seconds(now))
        if wait_seconds == _NEVER:
            self.starved.set()
        return wait_seconds

    def _grant(self, stream: Stream, wanted_bytes: int, began: float, now: float) -> Grant:
        pacers = [pace.pacer for pace in stream.paces if pace.pacer is not None]
        granted_bytes = min([wanted_bytes, *(pacer.slice_bytes(now) for pacer in pacers)])
        # Time that one scope held the stream back, or gave to others, is not lost in the stream's other scopes.
        lost_seconds = min((pacer.lost_seconds(now) for pacer in pacers), default=0.0)
        for pacer in pacers:
            pacer.forget_lost_time(now, but=lost_seconds)
            pacer.charge(granted_bytes, now)
        stream.meter.used_bytes += granted_bytes
        stream.meter.limited |= granted_bytes < wanted_bytes
        return Grant(granted_bytes, now - began if pacers else 0.0)


PATIENCE_SECONDS: Final = 0.25
"""How long a wait may last before `go_on` is called again."""

LONGEST_STANDSTILL_SECONDS: Final = 5.0
"""How long a sender waits for older ones until it gets one grant before them: 16 that wait so get a tenth of a rate."""

_BEFORE_ALL: Final = 2**62
"""Subtracted from a turn, it makes the turn lower than those of all that wait in their order."""


class ScopedLimiter:
    """The `ByteLimiter` of one stream, whose bytes count for one kind and topic. For one thread at a time.

    With `keeps_turn` its turn among the senders that wait is that of its creation: it waits for no limiter that was
    made later, except for single grants (`LONGEST_STANDSTILL_SECONDS`). Without, each call of `take` has a new turn.
    """

    def __init__(
        self,
        pacing: ProcessPacing,
        scopes: tuple[Scope, ...],
        topic: str,
        go_on: GoOn,
        observer: QuotaObserver,
        *,
        keeps_turn: bool = False,
    ) -> None:
        self._pacing = pacing
        self._stream = pacing.stream(scopes)
        self._turn = pacing.next_turn() if keeps_turn else None
        self._kind = scopes[0].kind
        self._topic = topic
        self._go_on = go_on
        self._observer = observer
        self.waited_seconds = 0.0
        self.waits_for: Scope | None = None

    def take(self, wanted_bytes: int) -> int:
        self._go_on()
        if wanted_bytes <= 0:
            return 0
        waited_seconds = 0.0
        turn = self._pacing.next_turn() if self._turn is None else self._turn
        while True:
            # Set before the wait, because short waits last longer than the scope needs (`_SHORTEST_WAIT_SECONDS`).
            self.waits_for = self._pacing.waits_for(self._stream)
            granted = self._pacing.take(self._stream, wanted_bytes, PATIENCE_SECONDS, turn)
            self.waits_for = None
            waited_seconds += granted.waited_seconds
            if granted.size_bytes:
                break
            if turn >= 0 and waited_seconds >= LONGEST_STANDSTILL_SECONDS:
                turn -= _BEFORE_ALL
            self._go_on()
        self.waited_seconds += waited_seconds
        self._observer.granted(self._kind, self._topic, granted.size_bytes)
        if waited_seconds > 0:
            self._observer.throttled(self._kind, self._topic, granted.size_bytes, waited_seconds)
        return granted.size_bytes
