"""Whether the answer that is stored releases a plan. Pure.

Airflow takes an answer from those it asked and from nobody else. Who may approve is asked a second time when the plan
is released, since that may have changed since; and the times of question and answer have to make sense, since they are
what people read later.
"""

from collections.abc import Collection
from typing import Final

from include.tiering.errors import AnswerRefusedError, ApprovalRequiredError, printable
from include.tiering.runs.approval_contract import Answer, PlanQuestion
from include.tiering.units import format_utc

CLOCKS_MAY_DIFFER_MS: Final = 5 * 60 * 1000


def approval_author(
    found: PlanQuestion | None, *, asked_in: str, subject: str, plan_hash: str | None, approvers: Collection[str]
) -> str:
    """Who approved exactly this plan, and in which DAG run, in words for the event log.

    Without `approvers` everybody counts whom Airflow let answer.

    Raises:
        ApprovalRequiredError: nobody was asked, nobody answered, or the answer was no.
        AnswerRefusedError: the answer is about another plan, of a person who may not approve now, or of no possible
            time.
    """
    if found is None or found.shown_at_ms is None or found.given is None:
        raise ApprovalRequiredError(
            f"plan {plan_hash} of {subject} needs an approval and Airflow has handed none to the task that asks, "
            f"whatever the states of {printable(asked_in)} say: nothing was deleted. Trigger another DAG run"
        )
    given = found.given
    if (found.subject, found.plan_hash) != (subject, plan_hash):
        raise AnswerRefusedError(
            f"{printable(asked_in)} asked about plan {found.plan_hash} of {found.subject}, not about plan {plan_hash} "
            f"of {subject}: nothing was deleted. Trigger another DAG run"
        )
    if given.user_id is None:
        raise ApprovalRequiredError(f"nobody answered whether plan {plan_hash} of {subject} may go")
    if given.answer is not Answer.APPROVED:
        raise ApprovalRequiredError(f"{given.user_id} rejected plan {plan_hash} of {subject}")
    if approvers and given.user_id not in approvers:
        raise AnswerRefusedError(
            f"plan {plan_hash} of {subject} was approved by {given.user_id}, who is not among those who may approve "
            f"now ({', '.join(approvers)}; [tiering] expiration_approvers): nothing was deleted. Trigger another DAG "
            "run, it asks them"
        )
    answered = format_utc(given.answered_at_ms)
    if given.answered_at_ms > given.recorded_at_ms + CLOCKS_MAY_DIFFER_MS:
        raise AnswerRefusedError(
            f"by Airflow's clock plan {plan_hash} was approved at {answered}, which for the database at "
            f"{format_utc(given.recorded_at_ms)} is in the future: set the clocks right, then trigger another DAG run"
        )
    if given.answered_at_ms < found.shown_at_ms - CLOCKS_MAY_DIFFER_MS:
        raise AnswerRefusedError(
            f"by Airflow's clock plan {plan_hash} was approved at {answered}, before it was shown at "
            f"{format_utc(found.shown_at_ms)}: set the clocks right, then trigger another DAG run"
        )
    return f"{given.user_id} ({asked_in}, answered {answered})"
