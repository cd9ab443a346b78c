"""Shared code of all jobs: exit when the parent process dies, the session, and the outcome of a failed job.

A killed spark-submit cannot stop the Python processes below it: the driver, and a busy task, would continue as orphan
processes. A process whose parent dies gets another parent, so it is enough to compare the ids of the parents with those
at the start. Two generations are compared: the parent of a driver is the JVM, whose parent is the submitting process;
the parent of a task is the Python daemon, whose parent is the JVM.
"""

import argparse
import json
import math
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from pyspark.errors import PySparkException, PythonException

from include.tiering.cli.exit_codes import ExitCode, code_of
from include.tiering.configs.spark_cluster import PLATFORM_KEY, application_name
from include.tiering.errors import MetadataUnavailableError, TieringError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

    from include.tiering.app import App
    from include.tiering.runs.batch import BatchEnd

POLL_SECONDS: Final = 0.5
GENERATIONS: Final = 2
ORPHANED_EXIT_CODE: Final = 3
_CODE_FAILED: Final = "org.apache.spark.api.python.PythonException"
"""What the JVM throws if the Python code of a task raised an error."""
_PARENT_FIELD: Final = 1

Batches = Iterator["pa.RecordBatch"]
"""Input and output of a function for `mapInArrow`."""


def ancestors(generations: int = GENERATIONS) -> tuple[int, ...]:
    """Return the process ids of the parent, its parent and so on; fewer if /proc does not show them."""
    found = [os.getppid()]
    while len(found) < generations:
        try:
            fields = Path(f"/proc/{found[-1]}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            break
        found.append(int(fields[_PARENT_FIELD]))
    return tuple(found)


class ParentWatch:
    """A thread that ends this process `grace_seconds` after its parent or grandparent died, while the context lasts.

    The grace period is for work that calls `parents_alive` itself and can stop cleanly. The exit runs no clean-up: the
    next holder of the lease cleans up after a killed copy.
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
    """Return whether Spark or py4j, its bridge to the JVM, failed, so a retry can help; False if the job's code did.

    A session turns the JVM's exceptions into those of PySpark. A SparkContext leaves them to py4j, whose text has the
    stack trace of the JVM.
    """
    if isinstance(error, PySparkException):
        return not isinstance(error, PythonException)
    return type(error).__module__.startswith("py4j.") and _CODE_FAILED not in str(error)


class TaskStoppedError(TieringError):
    """A task stopped with an error; `exit_code` is that of the job."""

    def __init__(self, message: str, exit_code: ExitCode) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def refusal(message: str, code: ExitCode) -> dict[str, Any]:
    """Return the outcome of a job that did nothing, or only a part of its work."""
    return {"exit_code": int(code), "error": message}


def failed_outcome(error: Exception, *, lost: str = "a task") -> dict[str, Any] | None:
    """Return the outcome of a job that ended with a TieringError or a lost task; None for any other exception."""
    if isinstance(error, TaskStoppedError):
        return refusal(str(error), error.exit_code)
    if isinstance(error, TieringError):
        return refusal(f"{type(error).__name__}: {error}", code_of(error))
    if is_lost_task(error):
        return refusal(f"Spark lost {lost} ({type(error).__name__}): see its log", ExitCode.RETRY)
    return None


def at_least_one(text: str) -> int:
    """Parse an argument that must be 1 or more."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} is not 1 or more")
    return number


SURPLUS_EXIT_CODE: Final = 4
"""The pool became too small for the job. Airflow starts it again as soon as the pool has a slot for it."""
_POOL_POLL_SECONDS: Final = 1.0


class PoolSlot:
    """A job as a batch of its pool: it reports each second that it is live, and can ask whether it is surplus.

    With `leaves`, a job that is one piece of work ends itself as soon as it is surplus, with `SURPLUS_EXIT_CODE`. That
    is what a kill would do, from which each job recovers. After `keep` it does not end any more: call that before
    results are recorded. Without a pool nothing is reported.
    """

    def __init__(
        self, app: "App", run_id: str, batch_id: str, pool: str | None, *, leaves: Callable[[int], None] | None = None
    ) -> None:
        # A job without a slot, as a batch that holds it where its task runs, does not import these.
        from include.tiering.runs.batch import StopConditions, cancellation_and_heartbeat

        work, clock = app.adapters.stores.work, app.adapters.clock
        lease_ms = app.effective_configs.settings().copier.lease_ms
        cancellation, self.heartbeat = cancellation_and_heartbeat(
            work, clock, run_id, batch_id, pool=pool, lease_ms=lease_ms, parent_alive=lambda: True
        )
        self._conditions = StopConditions(work, cancellation, clock, batch_id=batch_id, pool=pool, max_seconds=math.inf)
        self._pool = pool
        self._leaves = leaves
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="pool-slot", daemon=True)

    def __enter__(self) -> Self:
        if self._pool is not None:
            self.heartbeat.__enter__()
            if self._leaves is not None:
                self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.keep()
        if self._thread.is_alive():
            self._thread.join()
        if self._pool is not None:
            self.heartbeat.__exit__(kind, error, trace)

    def keep(self) -> None:
        """Do not leave any more, whatever becomes of the pool."""
        with self._lock:
            self._over.set()

    def reason_to_end(self) -> "BatchEnd | None":
        """Return why the job must not begin more work; None if it may, also while the database is unreachable."""
        try:
            return self._conditions.reason_to_end() if self._pool is not None else None
        except MetadataUnavailableError:
            return None

    def _watch(self) -> None:
        from include.tiering.runs.batch import BatchEnd

        while not self._over.wait(_POOL_POLL_SECONDS):
            if self.reason_to_end() is not BatchEnd.SURPLUS:
                continue
            with self._lock:
                if self._over.is_set():
                    return
                self.heartbeat.__exit__(None, None, None)
                print(json.dumps({"exit_code": SURPLUS_EXIT_CODE, "ended": BatchEnd.SURPLUS.value}), flush=True)
                if self._leaves is not None:
                    self._leaves(SURPLUS_EXIT_CODE)
                self._pool = None
                return


def add_pool_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--pool", help="Airflow pool whose slot this job holds; it ends early if the pool shrinks")
    parser.add_argument("--batch-id", help="the job's id among the batches of its pool")


def platform_of_job() -> str | None:
    """Return the platform whose Airflow submitted this job; None for a job that was started by hand.

    The name of an application is fixed before there is a SparkContext, and without the JVM of spark-submit PySpark
    knows none of the values that were submitted.
    """
    from pyspark import SparkConf, SparkContext

    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        return None
    SparkContext._ensure_initialized()  # noqa: SLF001 - connects to that JVM, as the constructor does
    return SparkConf().get(PLATFORM_KEY)


def run_in_session(
    kind: str,
    job: "Callable[[SparkSession], dict[str, Any]]",
    options: argparse.Namespace,
    conf: Mapping[str, str] = MappingProxyType({}),
    *,
    details: str = "",
) -> dict[str, Any]:
    """Run the job in a session, which is stopped afterwards; return its outcome. If a parent dies, the process ends.

    Args:
        kind: what the job does; the first word of the application's name is made of it.
        job: is called with the session.
        options: the arguments of the job: `config`, and those of `add_pool_arguments`.
        conf: the job's own configuration of Spark, in place of the user's.
        details: the rest of the application's name.
    """
    from pyspark.sql import SparkSession

    from spark_jobs.cluster_share import NoCoreError, place_in_cluster
    from spark_jobs.task_settings import TaskSettings
    from spark_jobs.waiting import WaitOverError, looking

    look = partial(
        looking,
        lambda: TaskSettings.of_driver(options.config).open_app(),
        batch_id=options.batch_id or kind,
        pool=options.pool,
        surplus_exit_code=SURPLUS_EXIT_CODE,
    )
    with ParentWatch():
        name = f"{application_name(kind, platform_of_job())} {details}".strip()
        session = SparkSession.builder.appName(name).config(map=dict(conf)).getOrCreate()
        try:
            with place_in_cluster(session.sparkContext, looking=look):
                return job(session)
        except NoCoreError as error:
            return refusal(f"{type(error).__name__}: {error}", code_of(error))
        except WaitOverError as error:
            return {"exit_code": error.exit_code, "ended": error.ended}
        finally:
            session.stop()
