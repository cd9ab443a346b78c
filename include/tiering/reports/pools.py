"""The pools of Airflow as running batches see them: mirrored in SQL."""

from collections.abc import Sequence
from dataclasses import dataclass

from include.tiering.reports.presentation import Document, Presentation, Table, count


@dataclass(frozen=True, slots=True)
class PoolMirror:
    """`slots` is None until something that may ask Airflow wrote it. `live_batches` hold a slot now, oldest first."""

    name: str
    slots: int | None
    live_batches: Sequence[str] = ()


def present_pools(pools: Sequence[PoolMirror]) -> Presentation:
    live = sum(len(pool.live_batches) for pool in pools)
    return Presentation(
        lambda: pools_document(pools),
        lambda: (pools_table(pools),),
        f"{count(len(pools), 'pool')}, {count(live, 'slot')} in use",
    )


def pools_document(pools: Sequence[PoolMirror]) -> Document:
    return {
        "pools": [{"name": pool.name, "slots": pool.slots, "live_batches": list(pool.live_batches)} for pool in pools]
    }


def pools_table(pools: Sequence[PoolMirror]) -> Table:
    return Table("pools", ("pool", "slots>", "in use>"), tuple(map(_row, pools)))


def _row(pool: PoolMirror) -> tuple[str, ...]:
    slots = "not known yet" if pool.slots is None else "unlimited" if pool.slots < 0 else str(pool.slots)
    return (pool.name, slots, str(len(pool.live_batches)))
