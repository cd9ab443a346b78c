"""What a topic, or all topics of a broker, brought in: four kinds of meters, each in bytes and records.

Each is the one-minute meter of Kafka's brokers, as arithmetic: an exponentially weighted moving average with ticks of
5 s. At a tick the count since the last one becomes a rate, and the average moves towards it:

    first tick     rate  = count / 5 s                                 before it the rate is 0
    later ticks    rate += alpha x (count / 5 s - rate)                alpha = 1 - e^(-5/60)
    idle ticks     the same with count 0: rate x e^(-5/60) each

Nobody has to be awake at a tick. Whoever looks at the meter next makes up for all ticks since: the first of them has
the count, the rest are idle, so any gap costs one power of e. Ticks fall at whole multiples of 5 s after the meter was
made; what is counted in the very millisecond of a tick belongs to the next one.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
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


class MeterKind(StrEnum):
    """IO is all that was attempted: with nothing in flight it is the sum of the other three.

    What a killed worker had in flight stays in IO alone.
    """

    IO = "io"
    ACCEPTED = "accepted"
    ERROR = "error"
    THROTTLED = "throttled"


@dataclass(frozen=True, slots=True)
class SizedMeter:
    """One kind, in both units. `marked_at_ms` is when it last counted something, or was made."""

    bytes: EwmaMeter
    records: EwmaMeter
    marked_at_ms: int

    @classmethod
    def new(cls, now_ms: int) -> "SizedMeter":
        return cls(EwmaMeter(now_ms), EwmaMeter(now_ms), now_ms)

    def at(self, now_ms: int) -> "SizedMeter":
        return SizedMeter(self.bytes.at(now_ms), self.records.at(now_ms), self.marked_at_ms)

    def mark(self, size_bytes: int, records: int, now_ms: int) -> "SizedMeter":
        return SizedMeter(self.bytes.mark(size_bytes, now_ms), self.records.mark(records, now_ms), now_ms)


@dataclass(frozen=True, slots=True)
class TopicMeters:
    """All kinds, made and ticked together: so their rates add up as their counts do."""

    kinds: Mapping[MeterKind, SizedMeter]

    @classmethod
    def new(cls, now_ms: int) -> "TopicMeters":
        return cls({kind: SizedMeter.new(now_ms) for kind in MeterKind})

    def at(self, now_ms: int) -> "TopicMeters":
        """After all ticks up to `now_ms`, inclusive."""
        return TopicMeters({kind: meter.at(now_ms) for kind, meter in self.kinds.items()})

    def mark(self, kind: MeterKind, size_bytes: int, records: int, now_ms: int) -> "TopicMeters":
        """Count one segment in one kind; the others tick too."""
        ticked = self.at(now_ms)
        return TopicMeters({**ticked.kinds, kind: ticked.kinds[kind].mark(size_bytes, records, now_ms)})

    @property
    def bytes_in_per_second(self) -> float:
        """The rate that thresholds are compared with: of all that was let in, whatever became of it since.

        It counts at admission, so a segment weighs before it is sent; a refused one does not, so a topic that keeps
        asking still recovers.
        """
        attempted, throttled = self.kinds[MeterKind.IO].bytes, self.kinds[MeterKind.THROTTLED].bytes
        return max(0.0, attempted.per_second - throttled.per_second)
