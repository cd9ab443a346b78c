"""Evaluate rules with Great Expectations on pandas. Each rule is an expectation.

Importing this module takes seconds, so it is imported only where measures are evaluated. For each depth there is one
checkpoint, which applies every suite to a group of measures, in an ephemeral context that lives as long as the
evaluator. If a directory is given, each suite's result is stored below it in the format of Great Expectations;
`quality_run` reads these results.

Custom expectations are used because the expectations of the library ignore missing values, succeed for a column without
any value, and show sentences about columns and sets. Here a missing value breaks the rule, and results show the rule's
own sentence. A batch is a pandas frame with one row per measure. Its dtype is object, so that offsets and checksums
stay exact Python integers.
"""

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, Final, Generic, TypedDict
from uuid import uuid4

import great_expectations as gx
import pandas as pd
from great_expectations.core.metric_domain_types import MetricDomainTypes
from great_expectations.core.run_identifier import RunIdentifier
from great_expectations.data_context.types.base import (
    DataContextConfig,
    InMemoryStoreBackendDefaults,
    ProgressBarsConfig,
)
from great_expectations.exceptions.exceptions import GreatExpectationsError
from great_expectations.execution_engine.pandas_execution_engine import PandasExecutionEngine
from great_expectations.expectations.expectation import (
    BatchExpectation,
    ColumnMapExpectation,
    ColumnPairMapExpectation,
    Expectation,
    MulticolumnMapExpectation,
)
from great_expectations.expectations.expectation_configuration import ExpectationConfiguration
from great_expectations.expectations.metrics.metric_provider import metric_value
from great_expectations.expectations.metrics.table_metric_provider import TableMetricProvider
from great_expectations.expectations.registry import list_registered_expectation_implementations

from include.tiering.errors import RuleEvaluationError, SettingError, printable
from include.tiering.model.segments import Depth
from include.tiering.settings.catalogue import nearest
from include.tiering.verification.measures import PartitionMeasure
from include.tiering.verification.rules import AreEqual, BrokenRule, Expects, IsZero, Measure, Rule
from include.tiering.verification.suite_files import SuitesInForce, columns_of, kwargs_of
from include.tiering.verification.suites import Suite

MAX_NAMED: Final = 20
"""A result has the row numbers of all measures that break the rule, and the identities of the first few of them."""

_ROWS: Final = "table.row_count"


class _Broken(TypedDict):
    """Positions of the rows that break a rule, and the identities of the first `MAX_NAMED` of them."""

    rows: list[int]
    named: list[dict[str, Any]]


def expectations_of(suite: Suite) -> list[Expectation]:
    """Return an expectation for each rule, in the order of the rules; its `meta` has the rule's id."""
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
        broken = (value is None or other is None or value != other for value, other in pairs)
        return _broken(frame, broken, metric_value_kwargs["identity"])


class ExpectMeasures(BatchExpectation):
    """Expects that every measure of a batch keeps a rule. `identity` names the columns that identify a measure."""

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
    """Expects that `column`, a number of faults, was measured and is 0."""

    column: str
    metric = "table.tiering_not_zero"
    metric_dependencies = (metric, _ROWS)
    success_keys = ("column", "identity")
    args_keys = ("column",)


class ExpectEqualMeasures(ExpectMeasures):
    """Expects that `column` and `other` were measured and are equal."""

    column: str
    other: str
    metric = "table.tiering_not_equal"
    metric_dependencies = (metric, _ROWS)
    success_keys = ("column", "other", "identity")
    args_keys = ("column", "other")


def _expectation(rule: Rule, suite: Suite) -> Expectation:
    common: dict[str, Any] = {
        "identity": list(suite.identity),
        "meta": {"rule_id": rule.rule_id, "level": rule.level.value},
        "severity": rule.severity.value,
        "description": rule.sentence,
    }
    if isinstance(rule.check, IsZero):
        return ExpectNoFaults(column=rule.check.column, **common)
    if isinstance(rule.check, AreEqual):
        return ExpectEqualMeasures(column=rule.check.column, other=rule.check.other, **common)
    del common["identity"]
    return ExpectationConfiguration(type=rule.check.type, kwargs=kwargs_of(rule.check), **common).to_domain_obj()


def _broken(frame: Any, broken: Iterable[bool], identity: list[str]) -> _Broken:
    rows = [row for row, is_broken in enumerate(broken) if is_broken]
    return _Broken(rows=rows, named=frame[identity].iloc[rows[:MAX_NAMED]].to_dict("records"))


def _frame(execution_engine: Any, domain: Any) -> Any:
    frame, *_ = execution_engine.get_compute_domain(domain, MetricDomainTypes.TABLE)
    return frame


_STORE: Final = "validation_results_store"
_RESULT_FORMAT: Final = {"result_format": "COMPLETE"}


class GreatExpectationsEvaluator(Generic[Measure]):
    """`RuleEvaluator` that applies `suites`. It is not thread-safe: use one evaluator per thread.

    Any number of evaluators, in any number of processes, may store their results below one directory.
    """

    def __init__(self, suites: Sequence[Suite], *, results_dir: Path | None = None) -> None:
        self._suites = suites
        self._results_dir = results_dir
        self.rules: tuple[Rule, ...] = tuple(rule for suite in suites for rule in suite.rules)
        self._order = {rule.rule_id: place for place, rule in enumerate(self.rules)}
        self._checkpoints: dict[Depth | None, _Checkpoint] = {}

    def evaluate(self, measures: Sequence[Measure]) -> tuple[BrokenRule[Measure], ...]:
        """Return broken rules in the order of the measures, then of the rules; each pair once."""
        by_depth: dict[Depth | None, list[int]] = {}
        for position, measure in enumerate(measures):
            by_depth.setdefault(getattr(measure, "depth", None), []).append(position)
        broken = [
            (positions[row], self._order[rule.rule_id], rule)
            for depth, positions in by_depth.items()
            for row, rule in self._checkpoint(depth).run([measures[position] for position in positions])
        ]
        return tuple(BrokenRule(measures[position], rule) for position, _, rule in sorted(broken, key=lambda b: b[:2]))

    def _checkpoint(self, depth: Depth | None) -> "_Checkpoint":
        if depth not in self._checkpoints:
            self._checkpoints[depth] = _Checkpoint(_suites_of(self._suites, depth), self._results_dir)
        return self._checkpoints[depth]


class _Checkpoint:
    """Applies suites to batches of measures that have every column of the rules."""

    def __init__(self, suites: Sequence[Suite], results_dir: Path | None) -> None:
        self._rules = {rule.rule_id: rule for suite in suites for rule in suite.rules}
        self._columns = sorted(
            {column for rule in self._rules.values() for column in rule.check.columns}
            | {column for suite in suites for column in suite.identity}
        )
        self._context = _context(results_dir)
        self._keeps_results = results_dir is not None
        self._checkpoint = _checkpoint(self._context, suites)

    def run(self, measures: Sequence[Any]) -> Iterator[tuple[int, Rule]]:
        """Yield (row, rule) for each measure and each rule that it breaks.

        Raises:
            RuleEvaluationError: a rule cannot be evaluated.
        """
        rows = [[getattr(measure, column) for column in self._columns] for measure in measures]
        frame = pd.DataFrame(rows, columns=self._columns, dtype=object)
        run = RunIdentifier(run_name=f"{os.getpid()}-{uuid4().hex}")
        outcome = self._checkpoint.run(batch_parameters={"dataframe": frame}, run_id=run)
        if not self._keeps_results:
            for key in outcome.run_results:
                self._context.stores[_STORE].remove_key(key)
        for suite in outcome.run_results.values():
            results: list[Any] = suite.results
            for result in results:
                rule = self._rules[result.expectation_config.meta["rule_id"]]
                for row in _broken_rows(result, rule.rule_id):
                    yield row, rule


def _suites_of(suites: Sequence[Suite], depth: Depth | None) -> list[Suite]:
    """Return the suites, each with its rules of this depth; without a depth, the suites with all of their rules."""
    if depth is None:
        return list(suites)
    of_depth = (replace(suite, rules=tuple(r for r in suite.rules if depth in r.depths)) for suite in suites)
    return [suite for suite in of_depth if suite.rules]


def _context(results_dir: Path | None) -> Any:
    stores = InMemoryStoreBackendDefaults()
    if results_dir is not None:
        stores.stores[_STORE]["store_backend"] = {
            "class_name": "TupleFilesystemStoreBackend",
            "base_directory": str(results_dir),
        }
    config = DataContextConfig(store_backend_defaults=stores, progress_bars=ProgressBarsConfig(globally=False))
    return gx.get_context(project_config=config, mode="ephemeral")


def _checkpoint(context: Any, suites: Sequence[Suite]) -> gx.Checkpoint:
    """Return a checkpoint that applies all suites to one batch of measures."""
    asset = context.data_sources.add_pandas("measures").add_dataframe_asset("rows")
    batch = asset.add_batch_definition_whole_dataframe("all")
    validations = []
    for suite in suites:
        rules = context.suites.add(gx.ExpectationSuite(name=suite.name, expectations=expectations_of(suite)))
        validations.append(
            context.validation_definitions.add(gx.ValidationDefinition(name=suite.name, data=batch, suite=rules))
        )
    checkpoint: gx.Checkpoint = context.checkpoints.add(
        gx.Checkpoint(name="quality", validation_definitions=validations, result_format=_RESULT_FORMAT)
    )
    return checkpoint


def _broken_rows(result: Any, rule_id: str) -> list[int]:
    """Return the rows that break one expectation. Raises RuleEvaluationError if it failed without naming any row."""
    if result.success:
        return []
    found: list[int] | None = (result.result or {}).get("unexpected_index_list")
    if not found:
        raise RuleEvaluationError(f"rule {rule_id} could not be applied: {result.exception_info}")
    return found


def check_expectations(suites: SuitesInForce) -> None:
    """Let Great Expectations load the expectations of suite files, and try each on two made-up measures.

    One measure has all values, the other only those that are never missing.

    Raises:
        SettingError: an expectation cannot be loaded or applied, or is not about single measures.
    """
    for suite in suites.all:
        columns = columns_of(suite.measure)
        whole = {name: "0" if column.kind is str else 0 for name, column in columns.items()}
        sparse = {name: None if column.optional else whole[name] for name, column in columns.items()}
        made_up = [SimpleNamespace(**whole), SimpleNamespace(**sparse)]
        for rule in suite.rules:
            if isinstance(rule.check, Expects):
                try:
                    _try(rule, suite, made_up)
                except (GreatExpectationsError, RuleEvaluationError, TypeError, ValueError) as error:
                    raise SettingError(
                        f"suites.path: {suite.name}.json: expectation {rule.rule_id}: {printable(_reason(error))}"
                    ) from error


_OF_ROWS: Final = (ColumnMapExpectation, ColumnPairMapExpectation, MulticolumnMapExpectation)
_COMPARE_ROWS: Final = frozenset(
    {
        "ExpectColumnValuesToBeDecreasing",
        "ExpectColumnValuesToBeIncreasing",
        "ExpectColumnValuesToBeUnique",
        "ExpectCompoundColumnsToBeUnique",
    }
)


def _try(rule: Rule, suite: Suite, measures: Sequence[Any]) -> None:
    known = list_registered_expectation_implementations()
    if isinstance(rule.check, Expects) and rule.check.type not in known:
        raise ValueError(f"{rule.check.type} not found: {nearest(rule.check.type, known)}")
    expectation = _expectation(rule, suite)
    if not isinstance(expectation, _OF_ROWS) or type(expectation).__name__ in _COMPARE_ROWS:
        raise ValueError(
            "it is about a whole table, or compares rows with each other; measures are evaluated in groups of any "
            "size, so a rule must be about single rows: use an expectation about the values of columns"
        )
    broken = list(_Checkpoint([replace(suite, rules=(rule,))], None).run(measures))
    if broken and suite.measure is PartitionMeasure:
        raise ValueError("a partition without any fault breaks it, and no segment could be named")


def _reason(error: Exception) -> str:
    """Return the messages in the error; that of an expectation that failed is deep in a traceback."""
    messages = dict.fromkeys(_MESSAGE.findall(str(error)))
    return "; ".join(messages) or " ".join(str(error).split())


_MESSAGE: Final = re.compile(r"'exception_message': ['\"](.+?)['\"], '")
