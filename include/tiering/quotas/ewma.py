"""The one-minute meter of Kafka's brokers, as arithmetic: an exponentially weighted moving average with ticks of 5 s.

At a tick the count since the last one becomes a rate, and the average moves towards it:

    first tick     rate  = count / 5 s                                 before it the rate is 0
    later ticks    rate += alpha x (count / 5 s - rate)                alpha = 1 - e^(-5/60)
    idle ticks     the same with count 0: rate x e^(-5/60) each

Nobody has to be awake at a tick. Whoever looks at the meter next makes up for all ticks since: the first of them has
the count, the rest are idle, so any gap costs one power of e. Ticks fall at whole multiples of 5 s after the meter was
made; what is counted in the very millisecond of a tick belongs to the next one.
"""

import math
from dataclasses import dataclass, replace
from typing import Final

TICK_MS: Final = 5_000
WINDOW_MS: Final = 60_000
ALPHA: Final = -math.expm1(-TICK_MS / WINDOW_MS)
_TICK_SECONDS: Final = TICK_MS / 1000


@dataclass(frozen=True, slots=True)
class EwmaMeter:
    """What happened, how often in all (`count`), and how often a second of late (`per_second`).

    `uncounted` is the part of `count` that no tick has seen yet; `rate` is None before the first tick. `last_tick_ms`
    is by the clock that all who mark this meter share. A meter is made with the time of its making there.
    """

    last_tick_ms: int
    count: int = 0
    uncounted: int = 0
    rate: float | None = None

    @property
    def per_second(self) -> float:
        """The rate as of the last tick."""
        return 0.0 if self.rate is None else self.rate

    def at(self, now_ms: int) -> "EwmaMeter":
        """After all ticks up to `now_ms`, inclusive.

        A clock that stepped back is believed: the next tick is 5 s from its new time; counts and rate stay.
        """
        if now_ms < self.last_tick_ms:
            return replace(self, last_tick_ms=now_ms)
        ticks = (now_ms - self.last_tick_ms) // TICK_MS
        if ticks == 0:
            return self
        counted = self.uncounted / _TICK_SECONDS
        rate = counted if self.rate is None else self.rate + ALPHA * (counted - self.rate)
        idle_ms = (ticks - 1) * TICK_MS
        return EwmaMeter(
            last_tick_ms=self.last_tick_ms + ticks * TICK_MS,
            count=self.count,
            uncounted=0,
            rate=rate * math.exp(-idle_ms / WINDOW_MS),
        )

    def mark(self, events: int, now_ms: int) -> "EwmaMeter":
        """Count `events` now. Raises ValueError if they are negative."""
        if events < 0:
            raise ValueError(f"a meter cannot count {events} events")
        ticked = self.at(now_ms)
        return replace(ticked, count=ticked.count + events, uncounted=ticked.uncounted + events)
