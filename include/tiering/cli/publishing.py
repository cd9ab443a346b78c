"""How many records were sent about each partition, on standard error, and only on a terminal."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn

if TYPE_CHECKING:
    from include.tiering.metadata_sync.service import PartitionProgress
    from include.tiering.model.ids import TopicIdPartition


@contextmanager
def publishing_progress(console: Console | None = None) -> Iterator["PartitionProgress"]:
    """For as long as the context lasts. What it gives takes a partition, records sent, and records to send."""
    console = console if console is not None else Console(stderr=True)
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn())
    tasks: dict[str, TaskID] = {}
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as progress:

        def sent(partition: "TopicIdPartition", done: int, of: int) -> None:
            name = str(partition)
            if name not in tasks:
                tasks[name] = progress.add_task(name, total=of)
            progress.update(tasks[name], completed=done)

        yield sent
