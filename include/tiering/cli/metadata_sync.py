"""`./tiering ingest` and `publish`: read and write the brokers' metadata topic."""

from typing import TYPE_CHECKING, Annotated

import typer

from include.tiering.cli.command import (
    MOST_INT,
    Approve,
    Interrupt,
    Json,
    agrees,
    author,
    duration_in,
    finish,
    is_asked_on_a_terminal,
    session_of,
)
from include.tiering.cli.exit_codes import ExitCode
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
            help="Read the whole topic again: it was recreated, or lost records before they were read.",
        ),
    ] = False,
    follow: Annotated[
        bool, typer.Option("--follow/--once", help="Keep reading new records until interrupted.")
    ] = False,
    poll_seconds: Annotated[
        float,
        typer.Option(
            "--poll-seconds",
            parser=duration_in("seconds", at_least=0.1),
            help="Seconds between two reads with --follow.",
            metavar="SECONDS",
        ),
    ] = 5.0,
    sizes: Annotated[
        bool, typer.Option("--sizes", help="Show RemoteLogSizeBytes of each partition as brokers count it.")
    ] = False,
    approve: Approve = False,
    as_json: Json = False,
) -> None:
    """Read `__remote_log_metadata` into the platform's metadata, from the stored positions to the present end.

    Segments that brokers copied become rows that brokers own: they are counted, verified and audited, and the platform
    never deletes them. Brokers become the owners of topics that they tier. Published segments of the platform are
    compared with their records in the topic; a difference is a finding.

    A record has the effect that it has in a broker: a record that a broker ignores is ignored here too, and counted. A
    record that stops brokers also stops the reading of its metadata partition, and is named (exit code 1); the other
    partitions continue. A metadata partition also stops if records were removed before they were read:
    `--from-beginning` then reads the remaining records, as a starting broker does. With that option the command asks
    first; without a terminal it needs --approve.

    You can interrupt the command at any time: each page of records is stored together with the position after it. Exit
    code 3: a partition has no leader now, or another process reads the topic. With --follow, after the first successful
    read, retriable errors, such as brokers that do not answer, are reported and tried again.
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
    """Read to the present end. Raises Exit after the current page of records if the command is interrupted."""
    from include.tiering.cli.progress import reading_progress

    with reading_progress() as moved:

        def on_progress(metadata_partition: int, next_offset: int, end_offset: int) -> None:
            moved(metadata_partition, next_offset, end_offset)
            if interrupt.requested:
                raise typer.Exit(interrupt.exit_code)

        return app.ingestion.run(author=author(), on_progress=on_progress)


def _once_more(app: "App", interrupt: Interrupt) -> "IngestReport | None":
    """Read again; return None after a retriable error."""
    try:
        return _ingest(app, interrupt)
    except TieringError as error:
        if not error.retriable:
            raise
        typer.echo(printable(redact(f"will be tried again: {error}")), err=True)
        return None


def _say(report: "IngestReport | None") -> None:
    """Print one line about a read that found something."""
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
    topic: Annotated[str, typer.Argument(help="Name of the topic; it is being handed over, or archived again.")],
    partition: Annotated[
        list[int] | None,
        typer.Option(
            "--partition", min=0, max=MOST_INT, help="Only this partition; may be repeated.", metavar="NUMBER"
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be sent, and send nothing.")] = False,
    as_json: Json = False,
) -> None:
    """Write the topic's segments that passed the quality check to `__remote_log_metadata`, and read them back.

    `./tiering handover` does this as one of its steps. The command alone continues a publication: it sends the segments
    that passed after the last publication, and repeats none. The segments of a partition are sent in order, without a
    gap, beginning with the segment that contains the broker's log start. If a segment has not passed or is missing, the
    partition waits, and the command says so (exit code 1).

    The command neither begins a handover nor undoes one: only a topic that is being handed over can be published. Of a
    topic that is archived again after a parked handover, it publishes deletions only: those of segments that are wholly
    below the broker's log start, which neither brokers nor consumers need there. Their objects stay in the archive, and
    expiration treats them like all others from then on. If another writer wrote records about a partition, nothing more
    of that partition is published.

    You can kill the command at any time: brokers can work with the records that are in the topic, and the next call
    continues after them. Exit code 3: no partition was refused, but a broker did not answer, or another process
    publishes.
    """
    from include.tiering.metadata_sync.report import present_publication

    with session_of(ctx).opened() as app:
        if dry_run:
            done = app.publication.plan(topic, partition)
        else:
            from include.tiering.cli.progress import publishing_progress

            with publishing_progress() as on_progress:
                done = app.publication.publish(topic, partition, on_progress=on_progress)
    stopped = [result for result in done if result.error is not None]
    code = ExitCode.RETRY if stopped and all(result.retriable for result in stopped) else ExitCode.FINDINGS
    finish(present_publication(done, dry_run=dry_run), as_json=as_json, otherwise=code)
