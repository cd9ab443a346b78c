"""The rules as expectations of Great Expectations, one each.

A core expectation leaves missing values out, calls a column without any value a success, and reads as a sentence about
columns and sets. Here a missing value breaks the rule, and the rule's own sentence is what a reader sees. Batches are
pandas frames of measures whose columns have dtype object: an offset or a checksum stays an exact Python integer.
"""

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Final, TypedDict

from great_expectations.core.metric_domain_types import MetricDomainTypes
from great_expectations.execution_engine.pandas_execution_engine import PandasExecutionEngine
from great_expectations.expectations.expectation import BatchExpectation
from great_expectations.expectations.metrics.metric_provider import metric_value
from great_expectations.expectations.metrics.table_metric_provider import TableMetricProvider

from include.tiering.verification.rules import IsZero, Rule
from include.tiering.verification.suites import Suite

MAX_NAMED: Final = 20
"""Broken measures that a result names; all are listed by row."""

_ROWS: Final = "table.row_count"


class _Broken(TypedDict):
    """Positions of the rows that break a rule, and what the first of them are called."""

    rows: list[int]
    named: list[dict[str, Any]]


def expectations_of(suite: Suite) -> list["ExpectMeasures"]:
    """One per rule, in their order; the rule's id is in `meta`."""
    return [_expectation(rule, suite) for rule in suite.rules]


class _NotZero(TableMetricProvider):
    metric_name = "table.tiering_not_zero"
    value_keys = ("column", "identity")

    @metric_value(engine=PandasExecutionEngine)
    def _pandas(*, execution_engine: Any, metric_domain_kwargs: Any, metric_value_kwargs: Any, **_: Any) -> _Broken:
        frame = _frame(execution_engine, metric_domain_kwargs)
        broken = (value is None or value != 0 for value in frame[metric_value_kwargs["column"]])
        return _broken(frame, broken, metric_value_kwargs["identity"])


class _NotEqual(TableMetricProvider):
    metric_name = "table.tiering_not_equal"
    value_keys = ("column", "other", "identity")

    @metric_value(engine=PandasExecutionEngine)
    def _pandas(*, execution_engine: Any, metric_domain_kwargs: Any, metric_value_kwargs: Any, **_: Any) -> _Broken:
        frame = _frame(execution_engine, metric_domain_kwargs)
        pairs = zip(frame[metric_value_kwargs["column"]], frame[metric_value_kwargs["other"]], strict=True)
        broken = (one is None or other is None or one != other for one, other in pairs)
        return _broken(frame, broken, metric_value_kwargs["identity"])


class ExpectMeasures(BatchExpectation):
    """Every measure of a batch keeps to a rule. `identity` names the columns by which a broken one is told."""

    identity: list[str]
    metric: ClassVar[str] = ""

    @classmethod
    def is_abstract(cls) -> bool:
        return not cls.metric or super().is_abstract()

    def _validate(
        self,
        metrics: Mapping[str, Any],
        runtime_configuration: Mapping[str, Any] | None = None,
        execution_engine: Any = None,
    ) -> dict[str, Any]:
        broken = metrics[self.metric]
        return {
            "success": not broken["rows"],
            "result": {
                "element_count": metrics[_ROWS],
                "unexpected_count": len(broken["rows"]),
                "unexpected_index_list": broken["rows"],
                "partial_unexpected_list": broken["named"],
            },
        }


class ExpectNoFaults(ExpectMeasures):
    """`column` counts faults: it is measured, and 0."""

    column: str
    metric = "table.tiering_not_zero"
    metric_dependencies = (metric, _ROWS)
    success_keys = ("column", "identity")
    args_keys = ("column",)


class ExpectEqualMeasures(ExpectMeasures):
    """`column` and `other` are measured, and equal."""

    column: str
    other: str
    metric = "table.tiering_not_equal"
    metric_dependencies = (metric, _ROWS)
    success_keys = ("column", "other", "identity")
    args_keys = ("column", "other")


def _expectation(rule: Rule, suite: Suite) -> ExpectMeasures:
    common: dict[str, Any] = {
        "identity": list(suite.identity),
        "meta": {"rule_id": rule.rule_id, "level": rule.level.value},
        "severity": rule.severity.value,
        "description": rule.sentence,
    }
    if isinstance(rule.check, IsZero):
        return ExpectNoFaults(column=rule.check.column, **common)
    return ExpectEqualMeasures(column=rule.check.column, other=rule.check.other, **common)


def _broken(frame: Any, broken: Iterable[bool], identity: list[str]) -> _Broken:
    rows = [row for row, is_broken in enumerate(broken) if is_broken]
    return _Broken(rows=rows, named=frame[identity].iloc[rows[:MAX_NAMED]].to_dict("records"))


def _frame(execution_engine: Any, domain: Any) -> Any:
    frame, *_ = execution_engine.get_compute_domain(domain, MetricDomainTypes.TABLE)
    return frame
