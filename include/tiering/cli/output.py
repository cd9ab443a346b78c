"""Show a presentation: tables for people, or one JSON document for programs. Both go to standard output."""

import json
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal, Protocol

import typer

from include.tiering.cli.exit_codes import ExitCode
from include.tiering.errors import printable

if TYPE_CHECKING:
    from rich.table import Table as RichTable

    from include.tiering.presentation import Presentation, Table


class Output(Protocol):
    """Where a presentation goes."""

    def show(self, presentation: "Presentation") -> None: ...


class JsonOutput:
    """The document. Lists at its top are written item by item, so that a long one is never held twice."""

    def show(self, presentation: "Presentation") -> None:
        sys.stdout.writelines(json_pieces(presentation.document()))
        sys.stdout.write("\n")


class TextOutput:
    """Plain columns, whole lines whatever their length: for pipes and files."""

    def show(self, presentation: "Presentation") -> None:
        from include.tiering.presentation import as_text

        sys.stdout.write(as_text(presentation) + "\n")


class TerminalOutput:
    """Tables that fit the terminal, then the summary, red if there are findings."""

    def show(self, presentation: "Presentation") -> None:
        from rich.console import Console
        from rich.text import Text

        console = Console(highlight=False)
        for table in presentation.tables():
            console.print(_rich_table(table))
        console.print(Text(printable(presentation.summary), style="bold" if presentation.ok else "bold red"))


def output_for(*, as_json: bool, is_terminal: bool) -> Output:
    if as_json:
        return JsonOutput()
    return TerminalOutput() if is_terminal else TextOutput()


def finish(presentation: "Presentation", *, as_json: bool, otherwise: int = ExitCode.FINDINGS) -> None:
    """Show it and end the command: DONE if all is well, else `otherwise`."""
    output_for(as_json=as_json, is_terminal=sys.stdout.isatty()).show(presentation)
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
    for index, column in enumerate(table.columns):
        justify: Literal["left", "right"] = "right" if column.endswith(">") else "left"
        drawn.add_column(column.removesuffix(">"), justify=justify, overflow="fold", no_wrap=index == 0)
    for row in table.rows:
        drawn.add_row(*(Text(printable(cell)) for cell in row))
    return drawn
