"""Answers to what a DAG run asks: as Airflow hands them to a task, and by a person beside a run."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.providers.standard.operators.hitl import ApprovalOperator
from sqlalchemy import select

from plugins.tiering_airflow.approval import PlanApprovalOperator

# An answer as Airflow hands it to the task that asks, for tests of single tasks.


def answers(dag_id: str, run_id: str, user: str | None, option: str = "Approve", at: datetime | None = None) -> None:
    """`approval` shows its question, waits, and goes on with what Airflow stored of the answer; None: nobody's."""
    context: Any = {"run_id": run_id, "dag_run": SimpleNamespace(dag_id=dag_id, run_id=run_id)}
    by = None if user is None else {"id": user, "name": f"{user} by name"}
    given_at = at or datetime.now(UTC)
    event = {"chosen_options": [option], "params_input": {}, "responded_at": given_at, "responded_by_user": by}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ApprovalOperator, "execute", lambda self, context: None)
        PlanApprovalOperator(task_id="approval").execute(context)
    PlanApprovalOperator(task_id="approval").execute_complete(context, event)


# A person who answers what a DAG run asks.


@contextmanager
def turns_with_tasks() -> Iterator[threading.Lock]:
    """A lock that Airflow's DAG runner for tests holds while it runs a task.

    It then writes the state in which it saw the task end, whatever became of it meanwhile: an answer, or the end of the
    wait for one, that came in between would be lost, and the run would wait for ever.
    """
    from airflow.sdk.definitions import dag

    turn, run_task = threading.Lock(), dag._run_task

    def run_task_in_turn(**arguments: Any) -> Any:
        with turn:
            return run_task(**arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dag, "_run_task", run_task_in_turn)
        yield turn


class Person(threading.Thread):
    """Waits for the question in Airflow's database and answers as Airflow's REST API does it, in its `turn`."""

    def __init__(self, option: str, turn: threading.Lock, before: Callable[[], None] = lambda: None) -> None:
        super().__init__(daemon=True)
        self.turn = turn
        self.option = option
        self.before = before
        self.questions: list[tuple[str, str]] = []
        self.refused: list[tuple[str, int]] = []
        self.gone_home = threading.Event()

    def run(self) -> None:
        while not self.gone_home.wait(0.5):
            with self.turn:
                waiting = self._waiting()
                if waiting is not None:
                    self.before()
                    for user in ("mallory", "olga"):
                        if self._answers(user, *waiting):
                            return

    def _waiting(self) -> tuple[str, str, str] | None:
        from airflow.models.hitl import HITLDetail
        from airflow.models.taskinstance import TaskInstance
        from airflow.utils.session import create_session

        parked = (
            select(TaskInstance, HITLDetail)
            .join(HITLDetail, HITLDetail.ti_id == TaskInstance.id)
            .where(TaskInstance.state == "awaiting_input", HITLDetail.responded_at.is_(None))
        )
        with create_session() as session:
            found = session.execute(parked).first()
            if found is None:
                return None
            instance, detail = found
            self.questions.append((detail.subject, detail.body or ""))
            return instance.dag_id, instance.run_id, instance.task_id

    def _answers(self, user: str, dag_id: str, run_id: str, task_id: str) -> bool:
        from airflow.api_fastapi.app import init_auth_manager
        from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser
        from airflow.api_fastapi.core_api.datamodels.hitl import UpdateHITLDetailPayload
        from airflow.api_fastapi.core_api.routes.public.hitl import HTTPException, update_hitl_detail
        from airflow.utils.session import create_session

        init_auth_manager()
        payload = UpdateHITLDetailPayload(chosen_options=[self.option])
        operator = SimpleAuthManagerUser(username=user, role="op")
        try:
            with create_session() as session:
                update_hitl_detail(dag_id, run_id, task_id, payload, operator, session)
        except HTTPException as error:
            self.refused.append((user, error.status_code))
            return False
        return True


@contextmanager
def person_says(option: str, before: Callable[[], None] = lambda: None) -> Iterator[Person]:
    with turns_with_tasks() as turn:
        person = Person(option, turn, before)
        person.start()
        try:
            yield person
        finally:
            person.gone_home.set()
            person.join()
