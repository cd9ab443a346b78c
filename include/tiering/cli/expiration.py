"""`./tiering expire`, `retention` and `delete-records`.

`expire` plans what expires, asks for approval, and deletes it in this process. `retention` shows what
another retention would delete. `delete-records` raises the log start of
one partition's archive.
"""

from typing import TYPE_CHECKING, Annotated

import typer

from include.tiering.cli.command import (
    MOST_INT,
    MOST_LONG,
    Approve,
    Interrupt,
    Json,
    Topics,
    agrees,
    author,
    finish,
    is_asked_on_a_terminal,
    new_run_id,
    output_for,
    refusal_of,
    remote_partition,
    require_known_topics,
    session_of,
)
from include.tiering.cli.exit_codes import ExitCode
from include.tiering.errors import SettingError

if TYPE_CHECKING:
    from include.tiering.app import App
    from include.tiering.expiration.delete_segments import DeleteResult
    from include.tiering.expiration.plan import ExpirationPlan
    from include.tiering.expiration.report import ExpireRun
    from include.tiering.expiration.truncation import Truncation
    from include.tiering.runs.deletion_limits import DeletionLimitReport


def expire(
    ctx: typer.Context,
    topic: Topics = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be deleted and why; delete nothing.")
    ] = False,
    approve: Approve = False,
    approve_plan: Annotated[
        str | None,
        typer.Option("--approve-plan", help="Approve the plan with this hash and no other.", metavar="HASH"),
    ] = None,
    withdraw: Annotated[
        str | None,
        typer.Option(
            "--withdraw",
            help="Stop all further deletions of this run, even if it was approved or is running.",
            metavar="RUN_ID",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Delete the remote segments that expire, of topics that this platform owns.

    What expires depends on the platform's own log start, leader epochs and retention: `retention.ms` and
    `retention.bytes` of `./tiering configs --entity-type topics`. If they are not set, nothing expires by age or size;
    the brokers' retention is not used. Abandoned copies are deleted too, and interrupted deletions are continued. The
    archive of a topic that was deleted in the cluster stays, unless `tiering.on.topic.delete` says otherwise. At the
    end, metadata of segments that were deleted longer ago than `tiering.tombstone.ms` is removed.

    The command asks before it deletes. Without a terminal, or if the deletion limits require an approval (for example,
    it would delete a larger share of a topic than `tiering.expiration.max.share`), it needs --approve, or
    --approve-plan with the hash that --dry-run shows.

    --withdraw cancels a plan permanently: a running batch stops before its next group of segments, and the run can
    never be approved again. This option asks nothing, and says how many segments were deleted.
    """
    if dry_run + approve + (approve_plan is not None) + (withdraw is not None) > 1:
        raise SettingError("--dry-run, --approve, --approve-plan and --withdraw exclude each other")
    if withdraw is not None:
        if topic:
            raise SettingError("--withdraw is about a whole run: leave --topic out")
        _withdraw(ctx, withdraw, as_json=as_json)
        return
    with session_of(ctx).opened() as app, Interrupt() as interrupt:
        require_known_topics(app, topic)
        plan = app.expiration.plan(new_run_id(), topics=tuple(topic or ()), dry_run=dry_run)
        # The result is recorded below, once the plan is agreed to: until then it decides nothing.
        limit_report = app.expiration.apply_limits(plan.run_id, dry_run=True)
        refusal, results = app.guards.objection() if dry_run else None, []
        if plan.expirations and not dry_run:
            refusal = _refusal(app, plan, limit_report, approve=approve, approve_plan=approve_plan, as_json=as_json)
            if refusal is None:
                results = _delete_all(app, plan, interrupt)
        elif not dry_run:
            app.expiration.apply_limits(plan.run_id)
        if not dry_run:
            app.expiration.forget_tombstones()
        run = _run(app, plan, limit_report, refusal)
    from include.tiering.expiration.report import present_expire

    code = interrupt.exit_code if interrupt.requested else _code(results)
    finish(present_expire(run), as_json=as_json, otherwise=code)
    if interrupt.requested or any(result.failed for result in results):
        raise typer.Exit(code)


def retention(
    ctx: typer.Context,
    topic: Annotated[str, typer.Argument(help="Name of one topic.", metavar="TOPIC")],
    retention_ms: Annotated[
        str | None, typer.Option("--retention-ms", help="Such as 7d; -1 keeps for ever.", metavar="DURATION")
    ] = None,
    retention_bytes: Annotated[
        str | None,
        typer.Option("--retention-bytes", help="Of each partition, such as 50GiB; -1: unlimited.", metavar="BYTES"),
    ] = None,
    partitions: Annotated[
        str, typer.Option("--partitions", help="Only these, such as 0,3,7-9.", metavar="NUMBERS")
    ] = "",
    as_json: Json = False,
) -> None:
    """Show what another retention of a topic would delete, and when, before it is set. Nothing is changed.

    The decision is that of `./tiering expire`, for the next run and for later, if nothing more is copied until then.
    An option that is left out keeps its present value. Log directories are not read: records that are only
    on brokers count as 0 bytes, so with retention.bytes a run may delete more than is shown.
    """
    from include.tiering.configs.config_store import RETENTION_BYTES, RETENTION_MS
    from include.tiering.expiration.preview import partition_numbers, present_preview

    numbers = partition_numbers(partitions)
    with session_of(ctx).opened() as app:
        require_known_topics(app, (topic,))
        changes = {RETENTION_MS: retention_ms, RETENTION_BYTES: retention_bytes}
        found = app.expiration.preview(topic, changes, numbers=numbers)
        prices = app.settings.prices.table()
    finish(present_preview(found, prices), as_json=as_json)


def _withdraw(ctx: typer.Context, run_id: str, *, as_json: bool) -> None:
    from include.tiering.expiration.report import present_withdrawal

    with session_of(ctx).opened() as app:
        withdrawn = app.expiration.withdraw(run_id, author=author())
    finish(present_withdrawal(withdrawn), as_json=as_json)


def _refusal(
    app: "App",
    plan: "ExpirationPlan",
    limit_report: "DeletionLimitReport",
    *,
    approve: bool,
    approve_plan: str | None,
    as_json: bool,
) -> str | None:
    """Return why nothing may be deleted; None after an approval, which is recorded."""
    if approve_plan is not None and approve_plan != plan.plan_hash:
        return f"the plan is {plan.plan_hash} now, and not the approved one: check it again with --dry-run"
    if not approve and approve_plan is None:
        flags = f"--approve, or --approve-plan {plan.plan_hash}"
        if limit_report.needs_approval:
            return f"it needs {flags}"
        if not is_asked_on_a_terminal():
            return f"without a terminal it needs {flags}"
        if not _agrees(_run(app, plan, limit_report, None), as_json=as_json):
            return "not confirmed"
    app.expiration.apply_limits(plan.run_id)
    app.expiration.approve(plan.run_id, plan.plan_hash, author=author())
    return None


def _agrees(run: "ExpireRun", *, as_json: bool) -> bool:
    from include.tiering.expiration.report import planned_sentence, present_expire

    if not as_json:
        output_for(as_json=False, is_terminal=True).show(present_expire(run))
    return agrees(f"Delete {planned_sentence(run)} from remote storage?")


def _delete_all(app: "App", plan: "ExpirationPlan", interrupt: Interrupt) -> "list[DeleteResult]":
    """Run batches one after another until a batch ends for another reason than its time limit."""
    from include.tiering.cli.progress import RunProgress
    from include.tiering.runs.batch import BatchEnd

    results: list[DeleteResult] = []
    with RunProgress(app.adapters.stores.work, plan.run_id, plan.size_bytes, activity="deleting"):
        while not results or results[-1].ended is BatchEnd.TIME_OVER:
            batch_id = f"{plan.run_id}.{len(results)}"
            results.append(
                app.expiration.run_batch(plan.run_id, batch_id, parent_alive=lambda: not interrupt.requested)
            )
    return results


def _run(app: "App", plan: "ExpirationPlan", limit_report: "DeletionLimitReport", refusal: str | None) -> "ExpireRun":
    from include.tiering.expiration.report import ExpireRun

    store = app.adapters.stores.deletions
    run, items = store.run(plan.run_id), store.items(plan.run_id)
    return ExpireRun(
        run,
        plan.expirations,
        items,
        limit_report,
        plan.unknowns,
        plan.waiting,
        refusal,
        plan.held,
        app.topic_lifecycle.shared_names(),
    )


def _code(results: "list[DeleteResult]") -> ExitCode:
    """Return RETRY if only retriable failures occurred, else FINDINGS."""
    failed = [failure for result in results for failure in result.failed]
    if failed and all(failure.retriable for failure in failed):
        return ExitCode.RETRY
    return ExitCode.FINDINGS


def delete_records(
    ctx: typer.Context,
    topic: Annotated[str, typer.Argument(help="Name of the topic.")],
    partition: Annotated[
        int, typer.Option("--partition", help="Number of the partition.", min=0, max=MOST_INT, metavar="N")
    ],
    before_offset: Annotated[
        int, typer.Option("--before-offset", help="First offset that stays.", min=0, max=MOST_LONG, metavar="O")
    ],
    topic_id: Annotated[
        str | None,
        typer.Option("--topic-id", help="Id of the topic, if several topics have had this name.", metavar="ID"),
    ] = None,
    approve: Approve = False,
    as_json: Json = False,
) -> None:
    """Delete the archived records before an offset: raise the log start of the archive, which is never lowered again.

    Log starts of brokers, and kafka-delete-records, do not change the archive. Segments that are completely below the
    new log start are deleted by the next `./tiering expire`. The command asks first; without a terminal it needs
    --approve.
    """
    with session_of(ctx).opened() as app:
        found = remote_partition(app, topic, partition, topic_id)
        if topic_id is None and (why := app.topic_lifecycle.name_taken_because(found)):
            raise SettingError(f"{found} of topic id {found.topic_id}: {why}: choose the topic with --topic-id")
        planned = app.expiration.plan_truncation(found, before_offset)
        done = planned
        refusal = _refusal_to_truncate(planned, approve=approve)
        if refusal is None:
            done = app.expiration.delete_records(planned, author=author())
    from include.tiering.expiration.report import present_truncation

    finish(present_truncation(done, refusal), as_json=as_json)


def _refusal_to_truncate(planned: "Truncation", *, approve: bool) -> str | None:
    from include.tiering.expiration.report import truncation_question

    if approve or planned.log_start_offset == planned.log_start_before:
        return None
    return refusal_of(truncation_question(planned))
