"""Verify the segments that a run planned, distributed over Spark tasks.

    spark-submit spark_jobs/verification.py --run-id R [--share NUMBER/OF] [--tasks N] [--pool P --batch-id B]
                 [--results-dir DIR] [--config F]

The driver processes the plan in groups: tasks measure the segments of a group, the driver evaluates the rules, and
stores verdicts and outcomes. What was stored stays if a task or the driver is lost; the next try continues with
segments without an outcome, see `include/tiering/verification/verify_segments.py`. Only the driver imports Great
Expectations, and only if segments are left to evaluate; with --results-dir its results are stored in DIR.

With --share the job is one of several batches, and verifies this part of the plan; the numbers begin at 0. It notes in
the plan which segments are missing, without a verdict: that is decided for all batches together, when they have ended.

Standard output gets one line of JSON: what this try verified. Exit codes: 0 no segment failed in this try, 1 a segment
failed, or an error that a retry cannot cure, 2 a wrong setting, 3 retry, 4 the pool became too small: the rest is
still planned.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from pyspark.sql import SparkSession

from include.tiering.app import App
from include.tiering.cli.exit_codes import ExitCode
from include.tiering.runs.batch import BatchEnd
from include.tiering.verification.plan import PlanShare, VerificationOutcome
from include.tiering.verification.verify_segments import VerifyReport
from spark_jobs.shared import (
    SURPLUS_EXIT_CODE,
    PoolSlot,
    add_pool_arguments,
    at_least_one,
    failed_outcome,
    run_in_session,
)
from spark_jobs.task_settings import TaskSettings
from spark_jobs.verification_measures import measured_by_tasks

DEFAULT_TASKS: Final = 8


def parse_arguments(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="verification", description="Verify the segments that a run planned.")
    parser.add_argument("--run-id", required=True)
    parser.add_argument(
        "--tasks", type=at_least_one, default=DEFAULT_TASKS, help="Spark tasks that share the segments of a group"
    )
    parser.add_argument("--share", type=_share, metavar="NUMBER/OF", help="the part of the plan that is verified")
    add_pool_arguments(parser)
    parser.add_argument("--results-dir", type=Path, help="directory for the results of Great Expectations")
    parser.add_argument("--config", type=Path, help="settings file (TOML)")
    return parser.parse_args(arguments)


def _share(text: str) -> PlanShare:
    number, of = map(int, text.split("/"))
    if not 0 <= number < of:
        raise argparse.ArgumentTypeError(f"{text} is not a part of a plan, such as 0/4")
    return PlanShare(number, of)


def verify(session: SparkSession, app: App, options: argparse.Namespace) -> dict[str, Any]:
    """Verify the segments of the run that have no outcome yet; return the job's outcome.

    The job is a batch of its pool: it ends after its group if the pool has become too small, and the rest stays
    planned.
    """
    run_id, share = options.run_id, options.share
    batch_id = options.batch_id or run_id
    parts = 1 if share is None else share.of
    done_bytes, planned_bytes = _done_bytes(app, run_id)
    ended: BatchEnd | None = None

    def may_go_on() -> bool:
        nonlocal ended
        ended = slot.reason_to_end()
        return ended is None

    def on_group() -> None:
        nonlocal done_bytes
        before, done_bytes = done_bytes, _done_bytes(app, run_id)[0]
        slot.heartbeat.add_done((done_bytes - before) // parts)

    with PoolSlot(app, run_id, batch_id, options.pool) as slot:
        # The bytes of one part of the plan are known only roughly, which is enough for the progress that people see.
        slot.heartbeat.add_planned(planned_bytes // parts)
        slot.heartbeat.add_done(done_bytes // parts)
        settings = TaskSettings.of_app(app)
        report = app.verification.run_planned(
            run_id,
            measure_all=measured_by_tasks(session, tasks=options.tasks, settings=settings),
            streams=options.tasks,
            results_dir=options.results_dir,
            on_group=on_group,
            may_go_on=may_go_on,
            share=share,
        )
    outcome = {**outcome_of(report), "ended": str(ended or BatchEnd.NO_WORK)}
    if ended is not None:
        outcome["exit_code"] = SURPLUS_EXIT_CODE if ended is BatchEnd.SURPLUS else int(ExitCode.RETRY)
    return outcome


def outcome_of(report: VerifyReport) -> dict[str, Any]:
    """Return counts and the exit code; the database has the failed segments and the reasons."""
    return {
        "exit_code": int(ExitCode.FINDINGS if report.failed else ExitCode.DONE),
        "segments": report.segments,
        "failed": len({finding.segment_id for finding in report.failed}),
        "warnings": len(report.warnings),
        "gone": report.gone,
        "bytes_read": report.bytes_read,
        "seconds": round(report.seconds, 3),
    }


def _done_bytes(app: App, run_id: str) -> tuple[int, int]:
    """Return the planned bytes of segments with an outcome, and of all segments."""
    totals = {total.outcome: total.planned_bytes for total in app.adapters.stores.verifications.totals(run_id)}
    planned_bytes = sum(totals.values())
    return planned_bytes - totals[VerificationOutcome.PLANNED], planned_bytes


def attempt(session: SparkSession, options: argparse.Namespace) -> dict[str, Any]:
    """Return the outcome, also for a wrong setting, an unavailable store or a lost task; other errors are raised."""
    try:
        with TaskSettings.of_driver(options.config).open_app() as app:
            return verify(session, app, options)
    except Exception as error:
        if (outcome := failed_outcome(error)) is None:
            raise
        return outcome


def main(arguments: Sequence[str]) -> int:
    options = parse_arguments(arguments)
    outcome = run_in_session("verify", lambda session: attempt(session, options), options, details=options.run_id)
    print(json.dumps({"run_id": options.run_id, **outcome}))
    return int(outcome["exit_code"])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
