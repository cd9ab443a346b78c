"""What a person reads of the brokers' metadata topic: the question before it is read again, and how far it is."""

from typing import Any

import pytest

from include.tiering.kafka.metadata_topic.contract import OffsetBounds
from include.tiering.metadata_sync.ingest import IngestedPartition, IngestReport
from include.tiering.metadata_sync.report import present_ingest, question
from include.tiering.model.segments import Uuid
from include.tiering.segments.ingestion_contract import (
    BrokerSize,
    IngestPosition,
    MetadataTopicIdentity,
    RecordOutcome,
)
from tests.doubles.segments import partition_of

TOPIC = MetadataTopicIdentity(Uuid(bytes(15) + b"\x07"), 3)


def position(partition: int) -> IngestPosition:
    return IngestPosition(partition, next_offset=5, end_offset=5, looked_at_ms=0)


@pytest.mark.parametrize(
    ("bounds", "records", "gone"),
    [
        ({}, "0 records", None),
        ({0: OffsetBounds(0, 1)}, "1 record", None),
        ({0: OffsetBounds(0, 1_000), 1: OffsetBounds(0, 234)}, "1,234 records", None),
        ({0: OffsetBounds(0, 10), 1: OffsetBounds(1, 9)}, "18 records", "1 partition"),
        ({0: OffsetBounds(7, 10), 1: OffsetBounds(9, 9), 2: OffsetBounds(0, 4)}, "7 records", "2 partitions"),
    ],
)
def test_the_question_says_how_much_is_read_and_of_how_many_partitions_the_beginning_is_gone(
    bounds: dict[int, OffsetBounds], records: str, gone: str | None
) -> None:
    asked = question(None, [position(number) for number in range(3)], bounds)
    assert asked.startswith(f"Read all {records} of __remote_log_metadata again, as brokers do when they start?")
    if gone is None:
        assert asked.endswith("start?")
    else:
        assert asked.endswith(f"start? The beginning of {gone} was removed from the topic.")


def test_a_partition_that_was_never_read_lost_no_beginning() -> None:
    assert "removed from the topic" not in question(None, [position(0)], {0: OffsetBounds(0, 2), 1: OffsetBounds(3, 4)})


@pytest.mark.parametrize("known", [None, TOPIC])
def test_the_question_says_what_waits_until_a_known_topic_is_read_again(known: MetadataTopicIdentity | None) -> None:
    asked = question(known, [position(0)], {0: OffsetBounds(0, 2)})
    assert ("nothing of a broker's topic is expired, verified or audited" in asked) is (known is not None)


def read(partition: int, records: int, lag: int = 0, **rest: Any) -> IngestedPartition:
    outcomes = {RecordOutcome.APPLIED: records - 1, RecordOutcome.UNKNOWN_SEGMENT: 1} if records else {}
    next_offset = 100 + records
    given = {"stopped": None, "failed": None} | rest
    return IngestedPartition(partition, 100, next_offset, next_offset + lag, records, 0, False, outcomes, **given)


def test_the_summary_counts() -> None:
    report = IngestReport(TOPIC, (read(0, 1_200), read(1, 34, 2_000), read(2, 0)), (), ())
    assert present_ingest(report).summary == "1,234 records of 3 partitions read, 2,000 to go"
    assert present_ingest(IngestReport(TOPIC, (read(0, 1),), (), ())).summary == (
        "1 record of 1 partition read, all there is"
    )


def test_the_table_leaves_out_what_did_not_move() -> None:
    report = IngestReport(TOPIC, (read(0, 5), read(1, 0), read(2, 0, 3)), (), ())
    sizes = [BrokerSize(partition_of("orders", 1), 2_048, 4_096, 7)]
    partitions, by_brokers = present_ingest(report, sizes).tables()
    assert partitions.rows == (
        ("0", "5", "105", "105", "0", "1", "read"),
        ("2", "0", "100", "103", "3", "0", "read"),
    )
    assert by_brokers.rows == (("orders-1", "2.0 KiB", "4.0 KiB", "7"),)
