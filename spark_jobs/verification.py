"""Verify what a run planned, its segments spread over Spark's tasks.

    spark-submit spark_jobs/verification.py --run-id R [--tasks N] [--results-dir DIR] [--config F]

The driver takes group after group of the plan: tasks measure its segments, the driver evaluates the rules and stores
verdicts, and the plan notes the outcomes. A task or a driver that is lost leaves what was recorded; the job goes on
where the plan says, see `include/tiering/verification/verify_segments.py`. Great Expectations is imported by the driver
alone, and by none if nothing is left to evaluator; with DIR its results stay there.

Standard output gets one line of JSON: what this try verified. Exit codes: 0 all passed, 1 a segment failed, 2 a
setting, 3 another try can help.
"""

import argparse
import json
import os
import socket
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from pyspark.sql import SparkSession

from include.tiering.app import App, open_app
from include.tiering.cli.exit_codes import ExitCode
from include.tiering.runs.contract import BatchProgress
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
        "--tasks", type=at_least_one, default=DEFAULT_TASKS, help="Spark tasks among which a group is spread"
    )
    parser.add_argument("--results-dir", type=Path, help="where the driver keeps what Great Expectations said")
    parser.add_argument("--config", type=Path, help="settings file (TOML), readable where the tasks run")
    return parser.parse_args(arguments)


def verify(session: SparkSession, app: App, options: argparse.Namespace) -> dict[str, Any]:
    """Verify what is left of the run; returns the outcome."""
    report = app.verification.run_planned(
        options.run_id,
        measure_all=measured_by_tasks(session, tasks=options.tasks, config=options.config),
        streams=options.tasks,
        results_dir=options.results_dir,
        on_group=progress_of(app, options.run_id),
    )
    return outcome_of(report)


def outcome_of(report: VerifyReport) -> dict[str, Any]:
    """Counts and the exit code; which segments failed, and why, is in SQL."""
    return {
        "exit_code": int(ExitCode.FINDINGS if report.failed else ExitCode.DONE),
        "segments": report.segments,
        "failed": len({finding.segment_id for finding in report.failed}),
        "warnings": len(report.warnings),
        "gone": report.gone,
        "bytes_read": report.bytes_read,
        "seconds": round(report.seconds, 3),
    }


def progress_of(app: App, run_id: str) -> Callable[[], None]:
    """Tells whoever asks how much of the plan is done, after each group."""
    began = app.adapters.clock.monotonic()
    before = _done_bytes(app, run_id)[0]

    def report() -> None:
        done_bytes, planned_bytes = _done_bytes(app, run_id)
        seconds = max(app.adapters.clock.monotonic() - began, 0.001)
        app.adapters.stores.work.report_progress(
            BatchProgress(
                run_id=run_id,
                batch_id=run_id,
                pool=None,
                host=socket.gethostname(),
                pid=os.getpid(),
                partition="",
                done_bytes=done_bytes,
                planned_bytes=planned_bytes,
                bytes_per_second=(done_bytes - before) / seconds,
                finished=done_bytes == planned_bytes,
            )
        )

    return report


def _done_bytes(app: App, run_id: str) -> tuple[int, int]:
    """Of the planned bytes: those of segments with an outcome, and all."""
    totals = {total.outcome: total.planned_bytes for total in app.adapters.stores.verifications.totals(run_id)}
    planned_bytes = sum(totals.values())
    return planned_bytes - totals[VerificationOutcome.PLANNED], planned_bytes


def attempt(session: SparkSession, options: argparse.Namespace) -> dict[str, Any]:
    """The outcome; a setting, a store that is away or a lost task is one too, an error in the code is not."""
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
