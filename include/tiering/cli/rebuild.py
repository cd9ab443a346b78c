"""`./tiering rebuild`: metadata anew, from the store alone."""

from typing import TYPE_CHECKING, Annotated

import typer

from include.tiering.cli.confirm import Approve, refusal_of
from include.tiering.cli.exit_codes import ExitCode
from include.tiering.cli.interrupt import Interrupt
from include.tiering.cli.options import Json
from include.tiering.cli.output import finish
from include.tiering.cli.session import author, session_of
from include.tiering.errors import SettingError

if TYPE_CHECKING:
    from include.tiering.recovery.rebuild import RebuildPlan


def rebuild(
    ctx: typer.Context,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Read every manifest and show what it gives; change nothing.")
    ] = False,
    approve: Approve = False,
    as_json: Json = False,
) -> None:
    """Make metadata anew from a store's marker and manifests, after the database is lost.

    Set `metadata.url` to an empty database first: one with rows in it is refused, with their numbers. The store gets a
    new marker, so that the old database, should it turn up, can never write or delete there again; `./tiering migrate`
    is not needed. Interrupt it at any time and start it again: it goes on, and nobody else can use the database before
    it is whole.

    Every complete copy becomes a FINISHED segment without a verdict; `./tiering verify` comes next. Copies that are not
    complete, or that contradict others, are named and left where they are (exit code 1); so is each hole. What no
    manifest says (verdicts, log starts, owners, retention, ...) is listed at the end, with what holds instead.

    Asks first; without a terminal it takes --approve. A store without checksums of its own (file) is read whole.
    """
    if dry_run and approve:
        raise SettingError("--dry-run and --approve exclude each other")
    with session_of(ctx).opened() as app, Interrupt() as interrupt:
        from include.tiering.cli.counting import counting
        from include.tiering.cli.listed import listing_progress

        with listing_progress() as listed:
            plan, report = app.recovery.plan_rebuild(on_listed=listed), None
        refusal = None if dry_run else _refusal(plan, approve=approve)
        if refusal is None:
            with counting("rebuilding", plan.attempts) as advance:
                report = app.recovery.rebuild(
                    plan,
                    author=author(),
                    dry_run=dry_run,
                    on_examined=advance,
                    stop=lambda: interrupt.requested,
                )
    from include.tiering.recovery.report import present_rebuild

    code = interrupt.exit_code if interrupt.requested else ExitCode.FINDINGS
    finish(present_rebuild(plan, report, refusal), as_json=as_json, otherwise=code)


def _refusal(plan: "RebuildPlan", *, approve: bool) -> str | None:
    from include.tiering.recovery.report import rebuild_question

    if approve:
        return None
    return refusal_of(rebuild_question(plan))
