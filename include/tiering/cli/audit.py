"""`./tiering audit`: compare the store with the metadata; remove orphan objects after the plan was approved."""

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from include.tiering.cli.command import Approve, Interrupt, Json, author, finish, new_run_id, session_of
from include.tiering.cli.exit_codes import ExitCode
from include.tiering.errors import SettingError

if TYPE_CHECKING:
    from include.tiering.app import App
    from include.tiering.audit.remove_orphans import RemovalResult
    from include.tiering.audit.report import RemovalRun


def audit(
    ctx: typer.Context,
    inventory: Annotated[
        str | None,
        typer.Option(
            "--inventory",
            help="Read an S3 Inventory instead of listing the store: its manifest.json, a path or s3://bucket/key.",
            metavar="PATH",
        ),
    ] = None,
    delete_orphans: Annotated[
        bool, typer.Option("--delete-orphans", help="Plan to remove objects and open uploads without metadata.")
    ] = False,
    old_versions: Annotated[
        bool, typer.Option("--old-versions", help="With --delete-orphans: also old versions and delete markers.")
    ] = False,
    approve: Approve = False,
    approve_plan: Annotated[
        str | None,
        typer.Option("--approve-plan", help="Approve the plan with this hash and no other.", metavar="HASH"),
    ] = None,
    accept: Annotated[
        list[int] | None,
        typer.Option("--accept", help="Accept this finding as it is; it no longer makes an audit fail.", metavar="ID"),
    ] = None,
    withdraw: Annotated[
        str | None,
        typer.Option(
            "--withdraw",
            help="Stop all further removals of this run, even if it was approved or is running.",
            metavar="RUN_ID",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Compare every object of the store with the metadata, and report each difference.

    The store is not changed. Each finding is kept with an id, the times when it was first and last seen, and its state.
    The exit code is 1 while a finding that needs a person is open, or while a guard forbids removals; --accept ID
    records the decision to leave a finding as it is.

    --delete-orphans plans the removal of objects that no metadata refers to, and shows the plan. Nothing is removed
    without --approve or --approve-plan. Complete copies are never removed this way: `./tiering adopt` adopts them.
    Nothing is removed either if this is another store, the database is empty or older than the store, or a clock is
    implausible. Objects younger than `tiering.audit.min.age.ms` stay, and each object is checked again right before it
    is removed.

    --withdraw cancels the plan of a removal permanently: a running batch stops before its next group, and the run can
    never be approved again. With --withdraw the command does not ask, and says how much was already removed.
    """
    if withdraw is not None:
        if inventory is not None or delete_orphans or old_versions or approve or approve_plan is not None or accept:
            raise SettingError("--withdraw excludes all other options except --json")
        _withdraw(ctx, withdraw, as_json=as_json)
        return
    _require_sense(delete_orphans, old_versions=old_versions, approve=approve, approve_plan=approve_plan)
    if accept and (inventory is not None or delete_orphans):
        raise SettingError("--accept excludes --inventory and --delete-orphans")
    from include.tiering.audit.report import AuditRun, present_audit

    with session_of(ctx).opened() as app:
        if accept:
            _accept(app, accept, as_json=as_json)
            return
        run_id = new_run_id()
        from include.tiering.cli.progress import listing_progress

        with listing_progress() as on_listed:
            report = app.audit.run(run_id, listing=app.audit.listing_of(inventory), on_listed=on_listed)
        removal: RemovalRun | None = None
        results: list[RemovalResult] = []
        interrupt = Interrupt()
        if delete_orphans:
            # Only a removal changes the store, so only it has to end cleanly after a signal.
            with interrupt:
                removal, results = _remove(
                    app, run_id, interrupt, old_versions=old_versions, approve=approve, approve_plan=approve_plan
                )
        findings = app.audit.findings(run_id)
    code = interrupt.exit_code if interrupt.requested else _code(results)
    finish(present_audit(AuditRun(report.record, findings, report.tally, removal)), as_json=as_json, otherwise=code)
    if interrupt.requested or any(result.waiting for result in results):
        raise typer.Exit(code)


def _require_sense(delete_orphans: bool, *, old_versions: bool, approve: bool, approve_plan: str | None) -> None:
    if (approve or approve_plan is not None or old_versions) and not delete_orphans:
        raise SettingError("--approve, --approve-plan and --old-versions go with --delete-orphans")
    if approve and approve_plan is not None:
        raise SettingError("--approve and --approve-plan exclude each other")


def _remove(
    app: "App",
    audit_run_id: str,
    interrupt: Interrupt,
    *,
    old_versions: bool,
    approve: bool,
    approve_plan: str | None,
) -> "tuple[RemovalRun, list[RemovalResult]]":
    from include.tiering.audit.report import RemovalRun

    run_id = f"{audit_run_id}-remove"
    plan = app.audit.plan_removals(run_id, audit_run_id, with_versions=old_versions)
    limit_report = app.audit.apply_removal_limits(run_id)
    refusal = "; ".join(refused.sentence for refused in plan.refusals) or None
    if refusal is None and plan.removals:
        refusal = _disagreement(plan.plan_hash, approve=approve, approve_plan=approve_plan)
    results: list[RemovalResult] = []
    if refusal is None and plan.removals:
        app.audit.approve_removals(run_id, plan.plan_hash, author=author())
        results = _remove_all(app, run_id, plan.size_bytes, interrupt)
    released = replace(limit_report, approval=app.adapters.stores.removals.run(run_id).approval)
    return RemovalRun(plan, released, app.adapters.stores.removals.items(run_id), refusal), results


def _disagreement(plan_hash: str, *, approve: bool, approve_plan: str | None) -> str | None:
    if approve_plan is not None and approve_plan != plan_hash:
        return f"the plan is {plan_hash} now, and not the approved one: check it again"
    return None if approve or approve_plan is not None else f"it needs --approve, or --approve-plan {plan_hash}"


def _remove_all(app: "App", run_id: str, size_bytes: int, interrupt: Interrupt) -> "list[RemovalResult]":
    """Run batches one after another until a batch ends for another reason than its time limit."""
    from include.tiering.cli.progress import RunProgress
    from include.tiering.runs.batch import BatchEnd

    results: list[RemovalResult] = []
    with RunProgress(app.adapters.stores.work, run_id, size_bytes, activity="removing"):
        while not results or results[-1].ended is BatchEnd.TIME_OVER:
            batch_id = f"{run_id}.{len(results)}"
            results.append(app.audit.run_removal_batch(run_id, batch_id, parent_alive=lambda: not interrupt.requested))
    return results


def _accept(app: "App", finding_ids: list[int], *, as_json: bool) -> None:
    from include.tiering.audit.report import present_accepted

    finish(present_accepted(app.adapters.stores.audits.accept(finding_ids, author=author())), as_json=as_json)


def _withdraw(ctx: typer.Context, run_id: str, *, as_json: bool) -> None:
    from include.tiering.audit.report import present_withdrawn_removals

    with session_of(ctx).opened() as app:
        withdrawn = app.audit.withdraw_removals(run_id, author=author())
    finish(present_withdrawn_removals(withdrawn), as_json=as_json)


def _code(results: "list[RemovalResult]") -> ExitCode:
    """Return RETRY if something waits and nothing failed, else FINDINGS."""
    failed = any(item.message for result in results for item in result.items if item.outcome == "failed")
    return ExitCode.RETRY if any(result.waiting for result in results) and not failed else ExitCode.FINDINGS
