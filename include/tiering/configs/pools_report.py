"""Airflow's pools: sizes, what is in use, and who of us works in them."""

from typing import Final

from include.tiering.configs.mirror_pools import PoolsStatus, PoolStatus
from include.tiering.configs.pools_contract import UNLIMITED_SLOTS
from include.tiering.presentation import Document, Presentation, Table, count

AIRFLOW: Final = "Airflow pool"
MIRROR: Final = "Airflow pool, as seen last"
UNSEEN: Final = "never seen"


def present_pools(status: PoolsStatus) -> Presentation:
    """Ok also without Airflow: the mirror is what batches go by."""
    live = sum(len(pool.live_batches) for pool in status.pools)
    summary = f"{count(len(status.pools), 'pool')}, {count(live, 'live batch', 'live batches')}"
    paused = [pool.spec.name for pool in status.pools if pool.slots == 0]
    if paused:
        summary += f"; paused by a size of 0: {', '.join(paused)}"
    if status.unavailable is not None:
        summary += f"; Airflow could not be asked, sizes are as seen last: {status.unavailable}"
    return Presentation(
        lambda: {**pools_document(status), "airflow": status.unavailable or "answers"},
        lambda: (pools_table(status),),
        summary,
    )


def pools_document(status: PoolsStatus) -> Document:
    """`slots` and the other figures are null where they are not known; unlimited `slots` are -1, as in Airflow."""
    return {"pools": list(map(_document, status.pools))}


def pools_table(status: PoolsStatus) -> Table:
    heads = ("pool", "slots>", "running>", "queued>", "live batches>", "from")
    return Table("pools", heads, tuple(map(_row, status.pools)))


def slots_words(slots: int | None) -> str:
    if slots is None:
        return "not known"
    return "unlimited" if slots == UNLIMITED_SLOTS else str(slots)


def source_of(pool: PoolStatus) -> str:
    """Where its size comes from."""
    if pool.usage is not None:
        return AIRFLOW
    return UNSEEN if pool.seen is None else MIRROR


def _document(pool: PoolStatus) -> Document:
    usage = pool.usage
    return {
        "name": pool.spec.name,
        "config": pool.spec.config_name,
        "slots": -1 if pool.slots == UNLIMITED_SLOTS else pool.slots,
        "running": None if usage is None else usage.running,
        "queued": None if usage is None else usage.queued + usage.scheduled,
        "deferred": None if usage is None else usage.deferred,
        "live_batches": list(pool.live_batches),
        "source": source_of(pool),
        "seen_at_ms": None if pool.seen is None else pool.seen.seen_at_ms,
    }


def _row(pool: PoolStatus) -> tuple[str, ...]:
    usage = pool.usage
    in_use = ("", "") if usage is None else (str(usage.running), str(usage.queued + usage.scheduled))
    return (pool.spec.name, slots_words(pool.slots), *in_use, str(len(pool.live_batches)), source_of(pool))
