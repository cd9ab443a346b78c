"""`WorkStore` in SQL: leases, progress of batches, the pause switch and the size of a pool, of one cluster; and
`PlanQuestions`. Plans of copies, which belong to the same store, are in `sql_copy_plans`.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from sqlalchemy import Connection, Row, Select, and_, bindparam, delete, func, select, update

from include.tiering.database.schema import batches, leases, pauses, plan_questions, pools, topics
from include.tiering.database.transactions import (
    LEASE_MARGIN_MS,
    ClusterStore,
    insert_if_absent,
    is_lease_ahead,
    is_live_lease,
    key_of,
    partition_from,
    reading,
    record_event,
    stored_text,
    upsert,
    writing,
)
from include.tiering.errors import LeaseLostError, StateConflictError, printable
from include.tiering.model.ownership import LeaseRole, PartitionLease
from include.tiering.model.segments import TopicIdPartition
from include.tiering.runs.approval import Answer, GivenAnswer, PlanQuestion
from include.tiering.runs.contract import (
    ALL_TOPICS,
    LIVE_BATCH_MS,
    AnyLease,
    BatchProgress,
    LeaseAhead,
    LeaseHolder,
    LiveLease,
)
from include.tiering.runs.sql_copy_plans import SqlCopyPlans
from include.tiering.runs.sql_lease_rows import IN_ROLE, OF_FENCE, key_of_fence

_RELEASED: Final = 0
_LIVE_LEASE: Final = select(leases).where(IN_ROLE, is_live_lease(bindparam("at_ms")))
_NAME: Final = func.coalesce(topics.c.name, leases.c.topic_id).label("name")
_LEASES: Final = (
    select(leases, _NAME)
    .outerjoin(topics, and_(topics.c.cluster_id == leases.c.cluster_id, topics.c.topic_id == leases.c.topic_id))
    .where(leases.c.cluster_id == bindparam("of_cluster"))
    .order_by(_NAME, leases.c.topic_id, leases.c.partition, leases.c.role)
)
_LEASES_AHEAD: Final = _LEASES.where(is_lease_ahead(bindparam("at_ms")))
_LIVE_LEASES: Final = _LEASES.where(is_live_lease(bindparam("at_ms")))
_RELEASE: Final = update(leases).where(OF_FENCE)
_RENEW: Final = _RELEASE.where(leases.c.expires_at_ms != _RELEASED)
_PAUSED: Final = select(pauses.c.topic).where(pauses.c.cluster_id == bindparam("of_cluster"))
_LIVE_BATCHES: Final = (
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


class SqlWorkStore(SqlCopyPlans):
    """`WorkStore` over the platform's database: plans of copies, and what all batches share.

    Every call is one transaction, dated by the database's clock. Progress is not waited for on disk.
    """

    def renew(self, lease: AnyLease, *, lease_ms: int) -> AnyLease:
        fence = lease.fence
        with self._writing() as (connection, now_ms):
            expires_at_ms = now_ms + lease_ms
            prolonged = {"expires_at_ms": expires_at_ms, "lease_ms": lease_ms}
            if connection.execute(_RENEW, key_of_fence(self._cluster_id, fence) | prolonged).rowcount == 0:
                raise LeaseLostError(
                    f"{fence.topic_id_partition}: the lease to {fence.role} with fencing token {fence.token} was lost"
                )
            return replace(lease, expires_at_ms=expires_at_ms)

    def release(self, lease: PartitionLease) -> None:
        given_back = key_of_fence(self._cluster_id, lease.fence) | {"expires_at_ms": _RELEASED}
        with self._writing() as (connection, _now_ms):
            connection.execute(_RELEASE, given_back)

    def holder(self, partition: TopicIdPartition, role: LeaseRole) -> LeaseHolder | None:
        with reading(self._engine) as connection:
            at_ms = self._now_ms(connection)
            key = key_of(self._cluster_id, partition) | {"of_role": role, "at_ms": at_ms}
            row = connection.execute(_LIVE_LEASE, key).one_or_none()
        return None if row is None else _holder(row)

    def leases_ahead(self) -> Sequence[LeaseAhead]:
        return [LeaseAhead(*lease) for lease in self._leases(_LEASES_AHEAD)]

    def live_leases(self) -> Sequence[LiveLease]:
        return [LiveLease(*lease) for lease in self._leases(_LIVE_LEASES)]

    def report_progress(self, progress: BatchProgress) -> None:
        with self._writing(durable=False) as (connection, now_ms):
            values = {
                "cluster_id": self._cluster_id,
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

    def progress(self, run_id: str) -> Sequence[BatchProgress]:
        query = select(batches).where(batches.c.cluster_id == self._cluster_id, batches.c.run_id == run_id)
        with reading(self._engine) as connection:
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

    def pause(self, topic: str | None, *, author: str) -> None:
        key = _pause_key(topic)
        with self._writing() as (connection, now_ms):
            values = {"cluster_id": self._cluster_id, "topic": key, "author": author, "paused_at_ms": now_ms}
            if insert_if_absent(connection, pauses, values):
                record_event(connection, self._cluster_id, "pause", key, "", author, now_ms)

    def resume(self, topic: str | None, *, author: str) -> None:
        key = _pause_key(topic)
        with self._writing() as (connection, now_ms):
            if connection.execute(_RESUME, {"of_cluster": self._cluster_id, "of_topic": key}).rowcount:
                record_event(connection, self._cluster_id, "resume", key, "", author, now_ms)

    def paused_topics(self) -> frozenset[str]:
        with reading(self._engine) as connection:
            return frozenset(connection.execute(_PAUSED, {"of_cluster": self._cluster_id}).scalars())

    def pool_size(self, pool: str) -> int | None:
        with reading(self._engine) as connection:
            given = {"of_cluster": self._cluster_id, "of_pool": pool}
            return connection.execute(_SLOTS, given).scalar_one_or_none()

    def live_batches(self, pool: str) -> Sequence[str]:
        with reading(self._engine) as connection:
            now_ms = self._now_ms(connection)
            given = {
                "of_cluster": self._cluster_id,
                "of_pool": pool,
                "since_ms": now_ms - LIVE_BATCH_MS,
                "until_ms": now_ms + LEASE_MARGIN_MS,
            }
            return connection.execute(_LIVE_BATCHES, given).scalars().all()

    def record_event(self, kind: str, subject: str, detail: str, *, author: str) -> None:
        with self._writing() as (connection, now_ms):
            record_event(connection, self._cluster_id, kind, subject, detail, author, now_ms)

    def _leases(self, query: Select[Any]) -> list[tuple[TopicIdPartition, LeaseRole, LeaseHolder]]:
        with reading(self._engine) as connection:
            rows = connection.execute(query, {"of_cluster": self._cluster_id, "at_ms": self._now_ms(connection)}).all()
        return [
            (partition_from(row.topic_id, row.partition, row.name), LeaseRole(row.role), _holder(row)) for row in rows
        ]


def _holder(row: Row[Any]) -> LeaseHolder:
    return LeaseHolder(row.run_id, row.batch_id, row.claimed_at_ms, row.expires_at_ms, row.token)


def _pause_key(topic: str | None) -> str:
    return ALL_TOPICS if topic is None else topic


class SqlPlanQuestions(ClusterStore):
    """`PlanQuestions` over the platform's database. Every call is one transaction, dated by the database's clock."""

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
