"""What a backfill takes: whose bytes, which quota decides, and what is unknown."""

from dataclasses import replace
from decimal import Decimal
from typing import Final

import pytest

from include.tiering.database.metric_series import Series, SeriesKey, TopicValues
from include.tiering.model.sizes import OBJECTS_PER_SEGMENT, PriceTable, estimate_cost
from include.tiering.operations.backfill import (
    MOST_TOPICS,
    Backfill,
    TopicBackfill,
    backfill_document,
    present_backfill,
    removable,
    waiting_topics,
)
from include.tiering.operations.monitoring import disks
from include.tiering.presentation import as_text
from include.tiering.quotas.contract import UNLIMITED, QuotaKind, QuotaLevel, QuotasInForce, Scope
from include.tiering.units import GIB

NOW_MS: Final = 1_700_000_000_000


def series(metric: str, value: float, at_ms: int = NOW_MS, **labels: str) -> Series:
    return Series(SeriesKey(metric, tuple(sorted(labels.items()))), value, at_ms)


def of_topics(*topics: TopicBackfill, quota: int | None = None, asked: int | None = None, rate: float = 0) -> Backfill:
    segments = sum(topic.segments for topic in topics)
    prices = PriceTable("EUR", gib_month=Decimal(2), put_requests=Decimal(5))
    cost = estimate_cost(sum(topic.size_bytes for topic in topics), segments, prices)
    return Backfill(NOW_MS, topics, quota, asked, asked is not None, rate, False, cost)


def test_topics_of_which_something_waits_are_listed_with_most_bytes_first() -> None:
    waits = [
        TopicValues("small", 5.0, (None, None), NOW_MS),
        TopicValues("nothing", 0.0, (0.0, 0.0), NOW_MS),
        TopicValues("large", 70.0, (3.0, 60.0), NOW_MS - 9),
    ]
    held_back = [series("tiering_copy_held_back_partitions", 2, topic="large", reason="hole")]
    quotas = QuotasInForce(
        1,
        {
            Scope(QuotaKind.COPY, QuotaLevel.TOPIC): UNLIMITED,
            Scope(QuotaKind.COPY, QuotaLevel.TOPIC, "small"): 10,
        },
    )
    large, small = waiting_topics(waits, held_back, quotas, {"small"})
    assert large == TopicBackfill("large", 70, 3, 60, NOW_MS - 9, None, False, ("hole",))
    assert small == TopicBackfill("small", 5, 0, 0, NOW_MS, 10, True, ())
    assert [topic.is_paused for topic in waiting_topics(waits, held_back, quotas, {"*"})] == [True, True]
    assert waiting_topics([], (), quotas, ()) == ()


def test_the_narrowest_quota_decides_how_long_it_takes() -> None:
    free, bound = TopicBackfill("a", 900, 1, 0, NOW_MS), TopicBackfill("b", 100, 1, 0, NOW_MS, quota=10)
    assert of_topics(free).seconds_at(None) is None
    assert of_topics(free).seconds_at(100) == 9
    assert of_topics(free, bound).seconds_at(None) == 10
    assert of_topics(free, bound).seconds_at(500) == 10
    assert of_topics(free, bound).seconds_at(50) == 20
    assert of_topics(free, quota=100).narrowest == (None, 100)
    assert of_topics(free, bound).narrowest == of_topics(free, bound, quota=500).narrowest == ("b", 10)
    assert of_topics(free, bound, quota=50).narrowest == (None, 50)
    assert of_topics(free).narrowest is None


def test_a_pool_without_slots_is_named_before_the_time_at_the_quotas() -> None:
    waits = of_topics(TopicBackfill("a", 900, 1, 0, NOW_MS, quota=10))
    assert "while the pool" not in present_backfill(waits).summary
    stopped = replace(waits, copier_slots=0)
    assert present_backfill(stopped).summary.endswith(
        "nothing is copied while the pool remote_log_copier has 0 slots, then 1m 30s at least at the present quotas"
    )
    document = backfill_document(stopped)
    assert (document["copier_slots"], document["narrowest"]) == (0, {"topic": "a", "bytes_per_second": 10})


def test_the_document_has_requests_money_and_times() -> None:
    document = backfill_document(
        of_topics(TopicBackfill("a", 3 * GIB, 7, 0, NOW_MS), quota=GIB, asked=3 * GIB, rate=GIB / 2)
    )
    assert (document["seconds"], document["asked_seconds"], document["rate_seconds"]) == (3, 1, 6)
    assert document["requests"] == {"put": 7 * OBJECTS_PER_SEGMENT, "get": 7 * OBJECTS_PER_SEGMENT}
    cost = document["cost"]
    assert cost is not None
    assert (cost["currency"], cost["reading"]) == ("EUR", None)
    assert Decimal(cost["writing"] or "") == Decimal(5) * 21 / 1000
    assert Decimal(cost["storage_per_month"] or "") == 6
    idle = backfill_document(of_topics())
    assert (idle["bytes"], idle["seconds"], idle["asked_seconds"], idle["rate_seconds"]) == (0, None, None, None)


def test_a_long_list_says_how_much_is_left_out_and_the_sums_are_of_all() -> None:
    topics = [TopicBackfill(f"t{number}", 10, 1, 0, NOW_MS) for number in range(MOST_TOPICS + 3)]
    document = backfill_document(of_topics(*topics))
    assert (len(document["topics"]), document["more_topics"], document["segments"]) == (MOST_TOPICS, 3, MOST_TOPICS + 3)
    assert "no quota limits it" in as_text(present_backfill(of_topics(*topics)))


def test_what_brokers_could_delete_is_what_is_in_both_tiers_then() -> None:
    topics = [TopicBackfill("a", 900, 1, 0, NOW_MS)]
    duplicates = [
        series("tiering_duplicate_bytes", 70, topic="a", held="local"),
        series("tiering_duplicate_bytes", 5, topic="a", held="remote"),
        series("tiering_duplicate_bytes", 3, topic="another", held="local"),
    ]
    assert removable(topics, duplicates) == 970
    assert removable(topics, duplicates[1:2]) is None


@pytest.mark.parametrize(
    ("read", "filled", "left"),
    [
        ({}, None, None),
        ({100: 9_000.0}, None, None),
        ({100: 9_000.0, 159: 1_800.0}, None, None),
        ({100: 9_000.0, 130: 0.0, 160: 1_800.0}, 2.0, 900.0),
        ({100: 1_800.0, 160: 1_800.0}, 0.0, None),
        ({100: 0.0, 160: 1_800.0}, -0.5, None),
    ],
)
def test_a_disk_is_full_at_the_rate_between_the_first_and_the_last_size_run(
    read: dict[int, float], filled: float | None, left: float | None
) -> None:
    free = series("tiering_log_dir_free_bytes", 1_800, broker="1", log_dir="/data")
    (disk,) = disks([free], {free.key: read})
    assert (disk.free_bytes, disk.filled_per_second, disk.seconds_left) == (1_800, filled, left)
