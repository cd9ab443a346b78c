"""`./tiering plan`: what a copy would do."""

import typer

from include.tiering.cli.options import Json, LimitBytes, Topics
from include.tiering.cli.output import finish
from include.tiering.cli.runs import new_run_id, require_topics
from include.tiering.cli.session import session_of


def plan(ctx: typer.Context, topic: Topics = None, limit_bytes: LimitBytes = None, as_json: Json = False) -> None:
    """Show which segments a copy would take now, most urgent partition first, and which partitions wait.

    Nothing is sent, and nothing is stored but a divergence of histories that shows for the first time. Topics are those
    of --topic, else of the setting topics.include.
    """
    with session_of(ctx).opened(topic) as app:
        require_topics(app.settings)
        planned = app.copying.plan(new_run_id(), limit_bytes=limit_bytes, dry_run=True)
    from include.tiering.copying.report import present_plan

    finish(present_plan(planned), as_json=as_json)
