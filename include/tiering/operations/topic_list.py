"""The topics of the archive for the page *Tiering*: searched, sorted and cut into pages, also as CSV.

Sizes are those of `./tiering sizes --by topic`. Lags, failed segments and what a plan held back are as of the run that
published them.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final, TypedDict

from include.tiering.configs.config_store import ConfigEntity, ConfigStore, ConfigValues, EntityType, TopicRetention
from include.tiering.copying.metrics import HELD_BACK
from include.tiering.database.metric_series import MetricSeries, Series
from include.tiering.errors import SettingError
from include.tiering.model.sizes import estimate_cost
from include.tiering.presentation import Table
from include.tiering.segments.sizes_contract import RemoteLogSizes, TopicTotal
from include.tiering.settings import TieringSettings

MOST_ROWS: Final = 500
LAG_BYTES: Final = "RemoteCopyLagBytes"
LAG_SEGMENTS: Final = "RemoteCopyLagSegments"
LAG_SECONDS: Final = "tiering_remote_copy_lag_seconds"
_FAILED: Final = "tiering_failed_segments"
GAUGES: Final = (LAG_BYTES, LAG_SEGMENTS, LAG_SECONDS, _FAILED, HELD_BACK.name)
"""Names of the metrics that the list needs. Those of other use cases are named by their text."""


@dataclass(frozen=True, slots=True)
class ListedTopic:
    """A topic with what is known of it; lags, failures and held back partitions are None if no run published them.

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


_SORTED_BY: Final[Mapping[str, Callable[[ListedTopic], Any]]] = {
    "topic": lambda listed: listed.total.topic,
    "owner": lambda listed: listed.total.owner.value,
    "partitions": lambda listed: listed.total.partitions,
    "segments": lambda listed: listed.total.segments,
    "finished_bytes": lambda listed: listed.total.finished_bytes,
    "stored_bytes": lambda listed: listed.total.stored_bytes,
    "waiting_bytes": lambda listed: listed.waiting_bytes or 0,
    "waiting_seconds": lambda listed: listed.waiting_seconds or 0.0,
    "failed_segments": lambda listed: listed.failed_segments or 0,
    "cost_per_month": lambda listed: listed.cost_per_month or Decimal(0),
}


class TopicListService:
    """Reads the list with five statements. Their cost grows with topics and partitions, not with segments."""

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

    def all(self) -> Sequence[ListedTopic]:
        """Return all topics of which anything was ever copied, by name. Raises MetadataUnavailableError."""
        return self.with_configs(self._configs.snapshot().values)

    def with_configs(self, values: ConfigValues) -> Sequence[ListedTopic]:
        """Return what `all` does, with retentions from these dynamic configs. Two statements."""
        gauges = {metric: by_topic(series) for metric, series in self._series().latest(GAUGES).items()}
        prices = self._settings.prices.table()
        costs = (
            (total, estimate_cost(total.stored_bytes, total.segments, prices)) for total in self._sizes.topic_totals()
        )
        return [
            _listed(total, None if cost is None else cost.storage_per_month, gauges, values) for total, cost in costs
        ]

    @property
    def currency(self) -> str | None:
        """The currency of the costs; None without a price of storage."""
        prices = self._settings.prices.table()
        cost = estimate_cost(0, 0, prices)
        return None if cost is None or cost.storage_per_month is None else cost.currency


def by_topic(series: Sequence[Series]) -> Mapping[str, Sequence[Series]]:
    """Group series by the value of their label `topic`."""
    found: dict[str, list[Series]] = {}
    for each in series:
        found.setdefault(dict(each.key.labels).get("topic", ""), []).append(each)
    return found


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
        tuple(sorted(dict(series.key.labels)["reason"] for series in held_back)),
    )


def searched(topics: Sequence[ListedTopic], search: str) -> list[ListedTopic]:
    """Return the topics whose name contains `search`, whatever its case; all for an empty text."""
    return [listed for listed in topics if search.lower() in listed.total.topic.lower()]


def page_of(
    topics: Sequence[ListedTopic],
    *,
    search: str = "",
    sort: str = "topic",
    descending: bool = False,
    offset: int = 0,
    limit: int = 50,
    currency: str | None = None,
) -> TopicPage:
    """Return one page of the topics whose name contains `search`, whatever its case.

    Args:
        topics: all topics.
        search: a part of a name; empty: all.
        sort: a member of the JSON by which to sort; equal values are sorted by name.
        descending: whether the largest comes first.
        offset: how many of them to pass over, 0 or more.
        limit: the most topics of the page, 1 to `MOST_ROWS`.
        currency: of the costs.

    Raises:
        SettingError: the member cannot be sorted by, or a number is out of its range.
    """
    if sort not in _SORTED_BY:
        raise SettingError(f"topics cannot be sorted by this: accepted: {', '.join(_SORTED_BY)}")
    if offset < 0 or not 1 <= limit <= MOST_ROWS:
        raise SettingError(f"offset {offset}, limit {limit}: accepted: 0 or more, and 1 to {MOST_ROWS}")
    found = searched(topics, search)
    found.sort(key=lambda listed: (listed.total.topic, str(listed.total.topic_id)))
    found.sort(key=_SORTED_BY[sort], reverse=descending)
    return TopicPage(tuple(found[offset : offset + limit]), len(found), offset, currency)


class ListedTopicDocument(TypedDict):
    """A topic; null is not known, of a retention no limit. Costs are exact decimals as text."""

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


class TopicPageDocument(TypedDict):
    """A page of topics, of `found` in all."""

    found: int
    offset: int
    currency: str | None
    topics: list[ListedTopicDocument]


def topic_page_document(page: TopicPage) -> TopicPageDocument:
    """Return the JSON of a page."""
    return {
        "found": page.found,
        "offset": page.offset,
        "currency": page.currency,
        "topics": [listed_document(listed) for listed in page.topics],
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
