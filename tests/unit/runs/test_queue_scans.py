"""For how long the report of a queue counts, for which topics, and how reports of several hosts are merged."""

from dataclasses import replace

import pytest

from include.tiering.kafka.log_dirs.contract import IneligibleReason, Replica, ScanError, ScanReport
from include.tiering.kafka.log_dirs.rules import merged
from include.tiering.model.segments import TopicIdPartition
from include.tiering.runs.cluster_log_dirs import MOST_AGE_MS, KnownLogDir, QueueScan
from tests.doubles.segments import partition_of, replica

ORDERS, CLICKS = partition_of("orders"), partition_of("clicks")
DIRS = (KnownLogDir(1, "/data", "dir-1"),)
SCAN = QueueScan("rack-a", "run-1", "host-a", ("orders*", "clicks"), DIRS, ScanReport(None, (), ()))


def replica_of(partition: TopicIdPartition, *, broker_id: int = 1) -> Replica:
    made = replica([10, 10, 10])
    replica_id = replace(made.replica_id, topic_id_partition=partition, broker_id=broker_id)
    return replace(made, replica_id=replica_id, segments=made.segments[:2])


@pytest.mark.parametrize(
    ("topics", "age_ms", "why"),
    [
        (("orders*", "clicks"), 0, None),
        (("orders-eu", "clicks"), MOST_AGE_MS, None),
        ((), 0, None),
        (("orders-*",), 0, "only for the topics"),
        (("payments",), 0, "only for the topics"),
        (("*",), 0, "only for the topics"),
        (None, 0, "only for the topics"),
        (("clicks",), MOST_AGE_MS + 1, "more than 15 minutes ago"),
    ],
)
def test_a_report_says_nothing_of_other_topics_and_not_for_long(
    topics: tuple[str, ...] | None, age_ms: int, why: str | None
) -> None:
    found = replace(SCAN, scanned_at_ms=1_700_000_000_000).why_not(topics, 1_700_000_000_000 + age_ms)
    assert found is None if why is None else why in str(found)
    assert replace(SCAN, topics=("*",), scanned_at_ms=0).why_not(topics, 0) is None


def test_a_report_has_errors_of_the_topics_that_are_asked_for() -> None:
    errors = tuple(ScanError("/data", None, "", "", where) for where in (None, "", "orders-0", "clicks-0"))
    report = ScanReport("x", (replica_of(ORDERS), replica_of(CLICKS)), errors, errors)
    asked = replace(SCAN, report=report).report_of(("orders",))
    assert [replica.topic_id_partition for replica in asked.replicas] == [ORDERS]
    assert [error.partition for error in asked.errors] == [None, "", "orders-0"]
    assert [note.partition for note in asked.notes] == [None, "", "orders-0"]


def test_a_partition_that_two_hosts_would_read_is_read_by_none() -> None:
    one, other, alone = replica_of(ORDERS), replica_of(ORDERS, broker_id=2), replica_of(CLICKS)
    found = merged([ScanReport(None, (one,), ()), ScanReport("x", (alone, other), ())])
    assert found.cluster_id == "x"
    assert [(replica.topic_id_partition.topic, replica.chosen) for replica in found.replicas] == [
        ("clicks", True),
        ("orders", False),
        ("orders", False),
    ]
    reasons = {segment.reason for replica in found.replicas[1:] for segment in replica.segments}
    assert reasons == {IneligibleReason.AMBIGUOUS_REPLICA}
