"""Search, order and pages of the list of topics."""

from decimal import Decimal

import pytest

from include.tiering.configs.config_store import TopicRetention
from include.tiering.database.metric_series import Series, SeriesKey
from include.tiering.errors import SettingError
from include.tiering.model.ownership import TopicOwner
from include.tiering.model.segments import Uuid
from include.tiering.operations.topic_list import ListedTopic, by_topic, page_of, topic_page_document, topics_table
from include.tiering.presentation import as_csv
from include.tiering.segments.sizes_contract import TopicTotal


def listed(name: str, size_bytes: int = 0, waiting_bytes: int | None = None) -> ListedTopic:
    total = TopicTotal(Uuid(bytes(16)), name, TopicOwner.PLATFORM, 2, 3, size_bytes, size_bytes)
    return ListedTopic(total, TopicRetention(None, 9), Decimal("0.10"), waiting_bytes, held_back=("hole",))


TOPICS = [listed("orders", 30, 5), listed("Orders.eu", 40), listed("pay", 40, 9)]


@pytest.mark.parametrize(
    ("asked", "names", "found"),
    [
        ({}, ["Orders.eu", "orders", "pay"], 3),
        ({"search": "ORD"}, ["Orders.eu", "orders"], 2),
        ({"search": "<script>"}, [], 0),
        ({"sort": "finished_bytes", "descending": True}, ["Orders.eu", "pay", "orders"], 3),
        ({"sort": "waiting_bytes", "descending": True, "limit": 1}, ["pay"], 3),
        ({"offset": 2}, ["pay"], 3),
        ({"offset": 9}, [], 3),
    ],
)
def test_a_page(asked: dict[str, object], names: list[str], found: int) -> None:
    page = page_of(TOPICS, **asked)  # type: ignore[arg-type]
    assert ([one.total.topic for one in page.topics], page.found) == (names, found)


@pytest.mark.parametrize("asked", [{"sort": "size; DROP"}, {"offset": -1}, {"limit": 0}, {"limit": 501}])
def test_what_cannot_be_asked_is_refused(asked: dict[str, object]) -> None:
    with pytest.raises(SettingError, match="accepted"):
        page_of(TOPICS, **asked)  # type: ignore[arg-type]


def test_documents_and_csv_have_exact_numbers() -> None:
    document = topic_page_document(page_of(TOPICS, search="pay", currency="EUR"))
    assert document["topics"][0] == {
        "topic": "pay",
        "topic_id": "AAAAAAAAAAAAAAAAAAAAAA",
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
        "topics,pay,AAAAAAAAAAAAAAAAAAAAAA,platform,2,3,40,40,9,,,,hole,,9,0.10"
    )


def test_series_are_grouped_by_their_topic() -> None:
    def series(topic: str | None, value: float) -> Series:
        labels = (("reason", "hole"),) if topic is None else (("reason", "hole"), ("topic", topic))
        return Series(SeriesKey("metric", labels), value, 1)

    every = [series("orders", 1), series("pay", 2), series(None, 3), series("orders", 4)]
    assert by_topic(every) == {"orders": [every[0], every[3]], "pay": [every[1]], "": [every[2]]}
