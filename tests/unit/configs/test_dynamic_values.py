"""Values of dynamic configs: deletion limits, retention and topic quotas."""

from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from include.tiering.configs.config_catalogue import config_on
from include.tiering.configs.config_store import ALL_BROKERS, ConfigChange, ConfigEntity, EntityType, TopicRetention
from include.tiering.configs.rules import deletion_limits, loosened_limits, loosenings
from include.tiering.configs.usage_report import topic_quotas_document, topic_quotas_table
from include.tiering.copying.report import CopyRun, present_copy
from include.tiering.errors import SettingError
from include.tiering.quotas.topic_quotas import (
    TOPIC_THRESHOLD,
    TOTAL_THRESHOLD,
    BrokerUsage,
    MeterKind,
    TopicMeters,
    TopicQuotaReport,
    TopicUsage,
)
from include.tiering.runs.contract import PlannedSegment, SegmentOutcome, WorkItem
from include.tiering.settings import TieringSettings, with_dynamic
from include.tiering.settings.fields import Loosens
from tests.doubles.segments import partition_of

# The threshold of a topic that gives way always.


def test_the_threshold_of_a_topic_may_be_zero_the_total_may_not() -> None:
    assert config_on(ConfigEntity(EntityType.TOPICS, "backfill"), TOPIC_THRESHOLD).canonical("0") == "0"
    with pytest.raises(SettingError, match="integer, 1 to"):
        config_on(ALL_BROKERS, TOTAL_THRESHOLD).canonical("0")


# Which changes loosen a limit of deletions.

SETTINGS = TieringSettings()
SHARE = "tiering.expiration.max.share"
LOOSER = {
    SHARE: ("0.2", "0.3"),
    "tiering.expiration.min.bytes": ("1073741824", "9223372036854775807"),
    "tiering.expiration.total.max.bytes": ("0", "1073741824"),
    "tiering.expiration.max.whole.topics": ("1", "2"),
    "tiering.clock.max.difference.ms": ("300000", "300001"),
    "tiering.clock.ignored.until.ms": ("0", "1800000000000"),
    "tiering.superseded.hold.ms": ("9223372036854775807", "9223372036854775806"),
    "tiering.abandoned.copy.expiry.ms": ("7200000", "60000"),
    "tiering.tombstone.ms": ("7776000000", "172800000"),
    "tiering.audit.min.age.ms": ("86400000", "0"),
    "tiering.on.topic.delete": ("expire:30d", "expire:9d"),
    "tiering.verify.max.missing.segments": ("3", "1000000"),
    "tiering.verify.max.missing.total": ("20", "21"),
}


def _words(before: dict[str, str], after: dict[str, str], settings: TieringSettings = SETTINGS) -> list[str]:
    return [str(one) for one in loosened_limits({ALL_BROKERS: before}, {ALL_BROKERS: after}, settings)]


def test_every_limit_has_an_example_here() -> None:
    """A new one needs one, and with it a thought about its direction."""
    assert {config.name for config in deletion_limits()} == set(LOOSER)
    upwards = {config.name for config in deletion_limits() if config.loosens is Loosens.UPWARDS}
    assert upwards == {
        SHARE,
        "tiering.expiration.min.bytes",
        "tiering.expiration.total.max.bytes",
        "tiering.expiration.max.whole.topics",
        "tiering.clock.max.difference.ms",
        "tiering.clock.ignored.until.ms",
        "tiering.verify.max.missing.segments",
        "tiering.verify.max.missing.total",
    }


@pytest.mark.parametrize("name", LOOSER)
def test_one_way_loosens_and_the_other_does_not(name: str) -> None:
    tight, loose = LOOSER[name]
    assert _words({name: tight}, {name: loose}) == [f"{name} {tight} -> {loose}"]
    assert _words({name: loose}, {name: tight}) == []
    assert _words({name: loose}, {name: loose}) == []


def test_keeping_for_ever_is_the_tightest_of_all() -> None:
    name = "tiering.on.topic.delete"
    assert _words({}, {name: "expire:99999d"}) == [f"{name} keep -> expire:99999d"]
    assert _words({name: "expire:1d"}, {name: "keep"}) == []
    assert _words({name: "expire:1d"}, {}) == []


def test_what_is_removed_counts_by_what_the_settings_say() -> None:
    careful = with_dynamic(SETTINGS, {SHARE: "0.05"})
    assert _words({SHARE: "0.3"}, {}) == []
    assert _words({SHARE: "0.1"}, {}) == [f"{SHARE} 0.1 -> 0.2"]
    assert _words({SHARE: "0.1"}, {}, careful) == []
    assert _words({}, {SHARE: "0.1"}, careful) == [f"{SHARE} 0.05 -> 0.1"]


def test_what_is_no_limit_loosens_nothing() -> None:
    assert _words({}, {"tiering.copier.max.batches": "100", "unknown here": "x"}) == []
    topics = {ConfigEntity(EntityType.TOPICS, "orders"): {"retention.ms": "1"}}
    assert loosened_limits({}, topics, SETTINGS) == ()


def test_a_history_tells_who_loosened_what_and_when_whatever_came_after() -> None:
    def change(old: str | None, new: str | None, author: str, at_ms: int) -> ConfigChange:
        return ConfigChange(ALL_BROKERS, SHARE, old, new, author, at_ms)

    history = [
        change(None, "0.9", "long ago", 5),
        change("0.9", None, "ann", 10),
        change(None, "1.0", "ben", 20),
        change("1.0", None, "ben", 30),
    ]
    (found,) = loosenings(history, SETTINGS, since_ms=10)
    assert (str(found.limit), found.author, found.at_ms) == (f"{SHARE} 0.2 -> 1.0", "ben", 20)
    assert str(found) == f"`{SHARE}` 0.2 -> 1.0, by ben at 1970-01-01 00:00:00 UTC"
    assert len(loosenings(history, SETTINGS, since_ms=0)) == 2


# Retention limits from what is set on a topic.


def test_what_is_not_set_is_kept_for_ever() -> None:
    assert TopicRetention.of({}) == TopicRetention(None, None)


def test_minus_one_is_for_ever_and_zero_is_a_limit() -> None:
    assert TopicRetention.of({"retention.ms": "-1", "retention.bytes": "0"}) == TopicRetention(None, 0)


def test_each_limit_has_its_name() -> None:
    configs = {"retention.ms": "604800000", "retention.bytes": "1024", "tiering.copy.max.bytes.per.second": "7"}
    assert TopicRetention.of(configs) == TopicRetention(604_800_000, 1024)


@pytest.mark.parametrize("name", ["local.retention.ms", "local.retention.bytes"])
def test_kafka_17236_and_17360_local_retention_limits_nothing_remote(name: str) -> None:
    """Nor can it be set here, and neither can the -2 that means: as the other one."""
    assert TopicRetention.of({name: "1"}) == TopicRetention(None, None)
    orders = ConfigEntity(EntityType.TOPICS, "orders")
    with pytest.raises(SettingError, match=r"unknown config local\.retention"):
        config_on(orders, name)
    with pytest.raises(SettingError, match="accepted: integer, -1"):
        config_on(orders, name.removeprefix("local.")).canonical("-2")


# Topic quotas as `status` shows them, and as a run's summary tells of them.

METERS = TopicMeters.new(0).mark(MeterKind.IO, 10_000, 20, 0).mark(MeterKind.ACCEPTED, 10_000, 20, 0).at(5_000)
REPORT = TopicQuotaReport(
    enabled=True,
    brokers=(
        BrokerUsage(
            1,
            METERS,
            1_000,
            (
                TopicUsage("clicks", METERS, Fraction(1_000, 3), explicit=False),
                TopicUsage("gone", TopicMeters.new(0), None, explicit=False),
                TopicUsage("orders", METERS, 600, explicit=True),
            ),
        ),
    ),
    totals={"": 1_000},
    explicit={"orders": 600},
)


def test_document():
    document = topic_quotas_document(REPORT)["topic_quotas"]
    assert (document["enabled"], document["total_thresholds"]) == (True, {"": 1_000})
    (broker,) = document["brokers"]
    assert (broker["broker_id"], broker["bytes_in_per_second"], broker["threshold"]) == (1, 2_000, 1_000)
    assert [(one["topic"], one["threshold"], one["threshold_is"]) for one in broker["topics"]] == [
        ("clicks", 333.333, "shared"),
        ("gone", None, None),
        ("orders", 600.0, "explicit"),
    ]
    assert broker["topics"][0]["meters"] == {
        "io": {"bytes": 10_000, "records": 20, "bytes_per_second": 2_000, "records_per_second": 4},
        "accepted": {"bytes": 10_000, "records": 20, "bytes_per_second": 2_000, "records_per_second": 4},
        "error": {"bytes": 0, "records": 0, "bytes_per_second": 0, "records_per_second": 0},
        "throttled": {"bytes": 0, "records": 0, "bytes_per_second": 0, "records_per_second": 0},
    }


def test_table():
    (table,) = topic_quotas_table(REPORT)
    assert table.rows == (
        ("1", "all topics", "2.0 KiB", "1000 B", "the total"),
        ("1", "clicks", "2.0 KiB", "333 B", "shared"),
        ("1", "gone", "0 B", "none", ""),
        ("1", "orders", "2.0 KiB", "600 B", "explicit"),
    )
    assert topic_quotas_table(replace(REPORT, enabled=False)) == ()


def test_a_run_tells_what_its_topics_quotas_left():
    partition = partition_of("orders", 0)
    refused: dict[str, Any] = {"error": "QuotaExceededError", "message": "topic orders on broker 1 brings in too much"}
    items = [
        WorkItem(partition, PlannedSegment(0, 9, 100), SegmentOutcome.COPIED),
        *(
            WorkItem(partition, PlannedSegment(base, base + 9, 100), SegmentOutcome.PLANNED, **refused)
            for base in (10, 20)
        ),
        WorkItem(partition_of("clicks", 0), PlannedSegment(0, 9, 100), SegmentOutcome.PLANNED),
    ]
    presented = present_copy(CopyRun("run-1", items, 1.0))
    assert presented.ok
    assert presented.summary.endswith("0 failed, 3 still planned (2 throttled by topic quota)")
    left = presented.document()["left"]
    assert [item.get("error") for item in left] == ["QuotaExceededError", "QuotaExceededError", None]
    assert [table.rows for table in presented.tables() if table.title == "throttled by topic quota"] == [
        ((str(partition), "topic orders on broker 1 brings in too much"),)
    ]
