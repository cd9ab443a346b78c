"""Ctrl-C and SIGTERM asked politely: the first lets the work end cleanly, the second ends the process at once."""

import signal
from types import FrameType, TracebackType
from typing import Any, Final, Self

import typer

from include.tiering.clock import Clock

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
