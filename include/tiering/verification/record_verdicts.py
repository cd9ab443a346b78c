"""From measures to what is stored of each segment: the rules that it breaks and its verdict, in one transaction.

A look that is less deep than the one that failed a segment cannot acquit it: a rule that is not judged at this depth
keeps what it said last, and with it the verdict.

Two processes may look at one segment at once. Each knows the row as it was before its look began, and acquits of
nothing that was found since (`segments/values.py`): in whatever order they are recorded, and wherever one of them
dies, what either convicted is not PASSED before somebody has looked again.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from include.tiering.model.ids import RemoteLogSegmentId
from include.tiering.model.segment_metadata import Depth, RemoteLogSegmentMetadata, Verdict
from include.tiering.segments.contract import Look, QualityResult, RemoteLogMetadata, SegmentRow
from include.tiering.verification.judge import BrokenRule, Judge, QualityFinding
from include.tiering.verification.measures import SegmentMeasure
from include.tiering.verification.partition_rules import PARTITION_RULES
from include.tiering.verification.rules import RULES, RULES_BY_ID, explain

_LEVELS: Final = {rule.rule_id: rule.level for rule in (*RULES_BY_ID.values(), *PARTITION_RULES)}


@dataclass(frozen=True, slots=True)
class Subject:
    """A segment to verify, with the one before it; both as they were before anybody looked at them for this."""

    row: SegmentRow
    previous: RemoteLogSegmentMetadata | None

    @property
    def segment_id(self) -> RemoteLogSegmentId:
        return self.row.metadata.remote_log_segment_id


@dataclass(frozen=True, slots=True)
class Judged:
    """A segment with its new verdict, and what of it is reported. `failed` is not empty exactly if it failed."""

    segment_id: RemoteLogSegmentId
    read_bytes: int
    failed: tuple[QualityFinding, ...]
    warnings: tuple[QualityFinding, ...]

    @property
    def verdict(self) -> Verdict:
        return Verdict.FAILED if self.failed else Verdict.PASSED


def judge_and_record(
    metadata: RemoteLogMetadata, judge: Judge[SegmentMeasure], measured: Sequence[tuple[Subject, SegmentMeasure]]
) -> list[Judged]:
    """Judge measures of different segments, then record what each look found, one by one; in the order given.

    What is not FINISHED any more is left out: if its deletion began it lost its objects by right.

    Raises:
        JudgeError: a rule could not be applied; nothing was stored.
    """
    breaches: dict[SegmentMeasure, list[BrokenRule[SegmentMeasure]]] = {measure: [] for _, measure in measured}
    for breach in judge.judge([measure for _, measure in measured]):
        breaches[breach.measure].append(breach)
    judged = (_recorded(metadata, subject, measure, breaches[measure]) for subject, measure in measured)
    return [one for one in judged if one is not None]


def finding_of_result(result: QualityResult, start_offset: int) -> QualityFinding:
    """The report of a stored result that did not pass."""
    partition = result.segment_id.topic_id_partition
    return QualityFinding(
        topic=partition.topic,
        partition=partition.partition,
        topic_id=str(partition.topic_id),
        segment_id=str(result.segment_id.id),
        start_offset=start_offset,
        rule=result.rule,
        level=_LEVELS.get(result.rule, ""),
        message=result.message,
    )


def only_deep_acquits(results: Iterable[QualityResult]) -> bool:
    """Whether a rule that failed the segment is not judged of a shallow measure."""
    broken = (RULES_BY_ID.get(one.rule) for one in results if not one.passed)
    return any(rule is not None and Depth.SHALLOW not in rule.depths for rule in broken)


def _recorded(
    metadata: RemoteLogMetadata,
    subject: Subject,
    measure: SegmentMeasure,
    breaches: Iterable[BrokenRule[SegmentMeasure]],
) -> Judged | None:
    broken = tuple(_result(subject, breach) for breach in breaches)
    unjudged = frozenset(rule.rule_id for rule in RULES if not rule.is_about(measure))
    is_deep = measure.depth is Depth.DEEP
    judgement = metadata.record_look(Look(subject.segment_id, broken, unjudged, before=subject.row, is_deep=is_deep))
    if judgement is None:
        return None
    start_offset = subject.row.metadata.start_offset
    findings = [(one.fails, finding_of_result(one, start_offset)) for one in judgement.broken]
    failed = tuple(finding for fails, finding in findings if fails)
    warnings = tuple(finding for fails, finding in findings if not fails)
    return Judged(subject.segment_id, measure.bytes_read, failed, warnings)


def _result(subject: Subject, breach: BrokenRule[SegmentMeasure]) -> QualityResult:
    rule = breach.rule
    message = explain(rule, breach.measure)
    return QualityResult(subject.segment_id, rule.rule_id, rule.severity, passed=False, message=message)
