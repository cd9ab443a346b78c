"""`RemovalStore` in SQL: runs of one cluster that remove objects without metadata.

The totals for the deletion limit are computed in SQL: planned objects from the rows of the plan, objects of known
segments from the rows of the segments, recently deleted bytes from the outcomes of removals and from the rows of the
segments, and stored bytes from the counters that every state change updates.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from sqlalchemy import Connection, Row, Select, bindparam, delete, exists, func, select, update

from include.tiering.audit.finding import FindingKind
from include.tiering.audit.plan_removals import PlannedRemoval, RemovalItem, RemovalOutcome, RemovalTotals, removal_hash
from include.tiering.database.schema import planned_removals, segments
from include.tiering.database.transactions import (
    hold_fence,
    in_partition,
    key_of,
    lock_or_create_partition,
    of_partition,
    partition_from,
    reading,
    stored_text,
)
from include.tiering.model.ownership import PartitionLease
from include.tiering.model.segments import RemoteLogSegmentId, RemoteLogSegmentState, Uuid
from include.tiering.runs.deletion_run import DeletionRun
from include.tiering.runs.sql_deletion_runs import PlannedItems, SqlDeletionRuns
from include.tiering.runs.sql_deletion_totals import recent_bytes, stored_bytes

AUDIT_RUN: Final = "audit"
_IDS_PER_STATEMENT: Final = 400
_IS_LEFT: Final = planned_removals.c.outcome == str(RemovalOutcome.PLANNED)
_ITEMS: Final = PlannedItems(planned_removals, RemovalOutcome.PLANNED, planned_removals, _IS_LEFT)
_ALL: Final = select(planned_removals).where(_ITEMS.of_run).order_by(planned_removals.c.position)
_REMAINING: Final = _ALL.where(in_partition(planned_removals), _IS_LEFT)
_RECORD: Final = _ITEMS.settle_left.where(
    in_partition(planned_removals),
    planned_removals.c.key == bindparam("of_key"),
    planned_removals.c.token == bindparam("of_token"),
)
_TOMBSTONE: Final = int(RemoteLogSegmentState.DELETE_SEGMENT_FINISHED)
_IS_KNOWN: Final = exists().where(
    segments.c.cluster_id == planned_removals.c.cluster_id,
    segments.c.topic_id == planned_removals.c.topic_id,
    segments.c.partition == planned_removals.c.partition,
    segments.c.segment_id == planned_removals.c.segment_id,
    segments.c.state != _TOMBSTONE,
)
_PLANNED_BY_TOPIC: Final = (
    select(
        planned_removals.c.topic_id,
        func.max(planned_removals.c.topic).label("topic"),
        func.count().label("objects"),
        func.sum(planned_removals.c.size_bytes).label("size_bytes"),
    )
    .where(_ITEMS.of_run)
    .group_by(planned_removals.c.topic_id)
    .order_by("topic", planned_removals.c.topic_id)
)
_KNOWN_BY_TOPIC: Final = (
    select(planned_removals.c.topic_id, func.count())
    .where(_ITEMS.of_run, _IS_KNOWN)
    .group_by(planned_removals.c.topic_id)
)
_REMOVED_BY_TOPIC: Final = (
    select(planned_removals.c.topic_id, func.sum(planned_removals.c.size_bytes))
    .where(planned_removals.c.cluster_id == bindparam("of_cluster"))
    .where(planned_removals.c.outcome == str(RemovalOutcome.REMOVED))
    .where(planned_removals.c.recorded_at_ms >= bindparam("since_ms"))
    .group_by(planned_removals.c.topic_id)
)


class SqlRemovalStore(SqlDeletionRuns):
    """`RemovalStore` over the platform's database. Every call is one transaction, dated by the database's clock."""

    _kind = AUDIT_RUN
    _planned_items = _ITEMS
    _rechecks_after_claim = False

    def save_plan(self, run_id: str, removals: Sequence[PlannedRemoval]) -> DeletionRun:
        """Store a plan. Idempotent for one run id and plan; raises StateConflictError if the run has another plan."""
        rows = [_values(position, removal) for position, removal in enumerate(removals)]
        return self._store_plan(run_id, removal_hash(removals), (planned_removals, rows))

    def totals(self, run_id: str, *, window_ms: int) -> Sequence[RemovalTotals]:
        """Return totals of the topics in the plan, ordered by name. The window ends now, by the database's clock."""
        with reading(self._engine) as connection:
            since_ms = self._now_ms(connection) - window_ms
            known = _by_topic(connection, _KNOWN_BY_TOPIC, self._key_of(run_id))
            recently = {"of_cluster": self._cluster_id, "since_ms": since_ms}
            removed = _by_topic(connection, _REMOVED_BY_TOPIC, recently)
            expired = recent_bytes(connection, self._cluster_id, since_ms)
            remote = stored_bytes(connection, self._cluster_id)
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
                for row in connection.execute(_PLANNED_BY_TOPIC, self._key_of(run_id))
            ]

    def remaining(self, lease: PartitionLease) -> Sequence[PlannedRemoval]:
        """Return the removals of the leased partition that are still PLANNED, in the order of the plan."""
        key = key_of(self._cluster_id, lease.fence.topic_id_partition) | {"of_run": lease.run_id}
        with reading(self._engine) as connection:
            return [_removal_of(row) for row in connection.execute(_REMAINING, key)]

    def mark_for_deletion(self, lease: PartitionLease, segment_ids: Collection[RemoteLogSegmentId]) -> frozenset[Uuid]:
        """Mark ids of the leased partition for deletion: until `forget`, no segment may begin under them."""
        partition = lease.fence.topic_id_partition
        ids = sorted({str(segment_id.id) for segment_id in segment_ids})
        marked: set[str] = set()
        with self._writing() as (connection, now_ms):
            hold_fence(connection, self._cluster_id, lease.fence)
            lock_or_create_partition(connection, self._cluster_id, partition)
            for first in range(0, len(ids), _IDS_PER_STATEMENT):
                chunk = ids[first : first + _IDS_PER_STATEMENT]
                known = select(segments.c.segment_id).where(
                    of_partition(segments, self._cluster_id, partition),
                    segments.c.segment_id.in_(chunk),
                    segments.c.state != _TOMBSTONE,
                )
                unknown = set(chunk).difference(connection.scalars(known))
                connection.execute(
                    update(planned_removals)
                    .where(of_partition(planned_removals, self._cluster_id, partition))
                    .where(planned_removals.c.run_id == lease.run_id, planned_removals.c.segment_id.in_(unknown))
                    .where(planned_removals.c.marked_for_deletion_at_ms.is_(None))
                    .values(marked_for_deletion_at_ms=now_ms)
                )
                marked |= unknown
        return frozenset(map(Uuid.parse, marked))

    def record_outcomes(self, lease: PartitionLease, items: Sequence[RemovalItem]) -> None:
        """Store outcomes of planned removals of the leased partition; an existing outcome stays."""
        if not items:
            return
        outcomes = [
            {
                "of_key": item.planned.key,
                "of_token": item.planned.token or "",
                "outcome": item.outcome,
                "message": None if item.message is None else stored_text(item.message),
            }
            for item in items
        ]
        self._record(lease, _RECORD, outcomes)

    def items(self, run_id: str) -> Sequence[RemovalItem]:
        """Return all planned removals with their outcomes, in the order of the plan."""
        with reading(self._engine) as connection:
            return [
                RemovalItem(_removal_of(row), RemovalOutcome(row.outcome), row.message)
                for row in connection.execute(_ALL, self._key_of(run_id))
            ]

    def forget(self, older_than_ms: int) -> int:
        """Delete the rows of removals whose outcome was stored more than `older_than_ms` ago; return how many."""
        settled = (
            delete(planned_removals)
            .where(planned_removals.c.cluster_id == self._cluster_id)
            .where(planned_removals.c.outcome != RemovalOutcome.PLANNED)
        )
        with self._writing() as (connection, now_ms):
            return connection.execute(
                settled.where(planned_removals.c.recorded_at_ms < now_ms - older_than_ms)
            ).rowcount

    def _settle_left(self, connection: Connection, run_id: str, author: str, now_ms: int) -> None:
        begun = f"withdrawn by {author} when its removal may have begun: the next audit reports the object if left"
        for left, outcome, message in (
            (
                _ITEMS.settle_left.where(planned_removals.c.marked_for_deletion_at_ms.is_not(None)),
                RemovalOutcome.FAILED,
                begun,
            ),
            (_ITEMS.settle_left, RemovalOutcome.KEPT, f"withdrawn by {author}"),
        ):
            values = {"outcome": str(outcome), "message": stored_text(message), "recorded_at_ms": now_ms}
            connection.execute(left.values(**values), self._key_of(run_id))


def _by_topic(connection: Connection, query: Select[str, int], given: Mapping[str, Any]) -> dict[str, int]:
    return {topic_id: int(number) for topic_id, number in connection.execute(query, given)}


def _removal_of(row: Row[Any]) -> PlannedRemoval:
    partition = partition_from(row.topic_id, row.partition, row.topic)
    return PlannedRemoval(
        RemoteLogSegmentId(partition, Uuid.parse(row.segment_id)),
        FindingKind(row.kind),
        row.key,
        row.token or None,
        row.size_bytes,
        row.last_modified_ms,
    )


def _values(position: int, planned: PlannedRemoval) -> dict[str, Any]:
    partition = planned.segment_id.topic_id_partition
    return {
        "position": position,
        "topic_id": str(partition.topic_id),
        "partition": partition.partition,
        "topic": partition.topic,
        "segment_id": str(planned.segment_id.id),
        "kind": planned.kind,
        "key": planned.key,
        "token": planned.token or "",
        "size_bytes": planned.size_bytes,
        "last_modified_ms": planned.last_modified_ms,
        "outcome": RemovalOutcome.PLANNED,
    }
