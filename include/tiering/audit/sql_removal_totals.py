"""What a run of an audit removes, added up by the database: the second opinion of the deletion limit.

Objects of segments that metadata knows are counted from the segments' own rows, stored bytes by the counters that every
state change moves.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from sqlalchemy import Connection, Select, and_, bindparam, exists, func, select

from include.tiering.audit.removal_contract import RemovalOutcome, RemovalTotals
from include.tiering.database.schema import planned_removals, segments
from include.tiering.model.ids import Uuid
from include.tiering.model.segment_metadata import RemoteLogSegmentState
from include.tiering.runs import sql_deletion_totals

_TOMBSTONE: Final = int(RemoteLogSegmentState.DELETE_SEGMENT_FINISHED)
_OF_RUN: Final = and_(
    planned_removals.c.cluster_id == bindparam("of_cluster"), planned_removals.c.run_id == bindparam("of_run")
)
_IS_KNOWN: Final = exists().where(
    segments.c.cluster_id == planned_removals.c.cluster_id,
    segments.c.topic_id == planned_removals.c.topic_id,
    segments.c.partition == planned_removals.c.partition,
    segments.c.segment_id == planned_removals.c.segment_id,
    segments.c.state != _TOMBSTONE,
)
_PLANNED: Final = (
    select(
        planned_removals.c.topic_id,
        func.max(planned_removals.c.topic).label("topic"),
        func.count().label("objects"),
        func.sum(planned_removals.c.size_bytes).label("size_bytes"),
    )
    .where(_OF_RUN)
    .group_by(planned_removals.c.topic_id)
    .order_by("topic", planned_removals.c.topic_id)
)
_KNOWN: Final = (
    select(planned_removals.c.topic_id, func.count()).where(_OF_RUN, _IS_KNOWN).group_by(planned_removals.c.topic_id)
)
_REMOVED: Final = (
    select(planned_removals.c.topic_id, func.sum(planned_removals.c.size_bytes))
    .where(planned_removals.c.cluster_id == bindparam("of_cluster"))
    .where(planned_removals.c.outcome == str(RemovalOutcome.REMOVED))
    .where(planned_removals.c.recorded_at_ms >= bindparam("since_ms"))
    .group_by(planned_removals.c.topic_id)
)


def totals(connection: Connection, cluster_id: str, run_id: str, since_ms: int) -> Sequence[RemovalTotals]:
    """See `RemovalStore.totals`; the window begins at `since_ms` (inclusive)."""
    run = {"of_cluster": cluster_id, "of_run": run_id}
    known = _by_topic(connection, _KNOWN, run)
    removed = _by_topic(connection, _REMOVED, {"of_cluster": cluster_id, "since_ms": since_ms})
    expired = sql_deletion_totals.recent_bytes(connection, cluster_id, since_ms)
    remote = sql_deletion_totals.stored_bytes(connection, cluster_id)
    return [
        RemovalTotals(
            Uuid.parse(row.topic_id),
            row.topic,
            row.objects,
            int(row.size_bytes),
            known.get(row.topic_id, 0),
            removed.get(row.topic_id, 0) + expired.get(row.topic_id, 0),
            remote.get(row.topic_id, 0),
        )
        for row in connection.execute(_PLANNED, run)
    ]


def _by_topic(connection: Connection, query: Select[str, int], given: Mapping[str, Any]) -> dict[str, int]:
    return {topic_id: int(number) for topic_id, number in connection.execute(query, given)}
