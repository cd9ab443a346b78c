"""A report as plain text, for logs and for whoever has no terminal."""

from collections.abc import Sequence

from include.tiering.errors import printable
from include.tiering.presentation import Presentation, Table


def as_text(presentation: Presentation) -> str:
    """Its tables, one after another, and its summary line; control characters that a name may hold are escaped."""
    return "\n".join([*map(_table, presentation.tables()), printable(presentation.summary)])


def _table(table: Table) -> str:
    heads = [column.removesuffix(">") for column in table.columns]
    rows = [[printable(cell) for cell in row] for row in table.rows]
    widths = [max(map(len, cells)) for cells in zip(heads, *rows, strict=True)]
    to_right = [column.endswith(">") for column in table.columns]
    lines = [heads, ["-" * width for width in widths], *rows]
    return "\n".join([table.title, *(_line(cells, widths, to_right) for cells in lines), ""])


def _line(cells: Sequence[str], widths: Sequence[int], to_right: Sequence[bool]) -> str:
    padded = (
        cell.rjust(width) if right else cell.ljust(width)
        for cell, width, right in zip(cells, widths, to_right, strict=True)
    )
    return "  ".join(padded).rstrip()
