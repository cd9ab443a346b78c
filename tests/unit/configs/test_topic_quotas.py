"""Topic quotas as `status` shows them, and as a run's summary tells of them."""

from dataclasses import replace
from fractions import Fraction
from typing import Any

from include.tiering.configs.report import topic_quotas_document, topic_quotas_table
from include.tiering.copying.report import CopyRun, present_copy
from include.tiering.quotas.topic_quotas import BrokerUsage, MeterKind, TopicMeters, TopicQuotaReport, TopicUsage
from include.tiering.runs.contract import PlannedSegment, SegmentOutcome, WorkItem
from tests.doubles.segments import partition_of

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
    assert presented.summary.endswith("0 failed, 3 left (2 throttled by topic quota)")
    left = presented.document()["left"]
    assert [item.get("error") for item in left] == ["QuotaExceededError", "QuotaExceededError", None]
    assert [table.rows for table in presented.tables() if table.title == "throttled by topic quota"] == [
        ((str(partition), "topic orders on broker 1 brings in too much"),)
    ]
