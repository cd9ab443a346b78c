"""Verify copied segments and store the verdicts: after a copy (the quality check), and in a planned verification run.

A FAILED segment stays in the store and in the metadata; it is neither served nor counted as safe, and usually stops its
partition (see `segments/sql_verdicts.py`). A verdict describes what the store held at the time: a segment may be
verified any number of times.

    step      done when it is reached                      a crash right after it leaves        cleaned up by
    listed    the segments to verify are known             nothing                              -
    measured  objects listed, and read as deep as wanted   nothing; its bytes were charged      -
    evaluated every rule applied to a group of measures,   nothing                              -
              except those held back
    recorded  broken rules and verdict of each segment     results of some of the segments      the next call
              stored together, segment by segment

The next call verifies all segments of the run again, or without a run every segment whose verdict is not PASSED. If the
store does not answer, the caller gets the error; results that are recorded stay, and no other verdict is given. The
same holds for a store that is not this database's (a disk is not mounted, a URL is wrong), since every segment would
fail there as missing. Measures of missing segments that were not FAILED before are
held back: they are evaluated and recorded at the end, if it is plausible that so many are lost: see `record_verdicts`.
A segment whose private key is missing here keeps its verdict. An error names such segments after all others were
verified: whoever can write to the store can name an unknown key in a manifest, and must not hold the rest up.

`verify_planned.verify_planned` does the same for the segments of a planned run.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final, Self, TypeVar

from include.tiering.clock import Clock
from include.tiering.errors import SegmentKeyError
from include.tiering.model.histories import missing_offsets, part_of_history
from include.tiering.model.segments import (
    Depth,
    RemoteLogSegmentId,
    TopicIdPartition,
    Verdict,
)
from include.tiering.quotas.contract import QuotaKind, Quotas
from include.tiering.remote_storage.contract import RemoteStorage
from include.tiering.remote_storage.parallel_reads import MOST_RANGES, Reading, in_order
from include.tiering.segments.contract import RemoteLogMetadata, SegmentRow
from include.tiering.units import GIB
from include.tiering.verification.measure_segment import measure_segment
from include.tiering.verification.measures import SegmentMeasure, bytes_to_read
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
"""The most measures that are evaluated together, to share the evaluator's fixed cost; those held back may be more."""

GROUP_BYTES: Final = GIB
"""About how many bytes each reading stream reads before verdicts are stored."""


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """The result of one call. `failed` has a finding for each broken rule that fails a segment, `warnings` the others.

    `gone` counts planned segments that were no longer FINISHED; `segments` counts the verified ones.
    `failed_in_partition` counts verified segments that fail only rules about their whole partition, `failed_beside`
    segments that fail such a rule and were not verified in this call.
    """

    segments: int
    failed: tuple[QualityFinding, ...]
    warnings: tuple[QualityFinding, ...]
    bytes_read: int
    seconds: float
    gone: int = 0
    failed_in_partition: int = 0
    failed_beside: int = 0

    def with_partitions(
        self, failed: Sequence[QualityFinding], warnings: Sequence[QualityFinding], *, verified: Collection[str]
    ) -> Self:
        """Return this report with the findings about whole partitions added; `verified` are the verified segments."""
        further = {finding.segment_id for finding in failed} - {finding.segment_id for finding in self.failed}
        beside = further.difference(verified)
        return replace(
            self,
            failed=(*self.failed, *failed),
            warnings=(*self.warnings, *warnings),
            failed_in_partition=len(further) - len(beside),
            failed_beside=len(beside),
        )


@dataclass(slots=True)
class Tally:
    """Totals of what a call has verified so far."""

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
    """Accept any store, whatever its marker says."""


@dataclass(frozen=True, slots=True)
class LockedSegment:
    """A segment that was not measured, because its private key is missing here. It keeps its verdict.

    `segment_id` is the one of `SegmentMeasure`; `error` says which key is missing.
    """

    segment_id: str
    error: str


def without_locked(
    found: Iterable[tuple[Subject, SegmentMeasure | LockedSegment]], locked: dict[RemoteLogSegmentId, LockedSegment]
) -> list[Measured]:
    """Return the segments that were measured, and add the others to `locked`."""
    measured = []
    for subject, measure in found:
        if isinstance(measure, LockedSegment):
            locked[subject.segment_id] = measure
        else:
            measured.append((subject, measure))
    return measured


def require_keys(locked: Mapping[RemoteLogSegmentId, LockedSegment]) -> None:
    """End a verification that has recorded everything else. Raises SegmentKeyError if a segment was not measured."""
    if locked:
        first = min(locked.values(), key=lambda segment: segment.segment_id)
        others = f" (and {len(locked) - 1} more)" if len(locked) > 1 else ""
        raise SegmentKeyError(f"not verified, unlike all others: {first.error}{others}")


_Wanted = TypeVar("_Wanted")
_Found = TypeVar("_Found")


@dataclass(frozen=True, slots=True)
class Measurer:
    """Takes measures through the storage contract. This process charges the bytes of each to the fetch quota.

    `require_ours` raises ForeignStoreError unless the store is this database's. It is called after each measure that
    has a remark, about a fault or a column that could not be measured. `at_once` is how many segments may be measured
    at the same time.
    """

    metadata: RemoteLogMetadata
    storage: RemoteStorage
    quotas: Quotas
    require_ours: Callable[[], None] = no_ownership_check
    at_once: int = 1

    def in_order(self, wanted: Sequence[_Wanted], measure: Callable[[_Wanted, Reading], _Found]) -> Iterator[_Found]:
        """Call `measure` for each, for up to `at_once` at the same time; return the results in the order of `wanted`.

        `measure` passes the `Reading` on to `of`, and may be called in any thread. Raises what it raises.
        """
        if min(self.at_once, len(wanted)) <= 1:
            alone = min(self.at_once, MOST_RANGES)
            return (measure(each, Reading(ranges=alone)) for each in wanted)
        return in_order([partial(measure, each) for each in wanted], at_once=self.at_once, ahead=len(wanted))

    def of(self, subject: Subject, depth: Depth, reading: Reading) -> SegmentMeasure | LockedSegment:
        """Measure one segment. Raises ForeignStoreError and RemoteStorageUnavailableError."""
        try:
            return self._measure(subject, depth, reading)
        except SegmentKeyError as error:
            return LockedSegment(str(subject.segment_id.id), str(error))

    def _measure(self, subject: Subject, depth: Depth, reading: Reading) -> SegmentMeasure:
        segment = subject.row.metadata
        limiter = self.quotas.fetch(segment.broker_id, segment.topic_id_partition.topic, go_on=reading.go_on)
        reading.limiter = limiter
        has_gap = bool(missing_offsets(subject.previous, segment))
        decisions = self.metadata.skipped_offsets(segment.topic_id_partition) if has_gap else ()
        measure = measure_segment(
            subject.row,
            previous=subject.previous,
            storage=self.storage,
            limiter=limiter,
            decisions=decisions,
            depth=depth,
            ranges=reading.ranges,
        )
        self.quotas.held_back(QuotaKind.FETCH, limiter.waited_seconds)
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
    at_once: int = 1,
) -> VerifyReport:
    """Verify the FINISHED segments that this run copied, and those of the platform without a verdict.

    With `run_id` None, verify every FINISHED segment whose verdict is not PASSED. Up to `at_once` segments are read at
    the same time.

    Raises:
        RemoteStorageUnavailableError: see `measure_segment`.
        SegmentKeyError: a private key is missing; everything else was recorded.
        ForeignStoreError: the store is not this database's; nothing was recorded for the group.
        StoreInDoubtError: the missing segments may not count as lost; nothing was recorded for those held back.
        RuleEvaluationError: a rule could not be applied; nothing was recorded for the group.
    """
    began = clock.monotonic()
    measurer = Measurer(metadata, storage, quotas, require_ours, at_once)
    subjects = _unpassed(metadata) if run_id is None else _of_run(metadata, run_id)
    return verify_subjects(measurer, evaluator, subjects, depth, limits).report(clock.monotonic() - began)


def verify_subjects(
    measurer: Measurer,
    evaluator: RuleEvaluator[SegmentMeasure],
    subjects: Iterable[Subject],
    depth: Depth,
    limits: LossLimits = LOSS_LIMITS,
) -> Tally:
    """Measure these segments, evaluate the rules and record results, group by group. Raises as `verify_segments`."""
    tally, missing = Tally(), MissingSegments(measurer.metadata, limits)
    locked = dict[RemoteLogSegmentId, LockedSegment]()
    for group in _groups(subjects, depth):
        found = measurer.in_order(group, lambda subject, reading: (subject, measurer.of(subject, depth, reading)))
        measured = without_locked(found, locked)
        tally.add(evaluate_and_record(measurer.metadata, evaluator, missing.sift(measured)))
    for held in parts_of(missing.release(), GROUP_SEGMENTS):
        tally.add(evaluate_and_record(measurer.metadata, evaluator, held))
    require_keys(locked)
    return tally


def parts_of(released: Sequence[Measured], at_most: int) -> Iterator[Sequence[Measured]]:
    """Split measures that were held back: a store that lost everything has more than one evaluation can take."""
    for first in range(0, len(released), at_most):
        yield released[first : first + at_most]


def _groups(subjects: Iterable[Subject], depth: Depth) -> Iterator[list[Subject]]:
    """Split into groups of at least one segment, at most `GROUP_SEGMENTS` and, if more than one, `GROUP_BYTES`."""
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
    unpassed: dict[Verdict, int | None] = dict.fromkeys(Verdict)
    del unpassed[Verdict.PASSED]
    return subjects_of(metadata, _ids_by_partition(metadata.selected.finished_with_verdicts(unpassed)))


def _of_run(metadata: RemoteLogMetadata, run_id: str) -> Iterator[Subject]:
    """Include unverified segments of runs that died before their quality check, so that they can be served."""
    return subjects_of(
        metadata, _ids_by_partition((*metadata.segments_of_run(run_id), *metadata.unverified_segments()))
    )


def _ids_by_partition(rows: Iterable[SegmentRow]) -> dict[TopicIdPartition, set[RemoteLogSegmentId]]:
    ids: dict[TopicIdPartition, set[RemoteLogSegmentId]] = {}
    for row in rows:
        segment_id = row.metadata.remote_log_segment_id
        ids.setdefault(segment_id.topic_id_partition, set()).add(segment_id)
    return ids


def subjects_of(
    metadata: RemoteLogMetadata, wanted: Mapping[TopicIdPartition, Collection[RemoteLogSegmentId]]
) -> Iterator[Subject]:
    """Return the FINISHED segments of those wanted, each with its predecessor.

    The partitions have the order of `wanted`; the segments of each are ordered by history and end offset.
    """
    for partition, ids in wanted.items():
        rows = metadata.selected.segments_with_ids(partition, [segment_id.id for segment_id in ids])
        yield from _with_predecessors(metadata, partition, [row for row in rows if row.metadata.is_finished])


def _with_predecessors(
    metadata: RemoteLogMetadata, partition: TopicIdPartition, rows: Iterable[SegmentRow]
) -> Iterator[Subject]:
    """Return each segment with its predecessor among the partition's FINISHED segments.

    The segments are ordered by history and end offset.

    A segment wholly below the remote log start is no predecessor: such segments are about to be deleted, in any order.
    The log start is read after the predecessor, because it is raised before segments expire: an expired segment that is
    not found any more lies below it. A segment whose offsets all belong to later histories has no predecessor if there
    is a gap before it.
    """
    for row in sorted(rows, key=lambda row: (row.history, row.metadata.end_offset)):
        before = metadata.selected.finished_before(row)
        if before is not None and before.end_offset < metadata.retention_state(partition).log_start_offset:
            before = None
        if missing_offsets(before, row.metadata) and _is_of_older_history(metadata, row):
            before = None
        yield Subject(row, before)


def _is_of_older_history(metadata: RemoteLogMetadata, row: SegmentRow) -> bool:
    divergences = metadata.divergences(row.metadata.topic_id_partition)
    return part_of_history(row.metadata, row.history, divergences) is None
