"""What it takes to copy all that waits of some topics: bytes, segments, requests, money and time.

What waits is as of the last size run that looked at the brokers' logs, so this module reads none. The least time is the
longest of these: all bytes divided by the total quota, and the bytes of each topic divided by the topic's own quota. A
copy may take longer, because a quota of a broker, the store, the disks or the number of batches may be slower.
While the copiers' pool has no slots nothing is copied at all, which the numbers of slots say.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypedDict

from include.tiering.clock import Clock
from include.tiering.configs.config_catalogue import NARROW_COPY_QUOTA, TOTAL_COPY_QUOTA
from include.tiering.configs.config_store import ConfigStore
from include.tiering.configs.pools import COPIER_POOL, PoolMirror
from include.tiering.configs.rules import quotas_in_force
from include.tiering.copying.metrics import HELD_BACK
from include.tiering.database.metric_rows import TOPIC_LABEL
from include.tiering.database.metric_series import MetricSeries, Series
from include.tiering.database.transactions import reading_together
from include.tiering.errors import SettingError
from include.tiering.kafka.log_dirs.contract import matches
from include.tiering.model.sizes import OBJECTS_PER_SEGMENT, CostEstimate, PriceTable, estimate_cost
from include.tiering.operations.monitoring import (
    COMPARED_MINUTES,
    FREE,
    DiskOfLogDir,
    DiskOfLogDirDocument,
    disk_document,
    disks,
    newest_minute,
    total_of,
)
from include.tiering.operations.topic_list import (
    LAG_BYTES,
    LAG_SECONDS,
    LAG_SEGMENTS,
    OUT_OF_SIGHT,
)
from include.tiering.operations.waiting import (
    TopicBackfill,
    TopicBackfillDocument,
    limit_of,
    of_unknown_size,
    topic_backfill_document,
    waiting_topics,
)
from include.tiering.presentation import Presentation, Table, count
from include.tiering.quotas.contract import QuotaKind, QuotaLevel, Scope
from include.tiering.quotas.metrics import GRANTED_BYTES
from include.tiering.runs.contract import WorkStore
from include.tiering.telemetry.metrics import MINUTE_MS
from include.tiering.units import format_bytes, format_duration

MOST_TOPICS: Final = 500
_DUPLICATES: Final = "tiering_duplicate_bytes"
_BESIDE: Final = (LAG_SEGMENTS, LAG_SECONDS)
_GAUGES: Final = (HELD_BACK.name, _DUPLICATES, FREE, OUT_OF_SIGHT)
_TOTAL: Final = Scope(QuotaKind.COPY, QuotaLevel.TOTAL)


@dataclass(frozen=True, slots=True)
class Backfill:
    """What it takes to copy what waits of some topics.

    Attributes:
        as_of_ms: when it was read, by this process' clock.
        topics: the topics that were chosen and of which something waits, those with most bytes first.
        quota: bytes a second of the total copy quota in force; None without one.
        asked_quota: the total quota in bytes a second that the caller asks about; None: no quota.
        is_asked: whether the caller asks about another quota than the one in force.
        rate: bytes a second that copies sent in the newest whole minute.
        has_broker_quotas: whether a copy quota of brokers is in force, which may make a copy slower than computed.
        cost: of the requests, and of storing what waits for a month; None without any price.
        removable_bytes: local bytes of these topics that would be remote, too, once all of it is copied: what brokers
            could delete then. None if no size run has compared the tiers.
        disks: of the log directories, by broker and path.
        copier_slots: last known size of the copiers' pool, negative if it has no limit; None if it was never seen.
        unmeasured: by topic, partitions of which it is not known how much waits, and which `topics` therefore lack.
    """

    as_of_ms: int
    topics: tuple[TopicBackfill, ...]
    quota: int | None
    asked_quota: int | None
    is_asked: bool
    rate: float
    has_broker_quotas: bool
    cost: CostEstimate | None
    removable_bytes: int | None = None
    disks: tuple[DiskOfLogDir, ...] = ()
    copier_slots: int | None = None
    unmeasured: Mapping[str, int] = field(default_factory=dict)

    @property
    def size_bytes(self) -> int:
        return sum(topic.size_bytes for topic in self.topics)

    @property
    def segments(self) -> int:
        return sum(topic.segments for topic in self.topics)

    def seconds_at(self, quota: int | None) -> float | None:
        """Return the least time at this total quota; None if no quota applies."""
        return max((seconds for seconds, _, _ in self._times_at(quota)), default=None)

    @property
    def rate_seconds(self) -> float | None:
        """The time at the rate of the newest whole minute; None if nothing was sent, or if no copy begins."""
        return self.size_bytes / self.rate if self.rate > 0 and self.copier_slots != 0 else None

    @property
    def narrowest(self) -> tuple[str | None, int] | None:
        """The quota in force that decides: its topic, None for the total, and bytes a second; None without a quota."""
        found = max(self._times_at(self.quota), key=lambda time: time[0], default=None)
        return None if found is None else found[1:]

    def _times_at(self, quota: int | None) -> list[tuple[float, str | None, int]]:
        own = [(topic.size_bytes / topic.quota, topic.topic, topic.quota) for topic in self.topics if topic.quota]
        return [*([(self.size_bytes / quota, None, quota)] if quota else []), *own]


class BackfillService:
    """Reads what waits with at most ten statements. Their cost grows with topics, not with segments."""

    def __init__(
        self,
        *,
        prices: PriceTable,
        work: WorkStore,
        configs: ConfigStore,
        mirror: PoolMirror,
        series: Callable[[], MetricSeries],
        clock: Clock,
    ) -> None:
        self._prices = prices
        self._work = work
        self._mirror = mirror
        self._configs = configs
        self._series = series
        self._clock = clock

    @reading_together()
    def of(self, topics: Collection[str] = (), *, quota: int | None = None) -> Backfill:
        """Return what it takes to copy what waits.

        Args:
            topics: names or patterns; empty: all topics of which something waits.
            quota: a total copy quota in bytes a second to compare with; 0: no quota; None: compare with none.

        Raises:
            SettingError: no size run has found anything that waits of these topics.
            MetadataUnavailableError: the database cannot be read.
        """
        now_ms, series = self._clock.now_ms(), self._series()
        newest = newest_minute(now_ms)
        waits, gauges, paused = series.by_topic(LAG_BYTES, _BESIDE), series.latest(_GAUGES), self._work.paused_topics()
        minutes = series.minutes((GRANTED_BYTES.name,), since_minute=newest)
        in_force = quotas_in_force(self._configs.snapshot())
        held_back = gauges.get(HELD_BACK.name, ())
        found = waiting_topics(waits, held_back, in_force, paused, self._work.running_batches())
        chosen = tuple(topic for topic in found if not topics or matches(topic.topic, topics))
        if topics and not chosen:
            raise SettingError("nothing of these topics waits, as of the last size run that looked at brokers' logs")
        measured: Collection[str] = {each.topic for each in waits}
        if any(each.key.label(TOPIC_LABEL) not in measured for each in held_back):
            measured = series.topics(LAG_BYTES)  # Also those of which nothing waits.
        present, copiers = in_force.of(_TOTAL), self._mirror.seen().get(COPIER_POOL)
        size_bytes, segments = sum(topic.size_bytes for topic in chosen), sum(topic.segments for topic in chosen)
        return Backfill(
            now_ms,
            chosen,
            limit_of(present),
            limit_of(quota),
            quota is not None,
            total_of(minutes, GRANTED_BYTES, newest, 1, QuotaKind.COPY) / 60,
            any(
                scope.kind is QuotaKind.COPY and scope.level is QuotaLevel.BROKER and limit_of(limit) is not None
                for scope, limit in in_force.bytes_per_second.items()
            ),
            estimate_cost(size_bytes, segments, self._prices),
            removable(chosen, gauges.get(_DUPLICATES, ())),
            disks(
                gauges.get(FREE, ()),
                series.minutes((FREE,), since_minute=now_ms // MINUTE_MS - COMPARED_MINUTES),
            ),
            None if copiers is None else copiers.slots,
            {
                topic: partitions
                for topic, partitions in of_unknown_size(measured, held_back, gauges.get(OUT_OF_SIGHT, ())).items()
                if not topics or matches(topic, topics)
            },
        )


def removable(topics: Collection[TopicBackfill], duplicates: Sequence[Series]) -> int | None:
    """Return the local bytes of these topics that are remote, too, after the backfill; None if it is not known.

    Args:
        topics: what waits of them.
        duplicates: series of bytes that are stored more than once, of all topics and places.
    """
    local = [series for series in duplicates if ("held", "local") in series.key.labels]
    if not local:
        return None
    names = {topic.topic for topic in topics}
    remote = sum(round(series.value) for series in local if dict(series.key.labels).get("topic") in names)
    return remote + sum(topic.size_bytes for topic in topics)


class UnmeasuredDocument(TypedDict):
    """Partitions of a topic of which it is not known how much waits; the sums of a backfill lack them."""

    topic: str
    partitions: int


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


class NarrowestQuotaDocument(TypedDict):
    """The quota in force that decides how long a copy takes; `topic` is null for the total quota.

    `config` is the name of the config that changes it: of the topic, or of brokers by default.
    """

    topic: str | None
    config: str
    bytes_per_second: int


class BackfillDocument(TypedDict):
    """What it takes to copy what waits of some topics.

    Quotas and `rate` are in bytes a second; a quota is null if there is none. Seconds are the least that a copy takes:
    at the total quota in force, at the one that is asked about, and at the rate of the newest whole minute; null if
    nothing limits it, or nothing was sent. `removable_bytes` are local bytes that are remote, too, once all of it is
    copied, null if no size run has compared the tiers: a copy frees nothing by itself, brokers delete by their
    retention, and after a handover by their local retention. `narrowest` is the quota behind `seconds`; with 0
    `copier_slots` nothing is copied at all, and `rate_seconds` is null; -1 is no limit, null is not known. What is
    being copied counts as not copied, as in the last size run. `unmeasured` are partitions that the sums lack.
    """

    as_of_ms: int
    bytes: int
    segments: int
    topics: list[TopicBackfillDocument]
    more_topics: int
    unmeasured: list[UnmeasuredDocument]
    requests: BackfillRequestsDocument
    cost: BackfillCostDocument | None
    quota: int | None
    seconds: float | None
    narrowest: NarrowestQuotaDocument | None
    copier_slots: int | None
    is_asked: bool
    asked_quota: int | None
    asked_seconds: float | None
    rate: float
    rate_seconds: float | None
    has_broker_quotas: bool
    removable_bytes: int | None
    disks: list[DiskOfLogDirDocument]


def backfill_document(backfill: Backfill) -> BackfillDocument:
    """Return the JSON of a backfill."""
    objects, cost, narrowest = backfill.segments * OBJECTS_PER_SEGMENT, backfill.cost, backfill.narrowest
    return {
        "as_of_ms": backfill.as_of_ms,
        "bytes": backfill.size_bytes,
        "segments": backfill.segments,
        "topics": [topic_backfill_document(topic, backfill.copier_slots) for topic in backfill.topics[:MOST_TOPICS]],
        "more_topics": max(0, len(backfill.topics) - MOST_TOPICS),
        "unmeasured": [
            {"topic": topic, "partitions": partitions}
            for topic, partitions in list(backfill.unmeasured.items())[:MOST_TOPICS]
        ],
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
        "narrowest": None
        if narrowest is None
        else {
            "topic": narrowest[0],
            "config": TOTAL_COPY_QUOTA if narrowest[0] is None else NARROW_COPY_QUOTA,
            "bytes_per_second": narrowest[1],
        },
        "copier_slots": backfill.copier_slots,
        "is_asked": backfill.is_asked,
        "asked_quota": backfill.asked_quota,
        "asked_seconds": backfill.seconds_at(backfill.asked_quota) if backfill.is_asked else None,
        "rate": backfill.rate,
        "rate_seconds": backfill.rate_seconds,
        "has_broker_quotas": backfill.has_broker_quotas,
        "removable_bytes": backfill.removable_bytes,
        "disks": list(map(disk_document, backfill.disks)),
    }


def present_backfill(backfill: Backfill) -> Presentation:
    """Present a backfill; it is always `ok`, because nothing was begun."""
    seconds = backfill.seconds_at(backfill.quota)
    least = "no quota limits it" if seconds is None else f"{format_duration(seconds)} at least at the present quotas"
    if backfill.copier_slots == 0:
        least = f"nothing is copied while the pool {COPIER_POOL} has 0 slots, then {least}"
    summary = (
        f"{count(backfill.segments, 'segment')} ({format_bytes(backfill.size_bytes)}) of"
        f" {count(len(backfill.topics), 'topic')} wait: {least}"
    )
    if backfill.unmeasured:
        summary += f"; of {count(sum(backfill.unmeasured.values()), 'partition')} it is not known how much waits"
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
            "; ".join(topic.waits_for(backfill.copier_slots)),
        )
        for topic in backfill.topics
    )
    columns = ("topic", "bytes>", "segments>", "age of oldest>", "own quota>", "waits for")
    of_disks = tuple(
        (
            disk.broker,
            disk.path,
            format_bytes(disk.free_bytes),
            "not known" if disk.filled_per_second is None else f"{format_bytes(round(disk.filled_per_second))}/s",
            "" if disk.seconds_left is None else format_duration(disk.seconds_left),
        )
        for disk in backfill.disks
    )
    tables = (
        Table("what waits", columns, rows),
        Table("disks", ("broker", "log dir", "free>", "filled by>", "full in>"), of_disks),
    )
    return tuple(table for table in tables if table.rows)
