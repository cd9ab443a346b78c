"""Copies that a topic delays, against Kafka's own rule and against what brokers delete."""

import csv
from dataclasses import replace
from pathlib import Path

import pytest

from include.tiering.configs.config_store import CopyLag
from include.tiering.copying.next_segments import following, is_due, lag_in_force, with_delayed
from include.tiering.kafka.cluster.contract import TopicMetadata
from include.tiering.kafka.log_dirs.contract import IneligibleReason, LogSegment, ReplicaId, ScanReport
from include.tiering.model.leader_epochs import LeaderEpochs
from tests.doubles.segments import partition_of, whole_replica

DECISIONS = Path(__file__).parents[2] / "data" / "copy_lag.tsv"
NOW_MS = 1_000_000
PARTITION = partition_of("orders", 0)
EPOCHS = LeaderEpochs.of([(0, 0)])


def test_every_decision_is_that_of_kafka_4_4() -> None:
    with DECISIONS.open(newline="") as lines:
        rows = [[*map(int, row[:6]), row[6] == "true"] for row in csv.reader(lines, delimiter="\t")]
    assert len(rows) == 1920
    wrong = [
        row
        for row in rows
        if is_due(following(CopyLag(row[0], row[1]), row[2], row[3]), age_ms=row[4], newer_bytes=row[5]) is not row[6]
    ]
    assert wrong == []


def topic(**configs: str) -> TopicMetadata:
    return TopicMetadata(
        "orders", PARTITION.topic_id, {name.replace("_", "."): value for name, value in configs.items()}
    )


@pytest.mark.parametrize(
    ("configured", "brokers", "expected"),
    [
        (CopyLag(100, 100), topic(retention_ms="-1", retention_bytes="-1"), CopyLag(100, 100)),
        (CopyLag(100, 100), topic(retention_ms="150", retention_bytes="1000"), CopyLag(75, 100)),
        (CopyLag(-1, -1), topic(retention_ms="150", retention_bytes="1001"), CopyLag(75, 500)),
        (CopyLag(-1, -1), topic(retention_ms="-1", retention_bytes="-1"), CopyLag(-1, -1)),
        (CopyLag(100, -1), topic(retention_ms="604800000", retention_bytes="-1"), CopyLag(100, -1)),
        (CopyLag(100, 100), topic(retention_ms="1", retention_bytes="-1"), CopyLag(0, 100)),
    ],
)
def test_nothing_waits_for_more_than_half_of_the_brokers_retention(
    configured: CopyLag, brokers: TopicMetadata, expected: CopyLag
) -> None:
    assert lag_in_force(configured, brokers) == expected


@pytest.mark.parametrize(
    "brokers",
    [
        None,
        topic(),
        topic(retention_ms="100"),
        topic(retention_bytes="x", retention_ms="1"),
        topic(retention_bytes="1", retention_ms="9" * 5_000),
    ],
)
def test_without_the_brokers_retention_nothing_waits(brokers: TopicMetadata | None) -> None:
    assert lag_in_force(CopyLag(100, 100), brokers) == CopyLag()
    assert is_due(CopyLag(), age_ms=0, newer_bytes=0)


def test_a_value_of_the_topic_is_before_that_of_the_brokers() -> None:
    brokers = {"log.remote.copy.lag.ms": "7", "log.remote.copy.lag.bytes": "8"}
    assert CopyLag.of({}, {}) == CopyLag(0, -1)
    assert CopyLag.of({}, brokers) == CopyLag(7, 8)
    assert CopyLag.of({"remote.copy.lag.ms": "-1"}, brokers) == CopyLag(-1, 8)
    assert CopyLag.of({"remote.copy.lag.ms": "1", "remote.copy.lag.bytes": "2"}, brokers) == CopyLag(1, 2)


def segment(base: int, age_ms: int, *, active: bool = False, reason: IneligibleReason | None = None) -> LogSegment:
    reason = IneligibleReason.ACTIVE if active else reason
    return LogSegment(base, base + 9, 100, NOW_MS - age_ms, EPOCHS, active, reason)


class Cluster:
    """Knows one topic, without limits of retention."""

    def topic(self, topic_id: object) -> TopicMetadata:
        return topic(retention_ms="-1", retention_bytes="-1")


def marked(lag: CopyLag, *segments: LogSegment, highest: int | None = None) -> list[IneligibleReason | None]:
    replica = whole_replica(ReplicaId(PARTITION, 1, "dir"), segments, 1_000, leader_epochs=EPOCHS)
    report = ScanReport("c", (replica,), ())
    found = with_delayed(report, lambda _: lag, Cluster(), lambda _: highest, lambda: NOW_MS)  # type: ignore[arg-type]
    return [each.reason for each in found.replicas[0].segments]


DELAYED = IneligibleReason.COPY_DELAYED
SEGMENTS = (segment(0, 500), segment(10, 400), segment(20, 300), segment(30, 0, active=True))


@pytest.mark.parametrize(
    ("lag", "expected"),
    [
        (CopyLag(), [None, None, None]),
        (CopyLag(0, 10_000), [None, None, None]),
        (CopyLag(400, -1), [None, None, DELAYED]),
        (CopyLag(401, -1), [None, DELAYED, DELAYED]),
        (CopyLag(-1, 200), [None, None, DELAYED]),
        (CopyLag(-1, 201), [None, DELAYED, DELAYED]),
        (CopyLag(501, 300), [None, DELAYED, DELAYED]),
        (CopyLag(-1, -1), [DELAYED, DELAYED, DELAYED]),
    ],
)
def test_the_first_segment_that_waits_makes_all_later_ones_wait(
    lag: CopyLag, expected: list[IneligibleReason | None]
) -> None:
    assert marked(lag, *SEGMENTS) == [*expected, IneligibleReason.ACTIVE]


def test_a_later_segment_that_is_due_by_its_own_age_waits_too() -> None:
    """A producer may set timestamps as it likes."""
    segments = (segment(0, 100), segment(10, 500), segment(20, 0, active=True))
    assert marked(CopyLag(400, -1), *segments) == [DELAYED, DELAYED, IneligibleReason.ACTIVE]


def test_what_is_copied_or_has_another_reason_is_not_marked() -> None:
    segments = (
        segment(0, 0),
        segment(10, 0),
        segment(20, 0, reason=IneligibleReason.CORRUPT),
        segment(30, 0, active=True),
    )
    reasons = [None, DELAYED, IneligibleReason.CORRUPT, IneligibleReason.ACTIVE]
    assert marked(CopyLag(400, -1), *segments, highest=9) == reasons


def test_a_replica_that_no_copy_reads_stays_as_it_is() -> None:
    replica = whole_replica(ReplicaId(PARTITION, 1, "dir"), SEGMENTS, 1_000, leader_epochs=EPOCHS)
    report = ScanReport("c", (replace(replica, chosen=False),), ())
    found = with_delayed(report, lambda _: CopyLag(401, -1), Cluster(), lambda _: None, lambda: NOW_MS)  # type: ignore[arg-type]
    assert found == report
