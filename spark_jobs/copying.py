"""Run one batch of a copy run as one Spark task. Module `batch` says what a batch reads and prints, and its exit codes.

    spark-submit --conf spark.speculation=false --conf spark.task.maxFailures=1 \
        spark_jobs/copying.py --run-id R --batch-id B [--pool P] [--queue Q] [--spark-resource S] [--config F]

The batch claims only partitions whose placement has exactly the queue of --queue and the Spark resource of
--spark-resource. Without --queue it claims only partitions whose placement has no queue; without --spark-resource, only
partitions whose placement has no Spark resource. Partitions that have neither can be read by every worker and executor.
"""

import argparse
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from include.tiering.runs.contract import ANYWHERE, Placement
from spark_jobs.batch import Task, as_task, batch_parser, exit_code_of, run_job
from spark_jobs.task_settings import TaskSettings

if TYPE_CHECKING:
    from include.tiering.app import App
    from include.tiering.copying.copy_batch import BatchResult


def parse_arguments(arguments: Sequence[str]) -> argparse.Namespace:
    parser = batch_parser("copying", "Run one batch of a copy run.")
    parser.add_argument("--queue", help="claim only partitions of log dirs with this `queue`")
    parser.add_argument("--spark-resource", help="claim only partitions of log dirs with this `spark_resource`")
    return parser.parse_args(arguments)


def batch_task(
    run_id: str, batch_id: str, pool: str | None, settings: TaskSettings, placement: Placement = ANYWHERE
) -> Task:
    """Return the function of the Spark task."""

    def run_batch(app: "App", parent_alive: Callable[[], bool]) -> dict[str, Any]:
        return outcome_of(
            app.copying.run_batch(run_id, batch_id, pool=pool, placement=placement, parent_alive=parent_alive)
        )

    return as_task(run_batch, settings)


def outcome_of(result: "BatchResult") -> dict[str, Any]:
    """Return counts and the exit code; the database has the ids of segments and the reasons."""
    from include.tiering.runs.batch import BatchEnd

    stopped = result.ended is BatchEnd.STOPPED
    return {
        "exit_code": exit_code_of(failed=bool(result.failed), worth_retrying=result.worth_retrying, stopped=stopped),
        "copied": len(result.copied),
        "failed": len(result.failed),
        "throttled": len(result.throttled),
        "bytes": sum(segment.size_bytes for segment in result.copied),
        "sent_bytes": result.sent_bytes,
        "seconds": round(result.seconds, 3),
        "ended": result.ended.value,
    }


def main(arguments: Sequence[str]) -> int:
    options = parse_arguments(arguments)
    placement = Placement(options.queue, options.spark_resource)
    return run_job(
        "copy",
        options,
        lambda settings: batch_task(options.run_id, options.batch_id, options.pool, settings, placement),
        lambda app: app.copying.why_no_work(options.run_id, options.batch_id, placement),
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
