"""Judge copied segments and store the verdicts: the quality gate.

A FAILED segment is kept and named; it is neither served nor counted as safe, and its partition stops until the segment
is superseded. A verdict says what the store held when it was asked, so it may be taken again at any time.

    step      done when it is reached                      a crash right after it leaves        cleaned up by
    listed    the segments to verify are known             nothing                              -
    measured  store asked, what the depth wants was read   nothing; its bytes were charged      -
    judged    every rule applied to a group of measures,   nothing                              -
              but for those of missing segments
    recorded  broken rules and verdict of each segment     those of some segments               the next call
              stored together, one by one

The next call takes every segment that has not passed, or all of the run again: the same objects get the same verdict.
A store that does not answer is no verdict: the error goes to the caller, and what was recorded stays. Nor is one that
is not ours, where a disk is not mounted or a URL is wrong: everything would fail that is missing there. What is missing
is judged and recorded at the end, if it is believable that so much is lost: see `missing_segments`. Runs that were
planned are in `verify_planned`.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Self

from include.tiering.clock import Clock
from include.tiering.model.histories import missing_offsets, part_of_history
from include.tiering.model.ids import RemoteLogSegmentId, TopicIdPartition
from include.tiering.model.segment_metadata import Depth, RemoteLogSegmentMetadata, Verdict
from include.tiering.quotas.contract import Quotas
from include.tiering.remote_storage.contract import RemoteStorage
from include.tiering.segments.contract import RemoteLogMetadata, SegmentRow
from include.tiering.units import GIB
from include.tiering.verification.judge import Judge, QualityFinding
from include.tiering.verification.measures import SegmentMeasure
from include.tiering.verification.measuring import measure_segment
from include.tiering.verification.missing_segments import LOSS_LIMITS, LossLimits, MissingSegments
from include.tiering.verification.record_verdicts import Judged, Subject, judge_and_record
from include.tiering.verification.verification_cost import bytes_to_read

GROUP_SEGMENTS: Final = 500
"""Measures that are judged together: a judge's fixed cost is shared, memory stays flat."""

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

    def add(self, judged: Iterable[Judged]) -> None:
        for one in judged:
            self.segments += 1
            self.bytes_read += one.read_bytes
            self.failed += one.failed
            self.warnings += one.warnings

    def report(self, seconds: float) -> VerifyReport:
        failed, warnings = tuple(self.failed), tuple(self.warnings)
        return VerifyReport(self.segments, failed, warnings, self.bytes_read, seconds, self.gone)


def anybodys() -> None:
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
    require_ours: Callable[[], None] = anybodys

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
    judge: Judge[SegmentMeasure],
    *,
    run_id: str | None = None,
    depth: Depth = Depth.SHALLOW,
    quotas: Quotas,
    clock: Clock,
    require_ours: Callable[[], None] = anybodys,
    limits: LossLimits = LOSS_LIMITS,
) -> VerifyReport:
    """Verify the FINISHED segments that this run copied, and those that no run's gate has judged yet.

    Without a run: every FINISHED one that has not passed.

    Raises:
        RemoteStorageUnavailableError: the store does not answer (retriable).
        ForeignStoreError: it is not ours; nothing of the group was recorded.
        StoreInDoubtError: too much is missing; nothing was recorded of what is.
        JudgeError: a rule could not be applied.
    """
    began = clock.monotonic()
    measurer = Measurer(metadata, storage, quotas, require_ours)
    subjects = _unpassed(metadata) if run_id is None else _of_run(metadata, run_id)
    return verify_subjects(measurer, judge, subjects, depth, limits).report(clock.monotonic() - began)


def verify_subjects(
    measurer: Measurer,
    judge: Judge[SegmentMeasure],
    subjects: Iterable[Subject],
    depth: Depth,
    limits: LossLimits = LOSS_LIMITS,
) -> Tally:
    """Measure, judge and record these, a group at a time. Raises as `verify_segments`."""
    tally, missing = Tally(), MissingSegments(measurer.metadata, limits)
    for group in _groups(subjects, depth):
        measured = [(subject, measurer.of(subject, depth)) for subject in group]
        tally.add(judge_and_record(measurer.metadata, judge, missing.sift(measured)))
    tally.add(judge_and_record(measurer.metadata, judge, missing.release()))
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
    """With what a run left behind that died before its gate: unjudged, it would never be served."""
    wanted: dict[TopicIdPartition, set[RemoteLogSegmentId]] = {}
    for row in (*metadata.segments_of_run(run_id), *metadata.unjudged_segments()):
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
    log_start_offset = metadata.partition_truth(partition).log_start_offset
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
