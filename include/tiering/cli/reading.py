"""How far the metadata topic was read, on standard error, and only on a terminal."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn

from include.tiering.kafka.metadata_topic.contract import METADATA_TOPIC


@contextmanager
def reading_progress(console: Console | None = None) -> Iterator[Callable[[int, int, int], None]]:
    """For as long as the context lasts. What it gives takes a metadata partition, its next and its end offset; each
    partition has a bar of its own."""
    console = console if console is not None else Console(stderr=True)
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn())
    tasks: dict[int, TaskID] = {}
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as progress:

        def moved(metadata_partition: int, next_offset: int, end_offset: int) -> None:
            if metadata_partition not in tasks:
                tasks[metadata_partition] = progress.add_task(
                    f"{METADATA_TOPIC}-{metadata_partition}", total=end_offset
                )
            progress.update(tasks[metadata_partition], completed=next_offset)

        yield moved
