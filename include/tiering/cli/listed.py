"""How many objects were listed so far, on standard error, and only on a terminal: nobody knows how many there are."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn


@contextmanager
def listing_progress(console: Console | None = None) -> Iterator[Callable[[int], None]]:
    """For as long as the context lasts. What it gives takes how many more there are."""
    console = console if console is not None else Console(stderr=True)
    columns = (SpinnerColumn(), TextColumn("{task.completed:,.0f} objects listed"), TimeElapsedColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as progress:
        task = progress.add_task("", total=None)
        yield lambda more: progress.advance(task, more)
