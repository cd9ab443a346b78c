"""What must hold of the sizes of a partition, as data: the counters, the rows and the store say the same.

S1xx compare the counters with the rows, S2xx the store with the rows, one measure each. A recount is taken as it is
where counters and rows stood still; nothing here reads them.
"""

from dataclasses import dataclass
from typing import Final

from include.tiering.verification.rules import AreEqual, IsZero, Level, Rule


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
