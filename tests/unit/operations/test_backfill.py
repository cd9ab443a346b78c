"""What a backfill takes: whose bytes, which quota decides, and what is unknown."""

from dataclasses import replace
from decimal import Decimal
from typing import Final

import pytest

from include.tiering.configs.config_catalogue import NARROW_COPY_QUOTA, TOTAL_COPY_QUOTA
from include.tiering.database.metric_series import Series, SeriesKey, TopicValues
from include.tiering.model.sizes import OBJECTS_PER_SEGMENT, PriceTable, estimate_cost
from include.tiering.operations.backfill import (
    MOST_TOPICS,
    Backfill,
    backfill_document,
    present_backfill,
    removable,
)
from include.tiering.operations.monitoring import disks
from include.tiering.operations.waiting import TopicBackfill, of_unknown_size, waiting_topics
from include.tiering.presentation import as_text
from include.tiering.quotas.contract import UNLIMITED, QuotaKind, QuotaLevel, QuotasInForce, Scope
from include.tiering.runs.contract import BatchProgress
from include.tiering.units import GIB

NARROW: Final = {"config": NARROW_COPY_QUOTA, "bytes_per_second": 10}
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
    assert (document["copier_slots"], document["narrowest"]) == (0, {**NARROW, "topic": "a"})
    total = backfill_document(of_topics(TopicBackfill("a", 900, 1, 0, NOW_MS), quota=9))["narrowest"]
    assert total == {"topic": None, "config": TOTAL_COPY_QUOTA, "bytes_per_second": 9}


def test_what_a_topic_waits_for_is_what_stops_it_first() -> None:
    plain = TopicBackfill("a", 900, 1, 0, NOW_MS)
    assert plain.waits_for(2) == ("a run of tiering_copy",)
    narrow = plain._replace(quota=6144)
    assert narrow.waits_for(None) == ("a run of tiering_copy, at most 6.0 KiB/s by its own quota",)
    running = narrow._replace(is_copied=True)
    assert running.waits_for(2) == ("the copy that runs now, at most 6.0 KiB/s by its own quota",)
    held = running._replace(held_back=("hole", "of-a-later-version"), is_paused=True)
    stopped, paused, hole, unknown, running_now = held.waits_for(0)
    assert "remote_log_copier, which has 0" in stopped
    assert (paused, unknown) == ("the end of its pause", "of-a-later-version")
    assert "hole must be recorded" in hole
    assert running_now.startswith("the copy that runs now")


def test_topics_of_running_copies_are_known_by_their_batches() -> None:
    waits = [TopicValues(name, 5.0, (1.0, 1.0), NOW_MS) for name in ("orders", "pay-2", "trimmed")]
    batches = [
        BatchProgress("r", "r.0", "remote_log_copier", "h", 1, "pay-2-0 and 3 more", 0, 9, 0.0, False),
        BatchProgress("x", "x.0", "remote_log_expiration", "h", 1, "orders-0", 0, 9, 0.0, False),
        BatchProgress("c", "c.0", None, "h", 1, "trimmed-0", 0, 9, 0.0, False),
    ]
    found = waiting_topics(waits, (), QuotasInForce(1, {}), (), batches)
    assert {topic.topic: topic.is_copied for topic in found} == {"orders": False, "pay-2": True, "trimmed": False}


def test_partitions_of_which_nobody_knows_what_waits_are_named() -> None:
    held_back = [
        series("tiering_copy_held_back_partitions", 1, topic="payments", reason="above-last-stable-offset"),
        series("tiering_copy_held_back_partitions", 2, topic="clicks", reason="no-leader-replica"),
    ]
    unseen = [
        series("tiering_remote_copy_out_of_sight_partitions", value, topic=topic)
        for topic, value in (("clicks", 2), ("orders", 0))
    ]
    unmeasured = of_unknown_size({"clicks"}, held_back, unseen)
    assert unmeasured == {"clicks": 2, "payments": 1}
    found = replace(of_topics(TopicBackfill("clicks", 5, 1, 0, NOW_MS)), unmeasured=unmeasured)
    assert backfill_document(found)["unmeasured"] == [
        {"topic": "clicks", "partitions": 2},
        {"topic": "payments", "partitions": 1},
    ]
    assert "of 3 partitions it is not known how much waits" in present_backfill(found).summary


def test_without_slots_no_rate_says_how_long_it_takes() -> None:
    found = of_topics(TopicBackfill("a", 900, 1, 0, NOW_MS), rate=90)
    assert (found.rate_seconds, replace(found, copier_slots=0).rate_seconds) == (10, None)


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
