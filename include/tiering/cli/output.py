"""Show a presentation: tables for people, or one JSON document for programs. Both go to standard output."""

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Protocol

import typer

from include.tiering.cli.exit_codes import ExitCode
from include.tiering.errors import printable

if TYPE_CHECKING:
    from rich.table import Table as RichTable

    from include.tiering.reports.presentation import Presentation, Table

_WIDTH_OF_A_PIPE = 400


class Output(Protocol):
    """Where a presentation goes."""

    def show(self, presentation: "Presentation") -> None: ...


class JsonOutput:
    """The document. Lists at its top are written item by item, so that a long one is never held twice."""

    def show(self, presentation: "Presentation") -> None:
        for piece in json_pieces(presentation.document()):
            typer.echo(piece, nl=False)
        typer.echo()


class ConsoleOutput:
    """The tables, then the summary. A pipe gets whole lines, whatever their length."""

    def show(self, presentation: "Presentation") -> None:
        from rich.console import Console
        from rich.text import Text

        console = Console(highlight=False)
        if not console.is_terminal:
            console = Console(highlight=False, width=_WIDTH_OF_A_PIPE)
        for table in presentation.tables():
            console.print(_rich_table(table))
        console.print(Text(printable(presentation.summary), style="bold" if presentation.ok else "bold red"))


def finish(presentation: "Presentation", *, as_json: bool, otherwise: ExitCode = ExitCode.FINDINGS) -> None:
    """Show it and end the command: DONE if all is well, else `otherwise`."""
    output: Output = JsonOutput() if as_json else ConsoleOutput()
    output.show(presentation)
    if not presentation.ok:
        raise typer.Exit(otherwise)


def json_pieces(document: dict[str, Any]) -> Iterator[str]:
    """The JSON text of a document in pieces, one line per member and per item of a list."""
    yield "{"
    for index, (name, value) in enumerate(document.items()):
        yield f"{',' if index else ''}\n{json.dumps(name)}: "
        if isinstance(value, list) and value:
            yield "[\n"
            for number, item in enumerate(value):
                yield (",\n" if number else "") + json.dumps(item)
            yield "\n]"
        else:
            yield json.dumps(value)
    yield "\n}"


def _rich_table(table: "Table") -> "RichTable":
    from rich.box import SIMPLE_HEAD
    from rich.table import Table as RichTable
    from rich.text import Text

    drawn = RichTable(title=table.title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    for column in table.columns:
        drawn.add_column(column.removesuffix(">"), justify="right" if column.endswith(">") else "left", overflow="fold")
    for row in table.rows:
        drawn.add_row(*(Text(printable(cell)) for cell in row))
    return drawn
