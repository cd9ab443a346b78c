"""The rules in plain Python: the oracle beside Great Expectations, and a judge that costs nothing to import."""

from collections.abc import Sequence

from include.tiering.quality.judge import BrokenRule
from include.tiering.quality.measures import SegmentMeasure
from include.tiering.quality.rules import RULES, IsZero, Rule


class PlainJudge:
    def judge(self, measures: Sequence[SegmentMeasure]) -> tuple[BrokenRule, ...]:
        return tuple(BrokenRule(m, rule) for m in measures for rule in RULES if is_broken(rule, m))


def is_broken(rule: Rule, measure: SegmentMeasure) -> bool:
    values = [getattr(measure, column) for column in rule.check.columns]
    if None in values:
        return True
    return values[0] != 0 if isinstance(rule.check, IsZero) else values[0] != values[1]
