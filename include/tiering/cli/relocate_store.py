"""`./tiering relocate-store`: the keys of the store lie in another place."""

from typing import TYPE_CHECKING

import typer

from include.tiering.cli.confirm import Approve, refusal_of
from include.tiering.cli.options import Json
from include.tiering.cli.output import finish
from include.tiering.cli.session import author, session_of

if TYPE_CHECKING:
    from include.tiering.operations.store_owner_report import Relocation


def relocate_store(ctx: typer.Context, approve: Approve = False, as_json: Json = False) -> None:
    """Record that objects were moved: change the URL, layout or key prefix of a store that has segments.

    Move the objects first, then set `remote_storage.url`, `layout` and `key_prefix` to where they are. This command
    looks at segments there, the oldest and the newest of each partition and at least 200 in all: objects, lengths and
    checksums. If one of them is not there, nothing is changed. Every other command is refused until the settings and
    the store agree. Asks first; without a terminal it takes --approve.
    """
    with session_of(ctx).opened() as app:
        planned, marker = app.store_owner.plan_relocation(), None
        refusal = _refusal(planned, approve=approve)
        if refusal is None:
            marker = app.store_owner.relocate(planned, author=author())
    from include.tiering.operations.store_owner_report import present_relocation

    finish(present_relocation(planned, marker, refusal), as_json=as_json)


def _refusal(planned: "Relocation", *, approve: bool) -> str | None:
    from include.tiering.operations.store_owner_report import relocation_question

    if not planned.proof.holds:
        return planned.objection
    if approve or planned.stored == planned.place:
        return None
    return refusal_of(relocation_question(planned))
