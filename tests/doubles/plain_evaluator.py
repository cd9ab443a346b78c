"""The rules in plain Python: the oracle beside Great Expectations, and an evaluator that costs nothing to import."""

from collections.abc import Sequence
from typing import Any

from include.tiering.verification.rules import RULES, BrokenRule, IsZero, Rule


class PlainEvaluator:
    def __init__(self, rules: Sequence[Rule] = RULES) -> None:
        self.rules = tuple(rules)

    def evaluate(self, measures: Sequence[Any]) -> tuple[BrokenRule[Any], ...]:
        return tuple(BrokenRule(m, rule) for m in measures for rule in self.rules if is_broken(rule, m))


def is_broken(rule: Rule, measure: Any) -> bool:
    if not rule.is_about(measure):
        return False
    values = [getattr(measure, column) for column in rule.check.columns]
    if None in values:
        return True
    return values[0] != 0 if isinstance(rule.check, IsZero) else values[0] != values[1]
