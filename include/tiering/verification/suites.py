"""The rules about partitions and their sizes, as data, and the suites: which rules are evaluated together.

Q4xx compare a partition's FINISHED segments with each other, and with the ends and the history of its log. A broken
critical rule gives a segment the verdict FAILED, which stops its partition. Some rules are only warnings, for one of
two reasons. Every segment stays readable although the rule is broken. Or another writer may have caused the fault, and
a verdict says only whether the segment's objects in the store are right.

S1xx compare the counters of sizes with the rows of segments, S2xx compare the store with the rows; each of the two has
a kind of measure of its own. Nothing here reads counters, rows or the store.

A suite has rules about one kind of measure, so that its results show what was checked. Each suite for measures of
segments has the rules of one `Level`: object, segment or partition. A suite names the columns that identify a measure
in the results.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Generic

from include.tiering.verification.measures import PartitionMeasure, SegmentMeasure
from include.tiering.verification.rules import (
    RULES,
    AreEqual,
    BrokenRule,
    IsZero,
    Level,
    Measure,
    QualityFinding,
    Rule,
    RuleEvaluator,
    Severity,
)

PARTITION_RULES: Final[tuple[Rule, ...]] = (
    Rule(
        "Q401",
        Level.PARTITION,
        IsZero("missing_offsets"),
        "Every offset between the segments, from the log start on, is in a segment, or skipped by a decision.",
    ),
    Rule(
        "Q402",
        Level.PARTITION,
        IsZero("duplicate_segments"),
        "No two segments of one history hold exactly the same offsets.",
        Severity.WARNING,
    ),
    Rule(
        "Q403",
        Level.PARTITION,
        IsZero("unexplained_overlap"),
        "Segments of the partition share offsets only after a change of the leader.",
        Severity.WARNING,
    ),
    Rule(
        "Q404",
        Level.PARTITION,
        IsZero("leader_epoch_regressions"),
        "Leader epochs do not fall along the partition.",
    ),
    Rule(
        "Q405",
        Level.PARTITION,
        IsZero("segments_above_log_end"),
        "No segment has offsets above the end of the leader's log.",
        Severity.WARNING,
    ),
    Rule(
        "Q406",
        Level.PARTITION,
        IsZero("segments_below_log_start"),
        "No segment is left below the log start.",
        Severity.WARNING,
    ),
    Rule(
        "Q407",
        Level.PARTITION,
        IsZero("other_history"),
        "Every segment belongs to the partition's history, or to one that a decision replaced.",
        Severity.WARNING,
    ),
)


def findings_of_partition(broken: BrokenRule[PartitionMeasure]) -> Iterator[QualityFinding]:
    """Return a finding for each fault that the measure describes, with the total: not all faults are described."""
    measure, rule = broken.measure, broken.rule
    for fault in measure.faults:
        if fault.column in rule.check.columns:
            found = f"{fault.column} = {getattr(measure, fault.column)}"
            yield QualityFinding(
                topic=measure.topic,
                partition=measure.partition,
                topic_id=measure.topic_id,
                segment_id=fault.segment_id,
                start_offset=fault.start_offset,
                rule=rule.rule_id,
                level=rule.level,
                message=f"Expected: {rule.sentence} Found: {found}; this segment {fault.text}",
            )


RULES_ABOUT_NEIGHBOURS: Final = frozenset(
    rule.rule_id for rule in (*RULES, *PARTITION_RULES) if rule.level is Level.PARTITION
)
"""Ids of all rules with `Level.PARTITION` (Q3xx and Q4xx).

A segment breaks them because of its neighbours, or because of the ends or the history of its log."""


@dataclass(frozen=True, slots=True)
class SizeMeasure:
    """Counters and rows of the segments of one partition in one state.

    Attributes:
        counted_bytes, counted_segments: the values of the counters.
        recounted_bytes, recounted_segments: the totals of the rows.
        epoch_differences: number of leader epochs whose counters differ from the totals of the rows.
        epochs_above_partition: number of leader epochs whose rows exceed those of the partition, in bytes or segments.
        segments_without_epoch: number of the partition's rows minus the sum of the numbers of rows of its leader
            epochs; at least 0.
    """

    topic: str
    topic_id: str
    partition: int
    state: str
    counted_bytes: int
    counted_segments: int
    recounted_bytes: int
    recounted_segments: int
    epoch_differences: int
    epochs_above_partition: int
    segments_without_epoch: int


@dataclass(frozen=True, slots=True)
class StoredMeasure:
    """Differences between the store and the FINISHED rows of one partition. Columns are numbers of segments.

    Attributes:
        missing: the row is FINISHED, and an object is not in the store.
        unknown: the store has objects, and there is no row.
        other_size: the length of the stored log is neither that in the row nor explained by the manifest.
        other_epochs: leader epochs, offsets, size or segment id in the manifest differ from the row.
        unreadable: the manifest or the offset index cannot be read, or the manifest cannot be parsed.
    """

    topic: str
    topic_id: str
    partition: int
    missing: int
    unknown: int
    other_size: int
    other_epochs: int
    unreadable: int


SIZE_RULES: Final[tuple[Rule, ...]] = (
    Rule(
        "S101",
        Level.PARTITION,
        AreEqual("counted_bytes", "recounted_bytes"),
        "The counter of bytes is the sum of the rows.",
    ),
    Rule(
        "S102",
        Level.PARTITION,
        AreEqual("counted_segments", "recounted_segments"),
        "The counter of segments is the number of rows.",
    ),
    Rule(
        "S103",
        Level.PARTITION,
        IsZero("epoch_differences"),
        "The counters of every leader epoch are the sums of its rows.",
    ),
    Rule(
        "S111",
        Level.PARTITION,
        IsZero("epochs_above_partition"),
        "No leader epoch holds more than its partition.",
    ),
    Rule(
        "S112",
        Level.PARTITION,
        IsZero("segments_without_epoch"),
        "Every segment counts under a leader epoch.",
    ),
)

STORED_RULES: Final[tuple[Rule, ...]] = (
    Rule("S201", Level.OBJECT, IsZero("missing"), "The store has every object of a FINISHED segment."),
    Rule("S202", Level.OBJECT, IsZero("unknown"), "Every object belongs to a segment that has a row."),
    Rule("S203", Level.SEGMENT, IsZero("other_size"), "The stored log has the length in its row."),
    Rule("S204", Level.SEGMENT, IsZero("other_epochs"), "The manifest and the row of a segment agree."),
    Rule("S205", Level.SEGMENT, IsZero("unreadable"), "The manifest and the offset index can be read."),
)


def explain_size(rule: Rule, measure: SizeMeasure | StoredMeasure) -> str:
    """Return as a text what the rule expects, and the numbers that were found."""
    found = ", ".join(f"{column} = {getattr(measure, column)}" for column in rule.check.columns)
    return f"Expected: {rule.sentence} Found: {found}"


_PARTITION: Final = ("topic", "partition")


@dataclass(frozen=True, slots=True)
class Suite:
    """Rules about one kind of measure.

    Attributes:
        name: also the name of a directory of results and of a suite file.
        identity: the columns that identify a measure.
        measure: the class of the measures.
    """

    name: str
    title: str
    rules: tuple[Rule, ...]
    identity: tuple[str, ...] = _PARTITION
    measure: type = SegmentMeasure


class LazyRuleEvaluator(Generic[Measure]):
    """Makes its evaluator when the first measure is evaluated, because Great Expectations takes seconds to import."""

    def __init__(self, suites: Sequence[Suite], make: Callable[[Sequence[Suite]], RuleEvaluator[Measure]]) -> None:
        self.rules: tuple[Rule, ...] = tuple(rule for suite in suites for rule in suite.rules)
        self._suites = suites
        self._make = make
        self._evaluator: RuleEvaluator[Measure] | None = None

    def evaluate(self, measures: Sequence[Measure]) -> tuple[BrokenRule[Measure], ...]:
        """Return broken rules in the order of the measures, then of the rules; each pair once."""
        if not measures:
            return ()
        if self._evaluator is None:
            self._evaluator = self._make(self._suites)
        return self._evaluator.evaluate(measures)


def segment_suites(rules: Sequence[Rule] = RULES) -> tuple[Suite, ...]:
    """Return the suites for measures of segments, one for each `Level` that one of `rules` has."""
    titles = {
        Level.OBJECT: ("objects", "Each object in the store"),
        Level.SEGMENT: ("segments", "Each segment, by its objects"),
        Level.PARTITION: ("succession", "Each segment and its predecessor"),
    }
    suites = (
        Suite(name, title, tuple(rule for rule in rules if rule.level is level), (*_PARTITION, "segment_id"))
        for level, (name, title) in titles.items()
    )
    return tuple(suite for suite in suites if suite.rules)


PARTITION_SUITES: Final = (
    Suite("partition-lineage", "Each partition as a whole", PARTITION_RULES, measure=PartitionMeasure),
)
SIZE_SUITES: Final = (
    Suite("size-totals", "Counters and rows of each partition", SIZE_RULES, (*_PARTITION, "state"), SizeMeasure),
)
STORED_SUITES: Final = (
    Suite("stored-totals", "Store and rows of each partition", STORED_RULES, measure=StoredMeasure),
)
ALL_SUITES: Final = (*segment_suites(), *PARTITION_SUITES, *SIZE_SUITES, *STORED_SUITES)
SUITE_TITLES: Final = {suite.name: suite.title for suite in ALL_SUITES}

REPORTED_ONLY: Final = frozenset({"S111", "S112", "S202"})
"""Critical rules on which no decision depends: a breach is only a finding. So a suite file may remove them."""

SAFETY_RULES: Final = frozenset(
    rule.rule_id for suite in ALL_SUITES for rule in suite.rules if rule.severity is Severity.CRITICAL
).difference(REPORTED_ONLY)
"""Ids of the rules that no suite file can remove or make a warning.

By these rules, a segment that passes has the records of its source and can be read, counters that retention uses are
right, and a loss in the store is seen. The verdict PASSED allows that the original is deleted.
"""
