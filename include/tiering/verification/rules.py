"""The rules for copied segments, as data, and the contract of their evaluator. Nothing here reads a store.

Q1xx are about one object, Q2xx about one segment, Q3xx about a segment and its predecessor in the partition. A rule is
evaluated only on measures of its depths. If one of its columns is None there, the column could not be measured, and the
rule is broken. Rules about partitions and about sizes are in `suites`; `suite_files` adds, removes and changes rules by
files.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Generic, Protocol, TypeVar

from include.tiering.model.segments import Depth
from include.tiering.verification.measures import SegmentMeasure


class Level(StrEnum):
    """The kind of thing that a rule is about."""

    OBJECT = "object"
    SEGMENT = "segment"
    PARTITION = "partition"


class Severity(StrEnum):
    """CRITICAL fails the segment; WARNING is reported and does not change the verdict."""

    CRITICAL = "critical"
    WARNING = "warning"


@dataclass(frozen=True, slots=True)
class IsZero:
    """Holds if `column`, a number of faults, was measured and is 0."""

    column: str

    @property
    def columns(self) -> tuple[str, ...]:
        """Return the column that the check reads."""
        return (self.column,)


@dataclass(frozen=True, slots=True)
class AreEqual:
    """Holds if both columns were measured and are equal."""

    column: str
    other: str

    @property
    def columns(self) -> tuple[str, ...]:
        """Return the columns that the check compares."""
        return (self.column, self.other)


@dataclass(frozen=True, slots=True)
class Expects:
    """Holds if an expectation of Great Expectations does; only suite files have this check.

    Attributes:
        type: the name that Great Expectations has for the expectation.
        kwargs: its arguments as the text of a JSON object.
        columns: the columns that it reads, those of its row condition included.
    """

    type: str
    kwargs: str
    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule. `sentence` says what is so if the rule holds; `depths` are those at which it is evaluated."""

    rule_id: str
    level: Level
    check: IsZero | AreEqual | Expects
    sentence: str
    severity: Severity = Severity.CRITICAL
    depths: frozenset[Depth] = frozenset(Depth)

    def is_about(self, measure: object) -> bool:
        """Return whether the rule is evaluated on this measure; always True for a measure without a depth."""
        return getattr(measure, "depth", None) in {None, *self.depths}


ALL_OBJECTS_THERE: Final = "Q106"
NOT_OPENED: Final = "Q270"
"""The rule about batches that are too large to be read whole; the part of them that was read is right."""

_OBJECT, _SEGMENT, _PARTITION = Level.OBJECT, Level.SEGMENT, Level.PARTITION
_SHALLOW, _DEEP = frozenset([Depth.SHALLOW]), frozenset([Depth.DEEP])

RULES: Final[tuple[Rule, ...]] = (
    Rule(
        "Q101",
        _OBJECT,
        AreEqual("stored_log_size_bytes", "segment_size_bytes"),
        "The stored log has the length of the source's log.",
    ),
    Rule(
        "Q102",
        _OBJECT,
        AreEqual("stored_log_crc32c", "log_crc32c"),
        "The checksum that the store computed over the log equals the source's.",
    ),
    Rule(
        "Q103",
        _OBJECT,
        IsZero("objects_unlike_contents"),
        "Every other object has the length and the checksum of what is read from it.",
    ),
    Rule("Q104", _OBJECT, IsZero("manifest_differences"), "The manifest and the metadata agree."),
    Rule(
        "Q105",
        _OBJECT,
        AreEqual("read_log_crc32c", "stored_log_crc32c"),
        "The bytes read from the log have the checksum that the store computed.",
        depths=_DEEP,
    ),
    Rule(ALL_OBJECTS_THERE, _OBJECT, IsZero("objects_missing"), "Every object is in the store, with its bytes."),
    Rule("Q201", _SEGMENT, IsZero("offset_index_untrimmed"), "The offset index ends with its last entry."),
    Rule("Q202", _SEGMENT, IsZero("offset_index_disorder"), "Offsets and positions of the offset index ascend."),
    Rule("Q203", _SEGMENT, IsZero("offset_index_outside"), "The offset index stays inside the segment."),
    Rule(
        "Q204",
        _SEGMENT,
        IsZero("offset_index_wrong_entries"),
        "Every entry of the offset index points at the batch of its offset, or at one of the same append.",
        depths=_DEEP,
    ),
    Rule("Q211", _SEGMENT, IsZero("time_index_untrimmed"), "The time index ends with its last entry."),
    Rule("Q212", _SEGMENT, IsZero("time_index_disorder"), "Timestamps of the time index ascend, offsets never fall."),
    Rule("Q213", _SEGMENT, IsZero("time_index_outside"), "The time index stays inside the segment and its timestamps."),
    Rule(
        "Q214",
        _SEGMENT,
        IsZero("time_index_wrong_entries"),
        "Every entry of the time index has the largest timestamp of its offset's batch; earlier batches are older.",
        depths=_DEEP,
    ),
    Rule(
        "Q215",
        _SEGMENT,
        IsZero("time_index_unlike_maximum"),
        "The time index ends with the segment's largest timestamp.",
    ),
    Rule("Q221", _SEGMENT, IsZero("transaction_index_untrimmed"), "The transaction index ends with its last entry."),
    Rule("Q222", _SEGMENT, IsZero("transaction_index_disorder"), "Abort markers of the transaction index ascend."),
    Rule(
        "Q223",
        _SEGMENT,
        IsZero("transaction_index_outside"),
        "Abort markers of the transaction index lie inside the segment, and transactions begin before them.",
    ),
    Rule(
        "Q224",
        _SEGMENT,
        IsZero("transaction_index_contradictions"),
        "The transaction index is empty exactly if the metadata says so.",
    ),
    Rule(
        "Q225",
        _SEGMENT,
        IsZero("transaction_index_wrong_entries"),
        "Every entry of the transaction index is a transaction that an ABORT marker of the log ends.",
        depths=_DEEP,
    ),
    Rule(
        "Q226",
        _SEGMENT,
        IsZero("transaction_index_missing"),
        "Every aborted transaction of the log is in the transaction index.",
        depths=_DEEP,
    ),
    Rule(
        "Q231",
        _SEGMENT,
        IsZero("producer_snapshot_beyond_end"),
        "The producer snapshot is whole and has no offset after the segment.",
    ),
    Rule(
        "Q232",
        _SEGMENT,
        IsZero("producer_snapshot_wrong_entries"),
        "The producer snapshot has producers and open transactions as the last batches left them.",
        depths=_DEEP,
    ),
    Rule(
        "Q241",
        _SEGMENT,
        IsZero("leader_epoch_differences"),
        "No leader epoch of the stored history begins after the segment, and the history agrees with the metadata.",
    ),
    Rule(
        "Q242",
        _SEGMENT,
        IsZero("leader_epochs_outside"),
        "The metadata's leader epochs begin inside the segment.",
    ),
    Rule(
        "Q251",
        _SEGMENT,
        IsZero("first_batch_faults"),
        "The first batch is valid and begins at the segment's start offset.",
        depths=_SHALLOW,
    ),
    Rule(
        "Q252",
        _SEGMENT,
        IsZero("last_batch_faults"),
        "The last batches are valid and end at the segment's end offset.",
        depths=_SHALLOW,
    ),
    Rule(
        "Q261",
        _SEGMENT,
        IsZero("log_unreadable_bytes"),
        "Batches follow each other from the log's first byte to its last.",
        depths=_DEEP,
    ),
    Rule(
        "Q262",
        _SEGMENT,
        IsZero("log_wrong_crcs"),
        "The CRC-32C of every batch is the one in its header.",
        depths=_DEEP,
    ),
    Rule(
        "Q263",
        _SEGMENT,
        IsZero("log_missing_offsets"),
        "Every offset from the segment's start to its end is in a batch.",
        depths=_DEEP,
    ),
    Rule(
        "Q264",
        _SEGMENT,
        IsZero("log_misplaced_batches"),
        "Every batch lies inside the segment's offsets, after the batches before it.",
        depths=_DEEP,
    ),
    Rule(
        "Q265",
        _SEGMENT,
        IsZero("log_wrong_epochs"),
        "Every batch has the leader epoch that the metadata has for its offsets.",
        depths=_DEEP,
    ),
    Rule(
        "Q266",
        _SEGMENT,
        IsZero("log_impossible_headers"),
        "Every header is possible: counts, flags, codec, producer, markers.",
        depths=_DEEP,
    ),
    Rule(
        "Q267",
        _SEGMENT,
        IsZero("log_unopened_batches"),
        "Every batch that is opened can be decompressed, and has the records that its header announces.",
        depths=_DEEP,
    ),
    Rule(
        "Q268",
        _SEGMENT,
        AreEqual("log_max_timestamp_ms", "max_timestamp_ms"),
        "The largest timestamp of the batches equals the metadata's.",
        depths=_DEEP,
    ),
    Rule(
        "Q269",
        _SEGMENT,
        IsZero("log_thinned_batches"),
        "Every batch has as many records as offsets; after compaction a batch may have fewer.",
        Severity.WARNING,
        depths=_DEEP,
    ),
    Rule(
        NOT_OPENED,
        _SEGMENT,
        IsZero("batches_not_opened"),
        "Every batch that is opened can be read whole, within the limits of bytes and records.",
        Severity.WARNING,
    ),
    Rule("Q301", _PARTITION, IsZero("missing_offsets"), "Only skipped offsets are missing after the previous segment."),
    Rule(
        "Q302",
        _PARTITION,
        IsZero("unexplained_overlap"),
        "Two segments share offsets only after a change of the leader.",
        Severity.WARNING,
    ),
    Rule("Q303", _PARTITION, IsZero("leader_epochs_back"), "Leader epochs do not fall from segment to segment."),
    Rule(
        "Q304",
        _PARTITION,
        IsZero("leader_epochs_unlike_previous"),
        "The leader epoch history agrees with the segment right before.",
        Severity.WARNING,
    ),
)


RULES_BY_ID: Final = {rule.rule_id: rule for rule in RULES}


def explain(rule: Rule, measure: SegmentMeasure) -> str:
    """Return as a text what the rule expects and what was found: the numbers, or why a number could not be measured."""
    remarks = dict(measure.remarks)
    found = "; ".join(
        remarks.get(column) or f"{column} {'is not known' if value is None else f'= {value}'}"
        for column in rule.check.columns
        for value in (getattr(measure, column),)
    )
    return f"Expected: {rule.sentence} Found: {found}"


Measure = TypeVar("Measure")
"""A frozen, hashable value whose attributes include the columns that rules name."""


@dataclass(frozen=True, slots=True)
class BrokenRule(Generic[Measure]):
    """One measure that breaks one rule."""

    measure: Measure
    rule: Rule


@dataclass(frozen=True, slots=True)
class QualityFinding:
    """A broken rule as it is reported. Ids are in Kafka's text form; `level` is that of the rule."""

    topic: str
    partition: int
    topic_id: str
    segment_id: str
    start_offset: int
    rule: str
    level: str
    message: str


class RuleEvaluator(Protocol[Measure]):
    """Applies to every measure the rules of its depth."""

    @property
    def rules(self) -> tuple[Rule, ...]:
        """Return all rules, of every depth, in the order in which they are evaluated."""
        ...

    def evaluate(self, measures: Sequence[Measure]) -> tuple[BrokenRule[Measure], ...]:
        """Return broken rules in the order of the measures, then of the rules; each pair once.

        Raises:
            RuleEvaluationError: a rule could not be applied; no measure counts as passed.
        """
        ...
