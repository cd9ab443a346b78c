"""Every table has a cell for every column, and what a person looks for is in it."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from include.tiering.copying.report import present_copy, present_plan, present_scan
from include.tiering.presentation import Presentation, Table, as_text, count
from include.tiering.runs.contract import Placement
from include.tiering.sizes.report import SizeReport, present_sizes
from tests.doubles import sample_values as sample


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
