"""What releases a run that deletes, in SQL: its row, questions to people, and the sums that the limits compare.

The row says what the limit said of the run, and who approved or withdrew its plan. A withdrawal locks it before it
takes the leases away, and a claim reads it under that lock: a batch that claims at the same moment either finds the
run withdrawn, or loses its lease with the others.

`totals` adds up what a run deletes, as the second opinion of the deletion limit. Nothing there reads the plan's sizes.
Segments are counted by their own rows, stored bytes by the counters that every state change moves. Each byte counts
once: as planned, as deleted lately, or as stored beside both.

- Planned is what is not a tombstone, whatever its state. What an earlier run that was released began to delete counted
  there, and not again.
- Deleted lately is what a run began to delete within the window. A superseded segment, which is in
  DELETE_SEGMENT_STARTED from the moment of its new copy, counts when its objects are gone; a copy that was never
  FINISHED if expiration deleted it, not if the copier cleaned up behind itself.
- An approval counts for the plan that the run has, until the run is withdrawn. A run of which no answer of the limits
  is recorded, such as a dry run, was never released.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, Engine, Row, and_, bindparam, case, func, insert, or_, select, update

from include.tiering.database.schema import (
    PARTITION_TOTAL,
    approvals,
    leases,
    plan_questions,
    planned_deletions,
    planned_expirations,
    runs,
    segments,
    size_counters,
    topics,
)
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
from include.tiering.model.ids import Uuid
from include.tiering.model.ownership import LeaseRole, SegmentOrigin
from include.tiering.model.retention import DeletionReason
from include.tiering.model.segment_metadata import RemoteLogSegmentState
from include.tiering.runs.approval import Answer, GivenAnswer, PlanQuestion
from include.tiering.runs.deletion_run import Approval, DeletionOutcome, DeletionRun, TopicTotals, Withdrawal

_IS_RUN: Final = and_(runs.c.cluster_id == bindparam("of_cluster"), runs.c.run_id == bindparam("of_run"))
_APPROVED: Final = and_(approvals.c.cluster_id == runs.c.cluster_id, approvals.c.run_id == runs.c.run_id)
_RUN: Final = (
    select(runs, approvals.c.plan_hash.label("approved_hash"), approvals.c.author, approvals.c.approved_at_ms)
    .outerjoin(approvals, _APPROVED)
    .where(_IS_RUN, runs.c.kind == bindparam("of_kind"))
)
_RUN_LOCKED: Final = _RUN.with_for_update(of=runs)
_KNOWN: Final = select(runs.c.kind, runs.c.plan_hash).where(_IS_RUN)
_RECORD_BRAKE: Final = update(runs).where(_IS_RUN)
_APPROVE: Final = insert(approvals)
_WITHDRAW: Final = update(runs).where(_IS_RUN, runs.c.withdrawn_at_ms.is_(None))
_TAKE_LEASES_AWAY: Final = (
    update(leases)
    .where(leases.c.cluster_id == bindparam("of_cluster"), leases.c.run_id == bindparam("of_run"))
    .where(leases.c.role == str(LeaseRole.EXPIRE), leases.c.expires_at_ms != 0)
    .values(expires_at_ms=0)
)


def begin(connection: Connection, cluster_id: str, run_id: str, kind: str, plan_hash: str, now_ms: int) -> bool:
    """Whether the run is new. Raises StateConflictError if it is known with another plan, or of another kind."""
    values = {"cluster_id": cluster_id, "run_id": run_id, "kind": kind, "plan_hash": plan_hash}
    if insert_if_absent(connection, runs, values | {"created_at_ms": now_ms}):
        return True
    if tuple(connection.execute(_KNOWN, _key_of(cluster_id, run_id)).one()) != (kind, plan_hash):
        raise StateConflictError(f"run {run_id} has another plan already: use a new run id")
    return False


def find(connection: Connection, cluster_id: str, run_id: str, kind: str, *, lock: bool = False) -> DeletionRun:
    """Raises StateConflictError if no such run was planned. `lock`: it stays as it is until the transaction ends."""
    query = _RUN_LOCKED if lock else _RUN
    row = connection.execute(query, _key_of(cluster_id, run_id) | {"of_kind": kind}).one_or_none()
    if row is None:
        raise _unknown(run_id)
    is_approved = row.approved_hash == row.plan_hash
    approval = Approval(row.approved_hash, row.author, row.approved_at_ms) if is_approved else None
    withdrawal = None if row.withdrawn_at_ms is None else Withdrawal(row.withdrawn_by, row.withdrawn_at_ms)
    return DeletionRun(run_id, row.plan_hash, row.needs_approval, approval, withdrawal)


def record_brake(
    connection: Connection,
    cluster_id: str,
    run_id: str,
    *,
    needs_approval: bool,
    detail: str,
    author: str,
    now_ms: int,
) -> None:
    """See `DeletionStore.record_brake`."""
    values = _key_of(cluster_id, run_id) | {"needs_approval": needs_approval}
    if connection.execute(_RECORD_BRAKE, values).rowcount == 0:
        raise _unknown(run_id)
    record_event(connection, cluster_id, "brake", f"run {run_id}", detail, author, now_ms)


def approve(
    connection: Connection, cluster_id: str, run: DeletionRun, plan_hash: str, *, author: str, now_ms: int
) -> None:
    """See `DeletionStore.approve`."""
    if run.plan_hash != plan_hash:
        raise StateConflictError(f"run {run.run_id} has the plan {run.plan_hash}, approved was {plan_hash}")
    run.require_not_withdrawn()
    if run.approval is not None:
        return
    values = {
        "cluster_id": cluster_id,
        "run_id": run.run_id,
        "plan_hash": plan_hash,
        "author": stored_text(author),
        "approved_at_ms": now_ms,
    }
    connection.execute(_APPROVE, values)
    record_event(connection, cluster_id, "approval", f"run {run.run_id}", plan_hash, author, now_ms)


def withdraw(connection: Connection, cluster_id: str, run: DeletionRun, *, author: str, now_ms: int) -> bool:
    """Whether it was not withdrawn before; see `DeletionStore.withdraw`. What it planned is left to the caller."""
    if run.withdrawal is not None:
        return False
    key = _key_of(cluster_id, run.run_id)
    connection.execute(_WITHDRAW, key | {"withdrawn_at_ms": now_ms, "withdrawn_by": stored_text(author)})
    connection.execute(_TAKE_LEASES_AWAY, key)
    record_event(connection, cluster_id, "withdrawal", f"run {run.run_id}", run.plan_hash, author, now_ms)
    return True


def _unknown(run_id: str) -> StateConflictError:
    return StateConflictError(f"no run {run_id} that deletes was planned")


def _key_of(cluster_id: str, run_id: str) -> dict[str, str]:
    return {"of_cluster": cluster_id, "of_run": run_id}


_IS: Final = and_(
    plan_questions.c.cluster_id == bindparam("of_cluster"), plan_questions.c.asked_in == bindparam("of_dag_run")
)
_FIND: Final = select(plan_questions).where(_IS)
_LAST_APPROVED: Final = select(func.max(plan_questions.c.put_at_ms)).where(
    plan_questions.c.cluster_id == bindparam("of_cluster"), plan_questions.c.answer == Answer.APPROVED.value
)
_LOCK: Final = _FIND.with_for_update()
_CHANGE: Final = update(plan_questions).where(_IS)
_NOT_ANSWERED: Final[dict[str, Any]] = {
    "answer": None,
    "answered_by": None,
    "answered_at_ms": None,
    "recorded_at_ms": None,
}
NOBODY: Final = "nobody"


class SqlPlanQuestions:
    """`PlanQuestions` over the platform's database. Every call is one transaction, dated by the database's clock."""

    def __init__(self, engine: Engine, cluster_id: str, *, now_ms: NowMs = database_now_ms) -> None:
        self._engine = engine
        self._cluster_id = cluster_id
        self._now_ms = now_ms

    def put(self, asked_in: str, *, subject: str, plan_hash: str, headline: str, body: str) -> None:
        with writing(self._engine) as connection:
            row = connection.execute(_LOCK, self._key_of(asked_in)).one_or_none()
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
            row = connection.execute(_FIND, self._key_of(asked_in)).one_or_none()
            return None if row is None else _question(row)

    def last_approved_ms(self) -> int:
        with reading(self._engine) as connection:
            return connection.execute(_LAST_APPROVED, {"of_cluster": self._cluster_id}).scalar_one() or 0

    def _locked(self, connection: Connection, asked_in: str) -> Row[Any]:
        row = connection.execute(_LOCK, self._key_of(asked_in)).one_or_none()
        if row is None:
            raise StateConflictError(
                f"{printable(asked_in)} has nothing to ask: no task of it has stored a plan that needs an answer. "
                "Trigger another DAG run"
            )
        return row

    def _change(self, connection: Connection, asked_in: str, values: dict[str, Any]) -> None:
        connection.execute(_CHANGE.values(**values), self._key_of(asked_in))

    def _key_of(self, asked_in: str) -> dict[str, str]:
        return {"of_cluster": self._cluster_id, "of_dag_run": asked_in}


def _question(row: Row[Any]) -> PlanQuestion:
    given = None
    if row.answer is not None:
        given = GivenAnswer(Answer(row.answer), row.answered_by, row.answered_at_ms, row.recorded_at_ms)
    return PlanQuestion(row.asked_in, row.subject, row.plan_hash, row.headline, row.body, row.shown_at_ms, given)


_FINISHED: Final = int(RemoteLogSegmentState.COPY_SEGMENT_FINISHED)
_BEGUN: Final = int(RemoteLogSegmentState.DELETE_SEGMENT_STARTED)
_TOMBSTONE: Final = int(RemoteLogSegmentState.DELETE_SEGMENT_FINISHED)
_BELOW_LOG_START: Final = (DeletionReason.TIME, DeletionReason.SIZE, DeletionReason.LOG_START)


def _sum_where(condition: ColumnElement[bool], value: ColumnElement[int] | int) -> ColumnElement[int]:
    return func.coalesce(func.sum(case((condition, value), else_=0)), 0)


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
_BEGUN_LATELY: Final = and_(
    segments.c.finished_at_ms.is_not(None), segments.c.delete_started_at_ms >= bindparam("since_ms")
)
_COUNTED_BEFORE: Final = and_(
    segments.c.state == _BEGUN, segments.c.superseded_by.is_(None), or_(_BEGUN_LATELY, _IN_RELEASED_RUN)
)
_PLANNED: Final = (
    select(
        planned_expirations.c.topic_id,
        func.max(planned_expirations.c.topic).label("topic"),
        func.count(segments.c.segment_key).label("planned_segments"),
        func.coalesce(func.sum(segments.c.size_bytes), 0).label("planned_bytes"),
        _sum_where(_COUNTED_BEFORE, segments.c.size_bytes).label("begun_bytes"),
        _sum_where(segments.c.state == _FINISHED, 1).label("planned_finished"),
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
_STORED: Final = (
    select(
        size_counters.c.topic_id,
        func.sum(size_counters.c.size_bytes).label("stored_bytes"),
        _sum_where(size_counters.c.state == _FINISHED, size_counters.c.segments).label("finished_segments"),
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
    finished_segments: int = 0


def totals(connection: Connection, cluster_id: str, run_id: str, since_ms: int) -> Sequence[TopicTotals]:
    """See `DeletionStore.totals`; the window begins at `since_ms` (inclusive)."""
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
                finished_segments=there.finished_segments,
            )
        )
    return sorted(found, key=lambda one: (one.topic, str(one.topic_id)))


def recent_bytes(connection: Connection, cluster_id: str, since_ms: int) -> dict[str, int]:
    """By topic id: whose deletion began since then (inclusive)."""
    return {topic_id: one.recent_bytes for topic_id, one in _recent(connection, cluster_id, since_ms).items()}


def stored_bytes(connection: Connection, cluster_id: str) -> dict[str, int]:
    """By topic id: all that is stored now, in any state."""
    return {topic_id: one.stored_bytes for topic_id, one in _stored(connection, cluster_id).items()}


def _recent(connection: Connection, cluster_id: str, since_ms: int) -> dict[str, _Recent]:
    found = connection.execute(_RECENT, {"of_cluster": cluster_id, "since_ms": since_ms})
    return {
        row.topic_id: _Recent(int(row.recent_bytes), int(row.unapproved_bytes), int(row.still_stored_bytes))
        for row in found
    }


def _stored(connection: Connection, cluster_id: str) -> dict[str, _Stored]:
    found = connection.execute(_STORED, {"of_cluster": cluster_id})
    return {row.topic_id: _Stored(int(row.stored_bytes), int(row.finished_segments)) for row in found}
