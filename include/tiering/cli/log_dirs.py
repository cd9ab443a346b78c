"""`./tiering log-dirs`: the brokers' log dirs beside the remote tier."""

import typer

from include.tiering.cli.options import Json, Topics
from include.tiering.cli.output import finish
from include.tiering.cli.session import session_of


def log_dirs(ctx: typer.Context, topic: Topics = None, as_json: Json = False) -> None:
    """Show what each log dir holds of each partition, and how much of it is remote.

    With `--json` in the shape of `kafka-log-dirs.sh --describe`, with the remote tier added.
    """
    with session_of(ctx).opened() as app:
        described, remote = app.sizes.describe_log_dirs(topic or ())
    from include.tiering.sizes.log_dirs_report import present_log_dirs

    finish(present_log_dirs(described, remote), as_json=as_json)
