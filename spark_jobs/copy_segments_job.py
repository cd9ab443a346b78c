"""Run one batch of a copy run as one Spark task.

    spark-submit --conf spark.speculation=false --conf spark.task.maxFailures=1 \
        spark_jobs/copy_segments_job.py --run-id R --batch-id B [--pool P] [--queue Q] [--spark-resource S] [--config F]

The batch takes partitions of exactly the placement that --queue and --spark-resource name, or of none.

Settings come from the environment (TIERING_...) or the file, read where the task runs. Progress and outcomes go to SQL
from there; standard output gets one line of JSON: the outcome, and when each stage began (UTC milliseconds). With
SPARK_REMOTE set the same task runs in a Spark Connect server, whose Python must find the library; a killed client is
noticed there only when the server gives the operation up.

Exit codes: 0 the batch did what it could; 1 segments failed and need a person; 2 a setting; 3 another try can help.
"""

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import SparkSession

from include.tiering.cli.exit_codes import ExitCode, code_of
from include.tiering.clock import SystemClock
from include.tiering.errors import TieringError
from include.tiering.tasks.copy_segments import BatchEnd, BatchResult
from include.tiering.work.contract import ANYWHERE, Placement
from spark_jobs.lost_task import is_lost_task
from spark_jobs.parent_watch import ParentWatch
from spark_jobs.single_attempt import require_single_attempt

_GRACE_SECONDS: Final = 2.0
now_ms: Final = SystemClock().now_ms
Task = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
_OUTCOME: Final = pa.schema([("outcome", pa.string())])


def parse_arguments(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="copy_segments_job", description="Run one batch of a copy run.")
    parser.add_argument("--run-id", required=True)
    parser.add_argument("--batch-id", required=True)
    parser.add_argument("--pool", help="Airflow pool whose slot this batch holds")
    parser.add_argument("--queue", help="Airflow queue that the log dirs of its partitions name")
    parser.add_argument("--spark-resource", help="Spark resource that the log dirs of its partitions name")
    parser.add_argument("--config", type=Path, help="settings file (TOML), readable where the task runs")
    return parser.parse_args(arguments)


def batch_task(
    run_id: str, batch_id: str, pool: str | None, config: Path | None, placement: Placement = ANYWHERE
) -> Task:
    """The function of the one task: runs the batch, yields one row with its outcome as JSON."""

    def run(rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in rows:
            began_ms = now_ms()
            with ParentWatch(grace_seconds=_GRACE_SECONDS) as watch:
                outcome = {**_run_batch(run_id, batch_id, pool, config, placement, watch), "task_began_ms": began_ms}
            yield pa.RecordBatch.from_pylist([{"outcome": json.dumps(outcome)}], schema=_OUTCOME)

    return run


def _run_batch(
    run_id: str, batch_id: str, pool: str | None, config: Path | None, placement: Placement, watch: ParentWatch
) -> dict[str, Any]:
    # The driver needs neither; where the task runs, importing them is part of its start.
    from include.tiering.settings import load_settings
    from include.tiering.wiring import open_tiering

    context = TaskContext.get()
    if context is not None and context.attemptNumber() > 0:
        return _refusal("Spark started the task again: the batch runs once", ExitCode.RETRY)
    try:
        with open_tiering(load_settings(config)) as tiering:
            began_ms = now_ms()
            result = tiering.copy_batch(
                run_id, batch_id, pool=pool, placement=placement, parent_alive=watch.parents_alive
            )
    except TieringError as error:
        return _refusal(f"{type(error).__name__}: {error}", code_of(error))
    return {**outcome_of(result), "batch_began_ms": began_ms}


def outcome_of(result: BatchResult) -> dict[str, Any]:
    """Counts and the exit code; names and reasons of segments are in SQL."""
    return {
        "exit_code": _exit_code(result),
        "copied": len(result.copied),
        "failed": len(result.failed),
        "throttled": len(result.throttled),
        "bytes": sum(segment.size_bytes for segment in result.copied),
        "sent_bytes": result.sent_bytes,
        "seconds": round(result.seconds, 3),
        "ended": result.ended.value,
    }


def _exit_code(result: BatchResult) -> int:
    if result.failed and not result.worth_retrying:
        return ExitCode.FINDINGS
    if result.failed or result.ended is BatchEnd.STOPPED:
        return ExitCode.RETRY
    return ExitCode.DONE


def _refusal(message: str, code: ExitCode) -> dict[str, Any]:
    return {"exit_code": int(code), "error": message}


def run_once(session: SparkSession, task: Task) -> Mapping[str, Any]:
    """One row, one partition, one job: the task's outcome.

    Raises:
        SettingError: Spark may run the task more than once.
    """
    require_single_attempt(session.conf.get)
    (row,) = session.range(0, 1, 1, numPartitions=1).mapInArrow(task, "outcome string").collect()
    return dict(json.loads(row.outcome))


def attempt(session: SparkSession, task: Task) -> Mapping[str, Any]:
    """The outcome of `run_once`; a setting or a lost task is an outcome too, an error in the task's code is not."""
    try:
        return run_once(session, task)
    except TieringError as error:
        return _refusal(f"{type(error).__name__}: {error}", code_of(error))
    except Exception as error:
        if not is_lost_task(error):
            raise
        return _refusal(f"Spark lost the task ({type(error).__name__}): see its log", ExitCode.RETRY)


def main(arguments: Sequence[str]) -> int:
    options = parse_arguments(arguments)
    placement = Placement(options.queue, options.spark_resource)
    task = batch_task(options.run_id, options.batch_id, options.pool, options.config, placement)
    driver_began_ms = now_ms()
    with ParentWatch():
        session = SparkSession.builder.appName(f"tiering.copy {options.run_id}/{options.batch_id}").getOrCreate()
        session_began_ms = now_ms()
        try:
            outcome = attempt(session, task)
        finally:
            session.stop()
    began = {"driver_began_ms": driver_began_ms, "session_began_ms": session_began_ms}
    print(json.dumps({"run_id": options.run_id, "batch_id": options.batch_id, **outcome, **began}))
    return int(outcome["exit_code"])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
