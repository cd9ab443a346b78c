"""Approval of a plan by a user in Airflow; the answer is stored in the platform's own database.

In Airflow more users may write XComs and set states of tasks than may approve a deletion. But only users who may answer
write Airflow's record of the answer, and only Airflow passes that record to the task that asked. So that task,
`PlanApprovalOperator`, stores the answer itself, and the task that releases the plan reads the answer from the
database: an XCom does not count, and an approval task that a user marked as successful has stored no answer.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from airflow.providers.standard.operators.hitl import ApprovalOperator

from include.tiering.runs.approval import Answer, ApprovalQuestion, PlanQuestion, approval_author
from plugins.tiering_airflow import configuration
from plugins.tiering_airflow.hook import TieringHook

if TYPE_CHECKING:
    from airflow.sdk import Context

    from include.tiering.app import App


class PlanApprovalOperator(ApprovalOperator):
    """Asks a user to approve the plan that an earlier task stored; without an answer in time the plan is rejected.

    The task waits without worker, slot or trigger. It shows the question that is stored in the platform's database. The
    answer, its user (None: no user answered in time) and its time, as Airflow recorded them, are stored in the same
    database before the run continues.
    """

    template_fields: Sequence[str] = ()

    def __init__(self, **kwargs: Any) -> None:
        approvers = [{"id": name, "name": name} for name in configuration.expiration_approvers()]
        super().__init__(
            # Replaced by the question in `execute`.
            subject="A plan that deletes",
            defaults=self.REJECT,
            assigned_users=approvers or None,
            response_timeout=configuration.expiration_approval_wait(),
            # Its limit is `response_timeout`.
            execution_timeout=None,
            **kwargs,
        )

    def execute(self, context: "Context") -> Any:
        """Run the task. Raises StateConflictError if no task of this run has stored a question."""
        with TieringHook().open() as app:
            asked = app.adapters.stores.plan_questions.show(asked_in(context))
        self.subject, self.body = asked.headline, asked.body
        return super().execute(context)

    def execute_complete(self, context: "Context", event: dict[str, Any]) -> Any:
        if "error" not in event:
            user, at = event["responded_by_user"], event["responded_at"]
            answer = Answer.APPROVED if event["chosen_options"] == [self.APPROVE] else Answer.REJECTED
            with TieringHook().open() as app:
                app.questions.answer(
                    asked_in(context),
                    answer,
                    user_id=user and str(user["id"]),
                    answered_at_ms=int(at.timestamp() * 1000),
                )
        return super().execute_complete(context, event)


def asked_in(context: "Context") -> str:
    """Return the name under which questions and the event log know this DAG run: `dag_id run_id`."""
    return f"{context['dag_run'].dag_id} {context['run_id']}"


def put_question(app: "App", context: "Context", question: ApprovalQuestion, *, subject: str, plan_hash: str) -> None:
    """Store the question for the approval task. Raises StateConflictError if the run has asked about another plan."""
    app.adapters.stores.plan_questions.put(
        asked_in(context), subject=subject, plan_hash=plan_hash, headline=question.subject, body=question.body
    )


def approved_by(app: "App", context: "Context", *, subject: str, plan_hash: str | None) -> str:
    """Return who approved exactly this plan in this run. Raises ApprovalRequiredError or AnswerRefusedError."""
    return approval_author(
        app.adapters.stores.plan_questions.find(asked_in(context)),
        asked_in=asked_in(context),
        subject=subject,
        plan_hash=plan_hash,
        approvers=configuration.expiration_approvers(),
    )


def is_unanswered(app: "App", context: "Context") -> bool:
    """Return whether the time for an answer to this run's question has ended without an answer of a user."""
    found: PlanQuestion | None = app.adapters.stores.plan_questions.find(asked_in(context))
    return found is not None and found.given is not None and found.given.user_id is None
