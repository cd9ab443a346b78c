"""What must hold of a partition's FINISHED segments side by side, as data: Q4xx.

A rule that another source of facts may break by itself, or that leaves each segment readable, is a warning: a FAILED
verdict stops a partition, and says what the store held.
"""

from collections.abc import Iterator
from typing import Final

from include.tiering.verification.judge import BrokenRule, QualityFinding
from include.tiering.verification.partition_measures import PartitionMeasure
from include.tiering.verification.rules import RULES, IsZero, Level, Rule, Severity

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
