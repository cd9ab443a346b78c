"""One invocation: the global options, and the library opened with the settings that they lead to."""

import os
import pwd
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import typer

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
