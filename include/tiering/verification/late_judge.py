"""A judge that is made when there is something to judge."""

from collections.abc import Callable, Sequence
from typing import Generic

from include.tiering.verification.judge import BrokenRule, Judge, Measure


class LateJudge(Generic[Measure]):
    """Great Expectations takes seconds to import: nobody waits for it before there is a measure."""

    def __init__(self, make: Callable[[], Judge[Measure]]) -> None:
        self._make = make
        self._judge: Judge[Measure] | None = None

    def judge(self, measures: Sequence[Measure]) -> tuple[BrokenRule[Measure], ...]:
        """See `Judge`."""
        if not measures:
            return ()
        if self._judge is None:
            self._judge = self._make()
        return self._judge.judge(measures)
