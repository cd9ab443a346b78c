"""What runs delete, topic by topic, added up in SQL for the deletion limits.

The sums are independent of the plan's sizes. Planned and deleted segments are counted by their rows, stored bytes by
the counters that every state change updates, or by what the triggers of the database added up if that is less.

- A segment counts as planned if it is in the plan and is not a tombstone. Its bytes are also `begun_bytes`, which do
  not count again, if it is in DELETE_SEGMENT_STARTED, is not superseded, and either was FINISHED before a deletion that
  began within the window, or is in the plan of another released run.
- A segment of the platform counts as deleted recently if its deletion began within the window. A superseded segment is
  in DELETE_SEGMENT_STARTED from its new copy on, so it counts if its objects were deleted within the window. A copy
  that was never FINISHED counts if a run deleted it, not if the copier removed its own abandoned copy.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from sqlalchemy import ColumnElement, Connection, and_, bindparam, case, func, or_, select

from include.tiering.database.schema import (
    PARTITION_TOTAL,
    approvals,
    partitions,
    planned_deletions,
    planned_expirations,
    runs,
    segments,
    size_counters,
    topics,
)
from include.tiering.model.ownership import SegmentOrigin
from include.tiering.model.retention import DeletionReason
from include.tiering.model.segments import RemoteLogSegmentState, Uuid
from include.tiering.runs.deletion_run import DeletionOutcome, TopicTotals


def _sum_where(condition: ColumnElement[bool], value: ColumnElement[int] | int) -> ColumnElement[int]:
    return func.coalesce(func.sum(case((condition, value), else_=0)), 0)


_FINISHED: Final = int(RemoteLogSegmentState.COPY_SEGMENT_FINISHED)
_BEGUN: Final = int(RemoteLogSegmentState.DELETE_SEGMENT_STARTED)
_TOMBSTONE: Final = int(RemoteLogSegmentState.DELETE_SEGMENT_FINISHED)
_BELOW_LOG_START: Final = (DeletionReason.TIME, DeletionReason.SIZE, DeletionReason.LOG_START)

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
_OTHER_PLANS: Final = planned_deletions.alias("other_plans")
_NAMES_SEGMENT: Final = and_(
    _OTHER_PLANS.c.cluster_id == segments.c.cluster_id,
    _OTHER_PLANS.c.topic_id == segments.c.topic_id,
    _OTHER_PLANS.c.partition == segments.c.partition,
    _OTHER_PLANS.c.segment_id == segments.c.segment_id,
)
_OF_ITS_RUN: Final = and_(runs.c.cluster_id == _OTHER_PLANS.c.cluster_id, runs.c.run_id == _OTHER_PLANS.c.run_id)
_APPROVED_RUNS: Final = runs.alias("approved_runs")
_OF_ITS_PLAN: Final = and_(
    approvals.c.cluster_id == _APPROVED_RUNS.c.cluster_id,
    approvals.c.run_id == _APPROVED_RUNS.c.run_id,
    approvals.c.plan_hash == _APPROVED_RUNS.c.plan_hash,
)
_APPROVAL_OF_IT: Final = (
    select(approvals.c.run_id)
    .join(_APPROVED_RUNS, _OF_ITS_PLAN)
    .where(approvals.c.cluster_id == _OTHER_PLANS.c.cluster_id, approvals.c.run_id == _OTHER_PLANS.c.run_id)
    .where(_APPROVED_RUNS.c.withdrawn_at_ms.is_(None))
    .exists()
)
_IN_RELEASED_RUN: Final = (
    select(_OTHER_PLANS.c.position)
    .join(runs, _OF_ITS_RUN)
    .where(_NAMES_SEGMENT, _OTHER_PLANS.c.run_id != bindparam("of_run"))
    .where(runs.c.withdrawn_at_ms.is_(None), or_(runs.c.needs_approval.is_(False), _APPROVAL_OF_IT))
    .exists()
)
_IN_APPROVED_RUN: Final = select(_OTHER_PLANS.c.position).where(_NAMES_SEGMENT, _APPROVAL_OF_IT).exists()
_DELETED_BY_A_RUN: Final = (
    select(_OTHER_PLANS.c.position)
    .where(_NAMES_SEGMENT, _OTHER_PLANS.c.outcome == str(DeletionOutcome.DELETED))
    .exists()
)
_BEGUN_RECENTLY: Final = and_(
    segments.c.finished_at_ms.is_not(None), segments.c.delete_started_at_ms >= bindparam("since_ms")
)
_COUNTED_BEFORE: Final = and_(
    segments.c.state == _BEGUN, segments.c.superseded_by.is_(None), or_(_BEGUN_RECENTLY, _IN_RELEASED_RUN)
)
_PLANNED: Final = (
    select(
        planned_expirations.c.topic_id,
        func.max(planned_expirations.c.topic).label("topic"),
        func.count(segments.c.segment_key).label("planned_segments"),
        func.coalesce(func.sum(segments.c.size_bytes), 0).label("planned_bytes"),
        _sum_where(_COUNTED_BEFORE, segments.c.size_bytes).label("begun_bytes"),
        _sum_where(segments.c.state == _FINISHED, 1).label("planned_finished"),
        _sum_where(segments.c.state == _FINISHED, segments.c.size_bytes).label("planned_finished_bytes"),
        _sum_where(_IS_ABOVE, 1).label("above_log_start"),
    )
    .join(planned_deletions, _SAME_PARTITION)
    .join(segments, _SAME_SEGMENT)
    .where(planned_deletions.c.cluster_id == bindparam("of_cluster"), planned_deletions.c.run_id == bindparam("of_run"))
    .group_by(planned_expirations.c.topic_id)
)
_OURS: Final = and_(segments.c.cluster_id == bindparam("of_cluster"), segments.c.origin == str(SegmentOrigin.PLATFORM))
_GONE: Final = (
    select(
        segments.c.topic_id,
        segments.c.size_bytes,
        segments.c.state,
        case((_IN_APPROVED_RUN, 0), else_=segments.c.size_bytes).label("unapproved_bytes"),
    )
    .where(_OURS, segments.c.superseded_by.is_(None), segments.c.delete_started_at_ms >= bindparam("since_ms"))
    .where(or_(segments.c.finished_at_ms.is_not(None), _DELETED_BY_A_RUN))
    .union_all(
        select(
            segments.c.topic_id,
            segments.c.size_bytes,
            segments.c.state,
            case((_IN_APPROVED_RUN, 0), else_=segments.c.size_bytes),
        ).where(_OURS, segments.c.superseded_by.is_not(None), segments.c.deleted_at_ms >= bindparam("since_ms"))
    )
    .subquery("gone")
)
_RECENT: Final = select(
    _GONE.c.topic_id,
    func.sum(_GONE.c.size_bytes).label("recent_bytes"),
    func.sum(_GONE.c.unapproved_bytes).label("unapproved_bytes"),
    _sum_where(_GONE.c.state != _TOMBSTONE, _GONE.c.size_bytes).label("still_stored_bytes"),
).group_by(_GONE.c.topic_id)
# The lower of both sums, the platform's and that of the triggers: by a sum that is too high, even a run that deletes
# much would seem to delete a small share of its topic.
_FINISHED_BYTES: Final = func.coalesce(partitions.c.finished_bytes, 0)
_KNOWN_BYTES: Final = case(
    (and_(size_counters.c.state == _FINISHED, size_counters.c.size_bytes > _FINISHED_BYTES), _FINISHED_BYTES),
    else_=size_counters.c.size_bytes,
)
_STORED: Final = (
    select(
        size_counters.c.topic_id,
        func.sum(_KNOWN_BYTES).label("stored_bytes"),
        _sum_where(size_counters.c.state == _FINISHED, _KNOWN_BYTES).label("finished_bytes"),
        _sum_where(size_counters.c.state == _FINISHED, size_counters.c.segments).label("finished_segments"),
    )
    .outerjoin(
        partitions,
        and_(
            partitions.c.cluster_id == size_counters.c.cluster_id,
            partitions.c.topic_id == size_counters.c.topic_id,
            partitions.c.partition == size_counters.c.partition,
        ),
    )
    .where(size_counters.c.cluster_id == bindparam("of_cluster"), size_counters.c.leader_epoch == PARTITION_TOTAL)
    .where(size_counters.c.state != _TOMBSTONE)
    .group_by(size_counters.c.topic_id)
)
_NAMES: Final = select(topics.c.topic_id, topics.c.name).where(topics.c.cluster_id == bindparam("of_cluster"))


@dataclass(frozen=True, slots=True)
class _Recent:
    recent_bytes: int = 0
    unapproved_bytes: int = 0
    still_stored_bytes: int = 0


@dataclass(frozen=True, slots=True)
class _Stored:
    stored_bytes: int = 0
    finished_bytes: int = 0
    finished_segments: int = 0


def totals(connection: Connection, cluster_id: str, run_id: str, since_ms: int) -> Sequence[TopicTotals]:
    """Return `DeletionStore.totals` for a window that begins at `since_ms` (inclusive)."""
    key = {"of_cluster": cluster_id, "of_run": run_id, "since_ms": since_ms}
    planned = {row.topic_id: row for row in connection.execute(_PLANNED, key)}
    recent, stored = _recent(connection, cluster_id, since_ms), _stored(connection, cluster_id)
    names = {row.topic_id: row.name for row in connection.execute(_NAMES, {"of_cluster": cluster_id})}
    found = []
    for topic_id in planned.keys() | recent.keys():
        row, gone = planned.get(topic_id), recent.get(topic_id, _Recent())
        there = stored.get(topic_id, _Stored())
        found.append(
            TopicTotals(
                Uuid.parse(topic_id),
                names.get(topic_id, "") if row is None else row.topic,
                0 if row is None else row.planned_segments,
                0 if row is None else int(row.planned_bytes),
                gone.recent_bytes,
                max(0, there.stored_bytes - gone.still_stored_bytes),
                0 if row is None else int(row.above_log_start),
                begun_bytes=0 if row is None else int(row.begun_bytes),
                unapproved_bytes=gone.unapproved_bytes,
                planned_finished=0 if row is None else int(row.planned_finished),
                planned_finished_bytes=0 if row is None else int(row.planned_finished_bytes),
                finished_segments=there.finished_segments,
                finished_bytes=there.finished_bytes,
            )
        )
    return sorted(found, key=lambda total: (total.topic, str(total.topic_id)))


def recent_bytes(connection: Connection, cluster_id: str, since_ms: int) -> dict[str, int]:
    """Return the bytes that count as deleted recently (see above) since `since_ms` (inclusive), by topic id."""
    return {topic_id: recent.recent_bytes for topic_id, recent in _recent(connection, cluster_id, since_ms).items()}


def stored_bytes(connection: Connection, cluster_id: str) -> dict[str, int]:
    """Return the bytes stored now, by topic id: of segments in any state except tombstones."""
    return {topic_id: stored.stored_bytes for topic_id, stored in _stored(connection, cluster_id).items()}


def _recent(connection: Connection, cluster_id: str, since_ms: int) -> dict[str, _Recent]:
    found = connection.execute(_RECENT, {"of_cluster": cluster_id, "since_ms": since_ms})
    return {
        row.topic_id: _Recent(int(row.recent_bytes), int(row.unapproved_bytes), int(row.still_stored_bytes))
        for row in found
    }


def _stored(connection: Connection, cluster_id: str) -> dict[str, _Stored]:
    found = connection.execute(_STORED, {"of_cluster": cluster_id})
    return {
        row.topic_id: _Stored(int(row.stored_bytes), int(row.finished_bytes), int(row.finished_segments))
        for row in found
    }
