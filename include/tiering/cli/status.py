"""`./tiering status`: every setting with its origin, and what goes on."""

from typing import TYPE_CHECKING

import typer

from include.tiering.cli.exit_codes import code_of
from include.tiering.cli.options import Json
from include.tiering.cli.output import finish
from include.tiering.cli.session import Session, session_of
from include.tiering.errors import TieringError

if TYPE_CHECKING:
    from include.tiering.operations.status_report import Activity
    from include.tiering.settings import TieringSettings


def status(ctx: typer.Context, as_json: Json = False) -> None:
    """Show every setting, its value and where it came from, then what is paused, what runs, what topics bring
    in, and which topics the cluster was seen to delete.

    Secrets are masked. If the database does not answer, the settings are shown as they are without dynamic configs.
    """
    from include.tiering.operations.status_report import present_status

    session = session_of(ctx)
    settings = session.settings()
    try:
        effective, activity = _now(session)
    except TieringError as error:
        finish(present_status(settings, None, str(error)), as_json=as_json, otherwise=code_of(error))
    else:
        finish(present_status(effective, activity), as_json=as_json)


def _now(session: Session) -> "tuple[TieringSettings, Activity]":
    """The settings with the dynamic configs over them, and what goes on."""
    from include.tiering.operations.status_report import Activity

    with session.opened() as app:
        pools = app.configs.pools_status(ask_airflow=False)
        activity = Activity(
            app.adapters.stores.work.paused_topics(),
            pools,
            app.adapters.topic_quotas.report(),
            app.adapters.stores.topic_deletions.all(),
        )
        return app.effective_configs.settings(), activity
