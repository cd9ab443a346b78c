"""Validation results as Great Expectations stored them, read back without it and added up.

Each file is the result of one suite over one group of measures: many groups, and many processes, make one run.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from include.tiering.verification.suites import SUITE_TITLES

MAX_RESULT_BYTES: Final = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class RuleOutcome:
    """One rule over all groups: how many measures it was applied to, how many broke it."""

    rule_id: str
    sentence: str
    severity: str
    measured: int
    broken: int


@dataclass(frozen=True, slots=True)
class SuiteOutcome:
    """One suite over all groups, with its rules by id."""

    name: str
    title: str
    rules: tuple[RuleOutcome, ...]

    @property
    def broken_rules(self) -> int:
        return sum(rule.broken > 0 for rule in self.rules)


@dataclass(frozen=True, slots=True)
class StoredResults:
    """`unreadable` names files that hold no result; `judged_by` versions of Great Expectations."""

    suites: tuple[SuiteOutcome, ...]
    unreadable: tuple[str, ...]
    judged_by: tuple[str, ...]


def read_results(directory: Path) -> StoredResults:
    """Add up every result below `directory`; none if there is no such directory."""
    suites: dict[str, dict[str, RuleOutcome]] = {}
    unreadable, versions = [], set()
    for file in sorted(directory.rglob("*.json")):
        try:
            result = _load(file)
            rules = [_rule(each) for each in result["results"]]
            name, version = str(result["suite_name"]), str(result["meta"]["great_expectations_version"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            unreadable.append(f"{file.relative_to(directory)}: {type(error).__name__}")
            continue
        versions.add(version)
        _add(suites.setdefault(name, {}), rules)
    return StoredResults(
        tuple(_suite(name, suites[name]) for name in sorted(suites, key=_place)),
        tuple(unreadable),
        tuple(sorted(versions)),
    )


def _load(file: Path) -> Mapping[str, Any]:
    if file.stat().st_size > MAX_RESULT_BYTES:
        raise ValueError(f"{file} is longer than {MAX_RESULT_BYTES} bytes")
    content: Mapping[str, Any] = json.loads(file.read_bytes())
    return content


def _rule(result: Mapping[str, Any]) -> RuleOutcome:
    config, counted = result["expectation_config"], result["result"]
    return RuleOutcome(
        rule_id=str(config["meta"]["rule_id"]),
        sentence=str(config["description"]),
        severity=str(config["severity"]),
        measured=int(counted["element_count"]),
        broken=int(counted["unexpected_count"]),
    )


def _add(known: dict[str, RuleOutcome], rules: Iterable[RuleOutcome]) -> None:
    for rule in rules:
        before = known.get(rule.rule_id)
        measured, broken = (before.measured, before.broken) if before else (0, 0)
        known[rule.rule_id] = RuleOutcome(
            rule.rule_id, rule.sentence, rule.severity, measured + rule.measured, broken + rule.broken
        )


def _suite(name: str, rules: Mapping[str, RuleOutcome]) -> SuiteOutcome:
    return SuiteOutcome(name, SUITE_TITLES.get(name, name), tuple(rules[rule_id] for rule_id in sorted(rules)))


def _place(name: str) -> tuple[int, str]:
    known = list(SUITE_TITLES)
    return (known.index(name) if name in known else len(known), name)
