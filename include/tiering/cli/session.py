"""One invocation: the global options, the app opened with the settings that they lead to, and how it ends.

`TieringGroup` turns errors into one sentence on standard error and an exit code; a traceback appears only with --debug.
`Interrupt` takes Ctrl-C and SIGTERM: the first lets the work end cleanly, the second ends the process at once.
"""

import os
import pwd
import secrets
import signal
import socket
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

import typer
from typer.core import TyperGroup

from include.tiering.cli.exit_codes import ExitCode, code_of
from include.tiering.clock import Clock
from include.tiering.errors import TieringError, printable
from include.tiering.telemetry import redact

if TYPE_CHECKING:
    from include.tiering.app import App
    from include.tiering.settings import TieringSettings


OpenApp = Callable[["TieringSettings"], AbstractContextManager["App"]]


@dataclass(frozen=True, slots=True)
class Session:
    """`open_tiering` is None for the real library."""

    config: Path | None = None
    open_app: OpenApp | None = None

    def settings(self, topics: Sequence[str] | None = None) -> "TieringSettings":
        """The settings; `topics` that a command was given stand for `topics.include`. Raises SettingError."""
        from include.tiering.settings import load_settings

        settings = load_settings(self.config)
        return settings.with_topics(topics) if topics else settings

    @contextmanager
    def opened(self, topics: Sequence[str] | None = None) -> Iterator["App"]:
        """Raises TieringError."""
        with self._opener()(self.settings(topics)) as app:
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
    """Who decided, for the event log: user and host."""
    try:
        user = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"


def new_run_id() -> str:
    """`cli-20260131T235959Z-1a2b3c`: unique, and sorts by time."""
    return f"cli-{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{secrets.token_hex(3)}"


class TieringGroup(TyperGroup):
    """The root command: whatever a command raises ends here."""

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
                _say("this is a bug of ./tiering, not yours; `./tiering --debug ...` shows where", ctx)
            raise typer.Exit(ExitCode.INTERNAL) from error


def _debug(ctx: Any) -> bool:
    return bool(ctx.params.get("debug"))


def _say(text: str, ctx: Any) -> None:
    """Redacted, and without control characters that a name on disk may hold."""
    for line in redact(text).splitlines():
        typer.secho(printable(line), err=True, fg=typer.colors.RED)
    if _debug(ctx):
        typer.echo(redact(traceback.format_exc()), err=True)


_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
_LOOK_SECONDS: Final = 0.2


class Interrupt:
    """While it is entered, a signal is only remembered. `exit_code` is the shell's 128 + signal."""

    def __init__(self) -> None:
        self._signal = 0
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        self._before = {number: signal.signal(number, self._remember) for number in _SIGNALS}
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
        """So long, or until a signal comes: Python goes on sleeping behind a signal that is only remembered."""
        end = clock.monotonic() + seconds
        while not self.requested and (left := end - clock.monotonic()) > 0:
            clock.sleep(min(left, _LOOK_SECONDS))

    def _remember(self, number: int, frame: FrameType | None) -> None:
        self._signal = number
        self._restore()
        typer.echo("stopping cleanly; once more to stop at once", err=True)

    def _restore(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
