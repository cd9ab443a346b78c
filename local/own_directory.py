"""A directory in which a program starts a platform or cluster of its own, and the console on which it reports."""

import logging
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from rich.console import Console

from include.tiering.errors import TieringError


class OwnDirectory:
    """A new directory for temporary files, and a console whose lines begin with the seconds since the start.

    Args:
        prefix: the beginning of the directory's name.
        table_width: columns that the program's tables need at least.
    """

    def __init__(self, prefix: str, table_width: int) -> None:
        self.console = Console(highlight=False)
        self.console.width = max(self.console.width, table_width)
        logging.getLogger("alembic").setLevel(logging.WARNING)
        self._started = time.monotonic()
        self.directory = Path(tempfile.mkdtemp(prefix=prefix))

    def say(self, line: str) -> None:
        self.console.print(f"[dim]{self._seconds:5.0f} s[/dim]  {line}", soft_wrap=True)

    def run(self, program: Callable[[], None], stop: Callable[[], object]) -> None:
        """Run the program, then stop what it started; an error of the program is printed."""
        try:
            program()
        except (RuntimeError, TieringError) as error:
            self.console.print(str(error), style="red", markup=False, soft_wrap=True)
        except KeyboardInterrupt:
            self.console.print("interrupted", style="red")
        finally:
            stop()

    def conclude(self, *, held: bool, words: str) -> int:
        """Print the last line, and keep the directory unless all held; return the exit code."""
        if held:
            shutil.rmtree(self.directory, ignore_errors=True)
        else:
            self.console.print(f"kept for inspection: {self.directory}")
        self.console.print(f"{words if held else f'NOT {words}'}, {self._seconds:.0f} s")
        return 0 if held else 1

    @property
    def _seconds(self) -> float:
        return time.monotonic() - self._started
