"""Errors become one sentence on standard error and an exit code; a traceback appears only with --debug."""

import traceback
from typing import Any

import typer
from typer.core import TyperGroup

from include.tiering.cli.exit_codes import ExitCode, code_of
from include.tiering.errors import TieringError, printable
from include.tiering.telemetry import redact


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
