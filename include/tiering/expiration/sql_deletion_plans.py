"""Plans of runs that delete in SQL: what is to go, and what became of it."""

from collections.abc import Sequence
from itertools import groupby
from typing import Any, Final

from sqlalchemy import Connection, Row, and_, bindparam, insert, or_, select, update

from include.tiering.database.partition_rows import in_partition, key_of, partition_from
from include.tiering.database.schema import planned_deletions, planned_expirations, runs, segments
from include.tiering.database.statements import stored_text
from include.tiering.errors import RunWithdrawnError, StateConflictError
from include.tiering.model.histories import FIRST_HISTORY
from include.tiering.model.ids import RemoteLogSegmentId, TopicIdPartition, Uuid
from include.tiering.model.ownership import LeaseRole
from include.tiering.model.segment_metadata import RemoteLogSegmentState
from include.tiering.runs import sql_released_runs
from include.tiering.runs.deletion_contract import (
    DeletionItem,
    DeletionOutcome,
    PlannedDeletion,
    PlannedExpiration,
    plan_hash,
)
from include.tiering.runs.run_tries import is_try_of

_OF_RUN: Final = and_(
    planned_deletions.c.cluster_id == bindparam("of_cluster"), planned_deletions.c.run_id == bindparam("of_run")
)
_LEFT: Final = planned_deletions.c.outcome == str(DeletionOutcome.PLANNED)
_RECORD: Final = update(planned_deletions).where(
    in_partition(planned_deletions),
    planned_deletions.c.run_id == bindparam("of_run"),
    planned_deletions.c.segment_id == bindparam("of_segment"),
    _LEFT,
)
_SAME_PARTITION: Final = and_(
    planned_expirations.c.cluster_id == planned_deletions.c.cluster_id,
    planned_expirations.c.run_id == planned_deletions.c.run_id,
    planned_expirations.c.topic_id == planned_deletions.c.topic_id,
    planned_expirations.c.partition == planned_deletions.c.partition,
)
_WITH_PARTITION: Final = (
    select(
        planned_deletions,
        planned_expirations.c.topic,
        planned_expirations.c.log_start_before,
        planned_expirations.c.log_start_offset,
        planned_expirations.c.local_bytes,
        planned_expirations.c.local_behind_offset,
        planned_expirations.c.local_history,
    )
    .join(planned_expirations, _SAME_PARTITION)
    .order_by(
        planned_expirations.c.topic,
        planned_deletions.c.topic_id,
        planned_deletions.c.partition,
        planned_deletions.c.position,
    )
)
_PLAN: Final = _WITH_PARTITION.where(_OF_RUN)
_REMAINING: Final = _PLAN.where(in_partition(planned_deletions), _LEFT)
_EXPIRATION: Final = select(planned_expirations).where(
    in_partition(planned_expirations), planned_expirations.c.run_id == bindparam("of_run")
)
_ADD_EXPIRATIONS: Final = insert(planned_expirations)
_ADD_DELETIONS: Final = insert(planned_deletions)
_HAS_BEGUN: Final = (
    select(segments.c.segment_key)
    .where(
        segments.c.cluster_id == planned_deletions.c.cluster_id,
        segments.c.topic_id == planned_deletions.c.topic_id,
        segments.c.partition == planned_deletions.c.partition,
        segments.c.segment_id == planned_deletions.c.segment_id,
        segments.c.state == int(RemoteLogSegmentState.DELETE_SEGMENT_STARTED),
        segments.c.superseded_by.is_(None),
    )
    .exists()
)
_LEFT_OF_RUN: Final = update(planned_deletions).where(_OF_RUN, _LEFT)
_ANY_WORK: Final = select(planned_deletions.c.position).where(_OF_RUN, _LEFT).limit(1)
_ANY_WORK_OF_PARTITION: Final = _ANY_WORK.where(in_partition(planned_deletions))


def save_plan(
    connection: Connection, cluster_id: str, run_id: str, expirations: Sequence[PlannedExpiration], now_ms: int
) -> None:
    """See `DeletionStore.save_plan`."""
    hashed = plan_hash(expirations)
    if not sql_released_runs.begin(connection, cluster_id, run_id, LeaseRole.EXPIRE, hashed, now_ms):
        return
    rows = [_expiration_values(cluster_id, run_id, planned) for planned in expirations]
    deletion_rows = [
        _deletion_values(cluster_id, run_id, position, deletion)
        for planned in expirations
        for position, deletion in enumerate(planned.deletions)
    ]
    if rows:
        connection.execute(_ADD_EXPIRATIONS, rows)
    if deletion_rows:
        connection.execute(_ADD_DELETIONS, deletion_rows)


def read_plan(connection: Connection, cluster_id: str, run_id: str) -> Sequence[PlannedExpiration]:
    """See `DeletionStore.plan`."""
    return _expirations_of(connection.execute(_PLAN, {"of_cluster": cluster_id, "of_run": run_id}).all())


def remaining(connection: Connection, cluster_id: str, run_id: str, partition: TopicIdPartition) -> PlannedExpiration:
    """See `DeletionStore.remaining`."""
    key = key_of(cluster_id, partition) | {"of_run": run_id}
    row = connection.execute(_EXPIRATION, key).one_or_none()
    if row is None:
        raise StateConflictError(f"run {run_id} plans nothing of {partition}: the database was set back since")
    deletions = tuple(_deletion_of(one) for one in connection.execute(_REMAINING, key))
    return _expiration_of(row, partition, deletions)


def record_outcomes(
    connection: Connection, cluster_id: str, run_id: str, items: Sequence[DeletionItem], now_ms: int
) -> None:
    """See `DeletionStore.record_outcomes`; the caller holds the fence."""
    rows = [
        key_of(cluster_id, item.planned.segment_id.topic_id_partition)
        | {
            "of_run": run_id,
            "of_segment": str(item.planned.segment_id.id),
            "outcome": item.outcome,
            "error": item.error,
            "message": None if item.message is None else stored_text(item.message),
            "recorded_at_ms": now_ms,
        }
        for item in items
    ]
    if rows:
        connection.execute(_RECORD, rows)


def withdraw_left(connection: Connection, cluster_id: str, run_id: str, author: str, now_ms: int) -> None:
    """See `DeletionStore.withdraw`."""
    key = {"of_cluster": cluster_id, "of_run": run_id}
    recorded = {"error": RunWithdrawnError.__name__, "recorded_at_ms": now_ms}
    begun = f"withdrawn by {author} after its deletion had begun: the next run ends it"
    connection.execute(
        _LEFT_OF_RUN.where(_HAS_BEGUN).values(
            outcome=str(DeletionOutcome.FAILED), message=stored_text(begun), **recorded
        ),
        key,
    )
    skipped = f"withdrawn by {author}"
    connection.execute(
        _LEFT_OF_RUN.values(outcome=str(DeletionOutcome.SKIPPED), message=stored_text(skipped), **recorded), key
    )


def list_items(connection: Connection, cluster_id: str, run_id: str) -> Sequence[DeletionItem]:
    """See `DeletionStore.items`."""
    return [
        DeletionItem(_deletion_of(row), DeletionOutcome(row.outcome), row.error, row.message)
        for row in connection.execute(_PLAN, {"of_cluster": cluster_id, "of_run": run_id})
    ]


def has_work(connection: Connection, cluster_id: str, run_id: str, partition: TopicIdPartition | None = None) -> bool:
    """See `DeletionStore.has_work`; of one partition, or of any."""
    query, key = _ANY_WORK, {"of_cluster": cluster_id, "of_run": run_id}
    if partition is not None:
        query, key = _ANY_WORK_OF_PARTITION, key | key_of(cluster_id, partition)
    return connection.execute(query, key).one_or_none() is not None


def runs_with_work(connection: Connection, cluster_id: str, since_ms: int) -> Sequence[str]:
    """See `DeletionStore.runs_with_work`."""
    left = select(planned_deletions.c.position).where(
        planned_deletions.c.cluster_id == runs.c.cluster_id,
        planned_deletions.c.run_id == runs.c.run_id,
        planned_deletions.c.outcome == DeletionOutcome.PLANNED,
    )
    query = (
        select(runs.c.run_id)
        .where(runs.c.cluster_id == cluster_id, runs.c.kind == LeaseRole.EXPIRE, runs.c.created_at_ms >= since_ms)
        .where(left.exists())
        .order_by(runs.c.created_at_ms, runs.c.run_id)
    )
    return connection.execute(query).scalars().all()


def tries_of(connection: Connection, cluster_id: str, run_id: str) -> Sequence[str]:
    """See `DeletionStore.tries_of`."""
    is_try = or_(runs.c.run_id == run_id, runs.c.run_id.startswith(f"{run_id}.", autoescape=True))
    query = (
        select(runs.c.run_id)
        .where(runs.c.cluster_id == cluster_id, runs.c.kind == LeaseRole.EXPIRE, is_try)
        .order_by(runs.c.created_at_ms, runs.c.run_id)
    )
    found = connection.execute(query).scalars()
    return [one for one in found if is_try_of(run_id, one)]


def _expirations_of(rows: Sequence[Row[Any]]) -> list[PlannedExpiration]:
    expirations = []
    for (topic_id, number, topic), grouped in groupby(rows, key=lambda row: (row.topic_id, row.partition, row.topic)):
        first, *others = grouped
        deletions = tuple(_deletion_of(row) for row in (first, *others))
        expirations.append(_expiration_of(first, partition_from(topic_id, number, topic), deletions))
    return expirations


def _expiration_of(
    row: Row[Any], partition: TopicIdPartition, deletions: tuple[PlannedDeletion, ...]
) -> PlannedExpiration:
    behind = -1 if row.local_behind_offset is None else row.local_behind_offset
    return PlannedExpiration(
        partition,
        row.log_start_before,
        row.log_start_offset,
        deletions,
        row.local_bytes,
        behind,
        row.local_history or FIRST_HISTORY,
    )


def _expiration_values(cluster_id: str, run_id: str, planned: PlannedExpiration) -> dict[str, Any]:
    partition = planned.topic_id_partition
    return {
        "cluster_id": cluster_id,
        "run_id": run_id,
        "topic_id": str(partition.topic_id),
        "partition": partition.partition,
        "topic": partition.topic,
        "log_start_before": planned.log_start_before,
        "log_start_offset": planned.log_start_offset,
        "local_bytes": planned.local_bytes,
        "local_behind_offset": planned.local_behind_offset,
        "local_history": planned.local_history,
    }


def _deletion_values(cluster_id: str, run_id: str, position: int, deletion: PlannedDeletion) -> dict[str, Any]:
    partition = deletion.segment_id.topic_id_partition
    return {
        "cluster_id": cluster_id,
        "run_id": run_id,
        "topic_id": str(partition.topic_id),
        "partition": partition.partition,
        "position": position,
        "segment_id": str(deletion.segment_id.id),
        "start_offset": deletion.start_offset,
        "end_offset": deletion.end_offset,
        "size_bytes": deletion.size_bytes,
        "state": int(deletion.state),
        "reason": deletion.reason,
        "detail": deletion.detail,
        "outcome": DeletionOutcome.PLANNED,
    }


def _deletion_of(row: Row[Any]) -> PlannedDeletion:
    partition = partition_from(row.topic_id, row.partition, row.topic)
    return PlannedDeletion(
        RemoteLogSegmentId(partition, Uuid.parse(row.segment_id)),
        row.start_offset,
        row.end_offset,
        row.size_bytes,
        RemoteLogSegmentState(row.state),
        row.reason,
        row.detail,
    )
