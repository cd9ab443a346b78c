"""Run one batch of an expiration run as one Spark task. Module `batch` says what it reads and prints, and exit codes.

    spark-submit --conf spark.speculation=false --conf spark.task.maxFailures=1 \
        spark_jobs/expiration.py --run-id R --batch-id B [--pool P] [--config F]

The run must have been released: its plan is within the deletion limits, or was approved.
"""

import argparse
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from spark_jobs.batch import Task, as_task, batch_parser, exit_code_of, run_job
from spark_jobs.task_settings import TaskSettings

if TYPE_CHECKING:
    from include.tiering.app import App
    from include.tiering.expiration.delete_segments import DeleteResult


def parse_arguments(arguments: Sequence[str]) -> argparse.Namespace:
    return batch_parser("expiration", "Run one batch of an expiration run.").parse_args(arguments)


def batch_task(run_id: str, batch_id: str, pool: str | None, settings: TaskSettings) -> Task:
    """Return the function of the Spark task."""

    def run_batch(app: "App", parent_alive: Callable[[], bool]) -> dict[str, Any]:
        return outcome_of(app.expiration.run_batch(run_id, batch_id, pool=pool, parent_alive=parent_alive))

    return as_task(run_batch, settings)


def outcome_of(result: "DeleteResult") -> dict[str, Any]:
    """Return counts and the exit code; the database has the ids of segments and the reasons."""
    from include.tiering.runs.batch import BatchEnd

    stopped = result.ended is BatchEnd.STOPPED
    return {
        "exit_code": exit_code_of(failed=bool(result.failed), worth_retrying=result.worth_retrying, stopped=stopped),
        "deleted": len(result.deleted),
        "failed": len(result.failed),
        "bytes": sum(deletion.size_bytes for deletion in result.deleted),
        "seconds": round(result.seconds, 3),
        "ended": result.ended.value,
    }


def main(arguments: Sequence[str]) -> int:
    options = parse_arguments(arguments)
    return run_job(
        "expire",
        options,
        lambda settings: batch_task(options.run_id, options.batch_id, options.pool, settings),
        lambda app: app.expiration.why_no_work(options.run_id, options.batch_id),
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
