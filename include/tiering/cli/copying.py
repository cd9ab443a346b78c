"""`./tiering scan`, `plan`, `backfill`, `copy` and `skip`.

List what brokers have (log directories, or logs of leaders), show what would be copied and what that takes, copy in
this process, and record the decision to continue after offsets that the source has lost.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from include.tiering.cli.command import (
    MOST_INT,
    MOST_LONG,
    Approve,
    Interrupt,
    Json,
    LimitBytes,
    Topics,
    amount_of,
    author,
    finish,
    new_run_id,
    refusal_of,
    require_known_topics,
    session_of,
)
from include.tiering.cli.exit_codes import ExitCode
from include.tiering.errors import SettingError

if TYPE_CHECKING:
    from include.tiering.app import App
    from include.tiering.copying.copy_batch import BatchResult
    from include.tiering.copying.decisions import Skip
    from include.tiering.copying.plan import CopyPlan
    from include.tiering.copying.report import CopyRun
    from include.tiering.runs.contract import WorkItem
    from include.tiering.settings import TieringSettings


def scan(
    ctx: typer.Context,
    topic: Topics = None,
    deep: Annotated[
        bool, typer.Option("--deep", help="Read every batch and check its CRC-32C, in addition to the cheap checks.")
    ] = False,
    as_json: Json = False,
) -> None:
    """List every replica and segment in the log directories, and say why a segment may not be copied.

    The command only reads: names, sizes, indexes, checkpoints and the ends of active segments, and with --deep every
    batch. A damaged file is named with the position of the damage, and the scan continues (exit code 1). Of leaders
    whose brokers have no entry in log_dirs, it lists what plans have found in their logs, and how much they did not
    read yet; no log is read.
    """
    with session_of(ctx).opened(topic) as app:
        require_known_topics(app, topic, included=session_of(ctx).settings().topics.include)
        report = app.log_dirs.scan_all(topics=topic, deep=deep)
    from include.tiering.copying.report import present_scan

    finish(present_scan(report), as_json=as_json)


def plan(ctx: typer.Context, topic: Topics = None, limit_bytes: LimitBytes = None, as_json: Json = False) -> None:
    """Show which segments a copy would take now, most urgent partition first, and which partitions wait.

    Urgency is the age of the first segment to copy as a share of the brokers' retention.ms: from 1 on a broker may
    delete it. Nothing is sent. Nothing is stored, except a log divergence that is found. The topics are those of
    --topic, or else those of the setting topics.include. Leaders whose brokers have no entry in log_dirs are read to
    find where segments begin and end, and that is stored.
    """
    with session_of(ctx).opened(topic) as app:
        require_topics(app.settings)
        require_known_topics(app, topic, included=session_of(ctx).settings().topics.include)
        planned = app.copying.plan(new_run_id(), limit_bytes=limit_bytes, dry_run=True)
    from include.tiering.copying.report import present_plan

    finish(present_plan(planned), as_json=as_json)


def copy(ctx: typer.Context, topic: Topics = None, limit_bytes: LimitBytes = None, as_json: Json = False) -> None:
    """Copy the eligible segments that are not remote yet, in this process, and report each one that fails.

    The topics are those of --topic, or else those of the setting topics.include. Every batch of a segment is checked
    before it is sent, and the stored objects are compared with the source afterwards. You can interrupt the command at
    any time and start it again: a segment counts only when it is complete. Copied segments are served after `./tiering
    verify` has passed them. This process reads the log directories itself; queues and Spark resources that are set for
    them are not used.
    """
    with session_of(ctx).opened(topic) as app, Interrupt() as interrupt:
        require_topics(app.settings)
        require_known_topics(app, topic, included=session_of(ctx).settings().topics.include)
        plan = app.copying.plan(new_run_id(), limit_bytes=limit_bytes, parent_alive=lambda: not interrupt.requested)
        results = _copy_all(app, plan, interrupt)
        run = copy_run(app, plan, results)
    from include.tiering.copying.report import present_copy

    code = interrupt.exit_code if interrupt.requested else _code(plan, results)
    finish(present_copy(run), as_json=as_json, otherwise=code)
    if interrupt.requested:
        raise typer.Exit(code)


def _copy_all(app: "App", plan: "CopyPlan", interrupt: Interrupt) -> "list[BatchResult]":
    """Run batches one after another until a batch ends for another reason than its time limit."""
    results: list[BatchResult] = []
    if not plan.partitions:
        return results
    from include.tiering.cli.progress import RunProgress
    from include.tiering.runs.batch import BatchEnd

    with RunProgress(app.adapters.stores.work, plan.run_id, plan.size_bytes):
        while not results or results[-1].ended is BatchEnd.TIME_OVER:
            batch_id = f"{plan.run_id}.{len(results)}"
            result = app.copying.run_batch(plan.run_id, batch_id, parent_alive=lambda: not interrupt.requested)
            results.append(result)
    return results


def _code(plan: "CopyPlan", results: "list[BatchResult]") -> ExitCode:
    """Return RETRY if only retriable failures occurred, else FINDINGS."""
    failed = [failure for result in results for failure in result.failed]
    if failed and all(failure.retriable for failure in failed) and not plan.errors:
        return ExitCode.RETRY
    return ExitCode.FINDINGS


def require_topics(settings: "TieringSettings") -> None:
    """Raise SettingError unless topics are named: by default no topic is copied."""
    if not settings.topics.include:
        raise SettingError(
            "no topic is named: use --topic (a pattern such as 'orders*', or '*' for all), "
            'or set topics.include, for example topics.include = ["*"]'
        )


def copy_run(app: "App", plan: "CopyPlan", results: "Sequence[BatchResult]") -> "CopyRun":
    """Return the outcome of each planned segment. A segment that failed but stays planned counts as failed."""
    from include.tiering.copying.report import CopyRun
    from include.tiering.runs.batch import BatchEnd
    from include.tiering.runs.contract import SegmentOutcome

    items = app.adapters.stores.work.items(plan.run_id)
    failed = {_key(failure.item): failure.item for result in results for failure in result.failed}
    merged = [failed.get(_key(item), item) if item.outcome is SegmentOutcome.PLANNED else item for item in items]
    seconds = sum(result.seconds for result in results)
    left = app.copying.left_work(merged, ended_early=bool(results) and results[-1].ended is not BatchEnd.NO_WORK)
    return CopyRun(plan.run_id, merged, seconds, plan.held_back, plan.errors, plan.notes, left)


def _key(item: "WorkItem") -> tuple[object, int]:
    return item.topic_id_partition, item.segment.base_offset


def skip(
    ctx: typer.Context,
    topic: Annotated[str, typer.Argument(help="Name of the topic.")],
    partition: Annotated[
        int, typer.Option("--partition", help="Number of the partition.", min=0, max=MOST_INT, metavar="N")
    ],
    reason: Annotated[
        str, typer.Option("--reason", help="Why this is acceptable; kept with the decision.", metavar="TEXT")
    ],
    topic_id: Annotated[
        str | None,
        typer.Option("--topic-id", help="Id of the topic, if several topics have had this name.", metavar="ID"),
    ] = None,
    follow_from: Annotated[
        int | None,
        typer.Option(
            "--follow-source-from",
            help="Follow the source's history from this offset, which `plan` shows.",
            min=0,
            max=MOST_LONG,
            metavar="OFFSET",
        ),
    ] = None,
    approve: Approve = False,
    as_json: Json = False,
) -> None:
    """Record that offsets are permanently missing from the archive, so that copying continues after them.

    Brokers delete records by their own retention. Records that are deleted before they were copied leave a hole, and
    the partition waits: `plan` and `doctor` name the missing offsets, and nothing after them is copied until a person
    decides. A partition also waits if one of its segments failed the quality check and no source can replace it. This
    command records the decision. The decision is kept permanently with author and reason, and reads of these offsets
    name it.

    The offsets are not an argument: the command determines them from the source and the metadata. A hole usually lies
    between the last copied offset and the start of the log that a copy reads. Records that are still in the source are
    never skipped, except whole segments that the log cleaner compacted before they were copied (cleanup.policy was
    `compact` for a while). A failed segment is kept and not served; if a source has it again, unchanged, it is copied
    again.

    With --follow-source-from you decide about a log divergence. After an unclean leader election the source has other
    records under offsets that are remote; `plan` and `doctor` name the offsets, and nothing of the partition is copied
    until a person decides. From OFFSET on the archive follows the source. Nothing is deleted: remote segments of the
    other history stay under their leader epochs. `fetch --offset` reads them from OFFSET on only with --epoch, and
    those that reach OFFSET do not expire by age or size.

    The command asks before it records anything; without a terminal it needs --approve. If there is nothing to skip, the
    command says so. It also shows earlier decisions.
    """
    if follow_from is not None:
        _follow(ctx, (topic, partition, follow_from, topic_id), reason, approve=approve, as_json=as_json)
        return
    with session_of(ctx).opened((topic,)) as app:
        require_known_topics(app, (topic,), included=session_of(ctx).settings().topics.include)
        planned = done = app.copying.plan_skip(topic, partition, topic_id)
        refusal = _refusal(planned, approve=approve)
        if refusal is None:
            done = app.copying.skip_offsets(planned, reason=reason, author=author())
    from include.tiering.copying.decisions import present_skip

    finish(present_skip(done, refusal), as_json=as_json)


def _follow(
    ctx: typer.Context, where: tuple[str, int, int, str | None], reason: str, *, approve: bool, as_json: bool
) -> None:
    from include.tiering.copying.decisions import follow_question, present_follow

    with session_of(ctx).opened((where[0],)) as app:
        require_known_topics(app, where[:1], included=session_of(ctx).settings().topics.include)
        planned = done = app.copying.plan_follow(*where)
        refusal = None if approve else refusal_of(follow_question(planned))
        if refusal is None:
            done = app.copying.follow_source(planned, reason=reason, author=author())
    finish(present_follow(done, refusal), as_json=as_json)


def _refusal(planned: "Skip", *, approve: bool) -> str | None:
    from include.tiering.copying.decisions import skip_question

    return None if approve or not planned.ranges else refusal_of(skip_question(planned))


def backfill(
    ctx: typer.Context,
    topic: Topics = None,
    quota: Annotated[
        int | None,
        typer.Option(
            "--quota",
            help="Also at this total copy quota in bytes a second, such as 50MiB; 0: no quota.",
            metavar="BYTES",
            parser=amount_of("bytes"),
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Show what it takes to copy what waits: bytes, segments, requests, money, and the least time. Nothing is begun.

    What waits is as of the last size run that looked at the brokers' logs. Times are at the copy quotas in force of all
    copies together and of each topic; quotas of brokers, the store and the disks may make it longer.
    """
    with session_of(ctx).opened() as app:
        found = app.operations.backfill.of(tuple(topic or ()), quota=quota)
    from include.tiering.operations.backfill import present_backfill

    finish(present_backfill(found), as_json=as_json)
