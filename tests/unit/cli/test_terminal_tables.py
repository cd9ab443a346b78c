"""Tables on terminals of any width: what a person copies from them is whole."""

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from include.tiering.cli.command import print_table
from include.tiering.presentation import Table

LOG_DIRS = Table(
    "log dirs",
    ("broker:dir", "partition", "bytes>", "offset lag>", "remote>"),
    (("1:/work/next/local/up/log-dirs/broker-1", "payments.eu.captured-11", "186.3 KiB", "0", "12.1 MiB"),),
)
WAITING = Table(
    "waiting",
    ("partition", "next offset>", "why"),
    (("orders-0", "1200", "next segment is not eligible: the active segment of the log is never copied"),),
)


def shown(table: Table, width: int) -> str:
    console = Console(file=io.StringIO(), width=width, highlight=False)
    print_table(console, table)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


@pytest.mark.parametrize("width", [40, 60, 80, 100, 120, 200])
@pytest.mark.parametrize("table", [LOG_DIRS, WAITING], ids=lambda table: table.title)
def test_no_word_is_broken(table: Table, width: int) -> None:
    words = {word for row in table.rows for cell in row for word in cell.split()}
    assert words <= set(shown(table, width).split())


def test_what_does_not_fit_becomes_a_block_for_each_row() -> None:
    assert shown(LOG_DIRS, 80).splitlines()[2:5] == [
        "broker:dir  1:/work/next/local/up/log-dirs/broker-1",
        "partition   payments.eu.captured-11",
        "bytes       186.3 KiB",
    ]
    assert "broker:dir " in shown(LOG_DIRS, 120).splitlines()[2]


def test_sentences_are_wrapped_and_the_table_stays_one() -> None:
    lines = shown(WAITING, 60).splitlines()
    assert max(map(len, lines)) <= 60
    assert "orders-0" in lines[4]
    assert len(lines) > 5


_CELL = st.text(st.sampled_from("ab.-:/ "), max_size=30)


@given(st.lists(st.tuples(_CELL, _CELL, _CELL), max_size=3), st.integers(20, 130))
def test_every_cell_is_there_at_every_width(rows: list[tuple[str, str, str]], width: int) -> None:
    text = shown(Table("t", ("one", "two>", "three"), tuple(rows)), width)
    assert {word for row in rows for cell in row for word in cell.split()} <= set(text.split())
