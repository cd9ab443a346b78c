"""Verify what a run planned, wherever its segments are measured.

The crash table is that of `verify_segments`, with a plan:

    step      done when it is reached                      a crash right after it leaves         cleaned up by
    planned   the segments of the run are stored           a plan, which gives nobody a right    forgotten in a month
    measured  a group was read, here or in Spark's tasks   nothing; its bytes were charged       -
    recorded  rules and verdicts of the group are stored,  verdicts that the plan knows not of   the next call reads it
              but for those of missing segments                                                  again
    noted     the outcomes of the group are in the plan    nothing                               -

When nothing else is left, the missing segments are recorded and noted together, if it is believable that so much is
lost: see `missing_segments`. The next call goes on with what has no outcome, and measures missing ones again. A process
or a task that dies while it measures has changed nothing.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from include.tiering.clock import Clock
from include.tiering.model.ids import RemoteLogSegmentId, TopicIdPartition
from include.tiering.model.segment_metadata import Depth, Verdict
from include.tiering.segments.contract import RemoteLogMetadata
from include.tiering.verification.judge import Judge
from include.tiering.verification.measures import SegmentMeasure
from include.tiering.verification.missing_segments import LOSS_LIMITS, LossLimits, Measured, MissingSegments
from include.tiering.verification.record_verdicts import Judged, Subject, judge_and_record
from include.tiering.verification.verification_contract import (
    PlannedVerification,
    VerificationOutcome,
    VerificationResult,
    VerificationStore,
)
from include.tiering.verification.verify_segments import (
    GROUP_BYTES,
    GROUP_SEGMENTS,
    Measurer,
    Tally,
    VerifyReport,
    subjects_of,
)

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
    judge: Judge[SegmentMeasure],
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
        RemoteStorageUnavailableError, ForeignStoreError, JudgeError: what was recorded stays, the rest is left to the
            next call.
        StoreInDoubtError: too much is missing; nothing was recorded of what is.
    """
    began = clock.monotonic()
    tally, waiting = Tally(), dict[RemoteLogSegmentId, PlannedVerification]()
    passed = sum(one.segments for one in plans.totals(run_id) if one.outcome is VerificationOutcome.PASSED)
    missing = MissingSegments(metadata, limits, found_before=passed)

    def pending() -> Sequence[PlannedVerification]:
        page = plans.pending(run_id, at_most=PAGE_SEGMENTS + len(waiting))
        return [one for one in page if one.segment_id not in waiting]

    def record(group: Collection[PlannedVerification], measured: Sequence[Measured]) -> None:
        judged = judge_and_record(metadata, judge, measured)
        plans.record(run_id, _outcomes(group, measured, judged))
        tally.add(judged)
        tally.gone += len(group) - len(judged)
        on_group()

    for group in _groups(pending, streams * GROUP_BYTES):
        subjects = _subjects(metadata, group)
        by_text = {str(subject.segment_id.id): subject for subject in subjects.values()}
        wanted = [_to_measure(one, subjects[one.segment_id]) for one in group if one.segment_id in subjects]
        measured = [(by_text[measure.segment_id], measure) for measure in measure_all(wanted)]
        ready = missing.sift(measured)
        held = {subject.segment_id for subject, _ in measured} - {subject.segment_id for subject, _ in ready}
        waiting |= {one.segment_id: one for one in group if one.segment_id in held}
        if rest := [one for one in group if one.segment_id not in held]:
            record(rest, ready)
    if lost := missing.release():
        record(waiting.values(), lost)
    return tally.report(clock.monotonic() - began)


def measured_here(measurer: Measurer, on_read: Callable[[int], None] = lambda _: None) -> MeasureAll:
    """One after another, in this process. `on_read` gets the planned bytes of each segment when it has been read."""

    def measure_all(wanted: Sequence[ToMeasure]) -> Iterable[SegmentMeasure]:
        for one in wanted:
            measure = measure_planned(measurer, one)
            on_read(one.planned_bytes)
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


def _groups(
    pending: Callable[[], Sequence[PlannedVerification]], most_bytes: int
) -> Iterator[list[PlannedVerification]]:
    """Page after page of what is pending, in groups with at least one segment. A page is asked for when all groups of
    the one before have been recorded."""
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
    judged: Iterable[Judged],
) -> list[VerificationResult]:
    """What was not judged is gone, whether it was read or not."""
    verdicts = {one.segment_id: one.verdict for one in judged}
    read_bytes = {subject.segment_id: measure.bytes_read for subject, measure in measured}
    outcomes = {
        None: VerificationOutcome.GONE,
        Verdict.FAILED: VerificationOutcome.FAILED,
        Verdict.PASSED: VerificationOutcome.PASSED,
    }
    return [
        VerificationResult(one.segment_id, outcomes[verdicts.get(one.segment_id)], read_bytes.get(one.segment_id, 0))
        for one in group
    ]
