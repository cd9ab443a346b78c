"""The judge that is Great Expectations, on pandas.

Importing this module takes seconds: it is imported where measures are judged and nowhere else. One checkpoint applies
every suite to a group of measures of one depth, in an ephemeral context that lives as long as the judge. Where a
directory is given, each suite's result is stored below it as Great Expectations stores it; `data_docs` reads them.
"""

import logging
import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, Generic
from uuid import uuid4

import great_expectations as gx
import pandas as pd
from great_expectations.core.run_identifier import RunIdentifier
from great_expectations.data_context.types.base import (
    DataContextConfig,
    InMemoryStoreBackendDefaults,
    ProgressBarsConfig,
)

from include.tiering.errors import JudgeError
from include.tiering.model.segment_metadata import Depth
from include.tiering.verification.great_expectations_rules import expectations_of
from include.tiering.verification.judge import BrokenRule, Measure
from include.tiering.verification.rules import Rule
from include.tiering.verification.suites import Suite

# It says at INFO which of its own parts it loads.
logging.getLogger("great_expectations").setLevel(logging.WARNING)

_STORE: Final = "validation_results_store"
_RESULT_FORMAT: Final = {"result_format": "COMPLETE"}


class GreatExpectationsJudge(Generic[Measure]):
    """Applies `suites`. Not for several threads at once: one judge each.

    Any number of judges, in any number of processes, may store their results below one directory.
    """

    def __init__(self, suites: Sequence[Suite], *, results_dir: Path | None = None) -> None:
        self._suites = suites
        self._results_dir = results_dir
        self._order = {rule.rule_id: place for place, rule in enumerate(r for suite in suites for r in suite.rules)}
        self._checkpoints: dict[Depth | None, _Checkpoint] = {}

    def judge(self, measures: Sequence[Measure]) -> tuple[BrokenRule[Measure], ...]:
        """See `Judge`."""
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
    """Suites over batches of measures that have every column that the rules name."""

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
        """(row, rule) of each measure that breaks a rule. Raises JudgeError."""
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
    """What is judged of a measure of this depth; of one without a depth, all."""
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
    """All suites over one batch of measures."""
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
    """Of one expectation's result."""
    if result.success:
        return []
    found: list[int] | None = (result.result or {}).get("unexpected_index_list")
    if not found:
        raise JudgeError(f"rule {rule_id} could not be applied: {result.exception_info}")
    return found
