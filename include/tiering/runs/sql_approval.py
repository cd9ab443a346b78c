"""`PlanQuestions` in SQL: the questions about plans, and the answers to them."""

from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import Connection, Row, and_, bindparam, func, or_, select, update

from include.tiering.database.event_log import EventKind, record_event, run_subject
from include.tiering.database.schema import approvals, plan_questions, runs
from include.tiering.database.transactions import ClusterStore, reading, stored_text, upsert, writing
from include.tiering.errors import StateConflictError, printable
from include.tiering.runs.approval import Answer, GivenAnswer, PlanQuestion

_IS_QUESTION: Final = and_(
    plan_questions.c.cluster_id == bindparam("of_cluster"), plan_questions.c.asked_in == bindparam("of_dag_run")
)
_FIND_QUESTION: Final = select(plan_questions).where(_IS_QUESTION)
_LAST_APPROVED: Final = select(func.max(plan_questions.c.put_at_ms)).where(
    plan_questions.c.cluster_id == bindparam("of_cluster"), plan_questions.c.answer == Answer.APPROVED.value
)
_OF_RUN: Final = and_(runs.c.cluster_id == plan_questions.c.cluster_id, runs.c.run_id == plan_questions.c.subject)
_SETTLED: Final = (
    select(runs.c.run_id)
    .outerjoin(approvals, and_(approvals.c.cluster_id == runs.c.cluster_id, approvals.c.run_id == runs.c.run_id))
    .where(_OF_RUN, or_(runs.c.withdrawn_at_ms.is_not(None), approvals.c.run_id.is_not(None)))
    .exists()
)
_UNANSWERED: Final = (
    select(plan_questions)
    .where(plan_questions.c.cluster_id == bindparam("of_cluster"), plan_questions.c.answer.is_(None))
    .where(plan_questions.c.shown_at_ms >= bindparam("since_ms"), ~_SETTLED)
    .order_by(plan_questions.c.shown_at_ms.desc(), plan_questions.c.asked_in)
)
_LOCK_QUESTION: Final = _FIND_QUESTION.with_for_update()
_CHANGE_QUESTION: Final = update(plan_questions).where(_IS_QUESTION)
_NOT_ANSWERED: Final[dict[str, Any]] = {
    "answer": None,
    "answered_by": None,
    "answered_at_ms": None,
    "recorded_at_ms": None,
}
NO_USER: Final = "nobody"


class SqlPlanQuestions(ClusterStore):
    """`PlanQuestions` over the platform's database. Every call is one transaction, dated by the database's clock."""

    def put(self, asked_in: str, *, subject: str, plan_hash: str, headline: str, body: str) -> None:
        """Store the question of a DAG run. A stored question that was not shown is replaced; a shown one stays."""
        with writing(self._engine) as connection:
            row = connection.execute(_LOCK_QUESTION, self._key_of(asked_in)).one_or_none()
            if row is not None and row.shown_at_ms is not None:
                if (row.subject, row.plan_hash) != (subject, plan_hash):
                    raise StateConflictError(
                        f"{printable(asked_in)} asks about plan {row.plan_hash} of {row.subject}: trigger another DAG "
                        f"run to ask about plan {plan_hash} of {subject}"
                    )
                return
            values: dict[str, Any] = {"subject": subject, "plan_hash": plan_hash, "headline": headline, "body": body}
            values |= {"put_at_ms": self._now_ms(connection)}
            key = {"cluster_id": self._cluster_id, "asked_in": asked_in}
            upsert(connection, plan_questions, {**key, **values, "shown_at_ms": None, **_NOT_ANSWERED})

    def show(self, asked_in: str) -> PlanQuestion:
        """Mark the question as shown, remove an earlier answer, and return the question."""
        with writing(self._engine) as connection:
            self._locked(connection, asked_in)
            self._change(connection, asked_in, {"shown_at_ms": self._now_ms(connection), **_NOT_ANSWERED})
            return _question(self._locked(connection, asked_in))

    def answer(self, asked_in: str, answer: Answer, *, user_id: str | None, answered_at_ms: int) -> PlanQuestion:
        """Store the answer that Airflow reports, in place of an earlier one, with an event."""
        with writing(self._engine) as connection:
            row = self._locked(connection, asked_in)
            if row.shown_at_ms is None:
                raise StateConflictError(f"the question of {printable(asked_in)} was not shown: no answer is accepted")
            now_ms, user = self._now_ms(connection), None if user_id is None else stored_text(user_id)
            given = {
                "answer": answer.value,
                "answered_by": user,
                "answered_at_ms": answered_at_ms,
                "recorded_at_ms": now_ms,
            }
            self._change(connection, asked_in, given)
            subject, what = run_subject(row.subject), f"plan {row.plan_hash} is {answer} in {asked_in}"
            record_event(connection, self._cluster_id, EventKind.ANSWER, subject, what, user or NO_USER, now_ms)
            return _question(self._locked(connection, asked_in))

    def find(self, asked_in: str) -> PlanQuestion | None:
        """Return the question of a DAG run, None if none is stored."""
        with reading(self._engine) as connection:
            row = connection.execute(_FIND_QUESTION, self._key_of(asked_in)).one_or_none()
            return None if row is None else _question(row)

    def unanswered(self, *, since_ms: int, at_most: int) -> Sequence[PlanQuestion]:
        """Return the newest questions shown at `since_ms` or later that have no answer, the newest first."""
        with reading(self._engine) as connection:
            query = _UNANSWERED.limit(at_most)
            return list(
                map(_question, connection.execute(query, {"of_cluster": self._cluster_id, "since_ms": since_ms}))
            )

    def last_approved_ms(self) -> int:
        """Return when the newest approved question was stored, in UTC milliseconds; 0 if none was approved."""
        with reading(self._engine) as connection:
            return connection.execute(_LAST_APPROVED, {"of_cluster": self._cluster_id}).scalar_one() or 0

    def _locked(self, connection: Connection, asked_in: str) -> Row[Any]:
        row = connection.execute(_LOCK_QUESTION, self._key_of(asked_in)).one_or_none()
        if row is None:
            raise StateConflictError(
                f"{printable(asked_in)} has no question: none of its tasks has stored a plan that needs an approval. "
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
