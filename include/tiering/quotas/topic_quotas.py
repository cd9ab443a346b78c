"""Topic quotas: may this topic bring in another segment now? The contract, thresholds, meters, what is configured.

    admit      before a segment is copied: counted as io, and as throttled if it is refused
    accepted   it was copied
    failed     it was not

All meters are shared by all workers of all hosts. Sizes are bytes of the `.log`; records are the offsets that the plan
says the segment spans, end - base + 1, as batches are not counted before admission.

How many bytes a second each topic of a broker may bring in:

    total.bytes.in.per.sec.threshold    of a broker: for all of its topics together
    bytes.in.per.sec.threshold          of a topic, on each broker: explicit, taken out of the total

Topics without one share what the explicit ones leave, equally. Nobody is refused while the total holds: thresholds
decide who gives way when it does not.

What a topic, or all topics of a broker, brought in is measured by four kinds of meters, each in bytes and records. Each
is the one-minute meter of Kafka's brokers, as arithmetic: an exponentially weighted moving average with ticks of 5 s.
At a tick the count since the last one becomes a rate, and the average moves towards it:

    first tick     rate  = count / 5 s                                 before it the rate is 0
    later ticks    rate += alpha x (count / 5 s - rate)                alpha = 1 - e^(-5/60)
    idle ticks     the same with count 0: rate x e^(-5/60) each

Nobody has to be awake at a tick. Whoever looks at the meter next makes up for all ticks since: the first of them has
the count, the rest are idle, so any gap costs one power of e. Ticks fall at whole multiples of 5 s after the meter was
made; what is counted in the very millisecond of a tick belongs to the next one.
"""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from fractions import Fraction
from typing import Final, Protocol

from include.tiering.errors import SettingError
from include.tiering.quotas.contract import UNLIMITED

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


@dataclass(frozen=True, slots=True)
class Admission:
    """One segment that may be copied. Not `metered`: topic quotas were off when it asked, so it is not counted."""

    broker_id: int
    topic: str
    size_bytes: int
    records: int
    metered: bool


@dataclass(frozen=True, slots=True)
class TopicUsage:
    """What one topic brings in through one broker, and what it may, in bytes a second.

    `threshold` is None where the broker has no total and the topic none of its own. Not `explicit`: an equal share.
    """

    topic: str
    meters: TopicMeters
    threshold: Fraction | int | None
    explicit: bool


@dataclass(frozen=True, slots=True)
class BrokerUsage:
    """All topics of one broker together, and each of them by name."""

    broker_id: int
    meters: TopicMeters
    threshold: int | None
    topics: tuple[TopicUsage, ...]


@dataclass(frozen=True, slots=True)
class TopicQuotaReport:
    """Meters and thresholds as they are now. `totals` are those set by broker id, "" for the default."""

    enabled: bool = False
    brokers: tuple[BrokerUsage, ...] = ()
    totals: Mapping[str, int] = field(default_factory=dict)
    explicit: Mapping[str, int] = field(default_factory=dict)


class TopicQuotas(Protocol):
    """The admission step of segments."""

    def admit(self, broker_id: int, topic: str, *, size_bytes: int, records: int) -> Admission:
        """Of a topic (by name) whose segment is read from this broker's log dirs. Answer `accepted` or `failed` later.

        Raises:
            QuotaExceededError: the broker's total and the topic both exceed their thresholds: ask again later.
            MetadataUnavailableError
        """
        ...

    def accepted(self, admission: Admission) -> None:
        """It was copied. Raises MetadataUnavailableError."""
        ...

    def failed(self, admission: Admission) -> None:
        """Its copy failed or was stopped. Raises MetadataUnavailableError."""
        ...

    def report(self) -> TopicQuotaReport:
        """Raises MetadataUnavailableError."""
        ...


class NoTopicQuotas:
    """`TopicQuotas` that admit all and count nothing."""

    def admit(self, broker_id: int, topic: str, *, size_bytes: int, records: int) -> Admission:
        return Admission(broker_id, topic, size_bytes, records, metered=False)

    def accepted(self, admission: Admission) -> None:
        return

    def failed(self, admission: Admission) -> None:
        return

    def report(self) -> TopicQuotaReport:
        return TopicQuotaReport()


NO_TOPIC_QUOTAS: Final = NoTopicQuotas()


TOTAL_THRESHOLD: Final = "total.bytes.in.per.sec.threshold"
TOPIC_THRESHOLD: Final = "bytes.in.per.sec.threshold"
_MOST_NAMED: Final = 5


def check_thresholds(total: int | None, explicit: Mapping[str, int]) -> None:
    """Whether these may be in force together, on one broker: the explicit ones must fit into the total.

    Ask before a topic's threshold is raised, before a topic brings a new one, and before a total is lowered; where
    brokers have totals of their own, once for each. Without a total any explicit ones fit.

    Raises:
        SettingError: naming the thresholds, their sum and the total.
    """
    negative = {topic: value for topic, value in explicit.items() if value < 0}
    if negative:
        raise SettingError(f"{TOPIC_THRESHOLD} must not be negative: {_named(negative)}")
    if total is None:
        return
    if total < 0:
        raise SettingError(f"{TOTAL_THRESHOLD} must not be negative: {total}")
    in_sum = sum(explicit.values())
    if in_sum > total:
        raise SettingError(
            f"the topics' {TOPIC_THRESHOLD} sum to {in_sum} bytes a second ({_named(explicit)}), {in_sum - total} above"
            f" {TOTAL_THRESHOLD} = {total}: lower one of them, or raise the total"
        )


def shared_threshold(total: int, explicit: Mapping[str, int], sharers: int) -> Fraction:
    """What each of `sharers` topics without a threshold may bring in; 0 if the explicit ones left nothing."""
    return Fraction(max(0, total - sum(explicit.values())), max(1, sharers))


def thresholds(total: int | None, explicit: Mapping[str, int], topics: Collection[str]) -> Mapping[str, Fraction | int]:
    """The threshold of each of `topics`. Without a total there is nothing to share: the explicit ones alone."""
    found: dict[str, Fraction | int] = {topic: explicit[topic] for topic in topics if topic in explicit}
    if total is not None:
        sharers = {topic for topic in topics if topic not in explicit}
        found |= dict.fromkeys(sharers, shared_threshold(total, explicit, len(sharers)))
    return found


def is_refused(
    total_rate: float,
    total_threshold: Fraction | int | None,
    topic_rate: float,
    topic_threshold: Fraction | int | None,
) -> bool:
    """Only if both are exceeded; a rate that equals its threshold does not exceed it. None is never exceeded."""
    return _exceeds(total_rate, total_threshold) and _exceeds(topic_rate, topic_threshold)


def _exceeds(rate: float, threshold: Fraction | int | None) -> bool:
    return threshold is not None and rate > threshold


def _named(explicit: Mapping[str, int]) -> str:
    """The largest ones by name, the rest as a number."""
    ordered = sorted(explicit.items(), key=lambda item: (-abs(item[1]), item[0]))
    named = [f"{topic} {value}" for topic, value in ordered[:_MOST_NAMED]]
    return ", ".join(named) + (f" and {len(ordered) - _MOST_NAMED} more" if len(ordered) > _MOST_NAMED else "")


_DEFAULT: Final = ""


@dataclass(frozen=True, slots=True)
class TopicQuotaConfigs:
    """`totals` in bytes a second by broker id, "" for the default; `explicit` thresholds by topic."""

    enabled: bool
    totals: Mapping[str, int]
    explicit: Mapping[str, int]

    def total(self, broker_id: int) -> int | None:
        """Of this broker, the default if it has none of its own; None without a limit."""
        found = self.totals.get(str(broker_id), self.totals.get(_DEFAULT))
        return None if found == UNLIMITED else found


class CurrentTopicQuotaConfigs(Protocol):
    """Where the configs of now come from."""

    def current(self) -> TopicQuotaConfigs:
        """Raises MetadataUnavailableError."""
        ...
