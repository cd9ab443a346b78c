"""Record the results of measured segments. One transaction stores the rules that a segment breaks and its verdict.

A shallow verification cannot clear a segment that fails a rule of deep measures: a rule that is not evaluated at this
depth keeps its last result, so the segment stays FAILED.

Two processes may verify one segment at once. Each has read the row before its verification began, and clears no failure
that was recorded since (`segments/values.py`): in whatever order they record, and wherever one of them dies, a segment
that either failed is not PASSED before another verification.

**Missing segments.** A segment is missing if one of its objects is not in the store or wrongly has 0 bytes there, or if
that cannot be found out, for example because access is denied: then it is *unread*, and perhaps whole. While files are
copied into the store, it shows logs without manifests, manifests without logs, and files of 0 bytes.

Objects are usually lost one at a time: one is deleted by hand, one was never written. If all segments that a run
checked are missing, or all or more than a few of one partition, or very many in all, the likelier cause is a wrong
place: a disk that is not mounted, a wrong prefix or layout, a restore that has not ended. FAILED verdicts would have
all of these segments copied again to the wrong place, and deleted where they are. So a verdict about a missing segment
is stored only after all segments of the run were checked, and only if the loss is plausible or a person confirms it. It
is not plausible if a segment is unread. A segment that was FAILED before is not held back. Segments that failed before
because they were missing count too, until they are replaced or given up: many small runs cannot record more losses than
a large one.

`doubt_of` decides from counts alone. `MissingSegments` holds measures of missing segments back, in planned runs as in
others. Measures that are held back are lost if the process dies: the next attempt measures these segments again.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from include.tiering.errors import StoreInDoubtError
from include.tiering.model.segments import (
    Depth,
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    TopicIdPartition,
    Verdict,
)
from include.tiering.segments.contract import QualityResult, RemoteLogMetadata, SegmentRow, Verification
from include.tiering.verification.measures import SegmentMeasure
from include.tiering.verification.rules import RULES, BrokenRule, QualityFinding, Rule, RuleEvaluator, explain
from include.tiering.verification.suites import PARTITION_RULES

_LEVELS: Final = {rule.rule_id: rule.level for rule in (*RULES, *PARTITION_RULES)}


@dataclass(frozen=True, slots=True)
class Subject:
    """A segment to verify and its predecessor, both as they were before this verification read the store."""

    row: SegmentRow
    previous: RemoteLogSegmentMetadata | None

    @property
    def segment_id(self) -> RemoteLogSegmentId:
        return self.row.metadata.remote_log_segment_id


@dataclass(frozen=True, slots=True)
class VerifiedSegment:
    """A segment with its new verdict and its findings. `failed` is empty unless the segment failed."""

    segment_id: RemoteLogSegmentId
    read_bytes: int
    failed: tuple[QualityFinding, ...]
    warnings: tuple[QualityFinding, ...]

    @property
    def verdict(self) -> Verdict:
        return Verdict.FAILED if self.failed else Verdict.PASSED


def evaluate_and_record(
    metadata: RemoteLogMetadata,
    evaluator: RuleEvaluator[SegmentMeasure],
    measured: Sequence[tuple[Subject, SegmentMeasure]],
) -> list[VerifiedSegment]:
    """Evaluate measures of different segments, then record each verification, in the given order.

    Segments that are no longer FINISHED are left out of the result and nothing is recorded for them: once its deletion
    began, a segment may lack objects.

    Raises:
        RuleEvaluationError: a rule could not be applied; nothing was stored.
    """
    breaches: dict[SegmentMeasure, list[BrokenRule[SegmentMeasure]]] = {measure: [] for _, measure in measured}
    for breach in evaluator.evaluate([measure for _, measure in measured]):
        breaches[breach.measure].append(breach)
    verified = (
        _recorded(metadata, evaluator.rules, subject, measure, breaches[measure]) for subject, measure in measured
    )
    return [verdict for verdict in verified if verdict is not None]


def finding_of_result(result: QualityResult, start_offset: int, rules: Iterable[Rule] = ()) -> QualityFinding:
    """Convert a stored result that did not pass into a finding. `rules`: those in force, besides the built-in ones."""
    partition = result.segment_id.topic_id_partition
    own = next((rule.level for rule in rules if rule.rule_id == result.rule), "")
    return QualityFinding(
        topic=partition.topic,
        partition=partition.partition,
        topic_id=str(partition.topic_id),
        segment_id=str(result.segment_id.id),
        start_offset=start_offset,
        rule=result.rule,
        level=_LEVELS.get(result.rule, own),
        message=result.message,
    )


def only_deep_clears(results: Iterable[QualityResult], rules: Iterable[Rule] = RULES) -> bool:
    """Return whether the segment breaks one of `rules` that is evaluated on deep measures only."""
    deep = {rule.rule_id for rule in rules if Depth.SHALLOW not in rule.depths}
    return any(result.rule in deep for result in results if not result.passed)


def _recorded(
    metadata: RemoteLogMetadata,
    rules: Sequence[Rule],
    subject: Subject,
    measure: SegmentMeasure,
    breaches: Iterable[BrokenRule[SegmentMeasure]],
) -> VerifiedSegment | None:
    broken = tuple(_result(subject, breach) for breach in breaches)
    unevaluated = frozenset(rule.rule_id for rule in rules if not rule.is_about(measure))
    is_deep = measure.depth is Depth.DEEP
    recorded = metadata.record_verification(
        Verification(subject.segment_id, broken, unevaluated, before=subject.row, is_deep=is_deep)
    )
    if recorded is None:
        return None
    start_offset = subject.row.metadata.start_offset
    findings = [(result.fails, finding_of_result(result, start_offset, rules)) for result in recorded.broken]
    failed = tuple(finding for fails, finding in findings if fails)
    warnings = tuple(finding for fails, finding in findings if not fails)
    return VerifiedSegment(subject.segment_id, measure.bytes_read, failed, warnings)


def _result(subject: Subject, breach: BrokenRule[SegmentMeasure]) -> QualityResult:
    rule = breach.rule
    message = explain(rule, breach.measure)
    return QualityResult(subject.segment_id, rule.rule_id, rule.severity, passed=False, message=message)


MAX_MISSING_SEGMENTS: Final = 3
MAX_MISSING_TOTAL: Final = 20
_MOST_NAMED: Final = 3
_WAY_OUT: Final = (
    "No verdict is stored for missing segments. Check that the store's disk is mounted, that remote_storage.url, layout"
    " and key_prefix are right, and that no restore or sync into it is running. If the objects are really lost:"
    " ./tiering verify --missing-is-real"
)

Measured = tuple[Subject, SegmentMeasure]


@dataclass(frozen=True, slots=True)
class PartitionPresence:
    """Numbers of segments of one partition that a run found in the store, and that it did not find.

    Attributes:
        found: checked, and in the store.
        missing: checked, not in the store, and without an earlier FAILED verdict.
        stored: FINISHED without a FAILED verdict, checked or not; if `is_whole` cannot hold anyway, only the checked
            ones are counted.
        before: failed as missing before, and neither replaced nor given up since.
    """

    partition: TopicIdPartition
    found: int
    missing: int
    stored: int
    before: int = 0

    @property
    def lost(self) -> int:
        """Return how many segments are lost if those that are missing now are lost, too."""
        return self.missing + self.before

    @property
    def is_whole(self) -> bool:
        """Return whether more than one segment would be lost, and with them every one that was not FAILED before."""
        return self.lost > 1 and self.missing >= self.stored

    def __str__(self) -> str:
        before = f", and {self.before} before" if self.before else ""
        return f"{self.partition}: {self.missing} of {self.missing + self.found}{before}"


@dataclass(frozen=True, slots=True)
class LossLimits:
    """How many missing segments may be recorded as lost without a confirmation.

    Attributes:
        max_missing_segments: the most of one partition (inclusive).
        max_missing_total: the most of all partitions (inclusive).
        confirm: gets the reason for doubt, and returns whether a person confirms the loss; None: nobody is asked, and a
            loss in doubt is not recorded.
        doubt_of_single: gets the segment if only one was checked and it is missing, and returns the reason to doubt its
            loss, or None; see `StoreWitness`.
        failed_before: returns, by partition, how many segments failed as missing and are neither replaced nor given up;
            called once in a run, if a segment is missing.
    """

    max_missing_segments: int = MAX_MISSING_SEGMENTS
    max_missing_total: int = MAX_MISSING_TOTAL
    confirm: Callable[[str], bool] | None = None
    doubt_of_single: Callable[[RemoteLogSegmentMetadata], str | None] = lambda _: None
    failed_before: Callable[[], Mapping[TopicIdPartition, int]] = dict


LOSS_LIMITS: Final = LossLimits()
"""The default limits, without a confirmation, without a comparison with other segments, without earlier failures."""


def doubt_of(
    presences: Sequence[PartitionPresence],
    *,
    found_before: int = 0,
    failed_elsewhere: int = 0,
    max_missing_segments: int,
    max_missing_total: int,
) -> str | None:
    """Return the reason to doubt that the missing segments of a run are lost; None if there is no reason.

    Args:
        presences: one for each partition with a checked segment.
        found_before: number of segments that passed in earlier tries of the same run.
        failed_elsewhere: number of segments of other partitions that failed as missing before, and were neither
            replaced nor given up since.
        max_missing_segments: the most of one partition that may be lost (inclusive).
        max_missing_total: the most of all partitions that may be lost (inclusive).
    """
    missing = sum(presence.missing for presence in presences)
    before = failed_elsewhere + sum(presence.before for presence in presences)
    checked = missing + found_before + sum(presence.found for presence in presences)
    is_much = (missing > 1 and missing == checked) or (missing > 0 and missing + before > max_missing_total)
    touched = [presence for presence in presences if presence.missing]
    suspects = [found for found in touched if found.lost > max_missing_segments or found.is_whole]
    if not suspects and not is_much:
        return None
    named = sorted(suspects or touched, key=lambda suspect: (-suspect.missing, str(suspect.partition)))
    more = [f"and {len(named) - _MOST_NAMED} more partitions"] if len(named) > _MOST_NAMED else []
    earlier = f", {before} more failed for the same reason before and wait to be replaced or given up" if before else ""
    return (
        f"{missing} of {checked} segments that were checked lack objects in the store"
        f" ({'; '.join([*map(str, named[:_MOST_NAMED]), *more])}){earlier}; at most {max_missing_segments} of a"
        f" partition (never all of several) and {max_missing_total} in all are recorded as lost without a confirmation"
    )


class MissingSegments:
    """Holds measures of missing segments back until all segments of a run were checked."""

    def __init__(self, metadata: RemoteLogMetadata, limits: LossLimits, *, found_before: int = 0) -> None:
        self._metadata = metadata
        self._limits = limits
        self._found_before = found_before
        self._found: Counter[TopicIdPartition] = Counter()
        self._missing: Counter[TopicIdPartition] = Counter()
        self._held: list[Measured] = []

    def sift(self, measured: Sequence[Measured]) -> list[Measured]:
        """Return the measures of a group that can be evaluated now, and hold the others back.

        Raises:
            StoreInDoubtError: too many are missing already, and there is no `confirm`.
        """
        ready: list[Measured] = []
        for subject, measure in measured:
            partition = subject.segment_id.topic_id_partition
            if not measure.is_missing:
                self._found[partition] += 1
            elif subject.row.verdict is not Verdict.FAILED:
                self._missing[partition] += 1
                self._held.append((subject, measure))
                continue
            ready.append((subject, measure))
        if self._limits.confirm is None and self._is_too_much():
            self._require_plausible_loss()
        return ready

    def release(self) -> list[Measured]:
        """Return all measures that were held back, after the run has checked everything.

        Raises:
            StoreInDoubtError: the loss is implausible and was not confirmed.
        """
        self._require_plausible_loss()
        return self._held

    def _require_plausible_loss(self) -> None:
        doubt = self._doubt()
        if doubt is None or (self._limits.confirm is not None and self._limits.confirm(doubt)):
            return
        raise StoreInDoubtError(f"the store is probably not complete or not the right one: {doubt}. {_WAY_OUT}")

    def _is_too_much(self) -> bool:
        """Return whether this run already misses more than the limits allow."""
        limits, most = self._limits, max(self._missing.values(), default=0)
        return most > limits.max_missing_segments or self._missing.total() > limits.max_missing_total

    def _doubt(self) -> str | None:
        if not self._held:
            return None
        unread = [(subject, measure) for subject, measure in self._held if measure.objects_missing is None]
        limits, before = self._limits, self._limits.failed_before()
        checked = {**self._found, **self._missing}
        doubt = doubt_of(
            [self._presence(partition, before.get(partition, 0)) for partition in checked],
            found_before=self._found_before,
            failed_elsewhere=sum(count for partition, count in before.items() if partition not in checked),
            max_missing_segments=limits.max_missing_segments,
            max_missing_total=limits.max_missing_total,
        )
        if doubt is None and unread:
            first, measure = unread[0]
            why = measure.remarks[0][1] if measure.remarks else "unknown"
            return (
                f"{len(unread)} of {len(self._held)} segments that would count as lost have objects that cannot be"
                f" read, first {first.segment_id.id}: {why}"
            )
        if doubt is None and len(self._held) == 1 and not self._found and not self._found_before:
            return limits.doubt_of_single(self._held[0][0].row.metadata)
        return doubt

    def _presence(self, partition: TopicIdPartition, before: int) -> PartitionPresence:
        found, missing = self._found[partition], self._missing[partition]
        may_be_all = missing and missing + before > 1 and not found
        stored = self._stored(partition) if may_be_all else missing + found
        return PartitionPresence(partition, found, missing, stored, before)

    def _stored(self, partition: TopicIdPartition) -> int:
        rows = self._metadata.list_segments(partition)
        return sum(row.metadata.is_finished and row.verdict is not Verdict.FAILED for row in rows)
