"""`./tiering sizes`: the remote log size."""

from typing import Annotated

import typer

from include.tiering.cli.options import Json, Topics
from include.tiering.cli.output import finish
from include.tiering.cli.session import session_of


def sizes(
    ctx: typer.Context,
    topic: Topics = None,
    log_dirs: Annotated[
        bool, typer.Option(help="Look at the log dirs too: what waits for a copy, what is local and remote.")
    ] = True,
    as_json: Json = False,
) -> None:
    """Show bytes and segments in remote storage, by partition and leader epoch.

    Counts complete copies only. A segment that spans leader epochs counts once in its partition and once in each of
    its epochs, so the epochs may add up to more than the partition. What waits to be copied or deleted follows, and
    with prices in the settings what it costs.
    """
    with session_of(ctx).opened() as app:
        report = app.sizes.report(topic or (), look_at_log_dirs=log_dirs)
    from include.tiering.sizes.report import present_sizes

    finish(present_sizes(report), as_json=as_json)
