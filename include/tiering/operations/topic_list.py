"""The topics of the archive for the page *Tiering*: searched, sorted and cut into pages, also as CSV.

Sizes are those of `./tiering sizes --by topic`. Lags, failed segments and what a plan held back are as of the run that
published them.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cached_property
from typing import Any, Final, TypedDict

from include.tiering.configs.config_store import ConfigEntity, ConfigStore, ConfigValues, EntityType, TopicRetention
from include.tiering.copying.metrics import HELD_BACK
from include.tiering.database.metric_rows import TOPIC_LABEL
from include.tiering.database.metric_series import MetricSeries, Series
from include.tiering.errors import SettingError
from include.tiering.model.reasons import ReasonMembers
from include.tiering.model.segments import Uuid
from include.tiering.model.sizes import PriceTable, estimate_cost
from include.tiering.operations.doctor import advice_about, reason_of
from include.tiering.presentation import Table
from include.tiering.segments.sizes_contract import RemoteLogSizes, TopicTotal
from include.tiering.settings import TieringSettings

MOST_ROWS: Final = 500
LAG_BYTES: Final = "RemoteCopyLagBytes"
LAG_SEGMENTS: Final = "RemoteCopyLagSegments"
LAG_SECONDS: Final = "tiering_remote_copy_lag_seconds"
OUT_OF_SIGHT: Final = "tiering_remote_copy_out_of_sight_partitions"
_FAILED: Final = "tiering_failed_segments"
_OF_TOPICS: Final = (LAG_BYTES, LAG_SEGMENTS, LAG_SECONDS, _FAILED)
GAUGES: Final = (*_OF_TOPICS, HELD_BACK.name)
"""Names of the metrics that the list needs. Those of other use cases are named by their text."""


@dataclass(frozen=True, slots=True)
class ListedTopic:
    """A topic with what is known of it; lags and failed segments are None if no run published them.

    `held_back` has the codes of the reasons for which the last plan held back partitions of the topic.
    Metrics have no topic ids, so topics that share a name show the same lags.
    """

    total: TopicTotal
    retention: TopicRetention
    cost_per_month: Decimal | None = None
    waiting_bytes: int | None = None
    waiting_segments: int | None = None
    waiting_seconds: float | None = None
    failed_segments: int | None = None
    held_back: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TopicPage:
    """A page of the topics that were asked for, of `found` in all."""

    topics: tuple[ListedTopic, ...]
    found: int
    offset: int
    currency: str | None = None
    gib_month: Decimal | None = None
    never_copied: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Codes of why the last plan held back topics that were asked for and of which nothing was copied yet, by name."""


_COST: Final = "cost_per_month"
_SIZES: Final[Mapping[str, Callable[[TopicTotal], Any]]] = {
    "owner": lambda total: total.owner.value,
    "partitions": lambda total: total.partitions,
    "segments": lambda total: total.segments,
    "finished_bytes": lambda total: total.finished_bytes,
    "stored_bytes": lambda total: total.stored_bytes,
}
_SORTED_BY_SIZE: Final = frozenset({*_SIZES, _COST})
_GAUGES: Final = {"waiting_bytes": LAG_BYTES, "waiting_seconds": LAG_SECONDS, "failed_segments": _FAILED}
SORTED_BY: Final = ("topic", *_SIZES, *_GAUGES, _COST)
"""Members of the JSON by which a page can be sorted."""


@dataclass(frozen=True, slots=True)
class AskedPage:
    """Which topics a page has.

    Attributes:
        search: a part of their name, whatever its case; empty: all.
        sort: one of `SORTED_BY`; equal values are sorted by name.
        descending: whether the largest comes first.
        offset: how many of them to pass over, 0 or more.
        limit: the most topics of the page, 1 to `MOST_ROWS`.

    Raises:
        SettingError: the member cannot be sorted by, or a number is out of its range.
    """

    search: str = ""
    sort: str = "topic"
    descending: bool = False
    offset: int = 0
    limit: int = 50

    def __post_init__(self) -> None:
        if self.sort not in SORTED_BY:
            raise SettingError(f"topics cannot be sorted by this: accepted: {', '.join(SORTED_BY)}")
        if self.offset < 0 or not 1 <= self.limit <= MOST_ROWS:
            raise SettingError(f"offset {self.offset}, limit {self.limit}: accepted: 0 or more, and 1 to {MOST_ROWS}")

    @property
    def part(self) -> slice:
        """The part of all topics that is the page."""
        return slice(self.offset, self.offset + self.limit)


class TopicListService:
    """Reads lists with at most six statements. Their cost grows with topics and partitions, not with segments."""

    def __init__(
        self,
        *,
        settings: TieringSettings,
        sizes: RemoteLogSizes,
        configs: ConfigStore,
        series: Callable[[], MetricSeries],
    ) -> None:
        self._settings = settings
        self._sizes = sizes
        self._configs = configs
        self._series = series

    def all(self, search: str = "") -> Sequence[ListedTopic]:
        """Return all topics of the archive, or to be archived, whose name contains `search`, ordered by name.

        Raises:
            MetadataUnavailableError: the database cannot be read.
        """
        found = searched(self._sizes.topic_totals(), search)
        return self._listed(found, self._series().latest(GAUGES), self._configs.snapshot().values)

    def page(self, asked: AskedPage) -> TopicPage:
        """Return a page; what is known of a topic beside its sizes is read only of the page's topics.

        Raises:
            MetadataUnavailableError: the database cannot be read.
        """
        every = self._sizes.listed_topics()
        found, chosen = self._by_sizes(asked) if asked.sort in _SORTED_BY_SIZE else self._by_names(asked, every)
        held_back = self._held_back()
        topics = self._with_gauges(chosen, held_back, self._configs.snapshot().values) if chosen else ()
        waits = by_topic(held_back)
        never = sorted(name for name in waits.keys() - set(every.values()) if asked.search.lower() in name.lower())
        never_copied = {name: codes_of(waits[name]) for name in never[:MOST_ROWS]}
        return TopicPage(tuple(topics), found, asked.offset, self.currency, self._prices.gib_month, never_copied)

    def named(self, topic: str, values: ConfigValues) -> Sequence[ListedTopic]:
        """Return the topics with this name, with retentions from these dynamic configs. Three statements.

        There is none before the platform has taken the topic for its own: see `never_copied`.

        Raises:
            MetadataUnavailableError: the database cannot be read.
        """
        found = self._sizes.topic_totals((topic,))
        return self._with_gauges(found, self._held_back(), values) if found else ()

    def never_copied(self, topic: str) -> Mapping[str, int]:
        """Return why the last plan held back a topic of which nothing was copied yet: partitions by code of the reason.

        Raises:
            SettingError: the last plan of all configured topics has not met this topic.
            MetadataUnavailableError: the database cannot be read.
        """
        found = by_topic(self._held_back()).get(topic, ())
        if not found:
            raise SettingError(f"nothing of a topic {topic} was copied yet: ./tiering doctor {topic} says why")
        return {series.key.label("reason"): round(series.value) for series in found}

    def _by_sizes(self, asked: AskedPage) -> tuple[int, Sequence[TopicTotal]]:
        """Return how many topics are found, and those of the page: the sizes of all topics are compared."""
        found = searched(self._sizes.topic_totals(), asked.search)
        found.sort(key=lambda total: (total.topic, str(total.topic_id)))
        found.sort(key=self._cost_key if asked.sort == _COST else _SIZES[asked.sort], reverse=asked.descending)
        return len(found), found[asked.part]

    def _by_names(self, asked: AskedPage, every: Mapping[Uuid, str]) -> tuple[int, Sequence[TopicTotal]]:
        """Return how many topics are found, and those of the page, of which alone the sizes are read."""
        part_of_name = asked.search.lower()
        found = [(name, topic_id) for topic_id, name in every.items() if part_of_name in name.lower()]
        found.sort(key=lambda topic: (topic[0], str(topic[1])))
        if asked.sort in _GAUGES:
            metric = _GAUGES[asked.sort]
            sums = sums_by_topic(self._series().latest((metric,)).get(metric, ()))
            found.sort(key=lambda topic: sums.get(topic[0], 0.0), reverse=asked.descending)
        elif asked.descending:
            found.reverse()
        part = found[asked.part]
        totals = {total.topic_id: total for total in self._sizes.topic_totals({name for name, _ in part})}
        return len(found), [totals[topic_id] for _, topic_id in part if topic_id in totals]

    def _held_back(self) -> Sequence[Series]:
        return self._series().latest((HELD_BACK.name,)).get(HELD_BACK.name, ())

    def _with_gauges(
        self, totals: Sequence[TopicTotal], held_back: Sequence[Series], values: ConfigValues
    ) -> Sequence[ListedTopic]:
        names = {each.topic for each in totals}
        of_topics = self._series().latest(_OF_TOPICS, labels=[{TOPIC_LABEL: name} for name in names])
        return self._listed(totals, {**of_topics, HELD_BACK.name: held_back}, values)

    def _listed(
        self, totals: Sequence[TopicTotal], series: Mapping[str, Sequence[Series]], values: ConfigValues
    ) -> Sequence[ListedTopic]:
        gauges = {metric: by_topic(found) for metric, found in series.items()}
        return [_listed(total, self._cost(total), gauges, values) for total in totals]

    def _cost_key(self, total: TopicTotal) -> Decimal:
        return self._cost(total) or Decimal(0)

    def _cost(self, total: TopicTotal) -> Decimal | None:
        cost = estimate_cost(total.stored_bytes, total.segments, self._prices)
        return None if cost is None else cost.storage_per_month

    @cached_property
    def _prices(self) -> PriceTable:
        return self._settings.prices.table()

    @property
    def currency(self) -> str | None:
        """The currency of the costs; None without a price of storage."""
        cost = estimate_cost(0, 0, self._prices)
        return None if cost is None or cost.storage_per_month is None else cost.currency


def by_topic(series: Sequence[Series]) -> Mapping[str, Sequence[Series]]:
    """Group series by the value of their label `topic`."""
    found: dict[str, list[Series]] = {}
    for each in series:
        found.setdefault(each.key.label(TOPIC_LABEL), []).append(each)
    return found


def codes_of(held_back: Sequence[Series]) -> tuple[str, ...]:
    """Return the codes of the reasons of series of partitions that a plan held back, in the order of codes."""
    return tuple(sorted(series.key.label("reason") for series in held_back))


def sums_by_topic(series: Sequence[Series]) -> Mapping[str, float]:
    """Return the sums of series that have the same value of their label `topic`."""
    sums: dict[str, float] = {}
    for each in series:
        topic = each.key.label(TOPIC_LABEL)
        sums[topic] = sums.get(topic, 0.0) + each.value
    return sums


def _listed(
    total: TopicTotal, cost: Decimal | None, gauges: Mapping[str, Mapping[str, Sequence[Series]]], values: ConfigValues
) -> ListedTopic:
    def value(metric: str) -> float | None:
        found = gauges.get(metric, {}).get(total.topic, ())
        return sum(series.value for series in found) if found else None

    lag_bytes, lag_segments, failed = value(LAG_BYTES), value(LAG_SEGMENTS), value(_FAILED)
    held_back = gauges.get(HELD_BACK.name, {}).get(total.topic, ())
    return ListedTopic(
        total,
        TopicRetention.of(values.get(ConfigEntity(EntityType.TOPICS, total.topic), {})),
        cost,
        None if lag_bytes is None else round(lag_bytes),
        None if lag_segments is None else round(lag_segments),
        value(LAG_SECONDS),
        None if failed is None else round(failed),
        codes_of(held_back),
    )


def searched(topics: Sequence[TopicTotal], search: str) -> list[TopicTotal]:
    """Return the topics whose name contains `search`, whatever its case; all for an empty text."""
    return [total for total in topics if search.lower() in total.topic.lower()]


class ListedTopicDocument(TypedDict):
    """A topic; null means not known, and in a retention no limit. Costs are exact decimals as text."""

    topic: str
    topic_id: str
    owner: str
    partitions: int
    segments: int
    finished_bytes: int
    stored_bytes: int
    waiting_bytes: int | None
    waiting_segments: int | None
    waiting_seconds: float | None
    failed_segments: int | None
    held_back: list[str]
    retention_ms: int | None
    retention_bytes: int | None
    cost_per_month: str | None


class WaitReasonDocument(ReasonMembers):
    """Why partitions of a topic wait, as of the last plan of all topics, and what to do about it."""

    advice: str


def wait_reason_document(code: str, topic: str) -> WaitReasonDocument:
    """Return the JSON of a reason for which a plan held back partitions of a topic."""
    reason = reason_of(code)
    if reason is None:
        return {"reason": code, "reason_message": code, "advice": ""}
    return {"reason": code, "reason_message": reason.message, "advice": advice_about(reason, topic)}


class NeverCopiedDocument(TypedDict):
    """A topic of which nothing was copied yet, and why the last plan of all topics held it back."""

    topic: str
    held_back: list[WaitReasonDocument]


class TopicPageDocument(TypedDict):
    """A page of topics, of `found` in all; `never_copied` are held back topics with no segment of them, 500 at most.

    Costs are of storage alone, at `gib_month` for a GiB and month, an exact decimal as text.
    """

    found: int
    offset: int
    currency: str | None
    gib_month: str | None
    topics: list[ListedTopicDocument]
    never_copied: list[NeverCopiedDocument]


def topic_page_document(page: TopicPage) -> TopicPageDocument:
    """Return the JSON of a page."""
    return {
        "found": page.found,
        "offset": page.offset,
        "currency": page.currency,
        "gib_month": None if page.gib_month is None else f"{page.gib_month:f}",
        "topics": [listed_document(listed) for listed in page.topics],
        "never_copied": [
            {"topic": name, "held_back": [wait_reason_document(code, name) for code in codes]}
            for name, codes in page.never_copied.items()
        ],
    }


def topics_table(topics: Sequence[ListedTopic]) -> Table:
    """Return the table of topics whose cells are exact numbers, for CSV."""
    documents = [listed_document(listed) for listed in topics]
    heads = tuple(ListedTopicDocument.__annotations__)
    rows = tuple(tuple(_cell(document[head]) for head in heads) for document in map(dict, documents))
    return Table("topics", heads, rows)


def _cell(value: Any) -> str:
    if isinstance(value, list):
        return " ".join(value)
    return "" if value is None else str(value)


def listed_document(listed: ListedTopic) -> ListedTopicDocument:
    """Return the JSON of a topic."""
    total, retention = listed.total, listed.retention
    return {
        "topic": total.topic,
        "topic_id": str(total.topic_id),
        "owner": total.owner.value,
        "partitions": total.partitions,
        "segments": total.segments,
        "finished_bytes": total.finished_bytes,
        "stored_bytes": total.stored_bytes,
        "waiting_bytes": listed.waiting_bytes,
        "waiting_segments": listed.waiting_segments,
        "waiting_seconds": listed.waiting_seconds,
        "failed_segments": listed.failed_segments,
        "held_back": list(listed.held_back),
        "retention_ms": retention.retention_ms,
        "retention_bytes": retention.retention_bytes,
        "cost_per_month": None if listed.cost_per_month is None else str(listed.cost_per_month),
    }
