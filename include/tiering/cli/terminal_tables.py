"""Tables on a terminal, whatever its width: a name, a path or a number is never broken.

A table is drawn as one if each of its columns gets the width that it needs: the longest word, and for sentences at
least `_LEAST_SENTENCE` characters. Otherwise each row becomes a block with a line per column, which the terminal may
wrap but which can be copied whole.
"""

from collections.abc import Sequence
from typing import Final, Literal

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from include.tiering.errors import printable
from include.tiering.presentation import Table

_LEAST_SENTENCE: Final = 24
_GAP: Final = 3
"""Most characters that are drawn between two columns."""


def print_table(console: Console, table: Table) -> None:
    """Print a table, or its rows as blocks if the console is too narrow for it."""
    rows = [[printable(cell) for cell in row] for row in table.rows]
    heads = [column.removesuffix(">") for column in table.columns]
    needed = [_needed(cells) for cells in zip(heads, *rows, strict=True)]
    if sum(needed) + _GAP * (len(needed) - 1) > console.width:
        console.print(Text(_blocks(table.title, heads, rows)), soft_wrap=True)
        return
    drawn = RichTable(title=table.title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    for column, head, width in zip(table.columns, heads, needed, strict=True):
        justify: Literal["left", "right"] = "right" if column.endswith(">") else "left"
        drawn.add_column(head, justify=justify, min_width=width)
    for row in rows:
        drawn.add_row(*map(Text, row))
    console.print(drawn)


def _needed(cells: Sequence[str]) -> int:
    longest = max(map(len, cells))
    word = max((len(word) for cell in cells for word in cell.split()), default=0)
    return max(word, min(longest, _LEAST_SENTENCE))


def _blocks(title: str, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    widest = max(map(len, heads), default=0)
    lines = [title]
    for row in rows:
        named = [(head, cell) for head, cell in zip(heads, row, strict=True) if cell]
        lines += ["", *(f"{head.ljust(widest)}  {cell}" for head, cell in named)]
    return "\n".join([*lines, ""])
