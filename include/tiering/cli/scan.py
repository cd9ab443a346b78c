"""`./tiering scan`: what the brokers' log directories hold."""

from typing import Annotated

import typer

from include.tiering.cli.options import Json, Topics
from include.tiering.cli.output import finish
from include.tiering.cli.session import session_of


def scan(
    ctx: typer.Context,
    topic: Topics = None,
    deep: Annotated[
        bool, typer.Option("--deep", help="Read every batch and check its CRC-32C; cheap checks only without it.")
    ] = False,
    as_json: Json = False,
) -> None:
    """List every replica and segment in the log directories, and say why a segment may not be copied.

    Reads only: names, sizes, indexes, checkpoints and the ends of active segments, or with --deep every batch. A file
    that is damaged is named with the byte where its format breaks, and the scan goes on (exit code 1).
    """
    with session_of(ctx).opened(topic) as app:
        report = app.log_dirs.scan_all(topics=topic, deep=deep)
    from include.tiering.copying.report import present_scan

    finish(present_scan(report), as_json=as_json)
