"""Options that every command or the program itself has: the version, short help, completion, forms of output."""

import csv
import io
import tomllib
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest
from typer.main import get_command
from typer.testing import Result

from include.tiering.cli.app import COMMANDS, cli
from include.tiering.model.segments import TopicIdPartition, Uuid
from include.tiering.model.sizes import EpochSize, PartitionSize
from include.tiering.sizes.report import SizeReport, topic_sizes
from include.tiering.units import format_bytes, format_duration
from tests.doubles.fake_app import FakeApp
from tests.doubles.source_tree import ROOT

Run = Callable[..., Result]
Document = Callable[..., Any]


def test_the_version_is_that_of_the_project(run: Run, app: FakeApp) -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    shown = run("--version")
    assert (shown.exit_code, shown.stdout.split()[:2]) == (0, ["./tiering", version])
    assert app.calls == []


@pytest.mark.parametrize("command", [[], *([function.__name__.replace("_", "-")] for function, _, _ in COMMANDS)])
def test_a_short_h_shows_the_help(run: Run, command: list[str]) -> None:
    shown = run(*command, "-h")
    assert (shown.exit_code, "Usage: ./tiering" in shown.stdout) == (0, True)


def _rows(text: str) -> list[list[str]]:
    return list(csv.reader(io.StringIO(text)))


def test_csv_shows_the_tables_and_exact_numbers(run: Run, app: FakeApp) -> None:
    app.partition_sizes = _two_topics()
    shown = run("sizes", "-o", "csv")
    assert _rows(shown.stdout) == [
        ["table", "partition", "segments", "bytes", "by leader epoch"],
        ["remote log size", "orders-0", "2", "5000", ""],
        ["remote log size", "orders-1", "1", "3000", ""],
        ["remote log size", "payments-0", "4", "9000", ""],
    ]
    assert "3 partitions, 7 segments" in shown.stderr


def test_csv_shows_sizes_by_leader_epoch_as_numbers(run: Run, app: FakeApp) -> None:
    partition = TopicIdPartition(_ORDERS, 0, "orders")
    app.partition_sizes = [PartitionSize(partition, 5000, 2, (EpochSize(0, 5000, 2), EpochSize(3, 2048, 1)))]
    assert _rows(run("sizes", "-o", "csv").stdout)[1][4] == "0: 5000, 3: 2048"
    assert "0: 4.9 KiB, 3: 2.0 KiB" in run("sizes").stdout


def test_each_table_of_a_csv_has_its_heads(run: Run) -> None:
    assert run("status", "-o", "csv").stdout.startswith("table,setting,value,from\nsettings,")
    assert "\n\ntable,pool,slots,running,queued,live batches,from\npools," in run("status", "-o", "csv").stdout


def test_the_form_json_is_that_of_json(run: Run) -> None:
    assert run("pools", "-o", "json").stdout == run("pools", "--json").stdout != ""


def test_a_form_does_not_outlive_its_command(run: Run) -> None:
    run("pools", "-o", "csv")
    assert not run("pools").stdout.startswith("table,")


def test_two_forms_exclude_each_other(run: Run, app: FakeApp) -> None:
    refused = run("pools", "--json", "-o", "csv")
    assert (refused.exit_code, app.calls) == (2, [])
    assert "--json and -o csv exclude each other" in refused.stderr


def test_a_formatted_number_remembers_itself() -> None:
    quantities = (format_bytes(1536), format_duration(75))
    assert [(str(each), each.number) for each in quantities] == [("1.5 KiB", 1536), ("1m 15s", 75)]


_ORDERS, _PAYMENTS = Uuid(bytes([1] * 16)), Uuid(bytes([2] * 16))


def _two_topics() -> list[PartitionSize]:
    orders = [TopicIdPartition(_ORDERS, number, "orders") for number in range(2)]
    payments = TopicIdPartition(_PAYMENTS, 0, "payments")
    return [
        PartitionSize(orders[0], 5000, 2, ()),
        PartitionSize(orders[1], 3000, 1, ()),
        PartitionSize(payments, 9000, 4, ()),
    ]


def test_sizes_by_topic_are_sums_the_largest_first(run: Run, document: Document, app: FakeApp) -> None:
    app.partition_sizes = _two_topics()
    rows = _rows(run("sizes", "--by", "topic", "-o", "csv").stdout)
    assert rows[:3] == [
        ["table", "topic", "partitions", "segments", "bytes"],
        ["remote log size", "payments", "1", "4", "9000"],
        ["remote log size", "orders", "2", "3", "8000"],
    ]
    assert document("sizes", "--by", "topic")["topics"] == [
        {
            "topic": "payments",
            "topic_id": str(_PAYMENTS),
            "partitions": 1,
            "segments": 4,
            "bytes": 9000,
            "stored_bytes": 9000,
        },
        {
            "topic": "orders",
            "topic_id": str(_ORDERS),
            "partitions": 2,
            "segments": 3,
            "bytes": 8000,
            "stored_bytes": 8000,
        },
    ]
    assert "topics" not in document("sizes")


def test_what_is_not_served_any_more_is_in_the_stored_bytes_of_its_topic() -> None:
    sizes = _two_topics()
    report = SizeReport(sizes, stored={sizes[1].topic_id_partition: 3500})
    assert [(size.size_bytes, size.stored_bytes) for size in topic_sizes(report)] == [(9000, 9000), (8000, 8500)]


def test_topics_of_one_name_are_not_added_up(run: Run, app: FakeApp) -> None:
    ids = [_ORDERS, _PAYMENTS]
    app.partition_sizes = [PartitionSize(TopicIdPartition(id_, 0, "orders"), 10, 1, ()) for id_ in ids]
    rows = _rows(run("sizes", "--by", "topic", "-o", "csv").stdout)
    assert sorted(row[1] for row in rows[1:3]) == sorted(f"orders (topic id {id_})" for id_ in ids)


# What holds without any option, and which numbers are accepted.


def _parameters(command: Any, *names: str) -> Iterator[tuple[str, str, Any]]:
    """Command, option and parameter, also of commands that are below another one."""
    for parameter in command.params:
        yield " ".join(names), parameter.opts[0], parameter
    for name, inner in getattr(command, "commands", {}).items():
        yield from _parameters(inner, *names, name)


PARAMETERS: Final = {(command, option): found for command, option, found in _parameters(get_command(cli))}


def test_nothing_is_switched_on_that_nobody_asked_for() -> None:
    switches = {names: found.default for names, found in PARAMETERS.items() if getattr(found, "is_flag", False)}
    assert len(switches) > 40
    assert {names for names, default in switches.items() if default} == {("sizes", "--log-dirs")}


INT32, INT64 = 2**31 - 1, 2**63 - 1
NUMBERS: Final = {
    ("skip", "--partition"): (None, 0, INT32),
    ("skip", "--follow-source-from"): (None, 0, INT64),
    ("verify", "--share"): (None, 0, 1),
    ("verify", "--partition"): (None, 0, INT32),
    ("delete-records", "--partition"): (None, 0, INT32),
    ("delete-records", "--before-offset"): (None, 0, INT64),
    ("fetch", "partition"): (None, 0, INT32),
    ("fetch", "--offset"): (None, 0, INT64),
    ("fetch", "--epoch"): (None, 0, INT32),
    ("restore", "--partition"): (None, 0, INT32),
    ("restore", "--from-offset"): (None, 0, INT64),
    ("restore", "--to-offset"): (None, 0, INT64),
    ("events", "--last"): (50, 1, 10_000),
    ("throughput", "--hours"): (6, 1, 14 * 24),
    ("segments", "--partition"): (0, 0, INT32),
    ("segments", "--before"): (None, 0, INT64),
    ("handover", "--rehearse-bytes"): (2**30, None, None),
    ("publish", "--partition"): (None, 0, INT32),
    ("ingest", "--poll-seconds"): (5.0, None, None),
}
"""Default, least and most, both inclusive."""


def test_numbers_have_their_bounds_and_defaults() -> None:
    found = {
        names: (one.default, one.min, one.max)
        for names, one in PARAMETERS.items()
        if any(getattr(one, bound, None) is not None for bound in ("min", "max")) or type(one.default) in (int, float)
    }
    assert found == NUMBERS
