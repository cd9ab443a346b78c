"""A report as lines for a task's log."""

from collections.abc import Iterator

from include.tiering.reports.presentation import Presentation, Table


def report_lines(report: Presentation) -> Iterator[str]:
    """The summary, then each table under its title, its columns aligned."""
    yield report.summary
    for table in report.tables():
        yield table.title
        yield from _rows(table)


def _rows(table: Table) -> Iterator[str]:
    heads = tuple(head.removesuffix(">") for head in table.columns)
    numeric = [head.endswith(">") for head in table.columns]
    widths = [max(map(len, column)) for column in zip(heads, *table.rows, strict=True)]
    for row in (heads, *table.rows):
        cells = [
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(row, widths, numeric, strict=True)
        ]
        yield "  " + "  ".join(cells).rstrip()
