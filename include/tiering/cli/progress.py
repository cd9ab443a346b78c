"""Progress of long commands, on standard error: bars on a terminal; elsewhere a run writes a line now and then.

There are bars for the bytes, rate and time left of a run; for counted items; for the objects listed so far, whose total
is unknown; for the records sent about each partition; and for the offset reached in each partition of the metadata
topic.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from include.tiering.errors import MetadataUnavailableError
from include.tiering.operations.status import paused_words
from include.tiering.runs.contract import ALL_TOPICS
from include.tiering.units import format_bytes

if TYPE_CHECKING:
    from include.tiering.metadata_sync.service import PartitionProgress
    from include.tiering.model.segments import TopicIdPartition
    from include.tiering.runs.contract import WorkStore


_POLL_SECONDS: Final = 0.5
_LINE_SECONDS: Final = 10.0
"""Between two lines of a command whose standard error is no terminal."""


def bar_of_bytes(console: Console) -> Progress:
    """Return a bar with bytes, rate and time left. It is disabled if the console is no terminal."""
    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        DownloadColumn(binary_units=True),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
        console=console,
        disable=not console.is_terminal,
        transient=True,
    )


@contextmanager
def counted_bytes(activity: str, planned_bytes: int, console: Console | None = None) -> Iterator[Callable[[int], None]]:
    """Show a bar for work of this process; call the yielded function with the bytes of each part that is done."""
    with bar_of_bytes(console if console is not None else Console(stderr=True)) as progress:
        task = progress.add_task(activity, total=planned_bytes)
        yield partial(progress.advance, task)


@contextmanager
def growing_bytes(
    activity: str, console: Console | None = None
) -> Iterator[tuple[Callable[[int], None], Callable[[int], None]]]:
    """Show a bar whose total is known later; yield a function that takes the total, and one that takes more bytes."""
    with bar_of_bytes(console if console is not None else Console(stderr=True)) as progress:
        task = progress.add_task(activity, total=None)
        yield lambda total: progress.update(task, total=total), partial(progress.advance, task)


class RunProgress:
    """Shows the progress that the batches of a run store in the database, from a thread of its own.

    On a terminal it is a bar; elsewhere a line at the begin and every ten seconds.
    """

    def __init__(
        self,
        work: "WorkStore",
        run_id: str,
        planned_bytes: int,
        console: Console | None = None,
        *,
        activity: str = "copying",
    ) -> None:
        self._work = work
        self._run_id = run_id
        self._activity = activity
        console = console if console is not None else Console(stderr=True)
        self._progress = bar_of_bytes(console)
        self._task = self._progress.add_task(activity, total=planned_bytes)
        self._bytes_per_second = 0.0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="progress", daemon=True)

    def __enter__(self) -> Self:
        if self._progress.disable:
            self.say()
        else:
            self._progress.start()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()
        if not self._progress.disable:
            self._progress.stop()

    def refresh(self) -> None:
        """Show the newest reports of the batches. While the database does not answer, the last reports stay."""
        try:
            reports = self._work.progress(self._run_id)
            paused = self._work.paused_topics()
        except MetadataUnavailableError:
            return
        self._bytes_per_second = sum(report.bytes_per_second for report in reports if not report.finished)
        current = next(
            (report.partition for report in reports if not report.finished and report.partition), self._activity
        )
        way_out = ": ./tiering resume" if ALL_TOPICS in paused else ""
        description = f"{current} ({paused_words(paused)}{way_out})" if paused else current
        self._progress.update(
            self._task, completed=sum(report.done_bytes for report in reports), description=description
        )

    def say(self) -> None:
        """Write one line with the newest reports, for a log or a pipe. That it cannot be written stops no work."""
        self.refresh()
        task = self._progress.tasks[0]
        done = f"{format_bytes(int(task.completed))} of {format_bytes(int(task.total or 0))}"
        rate = f", {format_bytes(int(self._bytes_per_second))}/s" if self._bytes_per_second else ""
        line = f"{task.description}: {done}{rate}"
        with suppress(OSError, ValueError):
            self._progress.console.print(line, markup=False, highlight=False, soft_wrap=True)

    def _follow(self) -> None:
        shows_lines = self._progress.disable
        while not self._ended.wait(_LINE_SECONDS if shows_lines else _POLL_SECONDS):
            if shows_lines:
                self.say()
            else:
                self.refresh()


@contextmanager
def counting(activity: str, total: int, console: Console | None = None) -> Iterator[Callable[[int], None]]:
    """Show a bar of counted items until the context exits; call the yielded function with how many more are done."""
    console = console if console is not None else Console(stderr=True)
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as progress:
        task = progress.add_task(activity, total=total)
        yield lambda more: progress.advance(task, more)


@contextmanager
def listing_progress(console: Console | None = None) -> Iterator[Callable[[int], None]]:
    """Show the number of listed objects until the context exits; call the yielded function with how many more."""
    console = console if console is not None else Console(stderr=True)
    columns = (SpinnerColumn(), TextColumn("{task.completed:,.0f} objects listed"), TimeElapsedColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as progress:
        task = progress.add_task("", total=None)
        yield lambda more: progress.advance(task, more)


@contextmanager
def publishing_progress(console: Console | None = None) -> Iterator["PartitionProgress"]:
    """Show a bar per partition until the context exits; the yielded function takes partition, records sent, total."""
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


@contextmanager
def reading_progress(console: Console | None = None) -> Iterator[Callable[[int, int, int], None]]:
    """Show a bar per metadata partition until the context exits.

    The yielded function takes a metadata partition, its next offset and its end offset (exclusive).
    """
    from include.tiering.kafka.metadata_topic.contract import METADATA_TOPIC

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
