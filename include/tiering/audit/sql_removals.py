"""`RemovalStore` in SQL: runs that remove what has no metadata, of one cluster.

What such a run removes is added up by the database too, as the second opinion of the deletion limit: objects of
segments that metadata knows are counted from the segments' own rows, stored bytes by the counters that every state
change moves.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

from sqlalchemy import (
    Connection,
    Engine,
    Row,
    Select,
    and_,
    bindparam,
    delete,
    exists,
    func,
    insert,
    literal,
    or_,
    select,
    tuple_,
    update,
)

from include.tiering.audit.finding import FindingKind
from include.tiering.audit.plan_removals import PlannedRemoval, RemovalItem, RemovalOutcome, RemovalTotals, removal_hash
from include.tiering.database.partitions import (
    hold_fence,
    in_partition,
    key_of,
    lock_or_create_partition,
    of_partition,
    partition_from,
)
from include.tiering.database.schema import leases, pauses, planned_removals, segments
from include.tiering.database.transactions import NowMs, database_now_ms, reading, stored_text, writing
from include.tiering.model.ids import RemoteLogSegmentId, TopicIdPartition, Uuid
from include.tiering.model.ownership import Fence, LeaseRole
from include.tiering.model.segment_metadata import RemoteLogSegmentState
from include.tiering.runs import sql_lease_rows, sql_release
from include.tiering.runs.contract import ALL_TOPICS, PartitionLease
from include.tiering.runs.deletion_run import DeletionRun

_LEFT: Final = update(planned_removals).where(
    and_(
        planned_removals.c.cluster_id == bindparam("of_cluster"),
        planned_removals.c.run_id == bindparam("of_run"),
        planned_removals.c.outcome == str(RemovalOutcome.PLANNED),
    )
)


def withdraw_left(connection: Connection, cluster_id: str, run_id: str, author: str, now_ms: int) -> None:
    """See `RemovalStore.withdraw`."""
    key = {"of_cluster": cluster_id, "of_run": run_id}
    begun = f"withdrawn by {author} while it was removed: the next audit says what is left of it"
    for left, outcome, message in (
        (_LEFT.where(planned_removals.c.condemned_at_ms.is_not(None)), RemovalOutcome.FAILED, begun),
        (_LEFT, RemovalOutcome.KEPT, f"withdrawn by {author}"),
    ):
        values = {"outcome": str(outcome), "message": stored_text(message), "recorded_at_ms": now_ms}
        connection.execute(left.values(**values), key)


def removal_of(row: Row[Any]) -> PlannedRemoval:
    partition = partition_from(row.topic_id, row.partition, row.topic)
    return PlannedRemoval(
        RemoteLogSegmentId(partition, Uuid.parse(row.segment_id)),
        FindingKind(row.kind),
        row.key,
        row.token or None,
        row.size_bytes,
        row.last_modified_ms,
    )


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
    expired = sql_release.recent_bytes(connection, cluster_id, since_ms)
    remote = sql_release.stored_bytes(connection, cluster_id)
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


AUDIT_RUN: Final = "audit"
_CANDIDATES: Final = 16
_IDS_PER_STATEMENT: Final = 400
_RECORD: Final = update(planned_removals).where(
    in_partition(planned_removals),
    planned_removals.c.run_id == bindparam("of_run"),
    planned_removals.c.key == bindparam("of_key"),
    planned_removals.c.token == bindparam("of_token"),
    planned_removals.c.outcome == str(RemovalOutcome.PLANNED),
)


class SqlRemovalStore:
    """`RemovalStore` over the platform's database. Every call is one transaction, dated by the database's clock."""

    def __init__(self, engine: Engine, cluster_id: str, *, now_ms: NowMs = database_now_ms) -> None:
        self._engine = engine
        self._cluster_id = cluster_id
        self._now_ms = now_ms

    def save_plan(self, run_id: str, removals: Sequence[PlannedRemoval]) -> DeletionRun:
        with self._writing() as (connection, now_ms):
            hashed = removal_hash(removals)
            if sql_release.begin(connection, self._cluster_id, run_id, AUDIT_RUN, hashed, now_ms):
                rows = [self._values(run_id, position, one) for position, one in enumerate(removals)]
                if rows:
                    connection.execute(insert(planned_removals), rows)
            return self._run(connection, run_id)

    def run(self, run_id: str) -> DeletionRun:
        with reading(self._engine) as connection:
            return self._run(connection, run_id)

    def totals(self, run_id: str, *, window_ms: int) -> Sequence[RemovalTotals]:
        with reading(self._engine) as connection:
            since_ms = self._now_ms(connection) - window_ms
            return totals(connection, self._cluster_id, run_id, since_ms)

    def record_brake(self, run_id: str, *, needs_approval: bool, detail: str, author: str) -> None:
        with self._writing() as (connection, now_ms):
            sql_release.record_brake(
                connection,
                self._cluster_id,
                run_id,
                needs_approval=needs_approval,
                detail=detail,
                author=author,
                now_ms=now_ms,
            )

    def approve(self, run_id: str, plan_hash: str, *, author: str) -> DeletionRun:
        with self._writing() as (connection, now_ms):
            run = self._run(connection, run_id, lock=True)
            sql_release.approve(connection, self._cluster_id, run, plan_hash, author=author, now_ms=now_ms)
            return self._run(connection, run_id)

    def withdraw(self, run_id: str, *, author: str) -> DeletionRun:
        with self._writing() as (connection, now_ms):
            run = self._run(connection, run_id, lock=True)
            if sql_release.withdraw(connection, self._cluster_id, run, author=author, now_ms=now_ms):
                withdraw_left(connection, self._cluster_id, run_id, author, now_ms)
            return self._run(connection, run_id)

    def claim(
        self, run_id: str, batch_id: str, *, lease_ms: int, exclude: Collection[TopicIdPartition] = ()
    ) -> PartitionLease | None:
        passed_over = set(exclude)
        with self._writing() as (connection, now_ms):
            if not self._run(connection, run_id, lock=True).is_released:
                return None
            while candidates := self._claimable(connection, run_id, batch_id, passed_over, now_ms):
                passed_over.update(candidates)
                for partition in candidates:
                    fence = self._take(connection, run_id, batch_id, partition, now_ms=now_ms, lease_ms=lease_ms)
                    if fence is not None:
                        expires_at_ms = now_ms + lease_ms
                        return PartitionLease(
                            run_id=run_id, batch_id=batch_id, fence=fence, expires_at_ms=expires_at_ms
                        )
        return None

    def remaining(self, lease: PartitionLease) -> Sequence[PlannedRemoval]:
        left = (
            self._of_run(lease.run_id)
            .where(of_partition(planned_removals, self._cluster_id, lease.fence.topic_id_partition))
            .where(planned_removals.c.outcome == RemovalOutcome.PLANNED)
        )
        with reading(self._engine) as connection:
            return [removal_of(row) for row in connection.execute(left)]

    def condemn(self, lease: PartitionLease, segment_ids: Collection[RemoteLogSegmentId]) -> frozenset[Uuid]:
        partition = lease.fence.topic_id_partition
        ids = sorted({str(segment_id.id) for segment_id in segment_ids})
        condemned: set[str] = set()
        with self._writing() as (connection, now_ms):
            hold_fence(connection, self._cluster_id, lease.fence)
            lock_or_create_partition(connection, self._cluster_id, partition)
            for first in range(0, len(ids), _IDS_PER_STATEMENT):
                some = ids[first : first + _IDS_PER_STATEMENT]
                known = select(segments.c.segment_id).where(
                    of_partition(segments, self._cluster_id, partition),
                    segments.c.segment_id.in_(some),
                    segments.c.state != _TOMBSTONE,
                )
                unknown = set(some).difference(connection.scalars(known))
                connection.execute(
                    update(planned_removals)
                    .where(of_partition(planned_removals, self._cluster_id, partition))
                    .where(planned_removals.c.run_id == lease.run_id, planned_removals.c.segment_id.in_(unknown))
                    .where(planned_removals.c.condemned_at_ms.is_(None))
                    .values(condemned_at_ms=now_ms)
                )
                condemned |= unknown
        return frozenset(map(Uuid.parse, condemned))

    def record_outcomes(self, lease: PartitionLease, items: Sequence[RemovalItem]) -> None:
        if not items:
            return
        with self._writing(durable=False) as (connection, now_ms):
            hold_fence(connection, self._cluster_id, lease.fence)
            rows = [
                key_of(self._cluster_id, lease.fence.topic_id_partition)
                | {
                    "of_run": lease.run_id,
                    "of_key": item.planned.key,
                    "of_token": item.planned.token or "",
                    "outcome": item.outcome,
                    "message": None if item.message is None else stored_text(item.message),
                    "recorded_at_ms": now_ms,
                }
                for item in items
            ]
            connection.execute(_RECORD, rows)

    def items(self, run_id: str) -> Sequence[RemovalItem]:
        with reading(self._engine) as connection:
            return [
                RemovalItem(removal_of(row), RemovalOutcome(row.outcome), row.message)
                for row in connection.execute(self._of_run(run_id))
            ]

    def forget(self, older_than_ms: int) -> int:
        settled = (
            delete(planned_removals)
            .where(planned_removals.c.cluster_id == self._cluster_id)
            .where(planned_removals.c.outcome != RemovalOutcome.PLANNED)
        )
        with self._writing() as (connection, now_ms):
            return connection.execute(
                settled.where(planned_removals.c.recorded_at_ms < now_ms - older_than_ms)
            ).rowcount

    def has_work(self, run_id: str) -> bool:
        left = self._of_run(run_id).where(planned_removals.c.outcome == RemovalOutcome.PLANNED)
        with reading(self._engine) as connection:
            return connection.execute(left.limit(1)).one_or_none() is not None

    def _take(
        self,
        connection: Connection,
        run_id: str,
        batch_id: str,
        partition: TopicIdPartition,
        *,
        now_ms: int,
        lease_ms: int,
    ) -> Fence | None:
        """None if another batch was quicker. What was not won is rolled back with its locks: a claim never holds one
        while it waits for another."""
        with connection.begin_nested() as savepoint:
            fence = sql_lease_rows.take(
                connection,
                self._cluster_id,
                partition,
                LeaseRole.EXPIRE,
                run_id=run_id,
                batch_id=batch_id,
                now_ms=now_ms,
                lease_ms=lease_ms,
            )
            if fence is None:
                savepoint.rollback()
            return fence

    def _run(self, connection: Connection, run_id: str, *, lock: bool = False) -> DeletionRun:
        return sql_release.find(connection, self._cluster_id, run_id, AUDIT_RUN, lock=lock)

    def _of_run(self, run_id: str) -> Select[Any]:
        of_run = and_(planned_removals.c.cluster_id == self._cluster_id, planned_removals.c.run_id == run_id)
        return select(planned_removals).where(of_run).order_by(planned_removals.c.position)

    def _claimable(
        self, connection: Connection, run_id: str, batch_id: str, exclude: Collection[TopicIdPartition], now_ms: int
    ) -> list[TopicIdPartition]:
        """The next partitions with removals left that this batch could claim, by topic and partition."""
        planned = planned_removals.c
        same_lease = and_(
            leases.c.cluster_id == planned.cluster_id,
            leases.c.topic_id == planned.topic_id,
            leases.c.partition == planned.partition,
            leases.c.role == LeaseRole.EXPIRE,
        )
        is_free = sql_lease_rows.is_free(literal(run_id), literal(batch_id), literal(now_ms))
        paused = select(pauses.c.topic).where(pauses.c.cluster_id == self._cluster_id)
        query = (
            select(planned.topic_id, planned.partition, planned.topic)
            .distinct()
            .select_from(planned_removals)
            .outerjoin(leases, same_lease)
            .where(planned.cluster_id == self._cluster_id, planned.run_id == run_id)
            .where(planned.outcome == RemovalOutcome.PLANNED)
            .where(or_(leases.c.token.is_(None), is_free))
            .where(planned.topic.not_in(paused), ~paused.where(pauses.c.topic == ALL_TOPICS).exists())
            .order_by(planned.topic, planned.topic_id, planned.partition)
            .limit(_CANDIDATES)
        )
        if exclude:
            key = tuple_(planned.topic_id, planned.partition)
            query = query.where(key.not_in([(str(one.topic_id), one.partition) for one in exclude]))
        return [partition_from(row.topic_id, row.partition, row.topic) for row in connection.execute(query)]

    def _values(self, run_id: str, position: int, planned: PlannedRemoval) -> dict[str, Any]:
        partition = planned.segment_id.topic_id_partition
        return {
            "cluster_id": self._cluster_id,
            "run_id": run_id,
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

    @contextmanager
    def _writing(self, *, durable: bool = True) -> Iterator[tuple[Connection, int]]:
        with writing(self._engine, durable=durable) as connection:
            yield connection, self._now_ms(connection)
