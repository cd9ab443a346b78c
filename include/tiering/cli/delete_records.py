"""`./tiering delete-records`: raise our log start of one partition."""

from typing import TYPE_CHECKING, Annotated

import typer

from include.tiering.cli.confirm import Approve, refusal_of
from include.tiering.cli.options import Json
from include.tiering.cli.output import finish
from include.tiering.cli.partitions import remote_partition
from include.tiering.cli.session import author, session_of
from include.tiering.errors import SettingError

if TYPE_CHECKING:
    from include.tiering.expiration.plan import Truncation


def delete_records(
    ctx: typer.Context,
    topic: Annotated[str, typer.Argument(help="Name of the topic.")],
    partition: Annotated[int, typer.Option("--partition", help="Number of the partition.", min=0, metavar="N")],
    before_offset: Annotated[int, typer.Option("--before-offset", help="First offset that stays.", min=0, metavar="O")],
    topic_id: Annotated[
        str | None, typer.Option("--topic-id", help="Which topic, if several had this name.", metavar="ID")
    ] = None,
    approve: Approve = False,
    as_json: Json = False,
) -> None:
    """Drop the archived records before an offset: our log start rises, and never falls again.

    Nothing else does this: a broker that raises its own log start, or kafka-delete-records, leaves the archive as it
    is. Segments that lie wholly below the new log start go with the next `./tiering expire`. Asks first; without a
    terminal it takes --approve.
    """
    with session_of(ctx).opened() as app:
        found = remote_partition(app, topic, partition, topic_id)
        if topic_id is None and (why := app.topic_lifecycle.name_taken_because(found)):
            raise SettingError(f"{found} of topic id {found.topic_id}: {why}: say which topic is meant with --topic-id")
        planned = app.expiration.plan_truncation(found, before_offset)
        done = planned
        refusal = _refusal(planned, approve=approve)
        if refusal is None:
            done = app.expiration.delete_records(planned, author=author())
    from include.tiering.expiration.report import present_truncation

    finish(present_truncation(done, refusal), as_json=as_json)


def _refusal(planned: "Truncation", *, approve: bool) -> str | None:
    from include.tiering.expiration.report import truncation_question

    if approve or planned.log_start_offset == planned.log_start_before:
        return None
    return refusal_of(truncation_question(planned))
