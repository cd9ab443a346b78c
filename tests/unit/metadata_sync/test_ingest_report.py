"""What a person reads of an ingestion: the question before the topic is read again, each row, and the document."""

from typing import Any

import pytest

from include.tiering.kafka.metadata_topic.contract import OffsetBounds
from include.tiering.metadata_sync.ingest import IngestedPartition, IngestReport
from include.tiering.metadata_sync.report import present_ingest, question
from include.tiering.segments.ingestion_contract import (
    BrokerSize,
    IngestPosition,
    MetadataTopicIdentity,
    RecordOutcome,
)
from tests.doubles.segments import partition_of, uuid

TOPIC = MetadataTopicIdentity(uuid(7), 3)
APPLIED, *DROPPED = RecordOutcome


def read(number: int, records: int = 0, lag: int = 0, **more: Any) -> IngestedPartition:
    fields: dict[str, Any] = {"holes": 0, "ends_in_a_hole": False, "outcomes": {}, **more}
    return IngestedPartition(number, 10, 10 + records, 10 + records + lag, records, **fields)


def report(*partitions: IngestedPartition, findings: tuple[str, ...] = ()) -> IngestReport:
    return IngestReport(TOPIC, partitions, findings, ())


def test_the_question_counts_the_records_and_says_what_waits_meanwhile() -> None:
    bounds = {0: OffsetBounds(5, 1_205), 1: OffsetBounds(0, 34)}
    positions = [IngestPosition(0, 7, 9, 1), IngestPosition(1, 7, 9, 1), IngestPosition(2, 7, 9, 1)]
    asked = question(TOPIC, positions, bounds)
    assert asked.startswith(
        "Read all 1,234 records of __remote_log_metadata again, as brokers do when they start? Until"
    )
    assert asked.endswith(" The beginning of 1 partition was removed from the topic.")
    assert question(None, positions[1:], bounds) == (
        "Read all 1,234 records of __remote_log_metadata again, as brokers do when they start?"
    )


@pytest.mark.parametrize(("begin", "is_gone"), [(0, False), (1, True)])
def test_a_beginning_is_gone_from_the_first_offset_on(begin: int, is_gone: bool) -> None:
    asked = question(None, [IngestPosition(0, 7, 9, 1)], {0: OffsetBounds(begin, 10)})
    assert ("was removed from the topic" in asked) is is_gone


def test_a_row_has_the_numbers_of_its_partition_and_counts_what_was_dropped() -> None:
    outcomes = {APPLIED: 7, DROPPED[0]: 2, DROPPED[1]: 1}
    (table,) = present_ingest(report(read(4, 10, 3, outcomes=outcomes))).tables()
    assert table.rows == (("4", "10", "20", "23", "3", "3", "read"),)


@pytest.mark.parametrize(
    ("partition", "state"),
    [
        (read(0, 1), "read"),
        (read(0, 0, 1), "read"),
        (read(0, stopped="a record that no broker reads"), "stopped"),
        (read(0, failed="no broker answers"), "no broker answers"),
        (read(0), None),
    ],
    ids=["records", "a lag", "stopped", "failed", "nothing"],
)
def test_a_partition_has_a_row_if_there_is_anything_to_say(partition: IngestedPartition, state: str | None) -> None:
    rows = [row for table in present_ingest(report(partition)).tables() for row in table.rows]
    assert [row[-1] for row in rows] == ([] if state is None else [state])


@pytest.mark.parametrize(
    ("made", "summary", "is_ok"),
    [
        (report(read(0, 1)), "1 record of 1 partition read, up to the end", True),
        (report(read(0, 1, 1)), "1 record of 1 partition read, 1 not read yet", True),
        (
            report(read(0), read(1, stopped="x")),
            "0 records of 2 partitions read, up to the end, 1 partition stopped",
            True,
        ),
        (report(read(0, failed="x")), "0 records of 1 partition read, up to the end, 1 to be tried again", False),
        (report(read(0), findings=("x",)), "0 records of 1 partition read, up to the end, 1 finding", False),
    ],
)
def test_the_last_line_and_whether_all_is_well(made: IngestReport, summary: str, is_ok: bool) -> None:
    presentation = present_ingest(made)
    assert (presentation.summary, presentation.ok) == (summary, is_ok)


def test_the_document_has_the_sizes_only_if_they_were_asked_for() -> None:
    made = report(read(4, 10, 3, holes=2, outcomes={APPLIED: 8}))
    assert "remote_log_sizes" not in present_ingest(made).document()
    assert present_ingest(made, []).document()["remote_log_sizes"] == []
    document = present_ingest(made, [BrokerSize(partition_of("orders"), 2_048, 4_096, 3)]).document()
    (size,) = document["remote_log_sizes"]
    assert (size["topic"], size["bytes"], size["all_states_bytes"], size["segments"]) == ("orders", 2_048, 4_096, 3)
    assert (document["records"], document["lag_records"], document["topic_id"]) == (10, 3, str(uuid(7)))
    assert document["partitions"] == [
        {
            "metadata_partition": 4,
            "from_offset": 10,
            "next_offset": 20,
            "end_offset": 23,
            "lag_records": 3,
            "records": 10,
            "offsets_without_record": 2,
            "outcomes": {APPLIED.value: 8},
            "stopped": None,
            "failed": None,
        }
    ]
