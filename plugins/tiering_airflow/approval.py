"""How a person is asked about a plan in Airflow, and where the answer is kept: in the platform's own database.

In Airflow more people may write XComs, states of tasks and what tasks keep there than may approve a deletion. What
nobody but the asked can write is Airflow's record of the answer, and what nobody but Airflow writes is that record on
its way into the task that asked. So this task stores the answer itself, and the task that releases reads it there: an
XCom says nothing, and a task that was marked as successful has stored no answer.
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
    """Asks a person for the plan that a task before it put into the database; without an answer in time it is a Reject.

    Waits without worker, slot or trigger. What the person sees is the text in the database; what was answered, by whom
    (None: nobody) and when, as Airflow stored it, is written there before the run goes on.
    """

    template_fields: Sequence[str] = ()

    def __init__(self, **kwargs: Any) -> None:
        approvers = [{"id": name, "name": name} for name in configuration.expiration_approvers()]
        super().__init__(
            # Put in its place by the question.
            subject="A plan that deletes",
            defaults=self.REJECT,
            assigned_users=approvers or None,
            response_timeout=configuration.expiration_approval_wait(),
            **kwargs,
        )

    def execute(self, context: "Context") -> Any:
        """Raises StateConflictError if no task of this run has something to ask."""
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
    """The DAG run, in words that also stand in the event log."""
    return f"{context['dag_run'].dag_id} {context['run_id']}"


def put_question(app: "App", context: "Context", question: ApprovalQuestion, *, subject: str, plan_hash: str) -> None:
    """Leave it in the database for the task that asks. Raises StateConflictError if this run asked about another."""
    app.adapters.stores.plan_questions.put(
        asked_in(context), subject=subject, plan_hash=plan_hash, headline=question.subject, body=question.body
    )


def approved_by(app: "App", context: "Context", *, subject: str, plan_hash: str | None) -> str:
    """Who approved exactly this plan in this run. Raises ApprovalRequiredError, AnswerRefusedError."""
    return approval_author(
        app.adapters.stores.plan_questions.find(asked_in(context)),
        asked_in=asked_in(context),
        subject=subject,
        plan_hash=plan_hash,
        approvers=configuration.expiration_approvers(),
    )


def is_unanswered(app: "App", context: "Context") -> bool:
    """Whether this run asked, and the time for an answer went by."""
    found: PlanQuestion | None = app.adapters.stores.plan_questions.find(asked_in(context))
    return found is not None and found.given is not None and found.given.user_id is None
