"""`DeletionStore` in SQL: planned deletions, leases of batches on their partitions, and outcomes."""

from collections.abc import Collection, Sequence
from itertools import groupby
from typing import Any, Final

from sqlalchemy import Connection, Row, Select, and_, bindparam, func, or_, select

from include.tiering.database.event_log import newest_event_ms
from include.tiering.database.schema import leases, planned_deletions, planned_expirations, runs, segments
from include.tiering.database.transactions import in_partition, key_of, partition_from, reading, stored_text
from include.tiering.errors import RunWithdrawnError, StateConflictError
from include.tiering.model.histories import FIRST_HISTORY
from include.tiering.model.ownership import LeaseRole, PartitionLease
from include.tiering.model.segments import RemoteLogSegmentId, RemoteLogSegmentState, TopicIdPartition, Uuid
from include.tiering.runs.deletion_run import (
    DeletionItem,
    DeletionOutcome,
    DeletionRun,
    PlannedDeletion,
    PlannedExpiration,
    PlannedTopic,
    TopicTotals,
    is_try_of,
    plan_hash,
)
from include.tiering.runs.sql_deletion_runs import PlannedItems, SqlDeletionRuns
from include.tiering.runs.sql_deletion_totals import totals

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
_LEFT_IN_IT: Final = select(planned_deletions.c.position).where(
    _SAME_PARTITION, planned_deletions.c.outcome == str(DeletionOutcome.PLANNED)
)
_BEGUN_IN_IT: Final = _LEFT_IN_IT.where(planned_deletions.c.state == int(RemoteLogSegmentState.DELETE_SEGMENT_STARTED))
_ITEMS: Final = PlannedItems(
    planned_deletions,
    DeletionOutcome.PLANNED,
    planned_expirations,
    _LEFT_IN_IT.exists(),
    _BEGUN_IN_IT.exists().desc(),
)
_PLAN: Final = _WITH_PARTITION.where(_ITEMS.of_run)
_REMAINING: Final = _PLAN.where(in_partition(planned_deletions), _ITEMS.is_left)
_EXPIRATION: Final = select(planned_expirations).where(
    in_partition(planned_expirations), planned_expirations.c.run_id == bindparam("of_run")
)
_RECORD: Final = _ITEMS.settle_left.where(
    in_partition(planned_deletions), planned_deletions.c.segment_id == bindparam("of_segment")
)


_SEGMENT: Final = and_(
    segments.c.cluster_id == planned_deletions.c.cluster_id,
    segments.c.topic_id == planned_deletions.c.topic_id,
    segments.c.partition == planned_deletions.c.partition,
    segments.c.segment_id == planned_deletions.c.segment_id,
    segments.c.max_timestamp_ms >= 0,
)
_BY_TOPIC: Final = (
    select(
        planned_deletions.c.run_id,
        planned_deletions.c.topic_id,
        planned_expirations.c.topic,
        func.count(func.distinct(planned_deletions.c.partition)).label("partitions"),
        func.count().label("segments"),
        func.sum(planned_deletions.c.size_bytes).label("size_bytes"),
        func.min(segments.c.max_timestamp_ms).label("oldest_ms"),
        func.max(segments.c.max_timestamp_ms).label("newest_ms"),
    )
    .join(planned_expirations, _SAME_PARTITION)
    .outerjoin(segments, _SEGMENT)
    .where(planned_deletions.c.cluster_id == bindparam("of_cluster"))
    .where(planned_deletions.c.run_id.in_(bindparam("of_runs", expanding=True)))
    .group_by(planned_deletions.c.run_id, planned_deletions.c.topic_id, planned_expirations.c.topic)
    .order_by(planned_deletions.c.run_id, planned_expirations.c.topic, planned_deletions.c.topic_id)
)


class SqlDeletionStore(SqlDeletionRuns):
    """`DeletionStore` over the platform's database. Every call is one transaction, dated by the database's clock."""

    _kind = LeaseRole.EXPIRE
    _planned_items = _ITEMS
    _rechecks_after_claim = True

    def save_plan(self, run_id: str, expirations: Sequence[PlannedExpiration]) -> DeletionRun:
        """Store the plan of a run. Idempotent for the same plan; raises StateConflictError for another one."""
        rows = [_expiration_values(planned) for planned in expirations]
        deletion_rows = [
            _deletion_values(position, deletion)
            for planned in expirations
            for position, deletion in enumerate(planned.deletions)
        ]
        return self._store_plan(
            run_id, plan_hash(expirations), (planned_expirations, rows), (planned_deletions, deletion_rows)
        )

    def plan(self, run_id: str) -> Sequence[PlannedExpiration]:
        """Return the stored plan, with its partitions ordered by topic and number."""
        with reading(self._engine) as connection:
            rows = connection.execute(_PLAN, self._key_of(run_id)).all()
        expirations = []
        for (topic_id, number, topic), found in groupby(rows, key=lambda row: (row.topic_id, row.partition, row.topic)):
            of_partition = list(found)
            deletions = tuple(_deletion_of(row) for row in of_partition)
            expirations.append(_expiration_of(of_partition[0], partition_from(topic_id, number, topic), deletions))
        return expirations

    def planned_topics(self, run_ids: Collection[str]) -> Sequence[PlannedTopic]:
        """Return what the plan of each run deletes of each topic, ordered by run id and topic. Sends one statement."""
        if not run_ids:
            return []
        with reading(self._engine) as connection:
            rows = connection.execute(_BY_TOPIC, {"of_cluster": self._cluster_id, "of_runs": list(run_ids)})
            return [
                PlannedTopic(
                    row.run_id,
                    Uuid.parse(row.topic_id),
                    row.topic,
                    row.partitions,
                    row.segments,
                    int(row.size_bytes),
                    row.oldest_ms,
                    row.newest_ms,
                )
                for row in rows
            ]

    def totals(self, run_id: str, *, window_ms: int) -> Sequence[TopicTotals]:
        """Return totals of each topic of which the plan deletes segments, or of which the window had deletions."""
        with reading(self._engine) as connection:
            since_ms = self._now_ms(connection) - window_ms
            return totals(connection, self._cluster_id, run_id, since_ms)

    def remaining(self, lease: PartitionLease) -> PlannedExpiration:
        """Return the leased partition with the deletions that are still PLANNED."""
        partition = lease.fence.topic_id_partition
        key = key_of(self._cluster_id, partition) | {"of_run": lease.run_id}
        with reading(self._engine) as connection:
            row = connection.execute(_EXPIRATION, key).one_or_none()
            if row is None:
                raise StateConflictError(
                    f"run {lease.run_id} plans nothing of {partition}: the database was restored after it was planned"
                )
            deletions = tuple(_deletion_of(remaining) for remaining in connection.execute(_REMAINING, key))
        return _expiration_of(row, partition, deletions)

    def record_outcomes(self, lease: PartitionLease, items: Sequence[DeletionItem]) -> None:
        """Store outcomes of planned deletions of the leased partition; an outcome that is stored already stays."""
        outcomes = [
            {
                "of_segment": str(item.planned.segment_id.id),
                "outcome": item.outcome,
                "error": item.error,
                "message": None if item.message is None else stored_text(item.message),
            }
            for item in items
        ]
        self._record(lease, _RECORD, outcomes)

    def items(self, run_id: str) -> Sequence[DeletionItem]:
        """Return all planned deletions with their outcomes, ordered by topic, partition and position in the plan."""
        with reading(self._engine) as connection:
            return [
                DeletionItem(_deletion_of(row), DeletionOutcome(row.outcome), row.error, row.message)
                for row in connection.execute(_PLAN, self._key_of(run_id))
            ]

    def runs_with_work(self, *, since_ms: int) -> Sequence[str]:
        """Return the ids of runs planned at `since_ms` or later that have a planned deletion left, oldest first."""
        left = select(planned_deletions.c.position).where(
            planned_deletions.c.cluster_id == runs.c.cluster_id,
            planned_deletions.c.run_id == runs.c.run_id,
            _ITEMS.is_left,
        )
        query = self._planned_runs().where(runs.c.created_at_ms >= since_ms, left.exists())
        with reading(self._engine) as connection:
            return connection.execute(query).scalars().all()

    def tries_of(self, run_id: str) -> Sequence[str]:
        """Return the ids of the planned runs that are tries of this run (see `id_of_try`), oldest first."""
        is_try = or_(runs.c.run_id == run_id, runs.c.run_id.startswith(f"{run_id}.", autoescape=True))
        with reading(self._engine) as connection:
            found = connection.execute(self._planned_runs().where(is_try)).scalars()
            return [planned for planned in found if is_try_of(run_id, planned)]

    def newest_event_ms(self, after_ms: int) -> int | None:
        """Return when the last event was recorded or lease was taken after `after_ms` (exclusive); None if none was."""
        newest_lease = select(func.max(leases.c.claimed_at_ms)).where(
            leases.c.cluster_id == self._cluster_id, leases.c.claimed_at_ms > after_ms
        )
        with reading(self._engine) as connection:
            event_ms = newest_event_ms(connection, self._cluster_id, after_ms)
            lease_ms = connection.execute(newest_lease).scalar_one()
        return max((at_ms for at_ms in (event_ms, lease_ms) if at_ms is not None), default=None)

    def _settle_left(self, connection: Connection, run_id: str, author: str, now_ms: int) -> None:
        recorded = {"error": RunWithdrawnError.__name__, "recorded_at_ms": now_ms}
        begun = f"withdrawn by {author} after its deletion had begun: the next run completes it"
        failed = {"outcome": str(DeletionOutcome.FAILED), "message": stored_text(begun)}
        connection.execute(_ITEMS.settle_left.where(_HAS_BEGUN).values(**failed, **recorded), self._key_of(run_id))
        skipped = {"outcome": str(DeletionOutcome.SKIPPED), "message": stored_text(f"withdrawn by {author}")}
        connection.execute(_ITEMS.settle_left.values(**skipped, **recorded), self._key_of(run_id))

    def _planned_runs(self) -> Select[str]:
        """Select ids of planned runs, oldest first."""
        of_kind = and_(runs.c.cluster_id == self._cluster_id, runs.c.kind == self._kind)
        return select(runs.c.run_id).where(of_kind).order_by(runs.c.created_at_ms, runs.c.run_id)


def _expiration_of(
    row: Row[Any], partition: TopicIdPartition, deletions: tuple[PlannedDeletion, ...]
) -> PlannedExpiration:
    local_from = -1 if row.local_behind_offset is None else row.local_behind_offset
    return PlannedExpiration(
        partition,
        row.log_start_before,
        row.log_start_offset,
        deletions,
        row.local_bytes,
        local_from,
        row.local_history or FIRST_HISTORY,
    )


def _expiration_values(planned: PlannedExpiration) -> dict[str, Any]:
    partition = planned.topic_id_partition
    return {
        "topic_id": str(partition.topic_id),
        "partition": partition.partition,
        "topic": partition.topic,
        "log_start_before": planned.log_start_before,
        "log_start_offset": planned.log_start_offset,
        "local_bytes": planned.local_bytes,
        "local_behind_offset": planned.local_behind_offset,
        "local_history": planned.local_history,
    }


def _deletion_values(position: int, deletion: PlannedDeletion) -> dict[str, Any]:
    partition = deletion.segment_id.topic_id_partition
    return {
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
