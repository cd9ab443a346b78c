"""Work of one cluster in SQL."""

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from sqlalchemy import Connection, Engine

from include.tiering.database.clock import NowMs, database_now_ms
from include.tiering.database.events import record_event
from include.tiering.database.fencing import hold_fence
from include.tiering.database.transactions import reading, writing
from include.tiering.model.ids import TopicIdPartition
from include.tiering.model.ownership import LeaseRole
from include.tiering.runs import sql_lease_rows, sql_leases, sql_plans, sql_progress
from include.tiering.runs.contract import (
    ALL_TOPICS,
    AnyLease,
    BatchProgress,
    ClaimOrder,
    Lease,
    LeaseAhead,
    LeaseHolder,
    LiveLease,
    PartitionLease,
    Placement,
    PlannedPartition,
    PlannedSegment,
    WorkItem,
)


class SqlWorkStore:
    """`WorkStore` over the platform's database. Every call is one transaction, dated by the database's clock.

    Outcomes and progress are not waited for on disk: a segment whose outcome a power failure undid is found copied, or
    tried again, by whoever claims its partition next.
    """

    def __init__(self, engine: Engine, cluster_id: str, *, now_ms: NowMs = database_now_ms) -> None:
        self._engine = engine
        self._cluster_id = cluster_id
        self._now_ms = now_ms

    def save_plan(self, run_id: str, partitions: Sequence[PlannedPartition]) -> None:
        with self._writing() as (connection, now_ms):
            sql_plans.save_plan(connection, self._cluster_id, run_id, partitions, now_ms)

    def claim(
        self,
        run_id: str,
        batch_id: str,
        *,
        lease_ms: int,
        exclude: Collection[TopicIdPartition] = (),
        placement: Placement | None = None,
        order: ClaimOrder = ClaimOrder.URGENCY,
    ) -> Lease | None:
        with self._writing() as (connection, now_ms):
            return sql_leases.claim(
                connection,
                self._cluster_id,
                run_id,
                batch_id,
                lease_ms=lease_ms,
                exclude=exclude,
                placement=placement,
                order=order,
                now_ms=now_ms,
            )

    def waits_longer(
        self, lease: Lease, *, exclude: Collection[TopicIdPartition] = (), placement: Placement | None = None
    ) -> bool:
        with reading(self._engine) as connection:
            now_ms = self._now_ms(connection)
            return sql_leases.waits_longer(connection, self._cluster_id, lease, exclude, placement, now_ms)

    def renew(self, lease: AnyLease, *, lease_ms: int) -> AnyLease:
        with self._writing() as (connection, now_ms):
            sql_lease_rows.renew(connection, self._cluster_id, lease, now_ms=now_ms, lease_ms=lease_ms)
            return replace(lease, expires_at_ms=now_ms + lease_ms)

    def release(self, lease: PartitionLease) -> None:
        with self._writing() as (connection, _now_ms):
            sql_lease_rows.release(connection, self._cluster_id, lease)

    def holder(self, partition: TopicIdPartition, role: LeaseRole) -> LeaseHolder | None:
        with reading(self._engine) as connection:
            return sql_lease_rows.holder(connection, self._cluster_id, partition, role, self._now_ms(connection))

    def leases_ahead(self) -> Sequence[LeaseAhead]:
        with reading(self._engine) as connection:
            return sql_lease_rows.leases_ahead(connection, self._cluster_id, self._now_ms(connection))

    def live_leases(self) -> Sequence[LiveLease]:
        with reading(self._engine) as connection:
            return sql_lease_rows.live_leases(connection, self._cluster_id, self._now_ms(connection))

    def remaining(self, lease: Lease) -> Sequence[PlannedSegment]:
        partition = lease.fence.topic_id_partition
        with reading(self._engine) as connection:
            return sql_plans.remaining_segments(connection, self._cluster_id, lease.run_id, partition)

    def record_outcome(self, lease: Lease, item: WorkItem) -> None:
        with self._writing(durable=False) as (connection, now_ms):
            hold_fence(connection, self._cluster_id, lease.fence)
            sql_plans.record_outcome(connection, self._cluster_id, lease.run_id, item, now_ms)

    def note_left(self, run_id: str, partition: TopicIdPartition, *, error: str, message: str) -> None:
        with self._writing(durable=False) as (connection, _now_ms):
            sql_plans.note_left(connection, self._cluster_id, run_id, partition, error, message)

    def items(self, run_id: str) -> Sequence[WorkItem]:
        with reading(self._engine) as connection:
            return sql_plans.list_items(connection, self._cluster_id, run_id)

    def has_work(self, run_id: str, placement: Placement | None = None) -> bool:
        with reading(self._engine) as connection:
            return sql_plans.has_work(connection, self._cluster_id, run_id, placement=placement)

    def report_progress(self, progress: BatchProgress) -> None:
        with self._writing(durable=False) as (connection, now_ms):
            sql_progress.report_progress(connection, self._cluster_id, progress, now_ms)

    def progress(self, run_id: str) -> Sequence[BatchProgress]:
        with reading(self._engine) as connection:
            return sql_progress.progress_of_run(connection, self._cluster_id, run_id)

    def pause(self, topic: str | None, *, author: str) -> None:
        with self._writing() as (connection, now_ms):
            sql_progress.pause(connection, self._cluster_id, _pause_key(topic), author, now_ms)

    def resume(self, topic: str | None, *, author: str) -> None:
        with self._writing() as (connection, now_ms):
            sql_progress.resume(connection, self._cluster_id, _pause_key(topic), author, now_ms)

    def paused_topics(self) -> frozenset[str]:
        with reading(self._engine) as connection:
            return sql_progress.paused_topics(connection, self._cluster_id)

    def pool_size(self, pool: str) -> int | None:
        with reading(self._engine) as connection:
            return sql_progress.pool_size(connection, self._cluster_id, pool)

    def live_batches(self, pool: str) -> Sequence[str]:
        with reading(self._engine) as connection:
            return sql_progress.live_batches(connection, self._cluster_id, pool, self._now_ms(connection))

    def record_event(self, kind: str, subject: str, detail: str, *, author: str) -> None:
        with self._writing() as (connection, now_ms):
            record_event(connection, self._cluster_id, kind, subject, detail, author, now_ms)

    @contextmanager
    def _writing(self, *, durable: bool = True) -> Iterator[tuple[Connection, int]]:
        with writing(self._engine, durable=durable) as connection:
            yield connection, self._now_ms(connection)


def _pause_key(topic: str | None) -> str:
    return ALL_TOPICS if topic is None else topic
