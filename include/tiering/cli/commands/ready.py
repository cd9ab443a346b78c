"""`./tiering ready`: can a run start?"""

import typer

from include.tiering.cli.exit_codes import ExitCode
from include.tiering.cli.options import Json
from include.tiering.cli.output import finish
from include.tiering.cli.session import session_of


def ready(ctx: typer.Context, as_json: Json = False) -> None:
    """Check what must hold before a run: database, remote storage and its marker, log directories, pool.

    Exit code 3 if waiting can help, 1 if a person has to act. It writes and removes one small object in the store.
    """
    with session_of(ctx).opened() as tiering:
        checks = tiering.readiness()
    from include.tiering.reports.ready import present_ready

    hopeless = any(not check.ok and not check.waitable for check in checks)
    finish(present_ready(checks), as_json=as_json, otherwise=ExitCode.FINDINGS if hopeless else ExitCode.RETRY)
