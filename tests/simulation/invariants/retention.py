"""Whether a planned rise of the log start follows from a retention that was in force: an oracle of its own, and a
generous one. It asks what must be true of any right plan, not how the product finds one.
"""

from typing import TYPE_CHECKING, Any

from tests.simulation.invariants.rows import FINISHED, Row

if TYPE_CHECKING:
    from tests.simulation.invariants.watch import Watch


def require_justified(watch: "Watch", process: Any, planned: Any, since_ms: int) -> None:
    """Every FINISHED segment that a plan passes is past a time limit or exceeds a size limit, as set since then."""
    partition = planned.topic_id_partition
    before = watch.rows.log_starts.get(_place(planned), 0)
    passed = [
        row
        for row in watch.live_rows(partition)
        if row.state == FINISHED and before <= row.end_offset < planned.log_start_offset
    ]
    if partition.topic_id in watch.world.cluster.removed:
        return
    limits = _limits(watch, partition.topic, since_ms)
    kept_bytes = _bytes_kept(watch, process, planned)
    for row in passed:
        if not any(_is_due(watch, row, limit, kept_bytes) for limit in limits):
            watch.broken(
                "only what retention does not cover expires",
                f"{row}, largest timestamp {row.max_timestamp_ms}, planned at {watch.world.scheduler.now_ms};"
                f" {kept_bytes} bytes stay; limits (ms, bytes) {limits}",
            )


def _limits(watch: "Watch", topic: str, since_ms: int) -> list[tuple[int | None, int | None]]:
    """All that were in force at some time since then."""
    found: list[tuple[int | None, int | None]] = [(None, None)]
    for at_ms, name, retention_ms, retention_bytes in watch.world.settings_history:
        if name != topic:
            continue
        if at_ms <= since_ms:
            found.clear()
        found.append((retention_ms, retention_bytes))
    return found


def _is_due(watch: "Watch", row: Row, limit: tuple[int | None, int | None], kept_bytes: int) -> bool:
    retention_ms, retention_bytes = limit
    true_timestamp = _largest_timestamp(watch, row)
    if retention_ms is not None and true_timestamp < watch.world.scheduler.now_ms - retention_ms:
        return True
    return retention_bytes is not None and kept_bytes >= retention_bytes


def _largest_timestamp(watch: "Watch", row: Row) -> int:
    log = watch.log_of(row.topic_id_partition)
    records = watch.rows.records(row) or []
    known = [] if log is None else [log.timestamps[record] for record in records if record in log.timestamps]
    return max(known, default=row.max_timestamp_ms)


def _bytes_kept(watch: "Watch", process: Any, planned: Any) -> int:
    """What is there after the plan, remote or not: at most this much."""
    partition = planned.topic_id_partition
    finished = [row for row in watch.live_rows(partition) if row.state == FINISHED]
    kept = sum(row.size_bytes for row in finished if row.end_offset >= planned.log_start_offset)
    kept += watch.bytes_local(process, partition)
    return kept


def _place(planned: Any) -> tuple[str, int]:
    return str(planned.topic_id_partition.topic_id), planned.topic_id_partition.partition
