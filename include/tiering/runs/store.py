"""`WorkStore` in SQL: plans, leases, progress of batches, the pause switch and the size of a pool, of one cluster."""

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final

from sqlalchemy import Connection, Engine, Row, and_, bindparam, delete, func, select, update

from include.tiering.database.partitions import LEASE_MARGIN_MS, hold_fence
from include.tiering.database.schema import batches, pauses, plan_questions, pools
from include.tiering.database.transactions import (
    NowMs,
    database_now_ms,
    insert_if_absent,
    reading,
    record_event,
    stored_text,
    upsert,
    writing,
)
from include.tiering.errors import StateConflictError, printable
from include.tiering.model.ids import TopicIdPartition
from include.tiering.model.ownership import LeaseRole, PartitionLease
from include.tiering.runs import sql_copy_plans, sql_lease_rows
from include.tiering.runs.approval import Answer, GivenAnswer, PlanQuestion
from include.tiering.runs.contract import (
    ALL_TOPICS,
    LIVE_BATCH_MS,
    AnyLease,
    BatchProgress,
    ClaimOrder,
    Lease,
    LeaseAhead,
    LeaseHolder,
    LiveLease,
    Placement,
    PlannedPartition,
    PlannedSegment,
    WorkItem,
)

_PAUSED: Final = select(pauses.c.topic).where(pauses.c.cluster_id == bindparam("of_cluster"))
_LIVE: Final = (
    select(batches.c.batch_id)
    .where(batches.c.cluster_id == bindparam("of_cluster"), batches.c.pool == bindparam("of_pool"))
    .where(batches.c.updated_at_ms.between(bindparam("since_ms"), bindparam("until_ms")), batches.c.finished.is_(False))
    .order_by(batches.c.started_at_ms, batches.c.batch_id)
)
_RESUME: Final = delete(pauses).where(
    pauses.c.cluster_id == bindparam("of_cluster"), pauses.c.topic == bindparam("of_topic")
)
_SLOTS: Final = select(pools.c.slots).where(
    pools.c.cluster_id == bindparam("of_cluster"), pools.c.pool == bindparam("of_pool")
)
_IS_QUESTION: Final = and_(
    plan_questions.c.cluster_id == bindparam("of_cluster"), plan_questions.c.asked_in == bindparam("of_dag_run")
)
_FIND_QUESTION: Final = select(plan_questions).where(_IS_QUESTION)
_LAST_APPROVED: Final = select(func.max(plan_questions.c.put_at_ms)).where(
    plan_questions.c.cluster_id == bindparam("of_cluster"), plan_questions.c.answer == Answer.APPROVED.value
)
_LOCK_QUESTION: Final = _FIND_QUESTION.with_for_update()
_CHANGE_QUESTION: Final = update(plan_questions).where(_IS_QUESTION)
_NOT_ANSWERED: Final[dict[str, Any]] = {
    "answer": None,
    "answered_by": None,
    "answered_at_ms": None,
    "recorded_at_ms": None,
}
NOBODY: Final = "nobody"


def report_progress(connection: Connection, cluster_id: str, progress: BatchProgress, now_ms: int) -> None:
    values = {
        "cluster_id": cluster_id,
        "run_id": progress.run_id,
        "batch_id": progress.batch_id,
        "pool": progress.pool,
        "host": progress.host,
        "pid": progress.pid,
        "partition": stored_text(progress.partition),
        "done_bytes": progress.done_bytes,
        "planned_bytes": progress.planned_bytes,
        "bytes_per_second": progress.bytes_per_second,
        "finished": progress.finished,
        "started_at_ms": now_ms,
        "updated_at_ms": now_ms,
    }
    upsert(connection, batches, values, keep=("started_at_ms",))


def progress_of_run(connection: Connection, cluster_id: str, run_id: str) -> Sequence[BatchProgress]:
    """In the order in which the batches began."""
    query = select(batches).where(batches.c.cluster_id == cluster_id, batches.c.run_id == run_id)
    return [
        BatchProgress(
            run_id=row.run_id,
            batch_id=row.batch_id,
            pool=row.pool,
            host=row.host,
            pid=row.pid,
            partition=row.partition,
            done_bytes=row.done_bytes,
            planned_bytes=row.planned_bytes,
            bytes_per_second=row.bytes_per_second,
            finished=row.finished,
            started_at_ms=row.started_at_ms,
            updated_at_ms=row.updated_at_ms,
        )
        for row in connection.execute(query.order_by(batches.c.started_at_ms, batches.c.batch_id))
    ]


def live_batches(connection: Connection, cluster_id: str, pool: str, now_ms: int) -> Sequence[str]:
    """See `WorkStore.live_batches`."""
    given = {
        "of_cluster": cluster_id,
        "of_pool": pool,
        "since_ms": now_ms - LIVE_BATCH_MS,
        "until_ms": now_ms + LEASE_MARGIN_MS,
    }
    return connection.execute(_LIVE, given).scalars().all()


def pause(connection: Connection, cluster_id: str, topic: str, author: str, now_ms: int) -> None:
    """The first author stays if it is paused already."""
    values = {"cluster_id": cluster_id, "topic": topic, "author": author, "paused_at_ms": now_ms}
    if insert_if_absent(connection, pauses, values):
        record_event(connection, cluster_id, "pause", topic, "", author, now_ms)


def resume(connection: Connection, cluster_id: str, topic: str, author: str, now_ms: int) -> None:
    if connection.execute(_RESUME, {"of_cluster": cluster_id, "of_topic": topic}).rowcount:
        record_event(connection, cluster_id, "resume", topic, "", author, now_ms)


def paused_topics(connection: Connection, cluster_id: str) -> frozenset[str]:
    return frozenset(connection.execute(_PAUSED, {"of_cluster": cluster_id}).scalars())


def pool_size(connection: Connection, cluster_id: str, pool: str) -> int | None:
    return connection.execute(_SLOTS, {"of_cluster": cluster_id, "of_pool": pool}).scalar_one_or_none()


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
            sql_copy_plans.save_plan(connection, self._cluster_id, run_id, partitions, now_ms)

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
            return sql_copy_plans.claim(
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
            return sql_copy_plans.waits_longer(connection, self._cluster_id, lease, exclude, placement, now_ms)

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
            return sql_copy_plans.remaining_segments(connection, self._cluster_id, lease.run_id, partition)

    def record_outcome(self, lease: Lease, item: WorkItem) -> None:
        with self._writing(durable=False) as (connection, now_ms):
            hold_fence(connection, self._cluster_id, lease.fence)
            sql_copy_plans.record_outcome(connection, self._cluster_id, lease.run_id, item, now_ms)

    def note_left(self, run_id: str, partition: TopicIdPartition, *, error: str, message: str) -> None:
        with self._writing(durable=False) as (connection, _now_ms):
            sql_copy_plans.note_left(connection, self._cluster_id, run_id, partition, error, message)

    def items(self, run_id: str) -> Sequence[WorkItem]:
        with reading(self._engine) as connection:
            return sql_copy_plans.list_items(connection, self._cluster_id, run_id)

    def has_work(self, run_id: str, placement: Placement | None = None) -> bool:
        with reading(self._engine) as connection:
            return sql_copy_plans.has_work(connection, self._cluster_id, run_id, placement=placement)

    def report_progress(self, progress: BatchProgress) -> None:
        with self._writing(durable=False) as (connection, now_ms):
            report_progress(connection, self._cluster_id, progress, now_ms)

    def progress(self, run_id: str) -> Sequence[BatchProgress]:
        with reading(self._engine) as connection:
            return progress_of_run(connection, self._cluster_id, run_id)

    def pause(self, topic: str | None, *, author: str) -> None:
        with self._writing() as (connection, now_ms):
            pause(connection, self._cluster_id, _pause_key(topic), author, now_ms)

    def resume(self, topic: str | None, *, author: str) -> None:
        with self._writing() as (connection, now_ms):
            resume(connection, self._cluster_id, _pause_key(topic), author, now_ms)

    def paused_topics(self) -> frozenset[str]:
        with reading(self._engine) as connection:
            return paused_topics(connection, self._cluster_id)

    def pool_size(self, pool: str) -> int | None:
        with reading(self._engine) as connection:
            return pool_size(connection, self._cluster_id, pool)

    def live_batches(self, pool: str) -> Sequence[str]:
        with reading(self._engine) as connection:
            return live_batches(connection, self._cluster_id, pool, self._now_ms(connection))

    def record_event(self, kind: str, subject: str, detail: str, *, author: str) -> None:
        with self._writing() as (connection, now_ms):
            record_event(connection, self._cluster_id, kind, subject, detail, author, now_ms)

    @contextmanager
    def _writing(self, *, durable: bool = True) -> Iterator[tuple[Connection, int]]:
        with writing(self._engine, durable=durable) as connection:
            yield connection, self._now_ms(connection)


def _pause_key(topic: str | None) -> str:
    return ALL_TOPICS if topic is None else topic


class SqlPlanQuestions:
    """`PlanQuestions` over the platform's database. Every call is one transaction, dated by the database's clock."""

    def __init__(self, engine: Engine, cluster_id: str, *, now_ms: NowMs = database_now_ms) -> None:
        self._engine = engine
        self._cluster_id = cluster_id
        self._now_ms = now_ms

    def put(self, asked_in: str, *, subject: str, plan_hash: str, headline: str, body: str) -> None:
        with writing(self._engine) as connection:
            row = connection.execute(_LOCK_QUESTION, self._key_of(asked_in)).one_or_none()
            if row is not None and row.shown_at_ms is not None:
                if (row.subject, row.plan_hash) != (subject, plan_hash):
                    raise StateConflictError(
                        f"{printable(asked_in)} asks about plan {row.plan_hash} of {row.subject}; about plan "
                        f"{plan_hash} of {subject} another DAG run has to ask: trigger one"
                    )
                return
            values: dict[str, Any] = {"subject": subject, "plan_hash": plan_hash, "headline": headline, "body": body}
            values |= {"put_at_ms": self._now_ms(connection)}
            key = {"cluster_id": self._cluster_id, "asked_in": asked_in}
            upsert(connection, plan_questions, {**key, **values, "shown_at_ms": None, **_NOT_ANSWERED})

    def show(self, asked_in: str) -> PlanQuestion:
        with writing(self._engine) as connection:
            self._locked(connection, asked_in)
            self._change(connection, asked_in, {"shown_at_ms": self._now_ms(connection), **_NOT_ANSWERED})
            return _question(self._locked(connection, asked_in))

    def answer(self, asked_in: str, answer: Answer, *, user_id: str | None, answered_at_ms: int) -> PlanQuestion:
        with writing(self._engine) as connection:
            row = self._locked(connection, asked_in)
            if row.shown_at_ms is None:
                raise StateConflictError(f"nobody was shown the question of {printable(asked_in)}: no answer is taken")
            now_ms, user = self._now_ms(connection), None if user_id is None else stored_text(user_id)
            given = {
                "answer": answer.value,
                "answered_by": user,
                "answered_at_ms": answered_at_ms,
                "recorded_at_ms": now_ms,
            }
            self._change(connection, asked_in, given)
            what = f"plan {row.plan_hash} is {answer} in {asked_in}"
            record_event(connection, self._cluster_id, "answer", f"run {row.subject}", what, user or NOBODY, now_ms)
            return _question(self._locked(connection, asked_in))

    def find(self, asked_in: str) -> PlanQuestion | None:
        with reading(self._engine) as connection:
            row = connection.execute(_FIND_QUESTION, self._key_of(asked_in)).one_or_none()
            return None if row is None else _question(row)

    def last_approved_ms(self) -> int:
        with reading(self._engine) as connection:
            return connection.execute(_LAST_APPROVED, {"of_cluster": self._cluster_id}).scalar_one() or 0

    def _locked(self, connection: Connection, asked_in: str) -> Row[Any]:
        row = connection.execute(_LOCK_QUESTION, self._key_of(asked_in)).one_or_none()
        if row is None:
            raise StateConflictError(
                f"{printable(asked_in)} has nothing to ask: no task of it has stored a plan that needs an answer. "
                "Trigger another DAG run"
            )
        return row

    def _change(self, connection: Connection, asked_in: str, values: dict[str, Any]) -> None:
        connection.execute(_CHANGE_QUESTION.values(**values), self._key_of(asked_in))

    def _key_of(self, asked_in: str) -> dict[str, str]:
        return {"of_cluster": self._cluster_id, "of_dag_run": asked_in}


def _question(row: Row[Any]) -> PlanQuestion:
    given = None
    if row.answer is not None:
        given = GivenAnswer(Answer(row.answer), row.answered_by, row.answered_at_ms, row.recorded_at_ms)
    return PlanQuestion(row.asked_in, row.subject, row.plan_hash, row.headline, row.body, row.shown_at_ms, given)
