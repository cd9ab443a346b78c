"""`WorkStore` in SQL: the copy plan of a run, which partition a batch gets next, and the outcome of each segment.

`sql_batches` has what batches of any kind share.
"""

import hashlib
import json
from collections.abc import Collection, Sequence
from functools import cache
from typing import Any, Final

from sqlalchemy import ColumnElement, Row, Select, and_, bindparam, exists, insert, select, tuple_, update

from include.tiering.database.schema import leases, planned_partitions, planned_segments, runs
from include.tiering.database.transactions import (
    hold_fence,
    in_partition,
    insert_if_absent,
    key_of,
    partition_from,
    reading,
    stored_text,
)
from include.tiering.errors import StateConflictError
from include.tiering.kafka.log_dirs.contract import ReplicaId
from include.tiering.model.ownership import LeaseRole
from include.tiering.model.segments import TopicIdPartition, Uuid
from include.tiering.runs.contract import (
    ClaimOrder,
    Lease,
    Placement,
    PlannedPartition,
    PlannedSegment,
    SegmentOutcome,
    WorkItem,
)
from include.tiering.runs.sql_batches import OF_FENCE, SqlBatches, claimable, key_of_fence, take

HAS_PLANNED_SEGMENT: ColumnElement[bool] = exists().where(
    planned_segments.c.cluster_id == planned_partitions.c.cluster_id,
    planned_segments.c.run_id == planned_partitions.c.run_id,
    planned_segments.c.topic_id == planned_partitions.c.topic_id,
    planned_segments.c.partition == planned_partitions.c.partition,
    planned_segments.c.outcome == SegmentOutcome.PLANNED,
)
_IS_SEGMENT: Final = (
    in_partition(planned_segments),
    planned_segments.c.run_id == bindparam("of_run"),
    planned_segments.c.base_offset == bindparam("of_offset"),
)
_FIND: Final = select(planned_segments).where(*_IS_SEGMENT)
_IS_PLANNED: Final = planned_segments.c.outcome == str(SegmentOutcome.PLANNED)
_RECORD: Final = update(planned_segments).where(*_IS_SEGMENT, _IS_PLANNED)
_LEFT_OF_RUN: Final = (
    in_partition(planned_segments),
    planned_segments.c.run_id == bindparam("of_run"),
    _IS_PLANNED,
)
_NOTE_LEFT: Final = update(planned_segments).where(*_LEFT_OF_RUN)
_REMAINING: Final = (
    select(*(planned_segments.c[name] for name in ("base_offset", "end_offset", "size_bytes", "supersedes")))
    .where(*_LEFT_OF_RUN)
    .order_by(planned_segments.c.base_offset)
)
_NEWEST_PLAN: Final = (
    select(planned_partitions.c.run_id, runs.c.created_at_ms)
    .join(
        runs, and_(runs.c.cluster_id == planned_partitions.c.cluster_id, runs.c.run_id == planned_partitions.c.run_id)
    )
    .where(in_partition(planned_partitions))
    .order_by(runs.c.created_at_ms.desc())
    .limit(1)
)
_STILL_PLANNED: Final = _REMAINING.where(planned_segments.c.base_offset >= bindparam("from_offset")).limit(
    bindparam("at_most")
)
_ADD_PARTITIONS: Final = insert(planned_partitions)
_ADD_SEGMENTS: Final = insert(planned_segments)
_STOP: Final = (
    update(planned_partitions)
    .where(in_partition(planned_partitions), planned_partitions.c.run_id == bindparam("of_run"))
    .values(stopped=True)
)
IS_PLACED: Final = and_(
    planned_partitions.c.queue.is_not_distinct_from(bindparam("on_queue")),
    planned_partitions.c.spark_resource.is_not_distinct_from(bindparam("on_spark_resource")),
)
"""Condition: a partition has exactly this placement (None matches only None). Parameters: `key_of_placement`."""
_ITEMS: Final = (
    select(planned_segments, planned_partitions.c.topic)
    .join(
        planned_partitions,
        and_(
            planned_partitions.c.cluster_id == planned_segments.c.cluster_id,
            planned_partitions.c.run_id == planned_segments.c.run_id,
            planned_partitions.c.topic_id == planned_segments.c.topic_id,
            planned_partitions.c.partition == planned_segments.c.partition,
        ),
    )
    .where(planned_segments.c.cluster_id == bindparam("of_cluster"), planned_segments.c.run_id == bindparam("of_run"))
    .order_by(
        planned_partitions.c.topic,
        planned_segments.c.topic_id,
        planned_segments.c.partition,
        planned_segments.c.base_offset,
    )
)
_ANY_WORK: Final = (
    select(planned_partitions.c.partition)
    .where(
        planned_partitions.c.cluster_id == bindparam("of_cluster"),
        planned_partitions.c.run_id == bindparam("of_run"),
        planned_partitions.c.stopped.is_(False),
        HAS_PLANNED_SEGMENT,
    )
    .limit(1)
)
_WORK_OF_PARTITION: Final = _ANY_WORK.where(in_partition(planned_partitions))
_ANY_WORK_PLACED: Final = _ANY_WORK.where(IS_PLACED)
_CANDIDATES: Final = 16
_BY_NAME: Final = (planned_partitions.c.topic, planned_partitions.c.topic_id, planned_partitions.c.partition)
_ORDERS: Final = {
    ClaimOrder.URGENCY: (planned_partitions.c.urgency.desc(), planned_partitions.c.claimed_at_ms, *_BY_NAME),
    ClaimOrder.LONGEST_WAIT: (planned_partitions.c.claimed_at_ms, planned_partitions.c.urgency.desc(), *_BY_NAME),
}
_CLAIMED: Final = update(planned_partitions).where(
    in_partition(planned_partitions), planned_partitions.c.run_id == bindparam("of_run")
)
_CLAIMED_AT: Final = select(leases.c.claimed_at_ms).where(OF_FENCE)


class SqlWorkStore(SqlBatches):
    """`WorkStore` over the platform's database: plans of copies, and what all batches share.

    Every call is one transaction, dated by the database's clock. Commits of outcomes do not wait for the disk: if a
    power failure undoes the outcome of a segment, the next batch that claims its partition finds that the segment is
    copied, or tries again.
    """

    def save_plan(self, run_id: str, partitions: Sequence[PlannedPartition]) -> None:
        """Store the plan of a run. Idempotent for the same plan; raises StateConflictError for another one."""
        plan_hash = _hash_of(partitions)
        key = {"cluster_id": self._cluster_id, "run_id": run_id}
        with self._writing() as (connection, now_ms):
            values = key | {"kind": LeaseRole.COPY, "plan_hash": plan_hash, "created_at_ms": now_ms}
            if not insert_if_absent(connection, runs, values):
                is_run = and_(runs.c.cluster_id == self._cluster_id, runs.c.run_id == run_id)
                known = connection.execute(select(runs.c.kind, runs.c.plan_hash).where(is_run)).one()
                if tuple(known) != (LeaseRole.COPY, plan_hash):
                    raise StateConflictError(f"run {run_id} has another plan already: use a new run id")
                return
            rows = [key | _partition_values(planned) for planned in partitions]
            segment_rows = [
                key | _segment_values(planned, segment) for planned in partitions for segment in planned.segments
            ]
            if rows:
                connection.execute(_ADD_PARTITIONS, rows)
            if segment_rows:
                connection.execute(_ADD_SEGMENTS, segment_rows)

    def claim(
        self,
        run_id: str,
        batch_id: str,
        *,
        lease_ms: int,
        exclude: Collection[TopicIdPartition] = (),
        exclude_topics: Collection[str] = (),
        exclude_brokers: Collection[int] = (),
        placement: Placement | None = None,
        order: ClaimOrder = ClaimOrder.URGENCY,
    ) -> Lease | None:
        """Lease a partition of the run in the role COPY: the first, by `order`, that can be claimed."""
        passed_over = set(exclude)
        with self._writing() as (connection, now_ms):
            while True:
                query = _next_claimable(order, is_placed=placement is not None, passes_over=bool(passed_over))
                given = self._parameters(run_id, batch_id, passed_over, placement, now_ms)
                if exclude_topics:
                    query = query.where(planned_partitions.c.topic.not_in(exclude_topics))
                if exclude_brokers:
                    query = query.where(planned_partitions.c.broker_id.not_in(exclude_brokers))
                candidates = connection.execute(query, given).all()
                if not candidates:
                    return None
                for row in candidates:
                    partition = partition_from(row.topic_id, row.partition, row.topic)
                    passed_over.add(partition)
                    # Another batch may have finished or stopped the partition since it was listed. Without a lease,
                    # or without work, the locks are rolled back: a claim holds no lock while it waits for another.
                    with connection.begin_nested() as savepoint:
                        fence = take(
                            connection,
                            self._cluster_id,
                            partition,
                            LeaseRole.COPY,
                            run_id=run_id,
                            batch_id=batch_id,
                            now_ms=now_ms,
                            lease_ms=lease_ms,
                        )
                        key = key_of(self._cluster_id, partition) | {"of_run": run_id}
                        if fence is None or connection.execute(_WORK_OF_PARTITION, key).one_or_none() is None:
                            savepoint.rollback()
                            continue
                    connection.execute(_CLAIMED, key | {"claimed_at_ms": now_ms})
                    return Lease(
                        run_id=run_id,
                        batch_id=batch_id,
                        replica_id=ReplicaId(partition, row.broker_id, row.directory_id),
                        fence=fence,
                        expires_at_ms=now_ms + lease_ms,
                    )

    def waits_longer(
        self, lease: Lease, *, exclude: Collection[TopicIdPartition] = (), placement: Placement | None = None
    ) -> bool:
        """Return whether the batch could claim a partition that has waited since before this lease was claimed."""
        with reading(self._engine) as connection:
            now_ms = self._now_ms(connection)
            key = key_of_fence(self._cluster_id, lease.fence)
            claimed_at_ms = connection.execute(_CLAIMED_AT, key).scalar_one_or_none()
            if claimed_at_ms is None:
                return False
            waiting = _waiting_longer(is_placed=placement is not None, passes_over=bool(exclude))
            given = self._parameters(lease.run_id, lease.batch_id, exclude, placement, now_ms)
            return connection.execute(waiting, given | {"since_ms": claimed_at_ms}).one_or_none() is not None

    def remaining(self, lease: Lease) -> Sequence[PlannedSegment]:
        """Return the segments of the leased partition that are still PLANNED, ordered by base offset."""
        key = key_of(self._cluster_id, lease.fence.topic_id_partition) | {"of_run": lease.run_id}
        with reading(self._engine) as connection:
            return [_segment_of(row) for row in connection.execute(_REMAINING, key)]

    def newest_plan(
        self, partition: TopicIdPartition, *, from_offset: int, at_most: int
    ) -> tuple[int | None, Sequence[PlannedSegment]]:
        """Return when the newest plan of this partition was made, and what it still has PLANNED, ordered by offset."""
        key = key_of(self._cluster_id, partition)
        with reading(self._engine) as connection:
            plan = connection.execute(_NEWEST_PLAN, key).one_or_none()
            if plan is None:
                return None, ()
            key |= {"of_run": plan.run_id, "from_offset": from_offset, "at_most": at_most}
            return plan.created_at_ms, [_segment_of(row) for row in connection.execute(_STILL_PLANNED, key)]

    def record_outcome(self, lease: Lease, item: WorkItem) -> None:
        """Store the outcome of one planned segment: COPIED, FAILED or SKIPPED. Idempotent for the same outcome."""
        partition, base_offset = item.topic_id_partition, item.segment.base_offset
        of_partition = key_of(self._cluster_id, partition) | {"of_run": lease.run_id}
        key = of_partition | {"of_offset": base_offset}
        values = {
            "outcome": item.outcome,
            "segment_id": item.segment_id,
            "path": _stored(item.path),
            "position": item.position,
            "error": item.error,
            "message": _stored(item.message),
        }
        with self._writing(durable=False) as (connection, now_ms):
            hold_fence(connection, self._cluster_id, lease.fence)
            if connection.execute(_RECORD, key | values | {"recorded_at_ms": now_ms}).rowcount == 0:
                known = connection.execute(_FIND, key).mappings().one_or_none()
                if known is None:
                    raise StateConflictError(f"run {lease.run_id} has no segment {base_offset} of {partition}")
                if any(known[name] != value for name, value in values.items()):
                    raise StateConflictError(
                        f"run {lease.run_id}: segment {base_offset} of {partition} is {known['outcome']} already"
                    )
            if item.outcome is SegmentOutcome.FAILED:
                connection.execute(_STOP, of_partition)

    def record_left_reason(self, run_id: str, partition: TopicIdPartition, *, error: str, message: str) -> None:
        """Store why a batch ended its work on this partition without an outcome for its PLANNED segments."""
        left = key_of(self._cluster_id, partition) | {"of_run": run_id, "error": error, "message": stored_text(message)}
        with self._writing(durable=False) as (connection, _now_ms):
            connection.execute(_NOTE_LEFT, left)

    def items(self, run_id: str) -> Sequence[WorkItem]:
        """Return all segments of the run's plan with their outcomes, ordered by topic, partition and offset."""
        with reading(self._engine) as connection:
            found = connection.execute(_ITEMS, {"of_cluster": self._cluster_id, "of_run": run_id})
            return [_item_of(row) for row in found]

    def has_work(self, run_id: str, placement: Placement | None = None) -> bool:
        """Return whether a PLANNED segment is left in a partition without a FAILED one, claimed or not."""
        query, key = _ANY_WORK, {"of_cluster": self._cluster_id, "of_run": run_id}
        if placement is not None:
            query, key = _ANY_WORK_PLACED, key | key_of_placement(placement)
        with reading(self._engine) as connection:
            return connection.execute(query, key).one_or_none() is not None

    def could_claim(self, run_id: str, batch_id: str, placement: Placement | None = None) -> bool:
        """Return whether `claim` would give this batch a lease now."""
        with reading(self._engine) as connection:
            given = self._parameters(run_id, batch_id, (), placement, self._now_ms(connection))
            query = _any_claimable(is_placed=placement is not None)
            return connection.execute(query, given).one_or_none() is not None

    def _parameters(
        self,
        run_id: str,
        batch_id: str,
        passed_over: Collection[TopicIdPartition],
        placement: Placement | None,
        now_ms: int,
    ) -> dict[str, Any]:
        """Return the parameters of `_claimable`."""
        given: dict[str, Any] = {"of_cluster": self._cluster_id, "of_run": run_id}
        given |= {"of_batch": batch_id, "at_ms": now_ms}
        if placement is not None:
            given |= key_of_placement(placement)
        if passed_over:
            given["passed_over"] = [(str(partition.topic_id), partition.partition) for partition in passed_over]
        return given


def key_of_placement(placement: Placement) -> dict[str, Any]:
    """Return the parameters of `IS_PLACED`."""
    return {"on_queue": placement.queue, "on_spark_resource": placement.spark_resource}


def _hash_of(partitions: Sequence[PlannedPartition]) -> str:
    content = [
        [
            str(planned.replica_id.topic_id_partition.topic_id),
            planned.replica_id.topic_id_partition.partition,
            planned.replica_id.broker_id,
            planned.replica_id.directory_id,
            planned.urgency,
            [planned.placement.queue, planned.placement.spark_resource],
            [[s.base_offset, s.end_offset, s.size_bytes, _id_of(s.supersedes)] for s in planned.segments],
        ]
        for planned in partitions
    ]
    return hashlib.sha256(json.dumps(content, separators=(",", ":")).encode()).hexdigest()


def _partition_values(planned: PlannedPartition) -> dict[str, Any]:
    partition = planned.replica_id.topic_id_partition
    return {
        "topic_id": str(partition.topic_id),
        "partition": partition.partition,
        "topic": partition.topic,
        "broker_id": planned.replica_id.broker_id,
        "directory_id": planned.replica_id.directory_id,
        "urgency": planned.urgency,
        "stopped": False,
        "claimed_at_ms": 0,
        "queue": planned.placement.queue,
        "spark_resource": planned.placement.spark_resource,
    }


def _segment_values(planned: PlannedPartition, segment: PlannedSegment) -> dict[str, Any]:
    partition = planned.replica_id.topic_id_partition
    return {
        "topic_id": str(partition.topic_id),
        "partition": partition.partition,
        "base_offset": segment.base_offset,
        "end_offset": segment.end_offset,
        "size_bytes": segment.size_bytes,
        "supersedes": _id_of(segment.supersedes),
        "outcome": SegmentOutcome.PLANNED,
    }


def _item_of(row: Row[Any]) -> WorkItem:
    return WorkItem(
        topic_id_partition=partition_from(row.topic_id, row.partition, row.topic),
        segment=_segment_of(row),
        outcome=SegmentOutcome(row.outcome),
        segment_id=row.segment_id,
        path=row.path,
        position=row.position,
        error=row.error,
        message=row.message,
    )


def _segment_of(row: Row[Any]) -> PlannedSegment:
    supersedes = None if row.supersedes is None else Uuid.parse(row.supersedes)
    return PlannedSegment(row.base_offset, row.end_offset, row.size_bytes, supersedes)


def _id_of(segment_id: Uuid | None) -> str | None:
    return None if segment_id is None else str(segment_id)


def _stored(text: str | None) -> str | None:
    return None if text is None else stored_text(text)


@cache
def _next_claimable(order: ClaimOrder, *, is_placed: bool, passes_over: bool) -> Select[Any]:
    return _claimable(is_placed, passes_over).order_by(*_ORDERS[order]).limit(_CANDIDATES)


@cache
def _any_claimable(*, is_placed: bool) -> Select[Any]:
    return _claimable(is_placed, passes_over=False).limit(1)


@cache
def _waiting_longer(*, is_placed: bool, passes_over: bool) -> Select[Any]:
    waits = planned_partitions.c.claimed_at_ms < bindparam("since_ms")
    return _claimable(is_placed, passes_over).where(waits).limit(1)


def _claimable(is_placed: bool, passes_over: bool) -> Select[Any]:
    """Select planned partitions that a batch could claim."""
    query = claimable(planned_partitions, LeaseRole.COPY)
    query = query.where(planned_partitions.c.stopped.is_(False), HAS_PLANNED_SEGMENT)
    if is_placed:
        query = query.where(IS_PLACED)
    if passes_over:
        key = tuple_(planned_partitions.c.topic_id, planned_partitions.c.partition)
        query = query.where(key.not_in(bindparam("passed_over", expanding=True)))
    return query
