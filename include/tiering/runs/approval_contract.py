"""Questions to people about plans, and their answers, as the platform itself keeps them.

The task that plans stores what is to be asked; the task that asks reads it here and shows it; what Airflow hands it as
the answer is stored here before anything else. So neither the question nor the answer goes through a place that more
people may write than the tasks themselves.

| step | what a crash after it leaves |
|---|---|
| put | a question that nobody has seen; nothing may go |
| show | a question without an answer; the asking task begins again and shows the same one |
| answer | the answer; the task that releases judges it, as often as it is started |
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol


class Answer(StrEnum):
    """What was chosen; REJECTED too where nobody answered in time."""

    APPROVED = "approved"
    REJECTED = "rejected"


@dataclass(frozen=True, slots=True)
class GivenAnswer:
    """`user_id` is None where nobody answered in time; `answered_at_ms` is by Airflow's clock, `recorded_at_ms` by the
    database's."""

    answer: Answer
    user_id: str | None
    answered_at_ms: int
    recorded_at_ms: int


@dataclass(frozen=True, slots=True)
class PlanQuestion:
    """One question of one DAG run, about the plan of `subject`: a planned run, or a hand-over.

    `shown_at_ms` is None as long as no task has put it before a person.
    """

    asked_in: str
    subject: str
    plan_hash: str
    headline: str
    body: str
    shown_at_ms: int | None = None
    given: GivenAnswer | None = None


class PlanQuestions(Protocol):
    """The questions of one cluster, one for each DAG run. All may raise MetadataUnavailableError."""

    def put(self, asked_in: str, *, subject: str, plan_hash: str, headline: str, body: str) -> None:
        """Store what is to be asked. A question that was shown stays as it is.

        Raises:
            StateConflictError: this DAG run has shown another plan. Airflow keeps the text of a task's first question,
                so another plan needs another DAG run.
        """
        ...

    def show(self, asked_in: str) -> PlanQuestion:
        """The question, from now on without an answer: an earlier one counts no more.

        Raises:
            StateConflictError: nothing was put.
        """
        ...

    def answer(self, asked_in: str, answer: Answer, *, user_id: str | None, answered_at_ms: int) -> PlanQuestion:
        """Store what Airflow says was answered.

        Raises:
            StateConflictError: the question was not shown.
        """
        ...

    def find(self, asked_in: str) -> PlanQuestion | None: ...

    def last_approved_ms(self) -> int:
        """When the text of the newest question that was approved was stored; 0 if none was."""
        ...
