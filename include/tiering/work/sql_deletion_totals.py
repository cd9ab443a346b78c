"""What a run deletes, added up by the database: the brake's second opinion.

Nothing here reads the plan's sizes. Segments are counted by their own rows, remote bytes by the counters that every
state change moves.
"""

from collections.abc import Sequence
from typing import Final

from sqlalchemy import ColumnElement, Connection, and_, bindparam, case, func, select

from include.tiering.database.schema import (
    PARTITION_TOTAL,
    planned_deletions,
    planned_expirations,
    segments,
    size_counters,
)
from include.tiering.model.ids import Uuid
from include.tiering.model.retention import DeletionReason
from include.tiering.model.segment_state import RemoteLogSegmentState
from include.tiering.work.deletion_contract import TopicTotals

_FINISHED: Final = int(RemoteLogSegmentState.COPY_SEGMENT_FINISHED)
_TOMBSTONE: Final = int(RemoteLogSegmentState.DELETE_SEGMENT_FINISHED)
_BELOW_LOG_START: Final = (DeletionReason.TIME, DeletionReason.SIZE, DeletionReason.LOG_START)


def _sum_where(condition: ColumnElement[bool], value: ColumnElement[int] | int) -> ColumnElement[int]:
    return func.coalesce(func.sum(case((condition, value), else_=0)), 0)


_SAME_PARTITION: Final = and_(
    planned_deletions.c.cluster_id == planned_expirations.c.cluster_id,
    planned_deletions.c.run_id == planned_expirations.c.run_id,
    planned_deletions.c.topic_id == planned_expirations.c.topic_id,
    planned_deletions.c.partition == planned_expirations.c.partition,
)
_SAME_SEGMENT: Final = and_(
    segments.c.cluster_id == planned_deletions.c.cluster_id,
    segments.c.topic_id == planned_deletions.c.topic_id,
    segments.c.partition == planned_deletions.c.partition,
    segments.c.segment_id == planned_deletions.c.segment_id,
    segments.c.state != _TOMBSTONE,
)
_IS_ABOVE: Final = and_(
    segments.c.state == _FINISHED,
    planned_deletions.c.reason.in_(_BELOW_LOG_START),
    segments.c.end_offset >= planned_expirations.c.log_start_offset,
)
_TOTALS: Final = (
    select(
        planned_expirations.c.topic_id,
        func.max(planned_expirations.c.topic).label("topic"),
        func.count(segments.c.segment_key).label("planned_segments"),
        _sum_where(segments.c.state == _FINISHED, segments.c.size_bytes).label("planned_bytes"),
        _sum_where(_IS_ABOVE, 1).label("above_log_start"),
    )
    .join(planned_deletions, _SAME_PARTITION)
    .join(segments, _SAME_SEGMENT)
    .where(planned_deletions.c.cluster_id == bindparam("of_cluster"), planned_deletions.c.run_id == bindparam("of_run"))
    .group_by(planned_expirations.c.topic_id)
    .order_by("topic", planned_expirations.c.topic_id)
)
_RECENT: Final = (
    select(segments.c.topic_id, func.sum(segments.c.size_bytes))
    .where(segments.c.cluster_id == bindparam("of_cluster"), segments.c.delete_started_at_ms >= bindparam("since_ms"))
    .where(segments.c.finished_at_ms.is_not(None), segments.c.superseded_by.is_(None))
    .group_by(segments.c.topic_id)
)
_REMOTE: Final = (
    select(size_counters.c.topic_id, func.sum(size_counters.c.size_bytes))
    .where(size_counters.c.cluster_id == bindparam("of_cluster"), size_counters.c.leader_epoch == PARTITION_TOTAL)
    .where(size_counters.c.state == _FINISHED)
    .group_by(size_counters.c.topic_id)
)


def totals(connection: Connection, cluster_id: str, run_id: str, since_ms: int) -> Sequence[TopicTotals]:
    """See `DeletionStore.totals`; the window begins at `since_ms` (inclusive)."""
    recent = recent_bytes(connection, cluster_id, since_ms)
    remote = remote_bytes(connection, cluster_id)
    return [
        TopicTotals(
            Uuid.parse(row.topic_id),
            row.topic,
            row.planned_segments,
            int(row.planned_bytes),
            recent.get(row.topic_id, 0),
            remote.get(row.topic_id, 0),
            int(row.above_log_start),
        )
        for row in connection.execute(_TOTALS, {"of_cluster": cluster_id, "of_run": run_id})
    ]


def recent_bytes(connection: Connection, cluster_id: str, since_ms: int) -> dict[str, int]:
    """By topic id: of segments that were FINISHED and whose deletion began since then (inclusive)."""
    found = connection.execute(_RECENT, {"of_cluster": cluster_id, "since_ms": since_ms})
    return {topic_id: int(size_bytes) for topic_id, size_bytes in found}


def remote_bytes(connection: Connection, cluster_id: str) -> dict[str, int]:
    """By topic id: FINISHED now."""
    found = connection.execute(_REMOTE, {"of_cluster": cluster_id})
    return {topic_id: int(size_bytes) for topic_id, size_bytes in found}
