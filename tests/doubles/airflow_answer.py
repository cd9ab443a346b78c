"""An answer as Airflow hands it to the task that asks, for tests of single tasks."""

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.providers.standard.operators.hitl import ApprovalOperator

from plugins.tiering_airflow.approval import PlanApprovalOperator


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
