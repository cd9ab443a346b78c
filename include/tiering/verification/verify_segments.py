"""Evaluate copied segments and store the verdicts: of a copy (the quality check), and of a run that was planned.

A FAILED segment is kept and named; it is neither served nor counted as safe, and its partition stops until the segment
is superseded. A verdict says what the store held when it was asked, so it may be taken again at any time.

    step      done when it is reached                      a crash right after it leaves        cleaned up by
    listed    the segments to verify are known             nothing                              -
    measured  store asked, what the depth wants was read   nothing; its bytes were charged      -
    evaluated every rule applied to a group of measures,   nothing                              -
              but for those of missing segments
    recorded  broken rules and verdict of each segment     those of some segments               the next call
              stored together, one by one

The next call takes every segment that has not passed, or all of the run again: the same objects get the same verdict.
A store that does not answer is no verdict: the error goes to the caller, and what was recorded stays. Nor is one that
is not ours, where a disk is not mounted or a URL is wrong: everything would fail that is missing there. What is missing
is evaluated and recorded at the end, if it is believable that so much is lost: see `record_verdicts`.

`verify_planned` verifies what a run planned, wherever its segments are measured:

    step      done when it is reached                      a crash right after it leaves         cleaned up by
    planned   the segments of the run are stored           a plan, which gives nobody a right    forgotten in a month
    measured  a group was read, here or in Spark's tasks   nothing; its bytes were charged       -
    recorded  rules and verdicts of the group are stored,  verdicts that the plan knows not of   the next call reads it
              but for those of missing segments                                                  again
    noted     the outcomes of the group are in the plan    nothing                               -

When nothing else is left, the missing segments are recorded and noted together. The next call goes on with what has no
outcome, and measures missing ones again. A process or a task that dies while it measures has changed nothing.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Self

from include.tiering.clock import Clock
from include.tiering.model.histories import missing_offsets, part_of_history
from include.tiering.model.segments import (
    Depth,
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    TopicIdPartition,
    Verdict,
)
from include.tiering.quotas.contract import Quotas
from include.tiering.remote_storage.contract import RemoteStorage
from include.tiering.segments.contract import RemoteLogMetadata, SegmentRow
from include.tiering.units import GIB
from include.tiering.verification.measure_segment import measure_segment
from include.tiering.verification.measures import SegmentMeasure
from include.tiering.verification.plan import (
    PlannedVerification,
    VerificationOutcome,
    VerificationResult,
    VerificationStore,
    bytes_to_read,
)
from include.tiering.verification.record_verdicts import (
    LOSS_LIMITS,
    LossLimits,
    Measured,
    MissingSegments,
    Subject,
    VerifiedSegment,
    evaluate_and_record,
)
from include.tiering.verification.rules import QualityFinding, RuleEvaluator

GROUP_SEGMENTS: Final = 500
"""Measures that are verified together: an evaluator's fixed cost is shared, memory stays flat."""

GROUP_BYTES: Final = GIB
"""About so much is read between two times that verdicts are stored, by each stream that reads."""


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """What one call verified. `failed` names every broken rule that fails a segment, `warnings` the others.

    `gone` segments were planned and not there any more.
    """

    segments: int
    failed: tuple[QualityFinding, ...]
    warnings: tuple[QualityFinding, ...]
    bytes_read: int
    seconds: float
    gone: int = 0

    def with_partitions(self, failed: Sequence[QualityFinding], warnings: Sequence[QualityFinding]) -> Self:
        """With what was found of the partitions of these segments as a whole."""
        return replace(self, failed=(*self.failed, *failed), warnings=(*self.warnings, *warnings))


@dataclass(slots=True)
class Tally:
    """What a call has verified so far."""

    segments: int = 0
    bytes_read: int = 0
    gone: int = 0
    failed: list[QualityFinding] = field(default_factory=list)
    warnings: list[QualityFinding] = field(default_factory=list)

    def add(self, verified: Iterable[VerifiedSegment]) -> None:
        for verified_segment in verified:
            self.segments += 1
            self.bytes_read += verified_segment.read_bytes
            self.failed += verified_segment.failed
            self.warnings += verified_segment.warnings

    def report(self, seconds: float) -> VerifyReport:
        failed, warnings = tuple(self.failed), tuple(self.warnings)
        return VerifyReport(self.segments, failed, warnings, self.bytes_read, seconds, self.gone)


def no_ownership_check() -> None:
    """A store that is believed whatever its marker says."""


@dataclass(frozen=True, slots=True)
class Measurer:
    """Takes measures through the storage contract, each charged to the fetch quota by this process.

    `require_ours` raises ForeignStoreError unless the store is this database's; it is asked where something could not
    be measured, after that was tried.
    """

    metadata: RemoteLogMetadata
    storage: RemoteStorage
    quotas: Quotas
    require_ours: Callable[[], None] = no_ownership_check

    def of(self, subject: Subject, depth: Depth) -> SegmentMeasure:
        """Raises RemoteStorageUnavailableError, ForeignStoreError."""
        segment = subject.row.metadata
        limiter = self.quotas.fetch(segment.broker_id, segment.topic_id_partition.topic)
        has_gap = bool(missing_offsets(subject.previous, segment))
        decisions = self.metadata.skipped_offsets(segment.topic_id_partition) if has_gap else ()
        measure = measure_segment(
            subject.row,
            previous=subject.previous,
            storage=self.storage,
            limiter=limiter,
            decisions=decisions,
            depth=depth,
        )
        if measure.remarks:
            self.require_ours()
        return measure


def verify_segments(
    metadata: RemoteLogMetadata,
    storage: RemoteStorage,
    evaluator: RuleEvaluator[SegmentMeasure],
    *,
    run_id: str | None = None,
    depth: Depth = Depth.SHALLOW,
    quotas: Quotas,
    clock: Clock,
    require_ours: Callable[[], None] = no_ownership_check,
    limits: LossLimits = LOSS_LIMITS,
) -> VerifyReport:
    """Verify the FINISHED segments that this run copied, and those without a verdict.

    Without a run: every FINISHED one that has not passed.

    Raises:
        RemoteStorageUnavailableError: the store does not answer (retriable).
        ForeignStoreError: it is not ours; nothing of the group was recorded.
        StoreInDoubtError: too much is missing; nothing was recorded of what is.
        RuleEvaluationError: a rule could not be applied.
    """
    began = clock.monotonic()
    measurer = Measurer(metadata, storage, quotas, require_ours)
    subjects = _unpassed(metadata) if run_id is None else _of_run(metadata, run_id)
    return verify_subjects(measurer, evaluator, subjects, depth, limits).report(clock.monotonic() - began)


def verify_subjects(
    measurer: Measurer,
    evaluator: RuleEvaluator[SegmentMeasure],
    subjects: Iterable[Subject],
    depth: Depth,
    limits: LossLimits = LOSS_LIMITS,
) -> Tally:
    """Measure and record these, evaluating the rules, a group at a time. Raises as `verify_segments`."""
    tally, missing = Tally(), MissingSegments(measurer.metadata, limits)
    for group in _groups(subjects, depth):
        measured = [(subject, measurer.of(subject, depth)) for subject in group]
        tally.add(evaluate_and_record(measurer.metadata, evaluator, missing.sift(measured)))
    tally.add(evaluate_and_record(measurer.metadata, evaluator, missing.release()))
    return tally


def _groups(subjects: Iterable[Subject], depth: Depth) -> Iterator[list[Subject]]:
    """With at least one segment each."""
    group: list[Subject] = []
    size_bytes = 0
    for subject in subjects:
        read_bytes = bytes_to_read(subject.row.metadata, depth)
        if group and (len(group) == GROUP_SEGMENTS or size_bytes + read_bytes > GROUP_BYTES):
            yield group
            group, size_bytes = [], 0
        group.append(subject)
        size_bytes += read_bytes
    if group:
        yield group


def _unpassed(metadata: RemoteLogMetadata) -> Iterator[Subject]:
    for partition in metadata.partitions():
        yield from (s for s in _finished(metadata, partition) if s.row.verdict is not Verdict.PASSED)


def _of_run(metadata: RemoteLogMetadata, run_id: str) -> Iterator[Subject]:
    """Includes segments of runs that died before their quality check: without a verdict they would never be served."""
    wanted: dict[TopicIdPartition, set[RemoteLogSegmentId]] = {}
    for row in (*metadata.segments_of_run(run_id), *metadata.unverified_segments()):
        segment_id = row.metadata.remote_log_segment_id
        wanted.setdefault(segment_id.topic_id_partition, set()).add(segment_id)
    return subjects_of(metadata, wanted)


def subjects_of(
    metadata: RemoteLogMetadata, wanted: Mapping[TopicIdPartition, Collection[RemoteLogSegmentId]]
) -> Iterator[Subject]:
    """Those of the wanted segments that are FINISHED, by partition."""
    for partition, ids in wanted.items():
        yield from (s for s in _finished(metadata, partition) if s.segment_id in ids)


def _finished(metadata: RemoteLogMetadata, partition: TopicIdPartition) -> Iterator[Subject]:
    """FINISHED segments in the order in which they became it: of one history each end offset lies above the one before.

    Nothing has to follow what lies wholly below our log start: it is about to expire, in whatever order. It is read
    last, because it is raised before anything goes: whatever the list lacks lies below it. Nor does a segment that a
    decision left wholly have to follow another one: its offsets are those of another history.
    """
    finished = [row for row in metadata.list_segments(partition) if row.metadata.is_finished]
    log_start_offset = metadata.retention_state(partition).log_start_offset
    previous: RemoteLogSegmentMetadata | None = None
    history: int | None = None
    for row in sorted(finished, key=lambda row: (row.history, row.metadata.end_offset)):
        before = previous if row.history == history else None
        if missing_offsets(before, row.metadata) and _was_left(metadata, row):
            before = None
        yield Subject(row, before)
        previous = row.metadata if row.metadata.end_offset >= log_start_offset else None
        history = row.history


def _was_left(metadata: RemoteLogMetadata, row: SegmentRow) -> bool:
    divergences = metadata.divergences(row.metadata.topic_id_partition)
    return part_of_history(row.metadata, row.history, divergences) is None


PAGE_SEGMENTS: Final = 20_000
"""Planned segments that are read at once: to find them takes as long as their plan is large."""


@dataclass(frozen=True, slots=True)
class ToMeasure:
    """A planned segment, the one FINISHED before it in its partition, and about how much there is to read."""

    segment_id: RemoteLogSegmentId
    previous_id: RemoteLogSegmentId | None
    depth: Depth
    planned_bytes: int


MeasureAll = Callable[[Sequence[ToMeasure]], Iterable[SegmentMeasure]]
"""Measures of segments, in any order. One that is not FINISHED any more has none."""


def verify_planned(
    run_id: str,
    plans: VerificationStore,
    metadata: RemoteLogMetadata,
    evaluator: RuleEvaluator[SegmentMeasure],
    measure_all: MeasureAll,
    *,
    clock: Clock,
    streams: int = 1,
    on_group: Callable[[], None] = lambda: None,
    limits: LossLimits = LOSS_LIMITS,
) -> VerifyReport:
    """Verify what is left of a planned run, group by group. `streams` is how many segments are read at once, `on_group`
    is called when a group is recorded.

    Raises:
        RemoteStorageUnavailableError, ForeignStoreError, RuleEvaluationError: what was recorded stays, the rest is
            left to the next call.
        StoreInDoubtError: too much is missing; nothing was recorded of what is.
    """
    began = clock.monotonic()
    tally, waiting = Tally(), dict[RemoteLogSegmentId, PlannedVerification]()
    passed = sum(total.segments for total in plans.totals(run_id) if total.outcome is VerificationOutcome.PASSED)
    missing = MissingSegments(metadata, limits, found_before=passed)

    def pending() -> Sequence[PlannedVerification]:
        page = plans.pending(run_id, at_most=PAGE_SEGMENTS + len(waiting))
        return [verification for verification in page if verification.segment_id not in waiting]

    def record(group: Collection[PlannedVerification], measured: Sequence[Measured]) -> None:
        verified = evaluate_and_record(metadata, evaluator, measured)
        plans.record(run_id, _outcomes(group, measured, verified))
        tally.add(verified)
        tally.gone += len(group) - len(verified)
        on_group()

    for group in _planned_groups(pending, streams * GROUP_BYTES):
        subjects = _subjects(metadata, group)
        by_text = {str(subject.segment_id.id): subject for subject in subjects.values()}
        wanted = [
            _to_measure(verification, subjects[verification.segment_id])
            for verification in group
            if verification.segment_id in subjects
        ]
        measured = [(by_text[measure.segment_id], measure) for measure in measure_all(wanted)]
        ready = missing.sift(measured)
        held = {subject.segment_id for subject, _ in measured} - {subject.segment_id for subject, _ in ready}
        waiting |= {verification.segment_id: verification for verification in group if verification.segment_id in held}
        if rest := [verification for verification in group if verification.segment_id not in held]:
            record(rest, ready)
    if lost := missing.release():
        record(waiting.values(), lost)
    return tally.report(clock.monotonic() - began)


def measured_here(measurer: Measurer, on_read: Callable[[int], None] = lambda _: None) -> MeasureAll:
    """One after another, in this process. `on_read` gets the planned bytes of each segment when it has been read."""

    def measure_all(wanted: Sequence[ToMeasure]) -> Iterable[SegmentMeasure]:
        for to_measure in wanted:
            measure = measure_planned(measurer, to_measure)
            on_read(to_measure.planned_bytes)
            if measure is not None:
                yield measure

    return measure_all


def measure_planned(measurer: Measurer, planned: ToMeasure) -> SegmentMeasure | None:
    """None if it is not FINISHED any more. A predecessor that went meanwhile counts as none.

    Raises:
        RemoteStorageUnavailableError, ForeignStoreError
    """
    row = measurer.metadata.segment(planned.segment_id)
    if row is None or not row.metadata.is_finished:
        return None
    before = None if planned.previous_id is None else measurer.metadata.segment(planned.previous_id)
    previous = before.metadata if before is not None and before.metadata.is_finished else None
    return measurer.of(Subject(row, previous), planned.depth)


def _planned_groups(
    pending: Callable[[], Sequence[PlannedVerification]], most_bytes: int
) -> Iterator[list[PlannedVerification]]:
    """Page after page of what is pending, in groups with at least one segment. A page is asked for when all groups of
    the one before have been recorded.
    """
    while page := pending():
        group: list[PlannedVerification] = []
        size_bytes = 0
        for planned in page:
            if group and (len(group) == GROUP_SEGMENTS or size_bytes + planned.planned_bytes > most_bytes):
                yield group
                group, size_bytes = [], 0
            group.append(planned)
            size_bytes += planned.planned_bytes
        yield group


def _subjects(
    metadata: RemoteLogMetadata, group: Iterable[PlannedVerification]
) -> Mapping[RemoteLogSegmentId, Subject]:
    """Those that are FINISHED still."""
    wanted: dict[TopicIdPartition, set[RemoteLogSegmentId]] = {}
    for planned in group:
        wanted.setdefault(planned.segment_id.topic_id_partition, set()).add(planned.segment_id)
    return {subject.segment_id: subject for subject in subjects_of(metadata, wanted)}


def _to_measure(planned: PlannedVerification, subject: Subject) -> ToMeasure:
    previous_id = None if subject.previous is None else subject.previous.remote_log_segment_id
    return ToMeasure(planned.segment_id, previous_id, planned.depth, planned.planned_bytes)


def _outcomes(
    group: Iterable[PlannedVerification],
    measured: Iterable[tuple[Subject, SegmentMeasure]],
    verified: Iterable[VerifiedSegment],
) -> list[VerificationResult]:
    """What was not verified is gone, whether it was read or not."""
    verdicts = {verified_segment.segment_id: verified_segment.verdict for verified_segment in verified}
    read_bytes = {subject.segment_id: measure.bytes_read for subject, measure in measured}
    outcomes = {
        None: VerificationOutcome.GONE,
        Verdict.FAILED: VerificationOutcome.FAILED,
        Verdict.PASSED: VerificationOutcome.PASSED,
    }
    return [
        VerificationResult(
            verification.segment_id,
            outcomes[verdicts.get(verification.segment_id)],
            read_bytes.get(verification.segment_id, 0),
        )
        for verification in group
    ]
