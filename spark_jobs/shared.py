"""What all jobs share: the watch over their parent process, their session, and the outcome of one that failed.

spark-submit that is killed cannot stop the Python processes below it: the driver lives on as an orphan, and so would
a task that is busy. A process whose parent dies gets another parent, so reading the parents' ids is enough. Two
generations are watched: a driver sits below the JVM, and that below whoever submitted the job; a task sits below the
Python daemon, and that below the JVM.
"""

import argparse
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from pyspark.errors import PySparkException, PythonException
from pyspark.sql import SparkSession

from include.tiering.cli.exit_codes import ExitCode, code_of
from include.tiering.errors import TieringError

if TYPE_CHECKING:
    import pyarrow as pa

POLL_SECONDS: Final = 0.5
GENERATIONS: Final = 2
ORPHANED_EXIT_CODE: Final = 3
_PARENT_FIELD: Final = 1

Batches = Iterator["pa.RecordBatch"]
"""What `mapInArrow` gives to a task, and what it takes back."""


def ancestors(generations: int = GENERATIONS) -> tuple[int, ...]:
    """Ids of the parent, its parent and so on; shorter where the system does not say."""
    found = [os.getppid()]
    while len(found) < generations:
        try:
            fields = Path(f"/proc/{found[-1]}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            break
        found.append(int(fields[_PARENT_FIELD]))
    return tuple(found)


class ParentWatch:
    """While entered, a thread looks at the parents; `grace_seconds` after one of them is gone the process exits.

    The grace is for work that asks `parents_alive` by itself and can stop in good order. The exit runs no clean-up:
    what a killed copy leaves is for the next holder of its lease.
    """

    def __init__(
        self,
        *,
        grace_seconds: float = 0.0,
        read_ancestors: Callable[[], tuple[int, ...]] = ancestors,
        leave: Callable[[int], None] = os._exit,
    ) -> None:
        self._grace_seconds = grace_seconds
        self._read_ancestors = read_ancestors
        self._leave = leave
        self._born_to = read_ancestors()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="parent-watch", daemon=True)

    def parents_alive(self) -> bool:
        return self._read_ancestors() == self._born_to

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._over.wait(POLL_SECONDS):
            if not self.parents_alive():
                if not self._over.wait(self._grace_seconds):
                    self._leave(ORPHANED_EXIT_CODE)
                return


def is_lost_task(error: Exception) -> bool:
    """Spark's own errors, and those of py4j, its bridge to the JVM: another try can help. Not what our code raised."""
    of_spark = isinstance(error, PySparkException) or type(error).__module__.startswith("py4j.")
    return of_spark and not isinstance(error, PythonException)


class TaskStoppedError(TieringError):
    """A task could not go on; `exit_code` is what the job should end with."""

    def __init__(self, message: str, exit_code: ExitCode) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def refusal(message: str, code: ExitCode) -> dict[str, Any]:
    """The outcome of a job that did nothing, or not all."""
    return {"exit_code": int(code), "error": message}


def failed_outcome(error: Exception, *, lost: str = "a task") -> dict[str, Any] | None:
    """The outcome of a job that ended with one of the library's errors, or as Spark lost a task; None for any other."""
    if isinstance(error, TaskStoppedError):
        return refusal(str(error), error.exit_code)
    if isinstance(error, TieringError):
        return refusal(f"{type(error).__name__}: {error}", code_of(error))
    if is_lost_task(error):
        return refusal(f"Spark lost {lost} ({type(error).__name__}): see its log", ExitCode.RETRY)
    return None


def at_least_one(text: str) -> int:
    """For arguments that count something."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} is not 1 or more")
    return number


def run_in_session(name: str, job: Callable[[SparkSession], dict[str, Any]]) -> dict[str, Any]:
    """The outcome of the job, whose session is stopped behind it. It ends with its parent process."""
    with ParentWatch():
        session = SparkSession.builder.appName(name).getOrCreate()
        try:
            return job(session)
        finally:
            session.stop()
