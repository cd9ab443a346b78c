"""From broken rules to stored results and verdicts, a group of segments at a time.

A look that is less deep than the one that failed a segment cannot acquit it: a rule that is not judged at this depth
keeps what it said last, and with it the verdict.

Two processes may judge one segment at once. Each stores broken rules before its verdict, and whoever acquits reads them
again after his: of the two orders in which they can come, neither leaves a segment PASSED that the other one convicted.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from include.tiering.model.depth import Depth
from include.tiering.model.ids import RemoteLogSegmentId
from include.tiering.model.segment_metadata import RemoteLogSegmentMetadata
from include.tiering.model.verdict import Verdict
from include.tiering.quality.judge import BrokenRule, Judge, QualityFinding, finding_of
from include.tiering.quality.measures import SegmentMeasure
from include.tiering.quality.partition_rules import PARTITION_RULES
from include.tiering.quality.rules import RULES_BY_ID, Severity
from include.tiering.remote_metadata.contract import QualityResult, RemoteLogMetadata, SegmentRow

_LEVELS: Final = {rule.rule_id: rule.level for rule in (*RULES_BY_ID.values(), *PARTITION_RULES)}


@dataclass(frozen=True, slots=True)
class Subject:
    """A segment to verify, with the one before it."""

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
    """Judge measures of different segments, store broken rules, then verdicts one by one; in the order given.

    A segment that broke a rule and whose deletion began meanwhile lost its objects by right: it is left out.

    Raises:
        JudgeError: a rule could not be applied; nothing was stored.
    """
    breaches: dict[SegmentMeasure, list[BrokenRule[SegmentMeasure]]] = {measure: [] for _, measure in measured}
    for breach in judge.judge([measure for _, measure in measured]):
        breaches[breach.measure].append(breach)
    results: list[QualityResult] = []
    judged: list[tuple[Subject, Judged]] = []
    for subject, measure in measured:
        broken = breaches[measure]
        if broken and not _is_still_finished(metadata, subject):
            continue
        said = [_result(subject, breach) for breach in broken]
        before = [one for one in _said_before(metadata, subject) if one.rule not in {each.rule for each in said}]
        standing = [one for one in before if not _is_judged(one.rule, measure)]
        results += said
        results += [replace(one, passed=True, message="") for one in before if _is_judged(one.rule, measure)]
        findings = [(b.rule.severity, finding_of(b)) for b in broken]
        start_offset = subject.row.metadata.start_offset
        findings += [(Severity(one.level), finding_of_result(one, start_offset)) for one in standing]
        failed = tuple(finding for severity, finding in findings if severity is Severity.CRITICAL)
        warnings = tuple(finding for severity, finding in findings if severity is Severity.WARNING)
        judged.append((subject, Judged(subject.segment_id, measure.bytes_read, failed, warnings)))
    metadata.record_quality_results(results)
    return [_recorded(metadata, subject, one) for subject, one in judged]


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


def _recorded(metadata: RemoteLogMetadata, subject: Subject, judged: Judged) -> Judged:
    """With its verdict stored: what somebody else found broken since it was looked up convicts it all the same."""
    metadata.record_verdict(judged.segment_id, judged.verdict, detail=_detail(judged.failed))
    if judged.failed:
        return judged
    broken = [one for one in _said_before(metadata, subject) if one.level == Severity.CRITICAL]
    if not broken:
        return judged
    start_offset = subject.row.metadata.start_offset
    return _recorded(
        metadata, subject, replace(judged, failed=tuple(finding_of_result(one, start_offset) for one in broken))
    )


def _result(subject: Subject, breach: BrokenRule[SegmentMeasure]) -> QualityResult:
    rule = breach.rule
    message = finding_of(breach).message
    return QualityResult(subject.segment_id, rule.rule_id, rule.severity, passed=False, message=message)


def _said_before(metadata: RemoteLogMetadata, subject: Subject) -> list[QualityResult]:
    """What did not pass when it was judged last. A rule that always held was never written. The row that is held here
    is of before the measure, and says nothing about whether somebody judged the segment since."""
    return [result for result in metadata.quality_results(subject.segment_id) if not result.passed]


def _is_judged(rule_id: str, measure: SegmentMeasure) -> bool:
    """A rule that is no more has nothing against anybody."""
    rule = RULES_BY_ID.get(rule_id)
    return rule is None or rule.is_about(measure)


def _is_still_finished(metadata: RemoteLogMetadata, subject: Subject) -> bool:
    now = metadata.segment(subject.segment_id)
    return now is not None and now.metadata.is_finished


def _detail(failed: Iterable[QualityFinding]) -> str:
    return "; ".join(f"{finding.rule}: {finding.message}" for finding in failed)
