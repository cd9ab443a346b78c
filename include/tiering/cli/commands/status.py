"""`./tiering status`: every setting with its origin, and what goes on."""

from typing import TYPE_CHECKING

import typer

from include.tiering.cli.commands.pools import mirrored_pools
from include.tiering.cli.exit_codes import code_of
from include.tiering.cli.options import Json
from include.tiering.cli.output import finish
from include.tiering.cli.session import Session, session_of
from include.tiering.errors import TieringError

if TYPE_CHECKING:
    from include.tiering.reports.status import Activity


def status(ctx: typer.Context, as_json: Json = False) -> None:
    """Show every setting, its value and where it came from, then what is paused and what runs.

    Secrets are masked. The settings are shown even if the database does not answer.
    """
    from include.tiering.reports.status import present_status

    session = session_of(ctx)
    settings = session.settings()
    try:
        activity = _activity(session)
    except TieringError as error:
        finish(present_status(settings, None, str(error)), as_json=as_json, otherwise=code_of(error))
    else:
        finish(present_status(settings, activity), as_json=as_json)


def _activity(session: Session) -> "Activity":
    from include.tiering.reports.status import Activity

    with session.opened() as tiering:
        return Activity(tiering.work.paused_topics(), mirrored_pools(tiering))
