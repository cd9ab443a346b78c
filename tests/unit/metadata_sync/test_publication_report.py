"""What a person reads of a publication, before it and after it."""

from dataclasses import replace
from typing import Any

from include.tiering.metadata_sync.plan_publication import PublicationPlan, PublicationStep, Withheld
from include.tiering.metadata_sync.report import present_publication
from include.tiering.metadata_sync.service import PublishedPartition
from include.tiering.model.segments import RemoteLogSegmentState
from tests.doubles.segments import partition_of, segment_of

PARTITION = partition_of("orders")
SEGMENT = segment_of(PARTITION, 1, 0, 99)
STEPS = tuple(PublicationStep(SEGMENT, state) for state in list(RemoteLogSegmentState)[:2])
PLAN = PublicationPlan(PARTITION, STEPS, (), 99, 149)


def published(plan: PublicationPlan | None = PLAN, records: int = 0, **more: Any) -> PublishedPartition:
    return PublishedPartition(PARTITION, 20, plan, records, **more)


FAILED = published(None, 1, error="PublicationRefusedError", message="not ours")


def row_of(partition: PublishedPartition, *, dry_run: bool) -> tuple[str, ...]:
    (table,) = present_publication([partition], dry_run=dry_run).tables()
    (row,) = table.rows
    return row


def test_a_dry_run_shows_what_would_be_sent_and_a_real_one_what_was() -> None:
    assert row_of(published(), dry_run=True) == ("orders-0", "20", "0", "2", "99", "would be sent")
    assert row_of(published(records=1), dry_run=False) == ("orders-0", "20", "0", "1", "99", "read back")
    assert row_of(published(replace(PLAN, end_offset=None)), dry_run=True)[4] == ""


def test_what_an_error_stopped_has_no_plan_and_the_records_that_were_sent() -> None:
    said = "PublicationRefusedError: not ours"
    for dry_run in (False, True):
        assert row_of(FAILED, dry_run=dry_run) == ("orders-0", "20", "", "1", "", said)


def test_a_plan_that_ends_early_or_is_refused_is_a_problem() -> None:
    waits = published(replace(PLAN, withheld=Withheld(300, "no verdict")))
    assert row_of(waits, dry_run=True)[5] == "waits at offset 300: no verdict"
    refused = published(replace(PLAN, steps=(), refused="two histories"))
    assert row_of(refused, dry_run=False)[5] == "refused: two histories"
    assert [present_publication([one], dry_run=True).ok for one in (published(), waits, refused, FAILED)] == [
        True,
        False,
        False,
        False,
    ]


def test_the_last_line_counts_records_partitions_and_problems() -> None:
    def said(*partitions: PublishedPartition, dry_run: bool = False) -> str:
        return present_publication(partitions, dry_run=dry_run).summary

    assert said(published(records=1)) == "1 record of 1 partition sent and read back"
    assert said(published(), published(), dry_run=True) == "4 records of 2 partitions would be sent"
    assert (
        said(published(records=2), FAILED) == "3 records of 2 partitions sent and read back, 1 partition with problems"
    )
    assert (
        said(published(), FAILED, dry_run=True) == "3 records of 2 partitions would be sent, 1 partition with problems"
    )


def test_the_document_says_each_number_once() -> None:
    (row,) = present_publication([published(records=1)], dry_run=False).document()["partitions"]
    assert {name: row[name] for name in ("log_start_offset", "records", "planned_records", "published_before")} == {
        "log_start_offset": 20,
        "records": 1,
        "planned_records": 2,
        "published_before": 0,
    }
    assert (row["end_offset"], row["remembered_end_offset"], row["withheld"], row["refused"]) == (99, 149, None, None)
    (failed,) = present_publication([FAILED], dry_run=True).document()["partitions"]
    assert (failed["planned_records"], failed["end_offset"], failed["error"]) == (0, None, "PublicationRefusedError")
    waits = published(replace(PLAN, withheld=Withheld(300, "no verdict")))
    (waiting,) = present_publication([waits], dry_run=True).document()["partitions"]
    assert waiting["withheld"] == {"offset": 300, "reason": "no verdict"}
