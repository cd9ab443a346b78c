"""Shared code of jobs that run one batch as one Spark task.

Only Airflow repeats a batch. Spark must not start a slow task a second time (speculation), nor retry a failed task.

Settings come from the environment (TIERING_...) and a file of the driver, which sends them with the task (see
`task_settings`). The task stores progress and outcomes in the platform's database. The driver prints one line of JSON
on standard output: the outcome, and when each stage began (UTC milliseconds). If SPARK_REMOTE is set, the same task
runs in a Spark Connect server, to which the driver sends the library, too, if it was imported from a zip file; after
its client was killed the task ends there only when the server abandons the operation.

Exit codes: 0 nothing failed; 1 an error that a retry cannot cure, even of one segment; 2 a wrong setting; 3 retry.
"""

import argparse
import json
import logging
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Union

from pyspark import SparkConf, SparkContext, TaskContext

from include.tiering.cli.exit_codes import ExitCode, code_of
from include.tiering.clock import SystemClock
from include.tiering.configs.spark_cluster import application_name
from include.tiering.errors import SettingError, TieringError
from spark_jobs.cluster_share import HeldBackError, NoCoreError, place_in_cluster
from spark_jobs.shared import ParentWatch, failed_outcome, platform_of_job, refusal
from spark_jobs.task_settings import (
    ReadConf,
    TaskSettings,
    require_encrypted_connection,
    require_silent_server,
    unencrypted_words,
)
from spark_jobs.waiting import Look, WaitOverError, looking

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

    from include.tiering.app import App
    from include.tiering.runs.contract import NoWork


_log = logging.getLogger(__name__)
_LOCAL_WITH_FAILURES: Final = re.compile(r"local\[[^,\]]+,\s*(\d+)\s*\]\Z")


def require_single_attempt(conf: ReadConf) -> None:
    """Check that Spark runs a task once. `conf` returns the value of a key; without a value, its second argument.

    Raises:
        SettingError: speculation is on, or Spark may retry a task.
    """
    if str(conf("spark.speculation", "false")).lower() != "false":
        raise SettingError("spark.speculation is on: this job's one task must run once; set spark.speculation=false")
    failures = conf("spark.task.maxFailures", None)
    if failures != "1":
        found = "4 (Spark's default)" if failures is None else failures
        raise SettingError(f"spark.task.maxFailures is {found}: this job's one task must run once; set it to 1")
    master = conf("spark.master", "") or ""
    matched = _LOCAL_WITH_FAILURES.match(master)
    if matched is not None and matched[1] != "1":
        raise SettingError(f"spark.master {master} allows {matched[1]} attempts of a task: use local[n] or local[n,1]")


_GRACE_SECONDS: Final = 2.0
now_ms: Final = SystemClock().now_ms
Task = Callable[[], str]
"""The one task of a job: runs the batch and returns its outcome as JSON."""
RunBatch = Callable[["App", Callable[[], bool]], dict[str, Any]]
"""Arguments: the library, and a function that returns whether the parent processes live. Returns the outcome."""


def batch_parser(name: str, description: str) -> argparse.ArgumentParser:
    """Return a parser with the arguments that every batch has."""
    parser = argparse.ArgumentParser(prog=name, description=description)
    parser.add_argument("--run-id", required=True)
    parser.add_argument("--batch-id", required=True)
    parser.add_argument("--pool", help="Airflow pool whose slot this batch holds")
    parser.add_argument("--config", type=Path, help="settings file (TOML)")
    return parser


def as_task(run_batch: RunBatch, settings: TaskSettings) -> Task:
    """Return the function of the Spark task."""

    def run() -> str:
        began_ms = now_ms()
        with ParentWatch(grace_seconds=_GRACE_SECONDS) as watch:
            return json.dumps({**_run_where_the_task_is(run_batch, settings, watch), "task_began_ms": began_ms})

    return run


def _run_where_the_task_is(run_batch: RunBatch, settings: TaskSettings, watch: ParentWatch) -> dict[str, Any]:
    context = TaskContext.get()
    if context is not None and context.attemptNumber() > 0:
        return refusal("Spark started the task again, but a batch runs once", ExitCode.RETRY)
    try:
        with settings.open_app() as app:
            began_ms = now_ms()
            outcome = run_batch(app, watch.parents_alive)
    except TieringError as error:
        return refusal(f"{type(error).__name__}: {error}", code_of(error))
    return {**outcome, "batch_began_ms": began_ms}


def exit_code_of(*, failed: bool, worth_retrying: bool, stopped: bool) -> int:
    if failed and not worth_retrying:
        return ExitCode.FINDINGS
    return ExitCode.RETRY if failed or stopped else ExitCode.DONE


Spark = Union[SparkContext, "SparkSession"]
"""A Spark of this process, or a session with a Spark Connect server, which offers data frames only."""


def run_once(spark: Spark, task: Task) -> Mapping[str, Any]:
    """Run the task as one Spark job with one partition; return its outcome.

    Raises:
        SettingError: Spark may run the task more than once, or a Spark Connect server may log what it is sent.
    """
    if isinstance(spark, SparkContext):
        require_single_attempt(dict(spark.getConf().getAll()).get)
        (outcome,) = spark.parallelize([None], numSlices=1).map(lambda _: task()).collect()
    else:
        require_single_attempt(spark.conf.get)
        require_silent_server(spark.conf.get)
        if (words := unencrypted_words(spark.conf.get)) is not None:
            _log.warning("%s", words)
        frame = spark.range(0, 1, 1, numPartitions=1)
        ((outcome,),) = frame.mapInArrow(_in_arrow(task), "outcome string").collect()
    return dict(json.loads(outcome))


def _in_arrow(task: Task) -> "Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]":
    """Return the task as a function for `mapInArrow`: one row with the outcome for each batch of rows."""

    def run(rows: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
        import pyarrow as pa

        for _ in rows:
            yield pa.RecordBatch.from_pydict({"outcome": [task()]})

    return run


def _begin(kind: str, details: str) -> Spark:
    """Start a SparkContext, in half of the time of a session; connect to a server if SPARK_REMOTE names one."""
    if "SPARK_REMOTE" not in os.environ:
        name = f"{application_name(kind, platform_of_job())} {details}"
        return SparkContext.getOrCreate(SparkConf().setAppName(name))
    from pyspark.sql import SparkSession

    session = SparkSession.builder.appName(f"{application_name(kind, None)} {details}").getOrCreate()
    # The module's loader is a zipimporter, which knows its archive, if Python found the module in a zip file.
    if (archive := getattr(__spec__.loader if __spec__ else None, "archive", None)) is not None:
        session.addArtifacts(archive, pyfile=True)
    return session


def attempt(spark: Spark, task: Task) -> Mapping[str, Any]:
    """Return the outcome of `run_once`, also for a wrong setting or a lost task; other errors are raised."""
    try:
        return run_once(spark, task)
    except Exception as error:
        if (outcome := failed_outcome(error, lost="the task")) is None:
            raise
        return outcome


def _attempt_with_a_core(
    spark: Spark, task: Task, looking: Callable[[], AbstractContextManager[Look]]
) -> Mapping[str, Any]:
    """Return the outcome of `attempt`, once the cluster has a core for it.

    A task that something held back before it had an executor has not begun, so it is still run once.

    Raises:
        NoCoreError, WaitOverError: as for `place_in_cluster`.
    """
    if not isinstance(spark, SparkContext):
        return attempt(spark, task)
    was_held_back = False
    while True:
        try:
            with place_in_cluster(spark, looking=looking, was_held_back=was_held_back):
                return attempt(spark, task)
        except HeldBackError:
            was_held_back = True


def run_job(
    job: str,
    options: argparse.Namespace,
    task_with: Callable[[TaskSettings], Task],
    no_work: "Callable[[App], NoWork | None]" = lambda _: None,
) -> int:
    """Start Spark, run the task, print the outcome as one line; return the exit code.

    `no_work` says, while the job waits for a core, why its batch would end at once; None if it would not.
    A settings file that cannot be used, and a server without TLS, end the job before Spark is started.
    """
    began = {"driver_began_ms": now_ms()}
    try:
        require_encrypted_connection(os.environ.get("SPARK_REMOTE", "local"))
        settings = TaskSettings.of_driver(options.config)
        task = task_with(settings)
    except TieringError as error:
        return _print_outcome(options, refusal(f"{type(error).__name__}: {error}", code_of(error)), began)
    look = partial(
        looking,
        settings.open_app,
        batch_id=options.batch_id,
        pool=options.pool,
        surplus_exit_code=ExitCode.DONE,
        no_work=no_work,
        obeys_pauses=True,
    )
    with ParentWatch():
        spark = _begin(job, f"{options.run_id}/{options.batch_id}")
        began["session_began_ms"] = now_ms()
        try:
            outcome = _attempt_with_a_core(spark, task, look)
        except NoCoreError as error:
            outcome = refusal(f"{type(error).__name__}: {error}", code_of(error))
        except WaitOverError as error:
            outcome = {"exit_code": error.exit_code, "ended": error.ended}
        finally:
            spark.stop()
    return _print_outcome(options, outcome, began)


def _print_outcome(options: argparse.Namespace, outcome: Mapping[str, Any], began: Mapping[str, int]) -> int:
    print(json.dumps({"run_id": options.run_id, "batch_id": options.batch_id, **outcome, **began}))
    return int(outcome["exit_code"])
