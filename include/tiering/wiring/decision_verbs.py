"""What people are asked about plans, and what they answered."""

from collections.abc import Sequence
from functools import cached_property
from typing import Final

from include.tiering.quota.config_store import ALL_BROKERS
from include.tiering.quota.deletion_limits import Loosening, loosenings
from include.tiering.wiring.parts import Parts
from include.tiering.work.approval_contract import Answer, PlanQuestion, PlanQuestions
from include.tiering.work.sql_plan_questions import SqlPlanQuestions

_TEXT_TAKES_MS: Final = 60_000
"""Between the look at the limits and the storing of a question: rather a line twice than not at all."""


class DecisionVerbs(Parts):
    """Part of `Tiering`."""

    @cached_property
    def plan_questions(self) -> PlanQuestions:
        """What people were asked about plans of any kind, and their answers."""
        return SqlPlanQuestions(self.engine, self.cluster_id)

    def answer_question(
        self, asked_in: str, answer: Answer, *, user_id: str | None, answered_at_ms: int
    ) -> PlanQuestion:
        """Store what was answered. Behind a rejection the store is claimed, as far as that can be done: a copy of the
        database from before has the same plan, and the question still open.

        Raises:
            StateConflictError: the question was not shown.
        """
        answered = self.plan_questions.answer(asked_in, answer, user_id=user_id, answered_at_ms=answered_at_ms)
        if answer is Answer.REJECTED:
            self.claim_store_if_possible()
        return answered

    def loosened_since_approval(self) -> Sequence[Loosening]:
        """Limits of deletions that were loosened since a person approved a question that could name them; oldest
        first."""
        since_ms = self.plan_questions.last_approved_ms() - _TEXT_TAKES_MS
        return loosenings(self.configs.history(ALL_BROKERS), self.settings, since_ms=since_ms)
