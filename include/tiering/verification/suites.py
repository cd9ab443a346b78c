"""What must hold of partitions and of their sizes, as data, and which rules are verified together.

Q4xx look at a partition's FINISHED segments side by side. A rule that another source may break by itself, or
that leaves each segment readable, is a warning: a FAILED verdict stops a partition, and says what the store held.

S1xx compare the counters of sizes with the rows, S2xx the store with the rows, one measure each. A recount is taken as
it is where counters and rows stood still; nothing here reads them.

A suite speaks about one thing at one level, so that a reader of its results knows what was looked at. It names the
columns by which a measure is told where one breaks.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from include.tiering.verification.measures import PartitionMeasure
from include.tiering.verification.rules import (
    RULES,
    AreEqual,
    BrokenRule,
    IsZero,
    Level,
    QualityFinding,
    Rule,
    Severity,
)

PARTITION_RULES: Final[tuple[Rule, ...]] = (
    Rule(
        "Q401",
        Level.PARTITION,
        IsZero("missing_offsets"),
        "From the log start on, every offset of the partition is held, or skipped by a decision.",
    ),
    Rule(
        "Q402",
        Level.PARTITION,
        IsZero("duplicate_segments"),
        "No two segments hold exactly the same offsets.",
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
        "No segment reaches above the end of the leader's log.",
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
        "Segments are of one history, or of one that a decision left.",
        Severity.WARNING,
    ),
)


def findings_of_partition(broken: BrokenRule[PartitionMeasure]) -> Iterator[QualityFinding]:
    """One for each segment that the measure names; how many there are in all, if it does not name all of them."""
    measure, rule = broken.measure, broken.rule
    (column,) = rule.check.columns
    for fault in measure.faults:
        if fault.column == column:
            yield QualityFinding(
                topic=measure.topic,
                partition=measure.partition,
                topic_id=measure.topic_id,
                segment_id=fault.segment_id,
                start_offset=fault.start_offset,
                rule=rule.rule_id,
                level=rule.level,
                message=f"{rule.sentence} Found: {column} = {getattr(measure, column)}; this segment {fault.text}",
            )


RULES_ABOUT_NEIGHBOURS: Final = frozenset(
    rule.rule_id for rule in (*RULES, *PARTITION_RULES) if rule.level is Level.PARTITION
)
"""Ids of all rules, of segments and of partitions, that a segment breaks by what lies beside it and not by itself."""


@dataclass(frozen=True, slots=True)
class SizeMeasure:
    """One partition in one state.

    Attributes:
        counted_bytes, counted_segments: what the counters say.
        recounted_bytes, recounted_segments: what the rows add up to.
        epoch_differences: leader epochs whose counter is not what the rows add up to.
        epochs_above_partition: leader epochs of which the rows hold more than of their partition.
        segments_without_epoch: segments of the partition beyond those that its leader epochs hold.
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
    """One partition in the store, beside its FINISHED rows. Every column is the number of segments.

    Attributes:
        missing: FINISHED, and the store has not all of their objects.
        unknown: in the store, and no row knows them.
        other_size: with a log of another length than the row says.
        other_epochs: with a manifest that names other leader epochs, offsets or another segment than the row.
        unreadable: with a manifest that cannot be read.
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
        "The counter of bytes is what the rows add up to.",
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
        "The counters of every leader epoch are what its rows add up to.",
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
    Rule("S202", Level.OBJECT, IsZero("unknown"), "Every object belongs to a segment that a row knows."),
    Rule("S203", Level.SEGMENT, IsZero("other_size"), "The stored log is as long as its row says."),
    Rule("S204", Level.SEGMENT, IsZero("other_epochs"), "The manifest describes the segment as its row does."),
    Rule("S205", Level.SEGMENT, IsZero("unreadable"), "The manifest can be read."),
)


def explain_size(rule: Rule, measure: SizeMeasure | StoredMeasure) -> str:
    """Why this measure broke the rule, for a person: the sentence and the numbers."""
    found = ", ".join(f"{column} = {getattr(measure, column)}" for column in rule.check.columns)
    return f"{rule.sentence} Found: {found}"


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
