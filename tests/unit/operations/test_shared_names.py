"""Documents of operations in small."""

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace

import pytest

from include.tiering.copying import decisions as skip
from include.tiering.copying.decisions import Skip
from include.tiering.copying.plan import CopyPlan, HeldBack, HeldBackPartition
from include.tiering.copying.report import CopyRun, present_copy, present_plan, present_scan
from include.tiering.expiration import report as delete_records
from include.tiering.expiration import report as expire
from include.tiering.expiration.plan import WaitingPartition, Waits
from include.tiering.expiration.report import ExpireRun, present_expire
from include.tiering.expiration.truncation import Truncation
from include.tiering.model.histories import OffsetRange
from include.tiering.model.ownership import StoreMarker
from include.tiering.model.segments import Verdict, VerdictTotal
from include.tiering.model.sizes import PartitionLag, PartitionSize
from include.tiering.operations.doctor import Cause, Diagnosis, present_doctor
from include.tiering.operations.readiness import NotReady, PartitionReadiness, Readiness, present_ready
from include.tiering.presentation import Presentation, Table, as_text, count
from include.tiering.recovery.adopt import AdoptionPlan, PartitionAdoption
from include.tiering.recovery.rebuild import ListedPartition, RebuildPlan
from include.tiering.recovery.report import adoption_question, rebuild_question
from include.tiering.runs.approval import approval_question
from include.tiering.runs.contract import Placement, PlannedSegment, SegmentOutcome, WorkItem
from include.tiering.runs.deletion_limits import DeletionLimitReport, TopicAction
from include.tiering.runs.deletion_run import DeletionItem, DeletionOutcome, DeletionRun
from include.tiering.sizes.report import SizeReport, present_sizes
from include.tiering.verification.report import present_verify
from include.tiering.verification.rules import QualityFinding
from include.tiering.verification.verify_segments import VerifyReport
from tests.doubles import sample_values as sample
from tests.doubles.segments import FINISHED, partition_of, planned_expiration, segment_of

# Two topics of one name in the tables of reports: each by its id, and never both added up.

OLD, NEW = partition_of("orders", topic_number=1), partition_of("orders", topic_number=2)
OTHER = partition_of("others", topic_number=3)
OLD_NAME, NEW_NAME = (f"orders-0 (topic id {one.topic_id})" for one in (OLD, NEW))


def plan_of(partition, segments: int):
    return planned_expiration(
        partition, *(segment_of(partition, n, 10 * n, 10 * n + 9, state=FINISHED) for n in range(segments))
    )


def first_cells(tables: tuple[Table, ...], title: str) -> list[str]:
    (table,) = [one for one in tables if one.title.startswith(title)]
    return [row[0] for row in table.rows]


def test_an_expiration_counts_each_by_itself() -> None:
    plans = [plan_of(OLD, 3), plan_of(NEW, 1), plan_of(OTHER, 2)]
    items = [DeletionItem(one, DeletionOutcome.PLANNED) for plan in plans for one in plan.deletions]
    actions = tuple(TopicAction(one.topic_id, one.topic, 1, 0, 2) for one in (OLD, NEW, OTHER))
    limit_report = DeletionLimitReport("run", "hash", actions, ())
    run = ExpireRun(DeletionRun("run", "hash", False, None), plans, items, limit_report)
    tables = present_expire(run).tables()
    (expires,) = [one for one in tables if one.title.startswith("expires")]
    assert [row[:3] for row in expires.rows] == [
        (OLD_NAME, "3", "2.9 KiB"),
        (NEW_NAME, "1", "1000 B"),
        ("others-0", "2", "2.0 KiB"),
    ]
    named = [f"orders (topic id {one.topic_id})" for one in (OLD, NEW)]
    assert first_cells(tables, "share") == [*named, "others"]
    question = approval_question(limit_report, plans).body
    assert all(f"| `{one}` |" in question for one in (*named, "others"))


def test_an_expiration_names_the_id_if_the_other_topic_is_not_part_of_it() -> None:
    run = ExpireRun(DeletionRun("run", "hash", False, None), [plan_of(OLD, 1)], [], shared_names={"orders"})
    items = [DeletionItem(one, DeletionOutcome.FAILED) for one in plan_of(OLD, 1).deletions]
    waits = WaitingPartition(OLD, Waits.NAME_TAKEN, "why")
    tables = present_expire(replace(run, items=items, waiting=[waits])).tables()
    for title in ("expires", "could not", "waiting"):
        assert first_cells(tables, title) == [OLD_NAME]


def test_sizes() -> None:
    lags = [PartitionLag(one, 1, 1, 1.0) for one in (OLD, NEW)]
    sizes = [PartitionSize(one, 1, 1, ()) for one in (OLD, NEW, OTHER)]
    tables = present_sizes(SizeReport(sizes, lags)).tables()
    assert first_cells(tables, "remote log size") == [OLD_NAME, NEW_NAME, "others-0"]
    assert first_cells(tables, "waits to be deleted") == [OLD_NAME, NEW_NAME]


def test_copies_and_their_plan() -> None:
    held = tuple(HeldBackPartition(one, 0, HeldBack.NOT_READY, "") for one in (NEW, OTHER))
    items = [WorkItem(OLD, PlannedSegment(0, 9, 100), SegmentOutcome.PLANNED)]
    tables = present_copy(CopyRun("run", items, 1.0, held)).tables()
    assert first_cells(tables, "run run") == [OLD_NAME]
    assert first_cells(tables, "waiting") == [NEW_NAME, "others-0"]
    plan = CopyPlan("run", (), tuple(replace(held[0], topic_id_partition=one) for one in (OLD, NEW)), ())
    assert first_cells(present_plan(plan).tables(), "waiting") == [OLD_NAME, NEW_NAME]


def test_a_verification() -> None:
    findings = [
        QualityFinding("orders", 0, str(one.topic_id), "segment", 0, "Q1", "segment", "broken") for one in (OLD, NEW)
    ]
    report = VerifyReport(2, tuple(findings), (), 0, 1.0)
    assert first_cells(present_verify(report).tables(), "failed") == [OLD_NAME, NEW_NAME]


@pytest.mark.parametrize("shown", [(OLD, NEW), (OLD, OTHER)])
def test_ready_and_doctor(shown) -> None:
    names = [OLD_NAME, NEW_NAME] if NEW in shown else ["orders-0", "others-0"]
    waiting = tuple(PartitionReadiness(one, NotReady.PAUSED, "") for one in shown)
    assert first_cells(present_ready(Readiness((), waiting)).tables(), "waiting") == names
    lines = [Diagnosis("orders", one, Cause.UP_TO_DATE, "") for one in shown[:1] * 2 if NEW not in shown] or [
        Diagnosis("orders", one, Cause.UP_TO_DATE, "") for one in shown
    ]
    expected = [name.removeprefix("orders-") for name in names] if NEW in shown else ["0", "0"]
    assert first_cells(present_doctor("orders", lines).tables(), "orders") == expected


# What of the remote log counts as safe.

DAY_MS = 24 * 60 * 60 * 1000
PASSED = VerdictTotal(Verdict.PASSED, 2, 4096, 5 * DAY_MS)
EXPIRED = VerdictTotal(Verdict.EXPIRED, 1, 1024, 91 * DAY_MS)
NOTHING = VerdictTotal(Verdict.FAILED, 0, 0, None)
UNVERIFIED = VerdictTotal(Verdict.NONE, 3, 512, None)


def test_only_what_passed_is_safe() -> None:
    report = SizeReport([sample.partition_size()], verdicts=[UNVERIFIED, PASSED, NOTHING, EXPIRED])
    presented = present_sizes(report)
    document = presented.document()
    assert document["safe_bytes"] == 4096
    assert document["verdicts"] == [
        {"verdict": "none", "segments": 3, "bytes": 512},
        {"verdict": "passed", "segments": 2, "bytes": 4096},
        {"verdict": "failed", "segments": 0, "bytes": 0},
        {"verdict": "expired", "segments": 1, "bytes": 1024},
    ]
    assert presented.summary == "1 partition, 2 segments, 5.0 KiB, 4.0 KiB of it safe"
    (_, table) = presented.tables()
    assert [row[0] for row in table.rows] == ["none", "passed", "expired"]
    assert "91d" in as_text(presented)


def test_verdicts_are_no_table_while_all_is_safe_and_unknown_for_some_topics() -> None:
    assert len(present_sizes(SizeReport([sample.partition_size()], verdicts=[PASSED, NOTHING])).tables()) == 1
    document = present_sizes(SizeReport([sample.partition_size()])).document()
    assert "safe_bytes" not in document


# Every table has a cell for every column, and what a person looks for is in it.


def scan() -> Presentation:
    return present_scan(sample.scan_report(sample.SCAN_ERROR))


def plan() -> Presentation:
    return present_plan(sample.copy_plan(held_back=(sample.DAMAGED_PLAN_ITEM,)))


def copy() -> Presentation:
    return present_copy(sample.copy_run())


def sizes() -> Presentation:
    return present_sizes(SizeReport([sample.partition_size()]))


@pytest.mark.parametrize("present", [scan, plan, copy, sizes])
def test_rows_are_as_wide_as_their_heads(present: Callable[[], Presentation]) -> None:
    tables = present().tables()
    assert tables
    assert all(len(row) == len(table.columns) for table in tables for row in table.rows)


def test_what_a_scan_says_of_a_partition() -> None:
    partitions, errors = scan().tables()
    assert partitions.rows == (("orders-0", "1", "100", ">=200", ">=199", "1 of 2", "4.0 KiB", "1 active segment"),)
    assert errors.rows == (("/data/orders-1/00000000000000000000.log", "61", "CRC-32C differs"),)


def test_where_a_partition_is_read_is_shown_if_any_is_placed() -> None:
    (table,) = present_plan(sample.copy_plan()).tables()
    assert "queue" not in table.columns
    planned = sample.copy_plan()
    (first,) = planned.partitions
    placed = replace(first, placement=Placement("rack-a", "local_disk"))
    (table,) = present_plan(replace(planned, partitions=(first, placed))).tables()
    assert table.columns[-2:] == ("queue", "Spark resource")
    assert [row[-2:] for row in table.rows] == [("", ""), ("rack-a", "local_disk")]


def test_what_a_run_says_of_a_partition_and_of_a_failure() -> None:
    copied, failed, waiting, errors = copy().tables()
    assert copied.rows == (("orders-0", "1", "1.0 KiB", "1", "1", "1"),)
    assert failed.rows == (("orders-0", "200", "/d/2.log", "61", "CRC-32C"),)
    assert waiting.rows == (("orders-1", "0", "stopped by a failed segment: segment 0..99 failed Q102"),)
    assert errors.title == "could not be read"


@pytest.mark.parametrize(("number", "words"), [(0, "0 batches"), (1, "1 batch"), (2345, "2,345 batches")])
def test_counting(number: int, words: str) -> None:
    assert count(number, "batch", "batches") == words


def test_plain_text_aligns_columns_and_escapes_control_characters() -> None:
    table = Table("sizes", ("name", "bytes>"), (("a\x1b", "7"), ("bc", "1234")))
    shown = as_text(Presentation(dict, lambda: (table,), "two\nthings"))
    assert shown.splitlines() == [
        "sizes",
        "name   bytes",
        "-----  -----",
        "a\\x1b      7",
        "bc      1234",
        "",
        "two\\nthings",
    ]


# The numbers by which a person agrees: a question that names others is answered wrongly.

ORDERS, PAYMENTS = partition_of("orders", 1), partition_of("payments", 2)
MARKER = StoreMarker("cluster-1", "store-1", 4)


@pytest.mark.parametrize(
    ("segments", "size_bytes", "what"),
    [
        (0, 0, "0 segments (0 B) go"),
        (1, 1_024, "1 segment (1.0 KiB) goes"),
        (1_234, 3_221_225_472, "1,234 segments (3.0 GiB) go"),
    ],
)
def test_how_much_a_raised_log_start_costs(segments: int, size_bytes: int, what: str) -> None:
    asked = delete_records.truncation_question(Truncation(ORDERS, 100, 250, segments, size_bytes))
    assert asked == f"Raise the log start of orders-1 from 100 to 250 for good? {what} with the next expire"


def test_how_much_would_expire() -> None:
    plans = [
        planned_expiration(
            ORDERS, *(segment_of(ORDERS, number, 10 * number, 10 * number + 9, state=FINISHED) for number in range(3))
        ),
        planned_expiration(PAYMENTS, segment_of(PAYMENTS, 9, 0, 9, size_bytes=1_096, state=FINISHED)),
    ]
    items = [DeletionItem(one, DeletionOutcome.PLANNED) for plan in plans for one in plan.deletions]
    run = expire.ExpireRun(DeletionRun("run", "hash", None, None), plans, items, SimpleNamespace())  # type: ignore[arg-type]
    assert expire.planned_sentence(run) == "4 segments (4.0 KiB) of 2 partitions"


def test_how_much_is_rebuilt() -> None:
    listed = (ListedPartition(ORDERS, 1_200, 2_048), ListedPartition(PAYMENTS, 34, 1_024))
    asked = rebuild_question(RebuildPlan(MARKER, None, listed, ()))
    assert asked.startswith(
        "Rebuild metadata of 1,234 attempts (3.0 KiB) of 2 partitions in the database of the settings?"
    )
    begun = rebuild_question(RebuildPlan(MARKER, MARKER, listed[1:], ()))
    assert begun == "Continue to rebuild metadata of 34 attempts (1.0 KiB) of 1 partition?"


def test_how_much_is_adopted() -> None:
    def stored(*sizes: int) -> tuple[object, ...]:
        return tuple(SimpleNamespace(metadata=segment_of(ORDERS, 1, 0, 9, size_bytes=size)) for size in sizes)

    plan = AdoptionPlan(
        (
            PartitionAdoption(ORDERS, None, stored(1_000, 48)),  # type: ignore[arg-type]
            PartitionAdoption(PAYMENTS, 9, stored(1_000)),  # type: ignore[arg-type]
        ),
        (),
    )
    assert adoption_question(plan) == "Adopt 3 segments (2.0 KiB) of 2 partitions?"


def test_how_many_offsets_are_skipped() -> None:
    asked = skip.skip_question(Skip(ORDERS, OffsetRange(100, 1_333), elsewhere=(2, 5)))
    assert asked == (
        "orders-1: 1,234 offsets, 100..1333, will be missing from the archive for ever;"
        " some of them are still on broker 2 and broker 5, but a copy reads only the leader's replica."
        " Continue without them?"
    )
    assert skip.skip_question(Skip(ORDERS, OffsetRange(7, 7))).startswith("orders-1: 1 offset, 7..7, will be missing")
