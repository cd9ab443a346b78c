"""What all commands share: options, opening the app, showing a result, and exit codes.

Most commands that delete, or record a decision that cannot be undone, ask a person first. Without a terminal they
refuse unless `--approve` is given.

A `Session` is one invocation of the command line: it holds the global options, and opens the app with their settings.

A presentation is shown on standard output, either as text for people or as one JSON document for programs.

`TieringGroup` turns errors into a message on standard error and an exit code; a traceback appears only with --debug.
`Interrupt` handles Ctrl-C and SIGTERM: the first signal lets the work end cleanly, the second ends the process at once.
"""

import inspect
import json
import math
import os
import pwd
import secrets
import signal
import socket
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from functools import wraps
from pathlib import Path
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, Protocol, Self

import typer
from typer.core import TyperGroup

from include.tiering.cli.exit_codes import ExitCode, code_of
from include.tiering.clock import Clock
from include.tiering.errors import SettingError, TieringError, printable
from include.tiering.telemetry import redact
from include.tiering.units import accepted_suffixes, without_suffix

if TYPE_CHECKING:
    from rich.console import Console

    from include.tiering.app import App
    from include.tiering.model.segments import TopicIdPartition
    from include.tiering.presentation import Presentation, Table
    from include.tiering.settings import TieringSettings


MOST_INT: Final = 2**31 - 1
MOST_LONG: Final = 2**63 - 1
"""Largest number of a partition or an epoch, and largest offset, inclusive: neither Kafka nor a database has more."""

Topics = Annotated[
    list[str] | None,
    typer.Option("--topic", help="Topic name or shell-style pattern; may be repeated.", metavar="PATTERN"),
]
Json = Annotated[bool, typer.Option("--json", help="Write one JSON document instead of tables.")]


def amount_of(unit: str, *, at_least: int = 0, at_most: int = MOST_LONG) -> Callable[[Any], int]:
    """Return a parser of whole numbers of `unit`, which may be written with a suffix: 50MiB, 7d."""

    def parse(text: Any) -> int:
        try:
            amount = int(without_suffix(str(text), unit))
        except ValueError:
            amount = at_least - 1
        if not at_least <= amount <= at_most:
            raise typer.BadParameter(f"{printable(str(text))!r}: accepted: {_accepted(unit, at_least, at_most)}")
        return amount

    return parse


_UNIT_MS: Final = {"seconds": 1_000, "days": 86_400_000}


def duration_in(unit: str, *, at_least: float = 0, at_most: float = MOST_INT) -> Callable[[Any], float]:
    """Return a parser of numbers of `unit`, seconds or days, with or without decimals, or of a duration such as 12h."""

    def parse(text: Any) -> float:
        milliseconds = without_suffix(str(text), "milliseconds")
        try:
            duration = float(text) if milliseconds == str(text) else int(milliseconds) / _UNIT_MS[unit]
        except ValueError:
            duration = math.nan
        if not at_least <= duration <= at_most:
            raise typer.BadParameter(f"{printable(str(text))!r}: accepted: {_accepted(unit, at_least, at_most)}")
        return duration

    return parse


def _accepted(unit: str, at_least: float, at_most: float) -> str:
    return f"{at_least} to {at_most} ({unit}){accepted_suffixes(unit)}"


LimitBytes = Annotated[
    int | None,
    typer.Option(
        "--limit-bytes",
        parser=amount_of("bytes", at_least=1),
        help="At most this many bytes, in whole segments; the first segment is always taken.",
        metavar="BYTES",
    ),
]


Approve = Annotated[bool, typer.Option("--approve", help="Approve in advance what this command is about to do.")]


AllowUnknown = Annotated[
    bool, typer.Option("--allow-unknown", help="Accept the name of a topic or broker that does not exist yet.")
]


def require_known_topics(
    app: "App", names: Sequence[str] | None, *, included: Sequence[str] | None = None, how: str = ""
) -> None:
    """Raise SettingError for a topic that exists nowhere; warn if this cannot be known, and of unused patterns.

    `included` and `how` are those of `KnownNames.check_topics`.
    """
    if names:
        warn_all(app.operations.names.check_topics(names, included=included, how=how))


def warn_all(warnings: Sequence[str]) -> None:
    for warning in warnings:
        typer.secho(f"warning: {printable(redact(warning))}", err=True, fg=typer.colors.YELLOW)


def is_asked_on_a_terminal() -> bool:
    return sys.stdin.isatty() and sys.stderr.isatty()


def refusal_of(question: str) -> str | None:
    """Ask a person if there is a terminal. Return why the command must do nothing; None if the person agrees."""
    if not is_asked_on_a_terminal():
        return "without a terminal it needs --approve"
    return None if agrees(question) else "not confirmed"


def agrees(question: str) -> bool:
    """Ask on standard error; return whether the answer is yes."""
    return typer.confirm(question, default=False, err=True)


def remote_partition(app: "App", topic: str, partition: int, topic_id: str | None) -> "TopicIdPartition":
    """Return the named partition that has remote data.

    Raises:
        SettingError: there is no such topic, none of the partition is remote, or several topics have this name.
    """
    remote = [size.topic_id_partition for size in app.sizes.partition_sizes()]
    named = [p for p in remote if p.topic == topic and p.partition == partition]
    meant = [p for p in named if topic_id in (None, str(p.topic_id))]
    if len(meant) == 1:
        return meant[0]
    if not named:
        require_known_topics(app, (topic,))
        raise SettingError(f"{topic}-{partition}: nothing of it is in remote storage; ./tiering sizes lists what is")
    ids = ", ".join(str(p.topic_id) for p in named)
    raise SettingError(f"{topic}-{partition}: topics of this name have the ids {ids}: choose one with --topic-id")


OpenApp = Callable[["TieringSettings"], AbstractContextManager["App"]]


@dataclass(frozen=True, slots=True)
class Session:
    """One invocation. If `open_app` is None, the real app is opened; tests pass another function."""

    config: Path | None = None
    open_app: OpenApp | None = None

    def settings(
        self, topics: Sequence[str] | None = None, *, given: Mapping[str, str] | None = None
    ) -> "TieringSettings":
        """Load the settings. Raises SettingError if one of them is not accepted.

        Args:
            topics: what was given to a command; it replaces `topics.include`.
            given: environment variables that were given to a command as options, which win over all others.
        """
        from include.tiering.settings import load_settings

        settings = load_settings(self.config, environ={**os.environ, **(given or {})})
        return settings.with_topics(topics) if topics else settings

    @contextmanager
    def opened(self, topics: Sequence[str] | None = None, *, given: Mapping[str, str] | None = None) -> Iterator["App"]:
        """Open the app until the context exits. Raises SettingError as `settings`."""
        with self._opener()(self.settings(topics, given=given)) as app:
            yield app

    def _opener(self) -> OpenApp:
        if self.open_app is not None:
            return self.open_app
        from include.tiering.app import open_app

        return open_app


def session_of(ctx: typer.Context) -> Session:
    found = ctx.find_object(Session)
    return found if found is not None else Session()


def author() -> str:
    """Return `USER@HOST` of this process, which the event log shows as the author of a decision."""
    try:
        user = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"


def new_run_id() -> str:
    """Return an id such as `cli-20260131T235959Z-1a2b3c`, which is unique and sorts by time."""
    return f"cli-{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{secrets.token_hex(3)}"


class TieringGroup(TyperGroup):
    """The root command. It turns every error of a command into a message and an exit code."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except (typer.Exit, typer.Abort, typer.TyperException, BrokenPipeError):
            raise
        except TieringError as error:
            _say(f"error: {error}", ctx)
            raise typer.Exit(code_of(error)) from error
        except OSError as error:
            _say(f"error: {error.filename or 'system'}: {error.strerror or error}", ctx)
            raise typer.Exit(ExitCode.FINDINGS) from error
        except Exception as error:
            _say(f"internal error: {type(error).__name__}: {error}", ctx)
            if not _debug(ctx):
                _say("this is a bug of ./tiering; `./tiering --debug ...` shows where", ctx)
            raise typer.Exit(ExitCode.INTERNAL) from error


def _debug(ctx: Any) -> bool:
    return bool(ctx.params.get("debug"))


def _say(text: str, ctx: Any) -> None:
    """Print a text redacted, with unprintable characters escaped; with --debug, print the traceback, too."""
    for line in redact(text).splitlines():
        typer.secho(printable(line), err=True, fg=typer.colors.RED)
    if _debug(ctx):
        typer.echo(redact(traceback.format_exc()), err=True)


_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
_POLL_SECONDS: Final = 0.2


class Interrupt:
    """A context in which the first SIGINT or SIGTERM is only recorded. `exit_code` is 128 + signal, as in a shell.

    The second signal ends the process at once, as a kill does: threads that wait for a store would hold up a clean end.
    """

    def __init__(self) -> None:
        self._signal = 0
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        self._before = {number: signal.signal(number, self._record_signal) for number in _SIGNALS}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._restore()

    @property
    def requested(self) -> bool:
        return self._signal != 0

    @property
    def exit_code(self) -> int:
        return 128 + self._signal

    def wait(self, clock: Clock, seconds: float) -> None:
        """Wait for a time or until a signal arrives. One long sleep would continue after a signal that is recorded."""
        end = clock.monotonic() + seconds
        while not self.requested and (left := end - clock.monotonic()) > 0:
            clock.sleep(min(left, _POLL_SECONDS))

    def _record_signal(self, number: int, frame: FrameType | None) -> None:
        self._signal = number
        for each in _SIGNALS:
            signal.signal(each, signal.SIG_DFL)
        typer.echo("stopping cleanly; interrupt again to stop at once", err=True)

    def _restore(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)


class OutputForm(StrEnum):
    """How a command shows its result."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"


_FORM: Final[ContextVar[OutputForm]] = ContextVar("_FORM", default=OutputForm.TABLE)
_FORM_OPTION: Final = typer.Option(
    "-o", "--output-form", help="`table`; `json`, as --json; or `csv`: the tables, with sizes and durations as numbers."
)


def with_output_form(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command that has `--json` the option `-o` too, so that each command need not pass it on."""
    signature = inspect.signature(command)
    if "as_json" not in signature.parameters:
        return command

    @wraps(command)
    def with_form(*, output_form: OutputForm | None = None, as_json: bool, **arguments: Any) -> None:
        if as_json and output_form not in (None, OutputForm.JSON):
            raise SettingError(f"--json and -o {output_form} exclude each other")
        token = _FORM.set(output_form or OutputForm.TABLE)
        try:
            command(as_json=as_json or output_form is OutputForm.JSON, **arguments)
        finally:
            _FORM.reset(token)

    option = inspect.Parameter(
        "output_form",
        inspect.Parameter.KEYWORD_ONLY,
        default=None,
        annotation=Annotated[OutputForm | None, _FORM_OPTION],
    )
    with_form.__signature__ = signature.replace(  # type: ignore[attr-defined]
        parameters=[*signature.parameters.values(), option]
    )
    with_form.__annotations__ = {**command.__annotations__, "output_form": option.annotation}
    return with_form


class Output(Protocol):
    """A form in which a presentation is shown."""

    def show(self, presentation: "Presentation") -> None: ...


class JsonOutput:
    """Writes the JSON document, its lists item by item, so that the text of a long list is not in memory as a whole."""

    def show(self, presentation: "Presentation") -> None:
        sys.stdout.writelines(json_pieces(presentation.document()))
        sys.stdout.write("\n")


class TextOutput:
    """Writes plain columns, in lines of any length, for pipes and files."""

    def show(self, presentation: "Presentation") -> None:
        from include.tiering.presentation import as_text

        sys.stdout.write(as_text(presentation) + "\n")


class CsvOutput:
    """Writes the tables as CSV; the summary goes to standard error, so that a program reads nothing but tables."""

    def show(self, presentation: "Presentation") -> None:
        from include.tiering.presentation import as_csv

        sys.stdout.write(as_csv(presentation.tables()))
        typer.echo(printable(presentation.summary), err=True)


class TerminalOutput:
    """Writes tables, as blocks on a terminal too narrow for them, then the summary: red unless it is `ok`."""

    def show(self, presentation: "Presentation") -> None:
        from rich.console import Console
        from rich.text import Text

        console = Console(highlight=False)
        for table in presentation.tables():
            print_table(console, table)
        console.print(Text(printable(presentation.summary), style="bold" if presentation.ok else "bold red"))


def output_for(*, as_json: bool, is_terminal: bool) -> Output:
    if as_json:
        return JsonOutput()
    if _FORM.get() is OutputForm.CSV:
        return CsvOutput()
    return TerminalOutput() if is_terminal else TextOutput()


def finish(presentation: "Presentation", *, as_json: bool, otherwise: int = ExitCode.FINDINGS) -> None:
    """Show a presentation. Unless it is `ok`, end the command with the exit code `otherwise`."""
    output_for(as_json=as_json, is_terminal=sys.stdout.isatty()).show(presentation)
    if not presentation.ok:
        raise typer.Exit(otherwise)


def json_pieces(document: Mapping[str, Any]) -> Iterator[str]:
    """Yield the JSON text of a document in pieces. The text has a line for each member and each item of its lists."""
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


_LEAST_SENTENCE: Final = 24
_GAP: Final = 3
"""Most characters that are drawn between two columns, and at both edges of a table together."""


def print_table(console: "Console", table: "Table") -> None:
    """Print a table, or its rows as blocks if the console is too narrow: no name, path or number is ever broken.

    Each column needs the width of its longest word, and for sentences at least `_LEAST_SENTENCE` characters. A block
    has a line per column, which the terminal may wrap, but which can be copied whole.
    """
    from rich.box import SIMPLE_HEAD
    from rich.table import Table as RichTable
    from rich.text import Text

    rows = [[printable(cell) for cell in row] for row in table.rows]
    heads = [column.removesuffix(">") for column in table.columns]
    needed = [_needed(cells) for cells in zip(heads, *rows, strict=True)]
    if sum(needed) + _GAP * len(needed) > console.width:
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
