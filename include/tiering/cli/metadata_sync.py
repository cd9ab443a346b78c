"""`./tiering ingest` and `publish`: the brokers' metadata topic, read and written.

Read what brokers write about their segments; tell the brokers what of a topic is in remote storage.
"""

from typing import TYPE_CHECKING, Annotated

import typer

from include.tiering.cli.exit_codes import ExitCode
from include.tiering.cli.options import Approve, Json, agrees, is_asked_on_a_terminal
from include.tiering.cli.output import finish
from include.tiering.cli.session import Interrupt, author, session_of
from include.tiering.errors import SettingError, TieringError, printable
from include.tiering.telemetry import redact

if TYPE_CHECKING:
    from include.tiering.app import App
    from include.tiering.metadata_sync.ingest import IngestReport


def ingest(
    ctx: typer.Context,
    from_beginning: Annotated[
        bool,
        typer.Option(
            "--from-beginning",
            help="Read the whole topic again: after it was created anew, or lost records that were not read.",
        ),
    ] = False,
    follow: Annotated[
        bool, typer.Option("--follow/--once", help="Go on with what comes; until it is interrupted.")
    ] = False,
    poll_seconds: Annotated[
        float, typer.Option("--poll-seconds", min=0.1, help="How often to look with --follow.", metavar="SECONDS")
    ] = 5.0,
    sizes: Annotated[
        bool, typer.Option("--sizes", help="Show RemoteLogSizeBytes of each partition as brokers count it.")
    ] = False,
    approve: Approve = False,
    as_json: Json = False,
) -> None:
    """Read `__remote_log_metadata` into the metadata, from where it was read to its ends of now.

    Segments that brokers copied become rows of theirs: counted, verified and audited, and never deleted by the
    platform. Topics that brokers tier become the brokers'. Segments of ours that were published are compared with what
    brokers were told; a difference is a finding.

    What a record does is what it does to a broker: one that a broker drops is dropped and counted. A record that stops
    brokers stops its partition here too, and is named (exit code 1); the other partitions go on. So does one whose
    records were removed before they were read: `--from-beginning` reads what is left, as a broker that starts does, and
    asks first; without a terminal it takes --approve.

    Interrupt it at any time: every page of records is stored with the position behind it. Exit code 3: a partition has
    no leader now, or somebody else reads. With --follow what passes by itself, such as brokers that do not answer, is
    told and tried again, once a first look went well.
    """
    with session_of(ctx).opened() as app, Interrupt() as interrupt:
        if from_beginning:
            _read_again(app, approve=approve)
        report = _ingest(app, interrupt)
        latest: IngestReport | None = report
        while follow and not interrupt.requested:
            _say(latest)
            interrupt.wait(app.adapters.clock, poll_seconds)
            latest = None if interrupt.requested else _once_more(app, interrupt)
            report = report if latest is None else latest
        counted = app.ingestion.broker_sizes() if sizes else None
    from include.tiering.metadata_sync.report import present_ingest

    code = ExitCode.RETRY if report.failed and not report.findings else ExitCode.FINDINGS
    finish(present_ingest(report, counted), as_json=as_json, otherwise=code)
    if interrupt.requested:
        raise typer.Exit(interrupt.exit_code)


def _ingest(app: "App", interrupt: Interrupt) -> "IngestReport":
    """Raises Exit between two pages if it is interrupted."""
    from include.tiering.cli.progress import reading_progress

    with reading_progress() as moved:

        def on_progress(metadata_partition: int, next_offset: int, end_offset: int) -> None:
            moved(metadata_partition, next_offset, end_offset)
            if interrupt.requested:
                raise typer.Exit(interrupt.exit_code)

        return app.ingestion.run(author=author(), on_progress=on_progress)


def _once_more(app: "App", interrupt: Interrupt) -> "IngestReport | None":
    """None if it failed by what passes by itself."""
    try:
        return _ingest(app, interrupt)
    except TieringError as error:
        if not error.retriable:
            raise
        typer.echo(printable(redact(f"it will be tried again: {error}")), err=True)
        return None


def _say(report: "IngestReport | None") -> None:
    """One line for a round in which something happened."""
    if report is not None and (report.records or report.findings or report.failed):
        from include.tiering.metadata_sync.report import present_ingest

        typer.echo(present_ingest(report).summary, err=True)


def _read_again(app: "App", *, approve: bool) -> None:
    from include.tiering.metadata_sync.report import question

    if not approve:
        if not is_asked_on_a_terminal():
            raise SettingError("--from-beginning asks first: without a terminal it needs --approve")
        ingestion = app.adapters.stores.ingestion
        if not agrees(question(ingestion.topic(), ingestion.positions(), app.ingestion.topic_bounds())):
            raise typer.Exit(ExitCode.FINDINGS)
    app.ingestion.read_again(author=author())


def publish(
    ctx: typer.Context,
    topic: Annotated[str, typer.Argument(help="Name of the topic; it is being handed over.")],
    partition: Annotated[
        list[int] | None,
        typer.Option("--partition", min=0, help="Only this partition; may be repeated.", metavar="NUMBER"),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what it would send, and send nothing.")] = False,
    as_json: Json = False,
) -> None:
    """Write the topic's segments that passed the quality gate to `__remote_log_metadata`, and read them back.

    `./tiering handover` does this at its time. By itself it goes on with what was begun: sends what passed since, and
    repeats nothing. Each partition's segments go from the one that holds the broker's log start upwards, without a
    gap; where one has not passed, or is missing, the partition waits, and the command says so (exit code 1).

    It takes nothing back, and begins nothing: only a topic that is being handed over is published. Records of somebody
    else about a partition stop it.

    Kill it at any time: what is in the topic is what a broker could work with, and the next call goes on behind it.
    Exit code 3: no partition was refused, but a broker did not answer, or somebody else publishes.
    """
    from include.tiering.metadata_sync.report import present_publication

    with session_of(ctx).opened() as app:
        if dry_run:
            done = app.publication.plan(topic, partition)
        else:
            from include.tiering.cli.progress import publishing_progress

            with publishing_progress() as on_progress:
                done = app.publication.publish(topic, partition, on_progress=on_progress)
    stopped = [one for one in done if one.error is not None]
    code = ExitCode.RETRY if stopped and all(one.retriable for one in stopped) else ExitCode.FINDINGS
    finish(present_publication(done, dry_run=dry_run), as_json=as_json, otherwise=code)
