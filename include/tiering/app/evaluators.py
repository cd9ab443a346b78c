"""Evaluators of rules by Great Expectations. The library takes seconds to import: only processes that need it wait."""

import logging
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from include.tiering.verification.rules import RuleEvaluator
from include.tiering.verification.suite_files import SuitesInForce, read_suites
from include.tiering.verification.suites import Suite


def great_expectations(suites: Sequence[Suite], results_dir: Path | None = None) -> RuleEvaluator[Any]:
    """Return an evaluator of the rules in `suites`. It stores results below `results_dir`, unless that is None."""
    logging.getLogger("great_expectations").setLevel(logging.WARNING)
    from include.tiering.verification.great_expectations_evaluator import GreatExpectationsEvaluator

    return GreatExpectationsEvaluator(suites, results_dir=results_dir)


class SuiteFiles:
    """The suites, with the changes of the user's files in `directory`; see `verification.suite_files`."""

    def __init__(self, directory: Path | None) -> None:
        self._directory = directory

    @cached_property
    def in_force(self) -> SuitesInForce:
        """The suites; Great Expectations has loaded and tried what files add. Raises SettingError for a wrong file."""
        suites = read_suites(self._directory)
        if suites.has_expectations:
            logging.getLogger("great_expectations").setLevel(logging.WARNING)
            from include.tiering.verification.great_expectations_evaluator import check_expectations

            check_expectations(suites)
        return suites

    def changes(self) -> str:
        """Return what the files change, without Great Expectations. Raises SettingError for a wrong file."""
        return read_suites(self._directory).changes
