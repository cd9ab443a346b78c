"""`./tiering pools`: the mirrored sizes of Airflow's pools."""

from typing import TYPE_CHECKING, Final

import typer

from include.tiering.cli.options import Json
from include.tiering.cli.output import finish
from include.tiering.cli.session import session_of

if TYPE_CHECKING:
    from include.tiering.reports.pools import PoolMirror
    from include.tiering.wiring import Tiering

POOLS: Final = ("remote_log_copier",)


def pools(ctx: typer.Context, as_json: Json = False) -> None:
    """Show the pools that batches run in, as the batches see them: slots, and how many are in use.

    Airflow is the truth of a pool's size; change it there. The mirror follows while tasks of the pool run.
    """
    with session_of(ctx).opened() as tiering:
        found = mirrored_pools(tiering)
    from include.tiering.reports.pools import present_pools

    finish(present_pools(found), as_json=as_json)


def mirrored_pools(tiering: "Tiering") -> "list[PoolMirror]":
    from include.tiering.reports.pools import PoolMirror

    return [PoolMirror(name, tiering.work.pool_size(name), tiering.work.live_batches(name)) for name in POOLS]
