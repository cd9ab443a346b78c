"""Whether a planned rise of the log start follows from a retention that was in force: an oracle of its own, and a
generous one. It asks what must be true of any right plan, not how the product finds one.
"""

from typing import TYPE_CHECKING, Any

from include.tiering.model.retention import DeletionReason
from include.tiering.model.segments import TopicIdPartition
from tests.simulation.invariants.rows import FINISHED, Row

if TYPE_CHECKING:
    from tests.simulation.invariants.watch import Watch

Limit = tuple[int | None, int | None]
"""Milliseconds and bytes; None: for ever, without bound."""


def require_justified(watch: "Watch", process: Any, planned: Any, since_ms: int) -> None:
    """Every FINISHED segment that a plan passes is past a time limit or exceeds a size limit, as set since then on the
    topic that has the name; or its topic was deleted, which other rules are about."""
    partition = planned.topic_id_partition
    before = watch.rows.log_starts.get(_place(planned), 0)
    if watch.foreign_history:
        # It was made with the log start of another state of the database; what it may delete is asked when it does.
        before = max(before, planned.log_start_before)
    of_the_topic = {str(one.segment_id.id) for one in planned.deletions if one.reason == DeletionReason.TOPIC_DELETED}
    passed = [
        row
        for row in watch.live_rows(partition)
        if row.state == FINISHED
        and before <= row.end_offset < planned.log_start_offset
        and row.segment_id not in of_the_topic
    ]
    limits = limits_of(watch, partition, since_ms)
    kept_bytes = _bytes_kept(watch, process, planned)
    for row in passed:
        if not any(is_due(watch, row, limit, kept_bytes) for limit in limits):
            watch.broken(
                "only what retention does not cover expires",
                f"{row}, largest timestamp {row.max_timestamp_ms}, planned at {watch.world.scheduler.now_ms};"
                f" {kept_bytes} bytes stay; limits (ms, bytes) {limits}",
            )


def limits_of(watch: "Watch", partition: TopicIdPartition, since_ms: int) -> list[Limit]:
    """All that were in force for this topic id at some time since then. None for one of which a later one of the same
    name was archived before, too: what is set on the name is about that one."""
    if _has_lost_its_name(watch, partition, since_ms):
        return [(None, None)]
    found: list[Limit] = [(None, None)]
    for at_ms, name, retention_ms, retention_bytes in watch.world.settings_history:
        if name != partition.topic:
            continue
        if at_ms <= since_ms:
            found.clear()
        found.append((retention_ms, retention_bytes))
    return found


def is_due(watch: "Watch", row: Row, limit: Limit, kept_bytes: int) -> bool:
    """By the true time, and by what stays behind it."""
    retention_ms, retention_bytes = limit
    true_timestamp = _largest_timestamp(watch, row)
    if retention_ms is not None and true_timestamp < watch.world.scheduler.now_ms - retention_ms:
        return True
    return retention_bytes is not None and kept_bytes >= retention_bytes


def _has_lost_its_name(watch: "Watch", partition: TopicIdPartition, since_ms: int) -> bool:
    """To a later topic of which something was remote then; of one that never was, nobody may be there to tell."""
    ids = [topic_id for topic_id, name in watch.world.cluster.all_names.items() if name == partition.topic]
    later = {str(one) for one in ids[ids.index(partition.topic_id) + 1 :]}
    archived = {row.topic_id for row in watch.rows.known.values() if row.state == FINISHED}
    return any(watch.rows.archived_since_ms.get(one, 0) <= since_ms for one in later & archived)


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
