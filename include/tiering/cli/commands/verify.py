"""`./tiering verify`: the quality gate."""

from typing import Annotated

import typer

from include.tiering.cli.options import Json
from include.tiering.cli.output import finish
from include.tiering.cli.session import session_of


def verify(
    ctx: typer.Context,
    run: Annotated[
        str | None, typer.Option("--run", help="Only the segments that this run copied.", metavar="RUN_ID")
    ] = None,
    as_json: Json = False,
) -> None:
    """Judge copied segments that have not passed yet, and store a verdict for each.

    Lengths and checksums are what the store itself says of its objects; indexes, manifest and epochs are read back.
    A segment that fails is kept and named, never served, and its partition stops (exit code 1).
    """
    with session_of(ctx).opened() as tiering:
        report = tiering.verify(run_id=run)
    from include.tiering.reports.verify import present_verify

    finish(present_verify(report), as_json=as_json)
