"""`./tiering verify`: verify new copies, and verify older copies again. `quality` shows what was verified."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from include.tiering.cli.command import (
    MOST_INT,
    Approve,
    Json,
    LimitBytes,
    Topics,
    agrees,
    author,
    duration_in,
    finish,
    is_asked_on_a_terminal,
    new_run_id,
    require_known_topics,
    session_of,
)
from include.tiering.errors import SettingError
from include.tiering.model.segments import Depth

if TYPE_CHECKING:
    from include.tiering.app import App
    from include.tiering.model.segments import TopicIdPartition
    from include.tiering.verification.plan import VerificationPlan, VerificationSample
    from include.tiering.verification.verify_segments import VerifyReport

_DAY_MS = 24 * 60 * 60 * 1000
_MOST_DAYS = 100_000


def verify(
    ctx: typer.Context,
    run: Annotated[
        str | None,
        typer.Option("--run", help="What this copy run copied, and what any run left without a verdict.", metavar="ID"),
    ] = None,
    depth: Annotated[
        Depth, typer.Option("--depth", help="`shallow`: a few ranges of each segment; `deep`: every byte.")
    ] = Depth.SHALLOW,
    share: Annotated[
        float | None,
        typer.Option(
            "--share",
            "--sample",
            min=0,
            max=1,
            help="The next part of a rolling sample: roughly this share of all bytes.",
            metavar="0..1",
        ),
    ] = None,
    older_than_days: Annotated[
        float | None,
        typer.Option(
            "--older-than-days",
            parser=duration_in("days", at_most=_MOST_DAYS),
            help="Segments whose verdict is at least this old, and segments without a verdict.",
            metavar="DAYS",
        ),
    ] = None,
    failed: Annotated[bool, typer.Option("--failed", help="Segments that failed before.")] = False,
    everything: Annotated[bool, typer.Option("--all", help="All segments.")] = False,
    topic: Topics = None,
    partition: Annotated[
        list[int] | None,
        typer.Option(
            "--partition", min=0, max=MOST_INT, help="Only this partition; may be repeated.", metavar="NUMBER"
        ),
    ] = None,
    limit_bytes: LimitBytes = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say how much would be read, and read nothing.")] = False,
    missing_is_real: Annotated[
        bool,
        typer.Option(
            "--missing-is-real", help="Ask before many missing segments are marked as failed, and record the answer."
        ),
    ] = False,
    approve: Approve = False,
    as_json: Json = False,
) -> None:
    """Verify copied segments against the store, and record a verdict for each.

    Without --run, --share, --older-than-days, --failed or --all the command takes the segments that need a verdict:
    never verified, failed before, or with a verdict that has expired or is about to (`tiering.verdict.max.age.ms`).
    With several of the last four flags it takes the segments that any of them names. With --limit-bytes the most urgent
    come first.

    `--depth shallow` reads lengths and checksums from the store, the manifest, the indexes and both ends of the log;
    `deep` reads every byte, under the fetch quota. Unless --run is given, the command says how much it will read before
    it starts. The sample of --share changes once in each period of `tiering.verify.period.ms` (one day): with
    `--share 0.05` the command takes another twentieth each day, and if it runs daily, each segment once in twenty days.

    Unless --run is given, the partitions of these segments are also checked as a whole for holes, overlaps and falling
    leader epochs. A segment that fails is kept, named and not served, and its partition stops (exit code 1). If it
    failed a rule that only deep verification checks, only another deep verification clears it; unless --run is given,
    such a segment is read deep whatever --depth says. You can interrupt the command: it stores verdicts while it runs.

    The command stops without a verdict about missing segments if this is probably not the right store, that is, in each
    of these cases: it checked several segments, and all are missing; a partition has several segments, and all of them
    are missing; more segments of one partition are missing than `tiering.verify.max.missing.segments`; more segments in
    all are missing than `tiering.verify.max.missing.total`; or it checked a single segment, which is missing, and a
    segment that passed earlier is incomplete in the store, too. A missing segment that had failed before is left out of
    these cases; only both limits count it, if it failed as missing and is neither replaced nor given up. If the objects
    are lost, use `--missing-is-real`: the command shows the numbers and asks (without a terminal it needs --approve),
    and your name is recorded.
    """
    selects = share is not None or older_than_days is not None or failed or everything
    if approve and not missing_is_real:
        raise SettingError("--approve goes with --missing-is-real: this command asks nothing else")
    if run is not None and (selects or topic or partition or limit_bytes or dry_run):
        raise SettingError("--run goes only with --depth, --missing-is-real, --approve and --json")
    with session_of(ctx).opened() as app:
        require_known_topics(app, topic)
        confirm = _confirmed(app, approve=approve) if missing_is_real else None
        if run is not None:
            report = app.verification.verify_run(run, depth=depth, confirm=confirm)
        else:
            from include.tiering.verification.plan import VerificationSample

            sample = VerificationSample(
                due=not selects,
                failed=failed,
                older_than_ms=None if older_than_days is None else round(older_than_days * _DAY_MS),
                rolling_sample=app.verification.current_rolling_sample(share) if share is not None else None,
                everything=everything,
                topics=tuple(topic or ()),
                partitions=frozenset(partition or ()),
            )
            report = _verify_sample(app, sample, depth, limit_bytes, dry_run=dry_run, as_json=as_json, confirm=confirm)
        failed_copies = [
            copy
            for copy in app.adapters.stores.failed_copies.all()
            if _is_asked_for(copy.metadata.topic_id_partition, topic, partition)
        ]
    from include.tiering.verification.report import present_verify

    finish(present_verify(report, failed_copies), as_json=as_json)


def _is_asked_for(of: "TopicIdPartition", topics: list[str] | None, partitions: list[int] | None) -> bool:
    from include.tiering.kafka.log_dirs.contract import matches

    return matches(of.topic, topics or None) and (not partitions or of.partition in partitions)


def _confirmed(app: "App", *, approve: bool) -> Callable[[str], bool]:
    """Return a function that asks whether missing segments are lost, and records a yes with its author.

    With `approve` the function takes a yes for granted and does not ask.
    """

    def confirm(found: str) -> bool:
        question = f"{found}. Are they lost? They are marked as failed, and copied again if the source has them"
        if not approve and not (is_asked_on_a_terminal() and agrees(question)):
            return False
        app.verification.note_confirmed_losses(found, author=author())
        typer.echo(f"recorded with your name as lost: {found}", err=True)
        return True

    return confirm


def _verify_sample(
    app: "App",
    sample: "VerificationSample",
    depth: Depth,
    limit_bytes: int | None,
    *,
    dry_run: bool,
    as_json: bool,
    confirm: Callable[[str], bool] | None,
) -> "VerifyReport":
    """Plan and verify a sample. A dry run ends the command after the plan."""
    from include.tiering.cli.progress import counted_bytes
    from include.tiering.verification.report import cost_sentence, present_plan

    plan: VerificationPlan = app.verification.plan(
        new_run_id(), sample, depth=depth, limit_bytes=limit_bytes, dry_run=dry_run
    )
    if dry_run:
        finish(present_plan(plan), as_json=as_json)
        raise typer.Exit
    typer.echo(cost_sentence(plan), err=True)
    with counted_bytes("verifying", plan.cost.read_bytes) as on_read:
        report = app.verification.run_planned(plan.run_id, on_read=on_read, confirm=confirm)
    if plan.planned:
        of_partitions = app.verification.verify_partitions(
            {verification.segment_id.topic_id_partition for verification in plan.planned}
        )
        report = report.with_partitions(
            of_partitions.failed,
            of_partitions.warnings,
            verified={str(verification.segment_id.id) for verification in plan.planned},
        )
    app.verification.publish_verdicts()
    return report


def quality(ctx: typer.Context, as_json: Json = False) -> None:
    """Show what was verified and what is wrong: verdicts by age and depth, failed segments, and findings of audits.

    Verdicts are those of the last verification or size run, findings those of the last audit. Each failed segment is
    named with the rules that it breaks, what they expect and what was found. Nothing is read from the store. The exit
    code is 1 if a segment stops its partition or a finding is open.
    """
    with session_of(ctx).opened() as app:
        found = app.operations.quality.now()
    from include.tiering.operations.quality import present_quality

    finish(present_quality(found), as_json=as_json)
