"""`./tiering restore`: a topic's partitions from remote storage into a directory that a broker can load."""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from include.tiering.cli.command import MOST_INT, MOST_LONG, Interrupt, Json, finish, session_of
from include.tiering.cli.exit_codes import ExitCode
from include.tiering.errors import SendingStoppedError, printable
from include.tiering.restoring.forms import RestoreForm
from include.tiering.units import parse_time_ms

if TYPE_CHECKING:
    from include.tiering.app import App
    from include.tiering.restoring.copy_elsewhere import OtherStorage
    from include.tiering.restoring.plan import RestorePlan, RestoreRequest
    from include.tiering.restoring.report import RestoreReport


def time_ms(text: Any) -> int:
    """Parse a time; see `parse_time_ms`."""
    try:
        return parse_time_ms(str(text))
    except ValueError as error:
        raise typer.BadParameter(f"{printable(str(text))!r}: {error}") from error


def restore(
    ctx: typer.Context,
    topic: Annotated[str, typer.Argument(help="Name of the topic.")],
    output: Annotated[Path, typer.Option("--output", help="Directory to write into.", metavar="DIR", file_okay=False)],
    partition: Annotated[
        list[int] | None,
        typer.Option("--partition", help="Number of a partition; may be repeated. Default: all.", min=0, max=MOST_INT),
    ] = None,
    topic_id: Annotated[
        str | None,
        typer.Option("--topic-id", help="Id of the topic, if several topics have had this name.", metavar="ID"),
    ] = None,
    from_offset: Annotated[
        int | None, typer.Option("--from-offset", min=0, max=MOST_LONG, help="First offset.", metavar="N")
    ] = None,
    to_offset: Annotated[
        int | None,
        typer.Option("--to-offset", min=0, max=MOST_LONG, help="End before this offset.", metavar="N"),
    ] = None,
    from_time: Annotated[
        int | None,
        typer.Option("--from-time", parser=time_ms, help="Begin with the first record since then.", metavar="TIME"),
    ] = None,
    to_time: Annotated[
        int | None,
        typer.Option("--to-time", parser=time_ms, help="End before the first record since then.", metavar="TIME"),
    ] = None,
    form: Annotated[
        RestoreForm, typer.Option("--form", help="`segments`, which a broker loads; `parquet`, by date; or `storage`.")
    ] = RestoreForm.SEGMENTS,
    read_committed: Annotated[
        bool, typer.Option("--read-committed", help="With Parquet: leave out records of aborted transactions.")
    ] = False,
    into: Annotated[
        Path | None,
        typer.Option(
            "--into",
            help="With `--form storage`: settings file whose section remote_storage names the other storage.",
            metavar="FILE",
            dir_okay=False,
        ),
    ] = None,
    client: Annotated[
        str | None,
        typer.Option("--client", help="Client id whose fetch quota applies; default: that of clients.", metavar="ID"),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be read and what it costs; write nothing.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Restore a topic from remote storage into Kafka's segment files, which a broker can load, or into Parquet files.

    DIR/TOPIC-PARTITION gets the segments with their indexes, producer snapshots, leader epochs and the topic's id.
    Every batch is checked by its CRC-32C, and every segment by the length and CRC-32C of its source. The command says
    first what it will read, reads at the pace of the fetch quota, and can be interrupted or killed at any time: the
    same command continues, and reads nothing again but what was under way. Nothing is ever overwritten: DIR must be
    absent, empty, or of the same restore.

    With `--form parquet` DIR gets a directory of Parquet files for each date of the records, with the columns of
    Spark's Kafka source, and exactly the records that a consumer gets.

    With `--form storage --into FILE` the segments are copied whole into another, empty remote storage, in its layout;
    `./tiering rebuild` makes their metadata there. DIR then holds only what is done, and logs that are under way.
    Variables TIERING_TARGET__REMOTE_STORAGE__... give the other storage's secrets.

    In segment files batches are never divided: offsets before the first wanted one are below the log start offset, and
    the batch that has the last wanted one is the last. Offsets that are not in remote storage, or not served, and
    segments that are damaged are named (exit code 1).
    """
    with session_of(ctx).opened() as app, Interrupt() as interrupt:
        if client is not None:
            from include.tiering.configs.rules import checked_entity

            checked_entity("clients", client)
        other = None
        if into is not None:
            from include.tiering.app.recovery import other_storage

            other = other_storage(into, os.environ)
        request = app.restoring.requested(
            topic,
            partitions=partition or (),
            topic_id=topic_id,
            from_offset=from_offset,
            to_offset=to_offset,
            from_time_ms=from_time,
            to_time_ms=to_time,
            form=form,
            committed=read_committed,
            place=None if other is None else other.place,
            client=client or "",
        )
        if dry_run:
            from include.tiering.restoring.report import present_plan

            presentation = present_plan(app.restoring.plan(request, output, other=other), output)
        else:
            from include.tiering.restoring.report import present_restore

            try:
                presentation = present_restore(_run(app, request, output, other, lambda: interrupt.requested))
            except SendingStoppedError:
                if not interrupt.requested:
                    raise
                typer.echo("stopped: the same command continues this restore", err=True)
                raise typer.Exit(interrupt.exit_code) from None
    finish(presentation, as_json=as_json, otherwise=ExitCode.FINDINGS)


def _run(
    app: "App", request: "RestoreRequest", output: Path, other: "OtherStorage | None", stop: Callable[[], bool]
) -> "RestoreReport":
    from include.tiering.cli.progress import growing_bytes
    from include.tiering.restoring.report import ByteProgress, said_of_cost

    lines = ByteProgress(app.adapters.clock, lambda line: typer.echo(line, err=True))
    with growing_bytes(f"restoring {request.partitions[0].topic}") as (total_is, advance):

        def planned(plan: "RestorePlan") -> None:
            typer.echo(f"{plan.topic} into {output}: {said_of_cost(plan.cost)}", err=True)
            for sentence in plan.said:
                typer.echo(printable(sentence), err=True)
            total_is(plan.cost.size_bytes)
            lines.begin(plan.cost.size_bytes)

        def on_bytes(more_bytes: int) -> None:
            advance(more_bytes)
            if not sys.stderr.isatty():
                lines.advance(more_bytes)

        return app.restoring.run(request, output, other=other, on_planned=planned, on_bytes=on_bytes, stop=stop)
