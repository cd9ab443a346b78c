"""Topic quotas decide whether a topic may bring in another segment now: contract, thresholds, meters, and configs.

    admit      is called before a segment is copied: counts it as io, and as throttled if it is refused
    accepted   is called when the segment was copied
    failed     is called when the copy of an admitted segment failed or was stopped

All workers of all hosts share the meters. Sizes are bytes of the `.log`; records are the offsets that the segment spans
according to the plan, end - base + 1, because batches are not counted before admission.

How many bytes a second each topic of a broker may bring in:

    total.bytes.in.per.sec.threshold    of a broker: for all of its topics together
    bytes.in.per.sec.threshold          of a topic, on each broker: explicit, part of the total; 0: refused whenever the
                                        total is exceeded

Topics without an explicit threshold for which `admit` was ever called at this broker, and that still exist, share
equally what the explicit thresholds leave of the total. No topic is refused while the total is not exceeded. While it
is exceeded, topics above their own threshold are refused.

Four kinds of meters (io, throttled, accepted and error), each in bytes and records, count the segments of a topic of a
broker, or of all its topics. Each is the one-minute meter of Kafka's brokers: an exponentially weighted moving average
with ticks of 5 s. At a tick the count since the last tick becomes a rate, and the average moves towards it (admission
also compares the count of the tick that has not ended, see `TopicMeters.compared_bytes_per_second`):

    first tick     rate  = count / 5 s                                 before it the rate is 0
    later ticks    rate += alpha x (count / 5 s - rate)                alpha = 1 - e^(-5/60)
    idle ticks     the same with count 0: rate x e^(-5/60) each

No process has to run at a tick. The next use of the meter applies all ticks since the last use: the first of them has
the count, the others are idle, so any gap costs one exponentiation. Ticks fall every 5 s after the meter was made (or
the clock set back); a count in the same millisecond as a tick belongs to the next tick.
"""

import math
from collections.abc import Callable, Collection, Mapping
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
    """Counts events: how many in all (`count`), and how many a second recently (`per_second`).

    `uncounted` is the part of `count` since the last tick; `rate` is None before the first tick. `last_tick_ms` is a
    time of the clock that all users of this meter share, at first when the meter was made.
    """

    last_tick_ms: int
    count: int = 0
    uncounted: int = 0
    rate: float | None = None

    @property
    def per_second(self) -> float:
        """The rate at the last tick; 0 before the first tick."""
        return 0.0 if self.rate is None else self.rate

    def at(self, now_ms: int) -> "EwmaMeter":
        """Return the meter after all ticks up to `now_ms`, inclusive.

        If the clock was set back to before the last tick, the next tick is 5 s after `now_ms`; counts and rate stay.
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
        """Count `events` now. Raises ValueError if `events` is negative."""
        if events < 0:
            raise ValueError(f"a meter cannot count {events} events")
        ticked = self.at(now_ms)
        return replace(ticked, count=ticked.count + events, uncounted=ticked.uncounted + events)


class MeterKind(StrEnum):
    """Kinds of meters. IO counts every attempt when `admit` is called, and another kind counts its result.

    So IO is higher than the sum of the other kinds by the attempts whose result was not counted, or not yet.
    """

    IO = "io"
    ACCEPTED = "accepted"
    ERROR = "error"
    THROTTLED = "throttled"


@dataclass(frozen=True, slots=True)
class SizedMeter:
    """A kind of meter in bytes and records. `marked_at_ms` is the time of its last count, else when it was made."""

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
    """The meters of all kinds, made and ticked at the same times, so that their rates add up as their counts do."""

    kinds: Mapping[MeterKind, SizedMeter]

    @classmethod
    def new(cls, now_ms: int) -> "TopicMeters":
        return cls({kind: SizedMeter.new(now_ms) for kind in MeterKind})

    def at(self, now_ms: int) -> "TopicMeters":
        """Return the meters after all ticks up to `now_ms`, inclusive."""
        return TopicMeters({kind: meter.at(now_ms) for kind, meter in self.kinds.items()})

    def mark(self, kind: MeterKind, size_bytes: int, records: int, now_ms: int) -> "TopicMeters":
        """Count a segment in one kind; all kinds tick up to `now_ms`."""
        ticked = self.at(now_ms)
        return TopicMeters({**ticked.kinds, kind: ticked.kinds[kind].mark(size_bytes, records, now_ms)})

    @property
    def bytes_in_per_second(self) -> float:
        """The rate of all admitted segments that have not failed.

        A segment counts from its admission, before it is sent. A refused segment does not count, so a topic that is
        refused again and again still recovers; nor does a segment whose copy failed, because it did not get in.
        """
        return self._without(lambda meter: meter.per_second)

    @property
    def compared_bytes_per_second(self) -> float:
        """The rate that is compared with thresholds: the higher of `bytes_in_per_second` and that of this tick.

        Until a tick ends, the meters do not show what was admitted in it. So these bytes, divided by the length of a
        tick, are compared as well: once the bytes of a tick bring the broker above its total, a topic whose bytes of
        the tick bring it above its threshold gets no further segment in this tick. That holds for the first tick, too.
        """
        return max(self.bytes_in_per_second, self._without(lambda meter: meter.uncounted / _TICK_SECONDS))

    def _without(self, measure: Callable[[EwmaMeter], float]) -> float:
        attempted, throttled, failed = (
            measure(self.kinds[kind].bytes) for kind in (MeterKind.IO, MeterKind.THROTTLED, MeterKind.ERROR)
        )
        return max(0.0, attempted - throttled - failed)


@dataclass(frozen=True, slots=True)
class Admission:
    """A segment that may be copied. `metered` says whether it is counted: not if topic quotas were off."""

    broker_id: int
    topic: str
    size_bytes: int
    records: int
    metered: bool


@dataclass(frozen=True, slots=True)
class TopicUsage:
    """What a topic brings in through a broker, and its threshold in bytes a second.

    `explicit` says whether the threshold was set for the topic. If not, the threshold is an equal share of the rest of
    the total; None if the broker has no total, or if the topic is gone.
    """

    topic: str
    meters: TopicMeters
    threshold: Fraction | int | None
    explicit: bool


@dataclass(frozen=True, slots=True)
class BrokerUsage:
    """The use of one broker: its meters and threshold for all topics together, and those of each topic."""

    broker_id: int
    meters: TopicMeters
    threshold: int | None
    topics: tuple[TopicUsage, ...]


@dataclass(frozen=True, slots=True)
class TopicQuotaReport:
    """Current meters and thresholds. `totals` are by broker id ("": the default), `explicit` thresholds by topic."""

    enabled: bool = False
    brokers: tuple[BrokerUsage, ...] = ()
    totals: Mapping[str, int] = field(default_factory=dict)
    explicit: Mapping[str, int] = field(default_factory=dict)


class TopicQuotas(Protocol):
    """The admission step of segments."""

    def admit(self, broker_id: int, topic: str, *, size_bytes: int, records: int) -> Admission:
        """Admit a segment of a topic (by name) from this broker; call `accepted` or `failed` afterwards.

        Raises:
            QuotaExceededError: the rates of the broker and of the topic exceed their thresholds; try again later.
            MetadataUnavailableError: the meters cannot be read or changed.
        """
        ...

    def accepted(self, admission: Admission) -> None:
        """Count an admitted segment that was copied. Raises MetadataUnavailableError."""
        ...

    def failed(self, admission: Admission) -> None:
        """Count an admitted segment whose copy failed or was stopped. Raises MetadataUnavailableError."""
        ...

    def report(self) -> TopicQuotaReport:
        """Return current meters and thresholds. Raises MetadataUnavailableError."""
        ...


class NoTopicQuotas:
    """`TopicQuotas` that admit every segment and count none."""

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
TOPIC_QUOTAS_ENABLE: Final = "tiering.topic.quotas.enable"
_MOST_NAMED: Final = 5


def check_thresholds(total: int | None, explicit: Mapping[str, int]) -> None:
    """Check that the explicit thresholds fit into the total of a broker.

    Call this before a topic's threshold is added or raised, and before a total is set or lowered; if brokers have
    totals of their own, call it for each total. Without a total, any thresholds of 0 or more fit.

    Raises:
        SettingError: a threshold or the total is negative, or the sum of the thresholds exceeds the total; contains the
            values, of at most `_MOST_NAMED` topics.
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
    """Return the bytes a second that each of `sharers` topics without an explicit threshold may bring in.

    This is 0 if the explicit thresholds use up the total.
    """
    return Fraction(max(0, total - sum(explicit.values())), max(1, sharers))


def thresholds(total: int | None, explicit: Mapping[str, int], topics: Collection[str]) -> Mapping[str, Fraction | int]:
    """Return the threshold of each of `topics`; without a total, only of those with an explicit threshold."""
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
    *,
    gives_way: bool = False,
) -> bool:
    """Return whether both rates exceed their thresholds.

    A rate that equals its threshold does not exceed it; no rate exceeds a threshold of None. A topic that `gives_way`
    exceeds its threshold at any rate.
    """
    return _exceeds(total_rate, total_threshold) and (gives_way or _exceeds(topic_rate, topic_threshold))


GIVES_WAY: Final = 0
"""The explicit threshold of a topic that is refused whenever the total is exceeded, whatever it brings in."""


def _exceeds(rate: float, threshold: Fraction | int | None) -> bool:
    return threshold is not None and rate > threshold


def _named(explicit: Mapping[str, int]) -> str:
    """Return up to `_MOST_NAMED` topics, each with its threshold, and the number of the other topics."""
    ordered = sorted(explicit.items(), key=lambda item: (-abs(item[1]), item[0]))
    named = [f"{topic} {value}" for topic, value in ordered[:_MOST_NAMED]]
    return ", ".join(named) + (f" and {len(ordered) - _MOST_NAMED} more" if len(ordered) > _MOST_NAMED else "")


_DEFAULT: Final = ""


@dataclass(frozen=True, slots=True)
class TopicQuotaConfigs:
    """`totals` by broker id ("": the default) and `explicit` thresholds by topic, both in bytes a second.

    `gone` are names of topics that were deleted: they have no share of a total.
    """

    enabled: bool
    totals: Mapping[str, int]
    explicit: Mapping[str, int]
    gone: frozenset[str] = frozenset()

    def without(self, gone: frozenset[str]) -> "TopicQuotaConfigs":
        """Return these configs for a cluster in which the topics `gone` were deleted: they leave their parts free."""
        explicit = {topic: value for topic, value in self.explicit.items() if topic not in gone}
        return TopicQuotaConfigs(self.enabled, self.totals, explicit, gone)

    def total(self, broker_id: int) -> int | None:
        """Return the total of this broker, else the default; None if neither sets a limit."""
        found = self.totals.get(str(broker_id), self.totals.get(_DEFAULT))
        return None if found == UNLIMITED else found

    @property
    def without_effect(self) -> str | None:
        """Totals or thresholds without effect, as topic quotas are off or no broker has a total, and what to do."""
        named = [name for name, values in ((TOTAL_THRESHOLD, self.totals), (TOPIC_THRESHOLD, self.explicit)) if values]
        if not self.enabled and named:
            verb = "has" if len(named) == 1 else "have"
            return f"{' and '.join(named)} {verb} no effect while topic quotas are off: set {TOPIC_QUOTAS_ENABLE}=true"
        if self.enabled and self.explicit and all(total == UNLIMITED for total in self.totals.values()):
            return f"{TOPIC_THRESHOLD} has no effect on a broker without a total: set {TOTAL_THRESHOLD}"
        return None


class CurrentTopicQuotaConfigs(Protocol):
    """Returns the current configs of topic quotas."""

    def current(self) -> TopicQuotaConfigs:
        """Return the current configs. Raises MetadataUnavailableError."""
        ...
