"""What people are asked about plans, and what they answered."""

from collections.abc import Callable, Sequence
from typing import Final

from include.tiering.configs.config_store import ALL_BROKERS, ConfigStore
from include.tiering.configs.deletion_limits import Loosening, loosenings
from include.tiering.runs.approval_contract import Answer, PlanQuestion, PlanQuestions
from include.tiering.settings import TieringSettings

_TEXT_TAKES_MS: Final = 60_000
"""Between the reading of the limits and the storing of a question: a line is rather shown twice than never."""


class QuestionService:
    """Stores answers to questions about plans of any kind.

    Args:
        claim: lets no copy of the database from before a rejection go on with the store; returns why it could not.
    """

    def __init__(
        self,
        *,
        settings: TieringSettings,
        questions: PlanQuestions,
        configs: ConfigStore,
        claim: Callable[[], str | None],
    ) -> None:
        self._settings = settings
        self._questions = questions
        self._configs = configs
        self._claim = claim

    def answer(self, asked_in: str, answer: Answer, *, user_id: str | None, answered_at_ms: int) -> PlanQuestion:
        """Store what was answered. Behind a rejection the store is claimed, as far as that can be done: a copy of the
        database from before has the same plan, and the question still open.

        Raises:
            StateConflictError: the question was not shown.
        """
        answered = self._questions.answer(asked_in, answer, user_id=user_id, answered_at_ms=answered_at_ms)
        if answer is Answer.REJECTED:
            self._claim()
        return answered

    def loosened_since_approval(self) -> Sequence[Loosening]:
        """Deletion limits that were loosened since a person approved a question that could name them; oldest first."""
        since_ms = self._questions.last_approved_ms() - _TEXT_TAKES_MS
        return loosenings(self._configs.history(ALL_BROKERS), self._settings, since_ms=since_ms)
