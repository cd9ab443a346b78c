"""`./tiering publish`: tell the brokers what of a topic is in remote storage."""

from typing import Annotated

import typer

from include.tiering.cli.exit_codes import ExitCode
from include.tiering.cli.options import Json
from include.tiering.cli.output import finish
from include.tiering.cli.session import session_of


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
            from include.tiering.cli.publishing import publishing_progress

            with publishing_progress() as on_progress:
                done = app.publication.publish(topic, partition, on_progress=on_progress)
    stopped = [one for one in done if one.error is not None]
    code = ExitCode.RETRY if stopped and all(one.retriable for one in stopped) else ExitCode.FINDINGS
    finish(present_publication(done, dry_run=dry_run), as_json=as_json, otherwise=code)
