"""Search, order and pages of the list of topics."""

import csv
from collections.abc import Collection, Mapping, Sequence
from decimal import Decimal
from typing import Any

import pytest

from include.tiering.configs.config_store import TopicRetention
from include.tiering.copying.metrics import HELD_BACK
from include.tiering.database.metric_series import Series, SeriesKey
from include.tiering.errors import SettingError
from include.tiering.model.ownership import TopicOwner
from include.tiering.model.segments import Uuid
from include.tiering.operations.topic_list import (
    LAG_BYTES,
    AskedPage,
    ListedTopic,
    TopicListService,
    TopicPage,
    by_topic,
    topic_page_document,
    topics_table,
)
from include.tiering.operations.waiting import unmeasured
from include.tiering.presentation import Table, as_csv
from include.tiering.segments.sizes_contract import TopicTotal
from include.tiering.settings import load_settings
from tests.doubles.memory_stores import MemoryConfigStore
from tests.doubles.partial import Partial


def listed(name: str, size_bytes: int = 0, waiting_bytes: int | None = None) -> ListedTopic:
    total = TopicTotal(Uuid(name.encode().ljust(16, b"\0")), name, TopicOwner.PLATFORM, 2, 3, size_bytes, size_bytes)
    return ListedTopic(total, TopicRetention(None, 9), Decimal("0.10"), waiting_bytes, held_back=("hole",))


TOPICS = [listed("orders", 30, 5), listed("Orders.eu", 40), listed("pay", 40, 9)]


HELD = [
    Series(SeriesKey(HELD_BACK.name, (("reason", reason), ("topic", topic))), 1, 1)
    for topic, reason in (("pay", "hole"), ("payments", "above-last-stable-offset"), ("clicks", "no-leader-replica"))
]
"""What a plan held back: of `pay` something is copied, of the others nothing."""


class Sizes(Partial):
    """Has the totals of `TOPICS`, and notes nothing."""

    def listed_topics(self) -> Mapping[Uuid, str]:
        return {one.total.topic_id: one.total.topic for one in TOPICS}

    def topic_totals(self, names: Collection[str] | None = None) -> Sequence[TopicTotal]:
        return [one.total for one in TOPICS if names is None or one.total.topic in names]


class Metrics(Partial):
    """Has what waits of `TOPICS`, and notes of how many series it was asked."""

    def __init__(self) -> None:
        self.read = 0

    def latest(
        self, metrics: Collection[str], *, labels: Collection[Mapping[str, str]] | None = None
    ) -> Mapping[str, Sequence[Series]]:
        waits = [
            Series(SeriesKey(LAG_BYTES, (("topic", one.total.topic),)), one.waiting_bytes, 1)
            for one in TOPICS
            if one.waiting_bytes and (labels is None or {"topic": one.total.topic} in labels)
        ]
        if LAG_BYTES not in metrics:
            return {HELD_BACK.name: HELD}
        self.read += len(waits) if LAG_BYTES in metrics else 0
        return {LAG_BYTES: waits} if LAG_BYTES in metrics and waits else {}


def service(metrics: Metrics | None = None) -> TopicListService:
    read: Any = metrics or Metrics()
    sizes: Any = Sizes()
    settings = load_settings(environ={"TIERING_PRICES__GIB_MONTH": "1"})
    return TopicListService(settings=settings, sizes=sizes, configs=MemoryConfigStore(), series=lambda: read)


@pytest.mark.parametrize(
    ("asked", "names", "found"),
    [
        ({}, ["Orders.eu", "orders", "pay"], 3),
        ({"search": "ORD"}, ["Orders.eu", "orders"], 2),
        ({"search": "<script>"}, [], 0),
        ({"sort": "finished_bytes", "descending": True}, ["Orders.eu", "pay", "orders"], 3),
        ({"sort": "waiting_bytes", "descending": True, "limit": 1}, ["pay"], 3),
        ({"sort": "waiting_bytes", "descending": True}, ["pay", "orders", "Orders.eu"], 3),
        ({"sort": "cost_per_month"}, ["orders", "Orders.eu", "pay"], 3),
        ({"descending": True}, ["pay", "orders", "Orders.eu"], 3),
        ({"offset": 2}, ["pay"], 3),
        ({"offset": 9}, [], 3),
    ],
)
def test_a_page(asked: dict[str, object], names: list[str], found: int) -> None:
    page = service().page(AskedPage(**asked))  # type: ignore[arg-type]
    assert ([one.total.topic for one in page.topics], page.found) == (names, found)


def test_of_a_page_only_its_own_topics_are_read() -> None:
    metrics = Metrics()
    (topic,) = service(metrics).page(AskedPage(limit=1, offset=1)).topics
    assert (topic.total.topic, topic.waiting_bytes, metrics.read) == ("orders", 5, 1)


def test_a_topic_is_listed_by_its_name_and_all_by_a_part_of_it() -> None:
    (topic,) = service().named("pay", {})
    assert (topic.total.topic, topic.waiting_bytes) == ("pay", 9)
    assert [each.waiting_bytes for each in service().all("ord")] == [5, None]
    with pytest.raises(SettingError, match="doctor pa"):
        service().never_copied("pa")
    assert service().named("pa", {}) == ()


@pytest.mark.parametrize("sort", ["topic", "finished_bytes"])
def test_topics_of_which_nothing_is_copied_yet_are_named_with_what_holds_them_back(sort: str) -> None:
    page = service().page(AskedPage(sort=sort))
    assert page.never_copied == {"clicks": ("no-leader-replica",), "payments": ("above-last-stable-offset",)}
    searched = service().page(AskedPage(search="PAY", sort=sort))
    assert list(searched.never_copied) == ["payments"]
    (never,) = topic_page_document(searched)["never_copied"]
    (why,) = never["held_back"]
    assert (never["topic"], why["reason"]) == ("payments", "above-last-stable-offset")
    assert why["advice"].startswith("./tiering doctor payments")
    assert service().named("payments", {}) == ()
    assert service().never_copied("payments") == {"above-last-stable-offset": 1}


def test_partitions_that_no_size_run_measures_are_counted_without_those_that_it_cannot_see() -> None:
    assert unmeasured(HELD, {"pay"}) == {"payments": 1}
    assert unmeasured(HELD, ()) == {"pay": 1, "payments": 1}


@pytest.mark.parametrize("asked", [{"sort": "size; DROP"}, {"offset": -1}, {"limit": 0}, {"limit": 501}])
def test_what_cannot_be_asked_is_refused(asked: dict[str, object]) -> None:
    with pytest.raises(SettingError, match="accepted"):
        AskedPage(**asked)  # type: ignore[arg-type]


def test_documents_and_csv_have_exact_numbers() -> None:
    document = topic_page_document(TopicPage((TOPICS[2],), 1, 0, "EUR"))
    assert document["topics"][0] == {
        "topic": "pay",
        "topic_id": str(TOPICS[2].total.topic_id),
        "owner": "platform",
        "partitions": 2,
        "segments": 3,
        "finished_bytes": 40,
        "stored_bytes": 40,
        "waiting_bytes": 9,
        "waiting_segments": None,
        "waiting_seconds": None,
        "failed_segments": None,
        "held_back": ["hole"],
        "retention_ms": None,
        "retention_bytes": 9,
        "cost_per_month": "0.10",
    }
    assert as_csv([topics_table(TOPICS[2:])]).splitlines()[1] == (
        f"topics,pay,{TOPICS[2].total.topic_id},platform,2,3,40,40,9,,,,hole,,9,0.10"
    )


def test_series_are_grouped_by_their_topic() -> None:
    def series(topic: str | None, value: float) -> Series:
        labels = (("reason", "hole"),) if topic is None else (("reason", "hole"), ("topic", topic))
        return Series(SeriesKey("metric", labels), value, 1)

    every = [series("orders", 1), series("pay", 2), series(None, 3), series("orders", 4)]
    assert by_topic(every) == {"orders": [every[0], every[3]], "pay": [every[1]], "": [every[2]]}


def test_a_cell_of_a_csv_is_no_formula_of_a_spreadsheet() -> None:
    cells = ("=1+1", "+1", "@SUM(A1)", "-1+cmd|' /C calc'!A0", '=HYPERLINK("http://x")')
    for cell in cells:
        (_, written) = next(csv.reader([as_csv([Table("findings", ("key",), ((cell,),))]).splitlines()[1]]))
        assert written == f"'{cell}"
    for cell in ("-5", "-1.5", "-orders", "orders=1", "a@b", ""):
        assert as_csv([Table("t", ("key",), ((cell,),))]).splitlines()[1] == f"t,{cell}"
