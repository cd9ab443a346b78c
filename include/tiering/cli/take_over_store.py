"""`./tiering take-over-store`: this database owns the store from now on."""

from typing import TYPE_CHECKING

import typer

from include.tiering.cli.confirm import Approve, is_asked_on_a_terminal, refusal_of
from include.tiering.cli.listed import listing_progress
from include.tiering.cli.options import Json
from include.tiering.cli.output import finish, output_for
from include.tiering.cli.runs import new_run_id
from include.tiering.cli.session import author, session_of

if TYPE_CHECKING:
    from include.tiering.operations.store_owner_report import TakeOver


def take_over_store(ctx: typer.Context, approve: Approve = False, as_json: Json = False) -> None:
    """Make a restored or copied database the owner of the store, after another database has used it.

    It audits the store first and shows what this database does not know: `adoptable` copies that were made since,
    which `./tiering adopt` takes in, and `dangling-reference`, segments that were deleted since. It also shows what
    this database would delete by: retention, limits of deletions and pauses as they are in it, and until when it knows
    what was decided. Then it asks, and raises the store's generation. The other database is refused from then on.
    Where the store has copies of a later history than this database remembers, that is recorded: `./tiering plan`.

    It works for a store of the same identity, whatever its generation. Another store: `./tiering rebuild`. Asks first;
    without a terminal it takes --approve.
    """
    with session_of(ctx).opened() as app:
        with listing_progress() as on_listed:
            planned, marker = app.store_owner.plan_take_over(new_run_id(), on_listed=on_listed), None
        refusal = _refusal(planned, approve=approve, as_json=as_json)
        if refusal is None:
            marker = app.store_owner.take_over(planned.found, author=author())
            # Where the store has a later history than the metadata, it is recorded before anything goes on behind it.
            app.recovery.plan_adoption()
    from include.tiering.operations.store_owner_report import present_take_over

    finish(present_take_over(planned, marker, refusal), as_json=as_json)


def _refusal(planned: "TakeOver", *, approve: bool, as_json: bool) -> str | None:
    from include.tiering.operations.store_owner_report import present_take_over, take_over_question

    if approve or planned.is_ours:
        return None
    if is_asked_on_a_terminal() and not as_json:
        output_for(as_json=False, is_terminal=True).show(present_take_over(planned, None, None))
    return refusal_of(take_over_question(planned))
