"""`./tiering copy`: plan and copy in this process."""

from typing import TYPE_CHECKING

import typer

from include.tiering.cli.exit_codes import ExitCode
from include.tiering.cli.interrupt import Interrupt
from include.tiering.cli.options import Json, LimitBytes, Topics
from include.tiering.cli.output import finish
from include.tiering.cli.runs import copy_run, new_run_id, require_topics
from include.tiering.cli.session import session_of

if TYPE_CHECKING:
    from include.tiering.app import App
    from include.tiering.copying.copy_batch import BatchResult
    from include.tiering.copying.plan import CopyPlan


def copy(ctx: typer.Context, topic: Topics = None, limit_bytes: LimitBytes = None, as_json: Json = False) -> None:
    """Copy the eligible segments that are not remote yet, in this process, and report each one that fails.

    Topics are those of --topic, else of the setting topics.include. Every batch of a segment is checked before it is
    sent, and what the store has is compared with the source afterwards. Interrupt it at any time and start it again:
    a segment counts only when it is complete. Copied segments are served once `./tiering verify` has passed them.
    Log dirs are read by this process, whatever queue or Spark resource they name.
    """
    with session_of(ctx).opened(topic) as app, Interrupt() as interrupt:
        require_topics(app.settings)
        plan = app.copying.plan(new_run_id(), limit_bytes=limit_bytes)
        results = _copy_all(app, plan, interrupt)
        run = copy_run(app, plan, results)
    from include.tiering.copying.report import present_copy

    code = interrupt.exit_code if interrupt.requested else _code(plan, results)
    finish(present_copy(run), as_json=as_json, otherwise=code)
    if interrupt.requested:
        raise typer.Exit(code)


def _copy_all(app: "App", plan: "CopyPlan", interrupt: Interrupt) -> "list[BatchResult]":
    """Batches one after another, until one ends for another reason than its time."""
    from include.tiering.cli.progress import RunProgress
    from include.tiering.runs.batch import BatchEnd

    results: list[BatchResult] = []
    if not plan.partitions:
        return results
    with RunProgress(app.adapters.stores.work, plan.run_id, plan.size_bytes):
        while not results or results[-1].ended is BatchEnd.TIME_OVER:
            batch_id = f"{plan.run_id}.{len(results)}"
            result = app.copying.run_batch(plan.run_id, batch_id, parent_alive=lambda: not interrupt.requested)
            results.append(result)
    return results


def _code(plan: "CopyPlan", results: "list[BatchResult]") -> ExitCode:
    """What failed is worth retrying only if nothing of it needs a person."""
    failed = [failure for result in results for failure in result.failed]
    if failed and all(failure.retriable for failure in failed) and not plan.errors:
        return ExitCode.RETRY
    return ExitCode.FINDINGS
