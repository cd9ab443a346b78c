"""Who applies the rules to the measures."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from include.tiering.verification.rules import Rule

Measure = TypeVar("Measure")
"""A frozen value whose attributes are the columns that rules name."""


@dataclass(frozen=True, slots=True)
class BrokenRule(Generic[Measure]):
    """One measure that breaks one rule."""

    measure: Measure
    rule: Rule


@dataclass(frozen=True, slots=True)
class QualityFinding:
    """A broken rule as it is reported. Ids as Kafka prints them; `level` is what the rule speaks about."""

    topic: str
    partition: int
    topic_id: str
    segment_id: str
    start_offset: int
    rule: str
    level: str
    message: str


class Judge(Protocol[Measure]):
    """Applies every rule to every measure."""

    def judge(self, measures: Sequence[Measure]) -> tuple[BrokenRule[Measure], ...]:
        """Broken rules in the order of the measures, then of the rules; each pair once.

        Raises:
            JudgeError: a rule could not be applied: no measure may be taken as passed.
        """
        ...
