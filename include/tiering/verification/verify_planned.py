"""Verify the segments that a run planned, in one process or in several batches, and store the verdicts.

Segments are measured in this process or by Spark tasks:

    step      done when it is reached                      a crash right after it leaves         cleaned up by
    planned   the segments of the run are stored           a plan, which reserves nothing        a plan 30 days later
    measured  a group was read, here or in Spark's tasks   nothing; its bytes were charged       -
    recorded  rules and verdicts of the group are stored,  verdicts without an outcome in the    the next call reads
              except those held back                       plan                                  the group again
    noted     the outcomes of the group are in the plan    nothing                               -

A segment that lacks objects in the store, or has some that cannot be read, is held back (`record_verdicts` says why).
When all other segments have an outcome, the segments held back are recorded and noted together. After a crash, the next
call continues with the segments that have no outcome, and measures those held back again. A process or task that dies
while it measures changes nothing.

Several batches can share a plan, each with a part of it (`PlanShare`). No batch knows what the others found, so none
may decide what is lost: a batch notes what it found missing as MISSING in the plan, without a verdict. When all batches
have ended, `conclude_missing` measures these segments again, and records those that are still missing, under the limits
of the whole plan. If a segment of the plan is still PLANNED, it records nothing. A segment that a batch cannot decrypt,
because a private key is missing, is noted as LOCKED: it has a manifest, so it is not missing, and it counts neither as
missing nor as found. A batch that counts as dead may still run when `conclude_missing` decides. It cannot undo what was
decided, because MISSING and LOCKED are stored only for segments that are still PLANNED.

    step      done when it is reached                      a crash right after it leaves         cleaned up by
    missing   a batch noted what it found missing, or      nothing: no verdict is changed        -
              could not decrypt, in the group
    concluded verdicts of what is still missing are        FAILED verdicts of segments that      the next call, or the
              stored, and noted in the plan                are still MISSING in the plan         next plan

The next call does not hold the segments with these verdicts back: a segment that had failed before is recorded at once.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from include.tiering.clock import Clock
from include.tiering.model.segments import Depth, RemoteLogSegmentId, TopicIdPartition, Verdict
from include.tiering.remote_storage.parallel_reads import Reading
from include.tiering.segments.contract import RemoteLogMetadata
from include.tiering.verification.measures import SegmentMeasure
from include.tiering.verification.plan import (
    PlannedVerification,
    PlanShare,
    VerificationOutcome,
    VerificationResult,
    VerificationStore,
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
from include.tiering.verification.rules import RuleEvaluator
from include.tiering.verification.verify_segments import (
    GROUP_BYTES,
    GROUP_SEGMENTS,
    LockedSegment,
    Measurer,
    Tally,
    VerifyReport,
    parts_of,
    require_keys,
    subjects_of,
    without_locked,
)

PAGE_SEGMENTS: Final = 20_000
"""How many segments without a result a query returns at most. Each query takes longer the larger the plan is, so a few
large pages are read."""


@dataclass(frozen=True, slots=True)
class ToMeasure:
    """A planned segment, its FINISHED predecessor in the partition, and the estimated bytes to read."""

    segment_id: RemoteLogSegmentId
    previous_id: RemoteLogSegmentId | None
    depth: Depth
    planned_bytes: int


MeasureAll = Callable[[Sequence[ToMeasure]], Iterable[SegmentMeasure | LockedSegment]]
"""Returns measures of the segments in any order, and no measure of a segment that is no longer FINISHED."""


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
    may_go_on: Callable[[], bool] = lambda: True,
    limits: LossLimits = LOSS_LIMITS,
    share: PlanShare | None = None,
) -> VerifyReport:
    """Verify the remaining segments of a planned run, group by group.

    `streams` is how many segments `measure_all` reads at the same time; `on_group` is called after a group is recorded.
    `may_go_on` is called before each group. If it returns False, the rest stays planned, and so do missing segments
    that are held back: what is lost is decided only when all of the plan was read. With `share`, only this part of the
    plan is verified, and a missing segment gets the outcome MISSING and no verdict; `conclude_missing` decides later.

    Raises:
        RemoteStorageUnavailableError, ForeignStoreError, RuleEvaluationError: recorded results stay, the next call
            verifies the rest.
        SegmentKeyError: a private key is missing; everything else was verified. The segments that need it stay
            planned, or with `share` are LOCKED.
        StoreInDoubtError: the missing segments may not count as lost; nothing was recorded for those held back.
    """
    return _verify_pages(
        run_id,
        lambda at_most: plans.pending(run_id, at_most=at_most, share=share),
        plans,
        metadata,
        evaluator,
        measure_all,
        clock=clock,
        most_bytes=streams * GROUP_BYTES,
        on_group=on_group,
        may_go_on=may_go_on,
        limits=limits,
        decides=share is None,
    )


def conclude_missing(
    run_id: str,
    plans: VerificationStore,
    metadata: RemoteLogMetadata,
    evaluator: RuleEvaluator[SegmentMeasure],
    measure_all: MeasureAll,
    *,
    clock: Clock,
    limits: LossLimits = LOSS_LIMITS,
) -> VerifyReport:
    """Decide, for all batches of a planned run together, which of the segments that they found missing are lost.

    Each is measured again: one that is there now is evaluated as usual. Idempotent. If a segment of the plan is still
    PLANNED, nothing is recorded, and the missing segments are read again by the next plan that finds them due.

    Raises:
        RemoteStorageUnavailableError, ForeignStoreError, RuleEvaluationError: see `verify_planned`.
        StoreInDoubtError: the missing segments may not count as lost; nothing was recorded for them.
    """
    totals = {total.outcome: total.segments for total in plans.totals(run_id)}
    if totals[VerificationOutcome.PLANNED] or not totals[VerificationOutcome.MISSING]:
        return Tally().report(0.0)
    return _verify_pages(
        run_id,
        lambda at_most: plans.planned(run_id, VerificationOutcome.MISSING)[:at_most],
        plans,
        metadata,
        evaluator,
        measure_all,
        clock=clock,
        most_bytes=GROUP_BYTES,
        on_group=lambda: None,
        may_go_on=lambda: True,
        limits=limits,
        decides=True,
    )


def _verify_pages(
    run_id: str,
    read_page: Callable[[int], Sequence[PlannedVerification]],
    plans: VerificationStore,
    metadata: RemoteLogMetadata,
    evaluator: RuleEvaluator[SegmentMeasure],
    measure_all: MeasureAll,
    *,
    clock: Clock,
    most_bytes: int,
    on_group: Callable[[], None],
    may_go_on: Callable[[], bool],
    limits: LossLimits,
    decides: bool,
) -> VerifyReport:
    """Verify the segments of each page.

    `read_page` gets the largest number of segments that it may return. It returns no segment for which this call has
    stored an outcome. If `decides` is False, missing segments are noted as MISSING and not decided, and locked ones as
    LOCKED.
    """
    began = clock.monotonic()
    tally, waiting = Tally(), dict[RemoteLogSegmentId, PlannedVerification]()
    locked = dict[RemoteLogSegmentId, LockedSegment]()
    passed = sum(total.segments for total in plans.totals(run_id) if total.outcome is VerificationOutcome.PASSED)
    missing = MissingSegments(metadata, limits, found_before=passed)

    def pending() -> Sequence[PlannedVerification]:
        left = waiting.keys() | locked.keys()
        page = read_page(PAGE_SEGMENTS + len(left))
        return [verification for verification in page if verification.segment_id not in left]

    def record(group: Collection[PlannedVerification], measured: Sequence[Measured]) -> None:
        verified = evaluate_and_record(metadata, evaluator, measured)
        plans.record(run_id, _outcomes(group, measured, verified))
        tally.add(verified)
        tally.gone += len(group) - len(verified)
        on_group()

    for group in _planned_groups(pending, most_bytes):
        if not may_go_on():
            return tally.report(clock.monotonic() - began)
        subjects = _subjects(metadata, group)
        by_text = {str(subject.segment_id.id): subject for subject in subjects.values()}
        wanted = [
            _to_measure(verification, subjects[verification.segment_id])
            for verification in group
            if verification.segment_id in subjects
        ]
        measured = without_locked(((by_text[measure.segment_id], measure) for measure in measure_all(wanted)), locked)
        ready = missing.sift(measured)
        held = {subject.segment_id for subject, _ in measured} - {subject.segment_id for subject, _ in ready}
        if decides:
            waiting.update({planned.segment_id: planned for planned in group if planned.segment_id in held})
        elif noted := _noted(group, measured, held, locked):
            plans.record(run_id, noted)
        left = held | locked.keys()
        if rest := [verification for verification in group if verification.segment_id not in left]:
            record(rest, ready)
    for lost in parts_of(missing.release() if decides else (), GROUP_SEGMENTS):
        record([waiting[subject.segment_id] for subject, _ in lost], lost)
    require_keys(locked)
    return tally.report(clock.monotonic() - began)


def _noted(
    group: Sequence[PlannedVerification],
    measured: Iterable[Measured],
    missing: Collection[RemoteLogSegmentId],
    locked: Collection[RemoteLogSegmentId],
) -> list[VerificationResult]:
    """Return the outcomes MISSING and LOCKED, which are no verdicts, of those segments of a group that have them."""
    read_bytes = {subject.segment_id: measure.bytes_read for subject, measure in measured}
    ids = [planned.segment_id for planned in group]
    return [
        *(VerificationResult(each, VerificationOutcome.MISSING, read_bytes[each]) for each in ids if each in missing),
        *(VerificationResult(each, VerificationOutcome.LOCKED, 0) for each in ids if each in locked),
    ]


def measure_in_process(measurer: Measurer, on_read: Callable[[int], None] = lambda _: None) -> MeasureAll:
    """Measure in this process, as many at the same time as the measurer allows.

    `on_read` gets the planned bytes of each segment after it was read, or was found to be no longer FINISHED.
    """

    def measure_all(wanted: Sequence[ToMeasure]) -> Iterable[SegmentMeasure | LockedSegment]:
        found = measurer.in_order(wanted, partial(_measure_planned, measurer))
        for to_measure, measure in zip(wanted, found, strict=True):
            on_read(to_measure.planned_bytes)
            if measure is not None:
                yield measure

    return measure_all


def _measure_planned(measurer: Measurer, planned: ToMeasure, reading: Reading) -> SegmentMeasure | LockedSegment | None:
    """Measure a planned segment; None if it is no longer FINISHED. A predecessor that is not FINISHED now is left out.

    Raises as `Measurer.of`.
    """
    row = measurer.metadata.segment(planned.segment_id)
    if row is None or not row.metadata.is_finished:
        return None
    before = None if planned.previous_id is None else measurer.metadata.segment(planned.previous_id)
    previous = before.metadata if before is not None and before.metadata.is_finished else None
    return measurer.of(Subject(row, previous), planned.depth, reading)


def _planned_groups(
    pending: Callable[[], Sequence[PlannedVerification]], most_bytes: int
) -> Iterator[list[PlannedVerification]]:
    """Split the pending segments into groups of at least one segment, page by page.

    A page is read after all groups of the previous page were recorded or held back.
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
    """Return the segments of the group that are still FINISHED, by id."""
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
    """Return the outcomes of a group. A segment without a verdict is GONE, even if it was read before its deletion."""
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
