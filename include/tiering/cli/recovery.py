"""`./tiering rebuild`, `adopt` and `drill`.

`rebuild` rebuilds lost metadata from the store. `adopt` turns complete copies without metadata into segments. `drill`
tries the recovery of a topic.
"""

import os
from typing import TYPE_CHECKING, Annotated

import typer

from include.tiering.cli.command import Approve, Interrupt, Json, author, finish, new_run_id, refusal_of, session_of
from include.tiering.cli.exit_codes import ExitCode
from include.tiering.cli.handover import KafkaHome, ended_once
from include.tiering.errors import SettingError

if TYPE_CHECKING:
    from include.tiering.model.segments import Uuid
    from include.tiering.recovery.adopt import AdoptionPlan
    from include.tiering.recovery.rebuild import RebuildPlan


def rebuild(
    ctx: typer.Context,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Read every manifest and show the result; change nothing.")
    ] = False,
    approve: Approve = False,
    as_json: Json = False,
) -> None:
    """Rebuild the metadata from a store's marker and manifests after the database was lost.

    Set `metadata.url` to an empty database first: a database with rows is refused, and the message counts its rows. The
    store gets a new marker, so that the old database, if it comes back, can never write or delete there again;
    `./tiering migrate` is not needed. You can interrupt the command at any time and start it again: it then continues.
    No other command can use the database before the rebuild is complete.

    Complete copies become FINISHED segments without a verdict; run `./tiering verify` next. Copies that are not
    complete, or that contradict others, are named and left where they are (exit code 1); holes are named too. The end
    of the output lists the data that no manifest contains (verdicts, log starts, owners, retention, ...), with the
    values that are used instead.

    The command asks first; without a terminal it needs --approve. A store that has no checksums of its own (file) is
    read completely.
    """
    if dry_run and approve:
        raise SettingError("--dry-run and --approve exclude each other")
    with session_of(ctx).opened() as app, Interrupt() as interrupt:
        from include.tiering.cli.progress import counting, listing_progress

        with listing_progress() as listed:
            plan, report = app.recovery.plan_rebuild(on_listed=listed), None
        refusal = None if dry_run else _refusal_to_rebuild(plan, approve=approve)
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


def _refusal_to_rebuild(plan: "RebuildPlan", *, approve: bool) -> str | None:
    from include.tiering.recovery.report import rebuild_question

    if approve:
        return None
    return refusal_of(rebuild_question(plan))


def adopt(
    ctx: typer.Context,
    segment_id: Annotated[
        list[str] | None, typer.Argument(help="Ids of segments that an audit calls adoptable.", metavar="SEGMENT_ID")
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Every copy that can be adopted.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what could be adopted; change nothing.")] = False,
    approve: Approve = False,
    as_json: Json = False,
) -> None:
    """Adopt complete copies that are in the store but not in the metadata, for example after a restore from a backup.

    A copy is adopted only if its manifest, keys and the lengths of its objects agree, and it continues the partition's
    metadata: no offset twice, no offset missing without a decision (`./tiering skip`), and leader epochs that do not
    fall. Any other copy is refused with the reason, and stays where it is. A copy is never adopted while this database
    has a tombstone with its id.

    An adopted copy is FINISHED without a verdict: it is not served before `./tiering verify` has passed it. Author and
    time go to the event log. The command asks first; without a terminal it needs --approve.
    """
    if everything == bool(segment_id):
        raise SettingError("name segment ids, or use --all")
    if dry_run and approve:
        raise SettingError("--dry-run and --approve exclude each other")
    ids = None if everything else [_parsed(text) for text in segment_id or ()]
    with session_of(ctx).opened() as app:
        plan, report = app.recovery.plan_adoption(ids), None
        refusal = None if dry_run else _refusal_to_adopt(plan, approve=approve)
        if refusal is None and not dry_run:
            report = app.recovery.adopt(plan, new_run_id(), author=author())
    from include.tiering.recovery.report import present_adopt

    finish(present_adopt(plan, report, refusal), as_json=as_json)


def _parsed(text: str) -> "Uuid":
    from include.tiering.model.segments import Uuid

    try:
        return Uuid.parse(text)
    except ValueError as error:
        raise SettingError(f"{text!r} is no segment id, which has 22 characters as shown by an audit") from error


def _refusal_to_adopt(plan: "AdoptionPlan", *, approve: bool) -> str | None:
    from include.tiering.recovery.report import adoption_question

    if approve or not plan.segments:
        return None
    return refusal_of(adoption_question(plan))


def drill(
    ctx: typer.Context,
    topic: Annotated[str, typer.Argument(help="Name of the topic.")],
    kafka_home: KafkaHome = None,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the files of the drill.")] = False,
    as_json: Json = False,
) -> None:
    """Try the recovery of a topic from the store alone, on a throw-away broker.

    As if database and brokers were lost: the topic's metadata are rebuilt from the store's manifests in a database of
    their own, verified, the topic is restored into a directory, a broker is started on it, and consumers read
    everything in both isolation levels. Their records are compared with those that were restored, segment by segment.
    The result says how long each step took, and what a recovery of the whole store would need; `doctor`, the metrics
    and the event log have it, too.

    The deployment and the store are only read, at the pace of the fetch quota. It needs Java, the jars of a broker,
    and space for the topic in TMPDIR. A segment that is damaged or absent is named, and the drill fails (exit code 1).
    """
    with session_of(ctx).opened() as app:
        from include.tiering.app.recovery import drill as recover
        from include.tiering.broker_process.kafka_home import java, kafka_by_maven, kafka_in

        with ended_once(keep=keep):
            java()
            kafka = kafka_by_maven(os.environ) if kafka_home is None else kafka_in(kafka_home)
            report = recover(
                app, topic, kafka, author=author(), say=lambda line: typer.echo(f"    {line}", err=True), keep=keep
            )
    from include.tiering.recovery.drill import present_drill

    finish(present_drill(report), as_json=as_json)
