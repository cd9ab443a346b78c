"""Verify the segments that a run planned, distributed over Spark tasks.

    spark-submit spark_jobs/verification.py --run-id R [--tasks N] [--pool P] [--results-dir DIR] [--config F]

The driver processes the plan in groups: tasks measure the segments of a group, the driver evaluates the rules, and
stores verdicts and outcomes. What was stored stays if a task or the driver is lost; the next try continues with
segments without an outcome, see `include/tiering/verification/verify_segments.py`. Only the driver imports Great
Expectations, and only if segments are left to evaluate; with --results-dir its results are stored in DIR.

Standard output gets one line of JSON: what this try verified. Exit codes: 0 no segment failed in this try, 1 a segment
failed, or an error that a retry cannot cure, 2 a wrong setting, 3 retry.
"""

import argparse
import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from pyspark.sql import SparkSession

from include.tiering.app import App, open_app
from include.tiering.cli.exit_codes import ExitCode
from include.tiering.runs.batch import BatchEnd, StopConditions, cancellation_and_heartbeat
from include.tiering.settings import load_settings
from include.tiering.verification.plan import VerificationOutcome
from include.tiering.verification.verify_segments import VerifyReport
from spark_jobs.shared import at_least_one, failed_outcome, run_in_session
from spark_jobs.verification_measures import measured_by_tasks

DEFAULT_TASKS: Final = 8


def parse_arguments(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="verification", description="Verify the segments that a run planned.")
    parser.add_argument("--run-id", required=True)
    parser.add_argument(
        "--tasks", type=at_least_one, default=DEFAULT_TASKS, help="Spark tasks that share the segments of a group"
    )
    parser.add_argument("--pool", help="Airflow pool whose slot this job holds; it ends early if the pool shrinks")
    parser.add_argument("--results-dir", type=Path, help="directory for the results of Great Expectations")
    parser.add_argument("--config", type=Path, help="settings file (TOML), readable where the tasks run")
    return parser.parse_args(arguments)


def verify(session: SparkSession, app: App, options: argparse.Namespace) -> dict[str, Any]:
    """Verify the segments of the run that have no outcome yet; return the job's outcome.

    The job is one batch of its pool: it ends after its group if the pool has become too small, and the rest stays
    planned.
    """
    work, clock, run_id = app.adapters.stores.work, app.adapters.clock, options.run_id
    lease_ms = app.effective_configs.settings().copier.lease_ms
    cancellation, heartbeat = cancellation_and_heartbeat(
        work, clock, run_id, run_id, pool=options.pool, lease_ms=lease_ms, parent_alive=lambda: True
    )
    stop_conditions = StopConditions(
        work, cancellation, clock, batch_id=run_id, pool=options.pool, max_seconds=math.inf
    )
    done_bytes, planned_bytes = _done_bytes(app, run_id)
    heartbeat.add_planned(planned_bytes)
    heartbeat.add_done(done_bytes)
    ended: BatchEnd | None = None

    def may_go_on() -> bool:
        nonlocal ended
        ended = stop_conditions.reason_to_end()
        return ended is None

    def on_group() -> None:
        nonlocal done_bytes
        before, done_bytes = done_bytes, _done_bytes(app, run_id)[0]
        heartbeat.add_done(done_bytes - before)

    with heartbeat:
        report = app.verification.run_planned(
            run_id,
            measure_all=measured_by_tasks(session, tasks=options.tasks, config=options.config),
            streams=options.tasks,
            results_dir=options.results_dir,
            on_group=on_group,
            may_go_on=may_go_on,
        )
    return {**outcome_of(report), "ended": str(ended or BatchEnd.NO_WORK)}


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
        with open_app(load_settings(options.config)) as app:
            return verify(session, app, options)
    except Exception as error:
        if (outcome := failed_outcome(error)) is None:
            raise
        return outcome


def main(arguments: Sequence[str]) -> int:
    options = parse_arguments(arguments)
    outcome = run_in_session(f"tiering.verify {options.run_id}", lambda session: attempt(session, options))
    print(json.dumps({"run_id": options.run_id, **outcome}))
    return int(outcome["exit_code"])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
