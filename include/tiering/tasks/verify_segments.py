"""Judge copied segments and store the verdicts: the quality gate.

A FAILED segment is kept and named; it is neither served nor counted as safe, and its partition stops until the segment
is superseded. A verdict says what the store held when it was asked, so it may be taken again at any time.

    step      done when it is reached                      a crash right after it leaves        cleaned up by
    listed    the segments to verify are known             nothing                              -
    measured  store asked, indexes read back               nothing                              -
    judged    every rule applied to a group of measures    nothing                              -
    recorded  broken rules of a group stored, then its     rules or verdicts of some of them    the next call
              verdicts, one by one

The next call takes every segment that has not passed, or all of the run again: the same objects get the same verdict.
A store that does not answer is no verdict: the error goes to the caller, and what was recorded stays.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Final

from include.tiering.clock import Clock
from include.tiering.model.ids import RemoteLogSegmentId, TopicIdPartition
from include.tiering.model.segment_metadata import RemoteLogSegmentMetadata
from include.tiering.model.verdict import Verdict
from include.tiering.quality.judge import BrokenRule, Judge, QualityFinding, finding_of
from include.tiering.quality.measures import SegmentMeasure
from include.tiering.quality.measuring import measure_segment
from include.tiering.quality.rules import Severity
from include.tiering.quality.succession import missing_offsets
from include.tiering.quota.contract import Quotas
from include.tiering.remote_metadata.contract import QualityResult, RemoteLogMetadata, SegmentRow
from include.tiering.remote_storage.contract import RemoteStorage

GROUP_SEGMENTS: Final = 500
"""Measures that are judged together: a judge's fixed cost is shared, memory stays flat."""


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """What one call verified. `failed` names every broken rule that fails a segment, `warnings` the others."""

    segments: int
    failed: tuple[QualityFinding, ...]
    warnings: tuple[QualityFinding, ...]
    bytes_read: int
    seconds: float


@dataclass(frozen=True, slots=True)
class _Subject:
    """A segment to verify, with the one before it."""

    row: SegmentRow
    previous: RemoteLogSegmentMetadata | None

    @property
    def segment_id(self) -> RemoteLogSegmentId:
        return self.row.metadata.remote_log_segment_id


@dataclass(slots=True)
class _Tally:
    segments: int = 0
    bytes_read: int = 0
    failed: list[QualityFinding] = field(default_factory=list)
    warnings: list[QualityFinding] = field(default_factory=list)


def verify_segments(
    metadata: RemoteLogMetadata,
    storage: RemoteStorage,
    judge: Judge[SegmentMeasure],
    *,
    run_id: str | None = None,
    quotas: Quotas,
    clock: Clock,
) -> VerifyReport:
    """Verify the FINISHED segments that this run copied, and those that no run's gate has judged yet.

    Without a run: every FINISHED one that has not passed.

    Raises:
        RemoteStorageUnavailableError: the store does not answer (retriable).
        JudgeError: a rule could not be applied.
    """
    began = clock.monotonic()
    subjects = _unpassed(metadata) if run_id is None else _of_run(metadata, run_id)
    tally = _Tally()
    while group := list(islice(subjects, GROUP_SEGMENTS)):
        measures = [_measured(subject, metadata, storage, quotas) for subject in group]
        _record(metadata, group, measures, judge.judge(measures), tally)
    return VerifyReport(
        segments=tally.segments,
        failed=tuple(tally.failed),
        warnings=tuple(tally.warnings),
        bytes_read=tally.bytes_read,
        seconds=clock.monotonic() - began,
    )


def _measured(subject: _Subject, known: RemoteLogMetadata, storage: RemoteStorage, quotas: Quotas) -> SegmentMeasure:
    metadata = subject.row.metadata
    limiter = quotas.fetch(metadata.broker_id, metadata.topic_id_partition.topic)
    has_gap = bool(missing_offsets(subject.previous, metadata))
    decisions = known.skipped_offsets(metadata.topic_id_partition) if has_gap else ()
    return measure_segment(
        subject.row, previous=subject.previous, storage=storage, limiter=limiter, decisions=decisions
    )


def _unpassed(metadata: RemoteLogMetadata) -> Iterator[_Subject]:
    for partition in metadata.partitions():
        yield from (s for s in _finished(metadata, partition) if s.row.verdict is not Verdict.PASSED)


def _of_run(metadata: RemoteLogMetadata, run_id: str) -> Iterator[_Subject]:
    """With what a run left behind that died before its gate: unjudged, it would never be served."""
    wanted: dict[TopicIdPartition, set[RemoteLogSegmentId]] = {}
    for row in (*metadata.segments_of_run(run_id), *metadata.unjudged_segments()):
        segment_id = row.metadata.remote_log_segment_id
        wanted.setdefault(segment_id.topic_id_partition, set()).add(segment_id)
    for partition, ids in wanted.items():
        yield from (s for s in _finished(metadata, partition) if s.segment_id in ids)


def _finished(metadata: RemoteLogMetadata, partition: TopicIdPartition) -> Iterator[_Subject]:
    """FINISHED segments in the order in which they became it: each end offset lies above the one before."""
    previous: RemoteLogSegmentMetadata | None = None
    finished = (row for row in metadata.list_segments(partition) if row.metadata.is_finished)
    for row in sorted(finished, key=lambda row: row.metadata.end_offset):
        yield _Subject(row, previous)
        previous = row.metadata


def _record(
    metadata: RemoteLogMetadata,
    group: Sequence[_Subject],
    measures: Sequence[SegmentMeasure],
    broken: Sequence[BrokenRule[SegmentMeasure]],
    tally: _Tally,
) -> None:
    breaches: dict[str, list[BrokenRule[SegmentMeasure]]] = {measure.segment_id: [] for measure in measures}
    for breach in broken:
        breaches[breach.measure.segment_id].append(breach)
    tally.bytes_read += sum(measure.bytes_read for measure in measures)
    judged = [
        (subject, breaches[measure.segment_id])
        for subject, measure in zip(group, measures, strict=True)
        if not breaches[measure.segment_id] or _is_still_finished(metadata, subject)
    ]
    metadata.record_quality_results([r for subject, found in judged for r in _results(metadata, subject, found)])
    for subject, found in judged:
        failed = [finding_of(b) for b in found if b.rule.severity is Severity.CRITICAL]
        detail = "; ".join(f"{finding.rule}: {finding.message}" for finding in failed)
        metadata.record_verdict(subject.segment_id, Verdict.FAILED if failed else Verdict.PASSED, detail=detail)
        tally.segments += 1
        tally.failed += failed
        tally.warnings += [finding_of(b) for b in found if b.rule.severity is Severity.WARNING]


def _results(
    metadata: RemoteLogMetadata, subject: _Subject, breaches: Sequence[BrokenRule[SegmentMeasure]]
) -> list[QualityResult]:
    """Broken rules, and those that were broken last time and now hold. A rule that always held is not written."""
    broken = [
        QualityResult(subject.segment_id, b.rule.rule_id, b.rule.severity, passed=False, message=finding_of(b).message)
        for b in breaches
    ]
    now_broken = {result.rule for result in broken}
    before = () if subject.row.verdict is Verdict.NONE else metadata.quality_results(subject.segment_id)
    healed = [replace(r, passed=True, message="") for r in before if not r.passed and r.rule not in now_broken]
    return broken + healed


def _is_still_finished(metadata: RemoteLogMetadata, subject: _Subject) -> bool:
    """A segment whose deletion began meanwhile lost its objects by right."""
    now = metadata.segment(subject.segment_id)
    return now is not None and now.metadata.is_finished
