"""The progress bar of a run: bytes, rate and time left, on standard error, and only on a terminal."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from types import TracebackType
from typing import Final, Self

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

from include.tiering.errors import MetadataUnavailableError
from include.tiering.runs.contract import WorkStore

_POLL_SECONDS: Final = 0.5


def bar_of_bytes(console: Console) -> Progress:
    """Bytes, rate and time left; nothing where there is no terminal."""
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
def counted_bytes(verb: str, planned_bytes: int, console: Console | None = None) -> Iterator[Callable[[int], None]]:
    """A bar for work of this process: call what it yields with the bytes of each part that is done."""
    with bar_of_bytes(console if console is not None else Console(stderr=True)) as progress:
        task = progress.add_task(verb, total=planned_bytes)
        yield partial(progress.advance, task)


class RunProgress:
    """Follows what the batches of a run report to SQL, from a thread of its own."""

    def __init__(
        self,
        work: WorkStore,
        run_id: str,
        planned_bytes: int,
        console: Console | None = None,
        *,
        verb: str = "copying",
    ) -> None:
        self._work = work
        self._run_id = run_id
        self._verb = verb
        console = console if console is not None else Console(stderr=True)
        self._progress = bar_of_bytes(console)
        self._task = self._progress.add_task(verb, total=planned_bytes)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="progress", daemon=True)

    def __enter__(self) -> Self:
        if not self._progress.disable:
            self._progress.start()
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        if not self._progress.disable:
            self._thread.join()
            self._progress.stop()

    def refresh(self) -> None:
        """Show the newest reports; while the database does not answer the old ones stay."""
        try:
            reports = self._work.progress(self._run_id)
            paused = self._work.paused_topics()
        except MetadataUnavailableError:
            return
        current = next((report.partition for report in reports if not report.finished and report.partition), self._verb)
        description = f"{current} (paused: {', '.join(sorted(paused))})" if paused else current
        self._progress.update(
            self._task, completed=sum(report.done_bytes for report in reports), description=description
        )

    def _follow(self) -> None:
        while not self._ended.wait(_POLL_SECONDS):
            self.refresh()
