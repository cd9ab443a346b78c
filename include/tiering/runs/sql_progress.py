"""Progress of batches, the pause switch and the size of a pool in SQL."""

from collections.abc import Sequence
from typing import Final

from sqlalchemy import Connection, bindparam, delete, select

from include.tiering.database.events import record_event
from include.tiering.database.live_leases import MARGIN_MS
from include.tiering.database.schema import batches, pauses, pools
from include.tiering.database.statements import insert_if_absent, stored_text, upsert
from include.tiering.runs.contract import LIVE_BATCH_MS, BatchProgress

_PAUSED: Final = select(pauses.c.topic).where(pauses.c.cluster_id == bindparam("of_cluster"))
_LIVE: Final = (
    select(batches.c.batch_id)
    .where(batches.c.cluster_id == bindparam("of_cluster"), batches.c.pool == bindparam("of_pool"))
    .where(batches.c.updated_at_ms.between(bindparam("since_ms"), bindparam("until_ms")), batches.c.finished.is_(False))
    .order_by(batches.c.started_at_ms, batches.c.batch_id)
)
_RESUME: Final = delete(pauses).where(
    pauses.c.cluster_id == bindparam("of_cluster"), pauses.c.topic == bindparam("of_topic")
)
_SLOTS: Final = select(pools.c.slots).where(
    pools.c.cluster_id == bindparam("of_cluster"), pools.c.pool == bindparam("of_pool")
)


def report_progress(connection: Connection, cluster_id: str, progress: BatchProgress, now_ms: int) -> None:
    values = {
        "cluster_id": cluster_id,
        "run_id": progress.run_id,
        "batch_id": progress.batch_id,
        "pool": progress.pool,
        "host": progress.host,
        "pid": progress.pid,
        "partition": stored_text(progress.partition),
        "done_bytes": progress.done_bytes,
        "planned_bytes": progress.planned_bytes,
        "bytes_per_second": progress.bytes_per_second,
        "finished": progress.finished,
        "started_at_ms": now_ms,
        "updated_at_ms": now_ms,
    }
    upsert(connection, batches, values, keep=("started_at_ms",))


def progress_of_run(connection: Connection, cluster_id: str, run_id: str) -> Sequence[BatchProgress]:
    """In the order in which the batches began."""
    query = select(batches).where(batches.c.cluster_id == cluster_id, batches.c.run_id == run_id)
    return [
        BatchProgress(
            run_id=row.run_id,
            batch_id=row.batch_id,
            pool=row.pool,
            host=row.host,
            pid=row.pid,
            partition=row.partition,
            done_bytes=row.done_bytes,
            planned_bytes=row.planned_bytes,
            bytes_per_second=row.bytes_per_second,
            finished=row.finished,
            started_at_ms=row.started_at_ms,
            updated_at_ms=row.updated_at_ms,
        )
        for row in connection.execute(query.order_by(batches.c.started_at_ms, batches.c.batch_id))
    ]


def live_batches(connection: Connection, cluster_id: str, pool: str, now_ms: int) -> Sequence[str]:
    """See `WorkStore.live_batches`."""
    given = {
        "of_cluster": cluster_id,
        "of_pool": pool,
        "since_ms": now_ms - LIVE_BATCH_MS,
        "until_ms": now_ms + MARGIN_MS,
    }
    return connection.execute(_LIVE, given).scalars().all()


def pause(connection: Connection, cluster_id: str, topic: str, author: str, now_ms: int) -> None:
    """The first author stays if it is paused already."""
    values = {"cluster_id": cluster_id, "topic": topic, "author": author, "paused_at_ms": now_ms}
    if insert_if_absent(connection, pauses, values):
        record_event(connection, cluster_id, "pause", topic, "", author, now_ms)


def resume(connection: Connection, cluster_id: str, topic: str, author: str, now_ms: int) -> None:
    if connection.execute(_RESUME, {"of_cluster": cluster_id, "of_topic": topic}).rowcount:
        record_event(connection, cluster_id, "resume", topic, "", author, now_ms)


def paused_topics(connection: Connection, cluster_id: str) -> frozenset[str]:
    return frozenset(connection.execute(_PAUSED, {"of_cluster": cluster_id}).scalars())


def pool_size(connection: Connection, cluster_id: str, pool: str) -> int | None:
    return connection.execute(_SLOTS, {"of_cluster": cluster_id, "of_pool": pool}).scalar_one_or_none()
