"""What it takes to copy all that waits of some topics: bytes, segments, requests, money and time.

What waits is as of the last size run that read the log directories, so this module reads none. Times are the bytes
divided by the narrowest quota that applies to them: of the total, or of a topic for the bytes of that topic. They are
the least that a copy takes, because a quota of a broker, the store, the disks or the number of batches may be slower.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypedDict

from include.tiering.clock import Clock
from include.tiering.configs.config_store import ConfigStore
from include.tiering.configs.rules import quotas_in_force
from include.tiering.copying.metrics import HELD_BACK
from include.tiering.database.metric_series import MetricSeries, Series
from include.tiering.errors import SettingError
from include.tiering.kafka.log_dirs.contract import matches
from include.tiering.model.sizes import OBJECTS_PER_SEGMENT, CostEstimate, PriceTable, estimate_cost
from include.tiering.operations.monitoring import newest_minute, total_of
from include.tiering.operations.topic_list import LAG_BYTES, LAG_SECONDS, LAG_SEGMENTS, by_topic
from include.tiering.presentation import Presentation, Table, count
from include.tiering.quotas.contract import UNLIMITED, QuotaKind, QuotaLevel, QuotasInForce, Scope
from include.tiering.quotas.metrics import GRANTED_BYTES
from include.tiering.runs.contract import ALL_TOPICS, WorkStore
from include.tiering.units import format_bytes, format_duration

MOST_TOPICS: Final = 500
GAUGES: Final = (LAG_BYTES, LAG_SEGMENTS, LAG_SECONDS, HELD_BACK.name)
"""Names of the metrics that a backfill needs. Those of other use cases are named by their text."""
_TOTAL: Final = Scope(QuotaKind.COPY, QuotaLevel.TOTAL)


@dataclass(frozen=True, slots=True)
class TopicBackfill:
    """What waits of a topic, as of the size run at `as_of_ms`.

    Attributes:
        topic: its name.
        size_bytes: of the segments that wait.
        segments: how many wait.
        seconds: for how long the oldest has waited.
        as_of_ms: when the numbers were recorded.
        quota: bytes a second of the topic's own copy quota; None without one.
        is_paused: whether the topic, or all topics, are paused.
        held_back: codes of the reasons for which the last plan held back partitions of it.
    """

    topic: str
    size_bytes: int
    segments: int
    seconds: float
    as_of_ms: int
    quota: int | None = None
    is_paused: bool = False
    held_back: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Backfill:
    """What it takes to copy what waits of some topics.

    Attributes:
        as_of_ms: when it was read, by this process' clock.
        topics: the topics that were chosen and of which something waits, those with most bytes first.
        quota: bytes a second of the total copy quota in force; None without one.
        asked_quota: another total quota that is asked about; None: no quota.
        is_asked: whether another one is asked about.
        rate: bytes a second that copies sent in the newest whole minute.
        has_broker_quotas: whether a copy quota of brokers is in force, which may make it slower.
        cost: of the requests, and of storing what waits for a month; None without any price.
    """

    as_of_ms: int
    topics: tuple[TopicBackfill, ...]
    quota: int | None
    asked_quota: int | None
    is_asked: bool
    rate: float
    has_broker_quotas: bool
    cost: CostEstimate | None

    @property
    def size_bytes(self) -> int:
        return sum(topic.size_bytes for topic in self.topics)

    @property
    def segments(self) -> int:
        return sum(topic.segments for topic in self.topics)

    def seconds_at(self, quota: int | None) -> float | None:
        """Return the least time at this total quota; None if no quota applies."""
        own = [topic.size_bytes / topic.quota for topic in self.topics if topic.quota]
        total = [self.size_bytes / quota] if quota else []
        return max([*own, *total], default=None)


class BackfillService:
    """Reads what waits with at most ten statements. Their cost grows with topics, not with segments."""

    def __init__(
        self,
        *,
        prices: PriceTable,
        work: WorkStore,
        configs: ConfigStore,
        series: Callable[[], MetricSeries],
        clock: Clock,
    ) -> None:
        self._prices = prices
        self._work = work
        self._configs = configs
        self._series = series
        self._clock = clock

    def of(self, topics: Collection[str] = (), *, quota: int | None = None) -> Backfill:
        """Return what it takes to copy what waits.

        Args:
            topics: names or patterns; empty: all topics of which something waits.
            quota: another total copy quota in bytes a second; 0: no quota; None: none is asked about.

        Raises:
            SettingError: no size run has found anything that waits of these topics.
            MetadataUnavailableError: the database cannot be read.
        """
        now_ms, series = self._clock.now_ms(), self._series()
        newest = newest_minute(now_ms)
        gauges, paused = series.latest(GAUGES), self._work.paused_topics()
        minutes = series.minutes((GRANTED_BYTES.name,), since_minute=newest)
        in_force = quotas_in_force(self._configs.snapshot())
        found = waiting_topics(gauges, in_force, paused)
        chosen = tuple(topic for topic in found if not topics or matches(topic.topic, topics))
        if topics and not chosen:
            raise SettingError("nothing of these topics waits, as of the last size run that read the log directories")
        present = in_force.of(_TOTAL)
        size_bytes, segments = sum(topic.size_bytes for topic in chosen), sum(topic.segments for topic in chosen)
        return Backfill(
            now_ms,
            chosen,
            _limit(present),
            _limit(quota),
            quota is not None,
            total_of(minutes, GRANTED_BYTES, newest, 1, QuotaKind.COPY) / 60,
            any(
                scope.kind is QuotaKind.COPY and scope.level is QuotaLevel.BROKER and _limit(limit) is not None
                for scope, limit in in_force.bytes_per_second.items()
            ),
            estimate_cost(size_bytes, segments, self._prices),
        )


def waiting_topics(
    gauges: Mapping[str, Sequence[Series]], quotas: QuotasInForce, paused: Collection[str]
) -> tuple[TopicBackfill, ...]:
    """Return the topics of which something waits, those with most bytes first."""
    metrics = {metric: by_topic(series) for metric, series in gauges.items()}

    def value(metric: str, topic: str) -> float:
        return sum(series.value for series in metrics.get(metric, {}).get(topic, ()))

    found = [
        TopicBackfill(
            topic,
            size_bytes,
            round(value(LAG_SEGMENTS, topic)),
            value(LAG_SECONDS, topic),
            min(each.updated_at_ms for each in series),
            _limit(quotas.of(Scope(QuotaKind.COPY, QuotaLevel.TOPIC, topic))),
            topic in paused or ALL_TOPICS in paused,
            tuple(sorted(dict(each.key.labels)["reason"] for each in metrics.get(HELD_BACK.name, {}).get(topic, ()))),
        )
        for topic, series in metrics.get(LAG_BYTES, {}).items()
        if (size_bytes := round(sum(each.value for each in series)))
    ]
    return tuple(sorted(found, key=lambda topic: (-topic.size_bytes, topic.topic)))


def _limit(quota: int | None) -> int | None:
    return None if quota is None or quota in (0, UNLIMITED) else quota


class TopicBackfillDocument(TypedDict):
    """What waits of a topic; `quota` is its own, in bytes a second, null without one."""

    topic: str
    bytes: int
    segments: int
    seconds: float
    as_of_ms: int
    quota: int | None
    is_paused: bool
    held_back: list[str]


class BackfillRequestsDocument(TypedDict):
    """Requests to the store: to write what waits, and to read it once by a deep verification."""

    put: int
    get: int


class BackfillCostDocument(TypedDict):
    """Exact decimals as text; null without the price. `storage_per_month` is of what waits."""

    currency: str
    writing: str | None
    reading: str | None
    storage_per_month: str | None


class BackfillDocument(TypedDict):
    """What it takes to copy what waits of some topics.

    Quotas and `rate` are in bytes a second; a quota is null if there is none. Seconds are the least that a copy takes:
    at the total quota in force, at the one that is asked about, and at the rate of the newest whole minute; null if
    nothing limits it, or nothing was sent.
    """

    as_of_ms: int
    bytes: int
    segments: int
    topics: list[TopicBackfillDocument]
    more_topics: int
    requests: BackfillRequestsDocument
    cost: BackfillCostDocument | None
    quota: int | None
    seconds: float | None
    is_asked: bool
    asked_quota: int | None
    asked_seconds: float | None
    rate: float
    rate_seconds: float | None
    has_broker_quotas: bool


def backfill_document(backfill: Backfill) -> BackfillDocument:
    """Return the JSON of a backfill."""
    objects, cost = backfill.segments * OBJECTS_PER_SEGMENT, backfill.cost
    return {
        "as_of_ms": backfill.as_of_ms,
        "bytes": backfill.size_bytes,
        "segments": backfill.segments,
        "topics": list(map(_topic, backfill.topics[:MOST_TOPICS])),
        "more_topics": max(0, len(backfill.topics) - MOST_TOPICS),
        "requests": {"put": objects, "get": objects},
        "cost": None
        if cost is None
        else {
            "currency": cost.currency,
            "writing": None if cost.writing is None else str(cost.writing),
            "reading": None if cost.reading is None else str(cost.reading),
            "storage_per_month": None if cost.storage_per_month is None else str(cost.storage_per_month),
        },
        "quota": backfill.quota,
        "seconds": backfill.seconds_at(backfill.quota),
        "is_asked": backfill.is_asked,
        "asked_quota": backfill.asked_quota,
        "asked_seconds": backfill.seconds_at(backfill.asked_quota) if backfill.is_asked else None,
        "rate": backfill.rate,
        "rate_seconds": backfill.size_bytes / backfill.rate if backfill.rate > 0 else None,
        "has_broker_quotas": backfill.has_broker_quotas,
    }


def _topic(topic: TopicBackfill) -> TopicBackfillDocument:
    return {
        "topic": topic.topic,
        "bytes": topic.size_bytes,
        "segments": topic.segments,
        "seconds": topic.seconds,
        "as_of_ms": topic.as_of_ms,
        "quota": topic.quota,
        "is_paused": topic.is_paused,
        "held_back": list(topic.held_back),
    }


def present_backfill(backfill: Backfill) -> Presentation:
    """Present a backfill; it is always `ok`, because nothing was begun."""
    seconds = backfill.seconds_at(backfill.quota)
    least = "no quota limits it" if seconds is None else f"{format_duration(seconds)} at least at the present quotas"
    summary = (
        f"{count(backfill.segments, 'segment')} ({format_bytes(backfill.size_bytes)}) of"
        f" {count(len(backfill.topics), 'topic')} wait: {least}"
    )
    if backfill.is_asked:
        asked = backfill.seconds_at(backfill.asked_quota)
        summary += f"; {'no quota limits it' if asked is None else format_duration(asked)} at the quota asked about"
    return Presentation(lambda: backfill_document(backfill), lambda: _tables(backfill), summary)


def _tables(backfill: Backfill) -> tuple[Table, ...]:
    rows = tuple(
        (
            topic.topic,
            format_bytes(topic.size_bytes),
            str(topic.segments),
            format_duration(topic.seconds),
            "" if topic.quota is None else f"{format_bytes(topic.quota)}/s",
            ", ".join([*(["paused"] if topic.is_paused else []), *topic.held_back]),
        )
        for topic in backfill.topics
    )
    columns = ("topic", "bytes>", "segments>", "oldest waits>", "own quota>", "waits for")
    return (Table("what waits", columns, rows),) if rows else ()
