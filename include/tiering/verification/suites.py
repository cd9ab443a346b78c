"""Suites as code: which rules are judged together, and by which columns a measure is named where one breaks.

A suite speaks about one thing at one level, so that a reader of its results knows what was looked at.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from include.tiering.verification.partition_rules import PARTITION_RULES
from include.tiering.verification.rules import RULES, Level, Rule
from include.tiering.verification.size_rules import SIZE_RULES, STORED_RULES

_PARTITION: Final = ("topic", "partition")


@dataclass(frozen=True, slots=True)
class Suite:
    """Rules about one kind of measure. `name` is that of a directory, `identity` names columns of the measure."""

    name: str
    title: str
    rules: tuple[Rule, ...]
    identity: tuple[str, ...] = _PARTITION


def segment_suites(rules: Sequence[Rule] = RULES) -> tuple[Suite, ...]:
    """The suites of a segment's measure, by level, without those that `rules` leave empty."""
    titles = {
        Level.OBJECT: ("objects", "Each object in the store"),
        Level.SEGMENT: ("segments", "Each segment, by its objects"),
        Level.PARTITION: ("succession", "Each segment beside the one before it"),
    }
    suites = (
        Suite(name, title, tuple(rule for rule in rules if rule.level is level), (*_PARTITION, "segment_id"))
        for level, (name, title) in titles.items()
    )
    return tuple(suite for suite in suites if suite.rules)


PARTITION_SUITES: Final = (Suite("partition-lineage", "Each partition as a whole", PARTITION_RULES),)
SIZE_SUITES: Final = (Suite("size-totals", "Counters and rows of each partition", SIZE_RULES, (*_PARTITION, "state")),)
STORED_SUITES: Final = (Suite("stored-totals", "Store and rows of each partition", STORED_RULES),)
SUITE_TITLES: Final = {
    suite.name: suite.title for suite in (*segment_suites(), *PARTITION_SUITES, *SIZE_SUITES, *STORED_SUITES)
}
