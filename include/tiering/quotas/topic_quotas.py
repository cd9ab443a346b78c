"""Topic quotas: may this topic bring in another segment now? The contract, thresholds, and what is configured.

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
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Final, Protocol

from include.tiering.errors import SettingError
from include.tiering.quotas.contract import UNLIMITED
from include.tiering.quotas.topic_meters import TopicMeters


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
