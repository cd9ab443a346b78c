"""A rehearsal on the command line: what is shown meanwhile, and an end on Ctrl-C that leaves nothing behind."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Final

import typer

from include.tiering.cli.progress import counted_bytes

if TYPE_CHECKING:
    from include.tiering.app import App
    from include.tiering.handover.contract import Handover
    from include.tiering.handover.rehearsal import Rehearsal

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


def rehearsed(app: "App", topic: str, *, max_bytes: int, kafka_home: Path | None, keep: bool) -> "Rehearsal":
    """Rehearse, telling on standard error. A signal ends it: exit code 128 + signal, the broker and its files gone."""
    from include.tiering.app.rehearse import rehearse
    from include.tiering.app.rehearse_on import Watcher
    from include.tiering.broker_process.kafka_home import java, kafka_by_maven, kafka_in

    watcher = Watcher(_told, _step, counted_bytes)
    with _ended_once(keep=keep):
        java()
        kafka = kafka_by_maven(os.environ) if kafka_home is None else kafka_in(kafka_home)
        return rehearse(app, topic, kafka, watcher, max_bytes=max_bytes, keep=keep)


def _told(line: str) -> None:
    typer.echo(f"    {line}", err=True)


def _step(handover: "Handover") -> None:
    from include.tiering.handover.report import step_line

    typer.echo(step_line(handover), err=True)


class _EndedBy(BaseException):
    """A signal came; the number is all there is to say."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


@contextmanager
def _ended_once(*, keep: bool) -> Iterator[None]:
    """The first signal raises, so that everything is cleaned up; further ones wait for that."""

    def end(number: int, _frame: FrameType | None) -> None:
        for one in _SIGNALS:
            signal.signal(one, signal.SIG_IGN)
        raise _EndedBy(number)

    before = {number: signal.signal(number, end) for number in _SIGNALS}
    try:
        yield
    except _EndedBy as ended:
        typer.echo(f"stopped: the throw-away broker is gone{'' if keep else ', and its files'}", err=True)
        raise typer.Exit(128 + ended.number) from None
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
