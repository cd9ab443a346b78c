"""The judge that is Great Expectations, on pandas.

Importing this module takes seconds: it is imported where measures are judged and nowhere else. The suite is built from
the rules, in an ephemeral context that lives as long as the judge. Columns have dtype object, so that an offset or a
checksum stays an exact Python integer beside a missing one. A core expectation ignores missing values: each rule
brings its own expectation that none is missing.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Generic

import great_expectations as gx
import pandas as pd
from great_expectations.data_context.types.base import ProgressBarsConfig
from great_expectations.expectations.core.expect_column_pair_values_to_be_equal import ExpectColumnPairValuesToBeEqual
from great_expectations.expectations.core.expect_column_values_to_be_in_set import ExpectColumnValuesToBeInSet
from great_expectations.expectations.core.expect_column_values_to_not_be_null import ExpectColumnValuesToNotBeNull
from great_expectations.expectations.expectation import Expectation

from include.tiering.errors import JudgeError
from include.tiering.quality.judge import BrokenRule, Measure
from include.tiering.quality.rules import IsZero, Rule

_INDEX_COLUMN: Final = "row"
_RESULT_FORMAT: Final = {"result_format": "COMPLETE", "unexpected_index_column_names": [_INDEX_COLUMN]}


class GreatExpectationsJudge(Generic[Measure]):
    """Applies `rules` with one suite. Not for several threads at once: one judge each."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        self._rules = {rule.rule_id: rule for rule in rules}
        self._columns = sorted({column for rule in rules for column in rule.check.columns})
        context = gx.get_context(mode="ephemeral")
        context.variables.progress_bars = ProgressBarsConfig(globally=False)
        suite = gx.ExpectationSuite(name="rules")
        for rule in rules:
            for expectation in _expectations(rule):
                suite.add_expectation(expectation)
        self._suite = context.suites.add(suite)
        asset = context.data_sources.add_pandas("measures").add_dataframe_asset("rows")
        self._batches = asset.add_batch_definition_whole_dataframe("all")

    def judge(self, measures: Sequence[Measure]) -> tuple[BrokenRule[Measure], ...]:
        """See `Judge`."""
        if not measures:
            return ()
        rows = [[row, *(getattr(measure, c) for c in self._columns)] for row, measure in enumerate(measures)]
        frame = pd.DataFrame(rows, columns=[_INDEX_COLUMN, *self._columns], dtype=object)
        result = self._batches.get_batch({"dataframe": frame}).validate(self._suite, result_format=_RESULT_FORMAT)
        order = {rule_id: position for position, rule_id in enumerate(self._rules)}
        broken = {pair for outcome in result.results for pair in _broken_rows(outcome)}
        return tuple(
            BrokenRule(measures[row], self._rules[rule_id])
            for row, rule_id in sorted(broken, key=lambda pair: (pair[0], order[pair[1]]))
        )


def _expectations(rule: Rule) -> Iterator[Expectation]:
    common: Mapping[str, Any] = {"meta": {"rule_id": rule.rule_id}, "severity": rule.severity.value}
    for column in rule.check.columns:
        yield ExpectColumnValuesToNotBeNull(column=column, **common)
    if isinstance(rule.check, IsZero):
        yield ExpectColumnValuesToBeInSet(column=rule.check.column, value_set=[0], **common)
    else:
        yield ExpectColumnPairValuesToBeEqual(
            column_A=rule.check.column,
            column_B=rule.check.other,
            ignore_row_if="either_value_is_missing",
            **common,
        )


def _broken_rows(outcome: Any) -> Iterator[tuple[int, str]]:
    """(row, rule id) of one expectation's result."""
    rule_id = outcome.expectation_config.meta["rule_id"]
    if outcome.success:
        return
    found = (outcome.result or {}).get("unexpected_index_list")
    if not found:
        raise JudgeError(f"rule {rule_id} could not be applied: {outcome.exception_info}")
    for entry in found:
        yield entry[_INDEX_COLUMN], rule_id
