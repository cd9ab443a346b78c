"""A progress bar that counts things, on standard error, and only on a terminal."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn


@contextmanager
def counting(verb: str, total: int, console: Console | None = None) -> Iterator[Callable[[int], None]]:
    """For as long as the context lasts. What it gives takes how many more there are."""
    console = console if console is not None else Console(stderr=True)
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as progress:
        task = progress.add_task(verb, total=total)
        yield lambda more: progress.advance(task, more)
