"""Evaluate partitions as a whole: gaps and overlaps between their segments, and segments beyond the ends of the log.

Segments are not measured again here. Nevertheless a critical finding sets the verdict of the segment that it names to
FAILED: a consumer that reads the segment meets the gap, or the wrong leader epoch.

    step      done when it is reached                      a crash right after it leaves        cleaned up by
    measured  segments, decisions and log ends compared;   recorded divergences, which stay     -
              a divergence of histories is recorded
    evaluated every rule applied to a group of partitions  nothing                              -
    recorded  broken rule and verdict of each segment      results of some of the segments      the next call
              stored together, segment by segment

A run calls this after it verified its segments: that verification gives the verdict PASSED to each segment without
faults of its own.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Final

from include.tiering.model.histories import (
    Divergence,
    OffsetRange,
    SeenBy,
    SeenDivergence,
    epochs_of,
    newest_history,
    unexplained,
)
from include.tiering.model.segments import RemoteLogSegmentId, TopicIdPartition, Uuid
from include.tiering.segments.contract import (
    PartitionRetentionState,
    QualityResult,
    RemoteLogMetadata,
    SegmentRow,
    Verification,
)
from include.tiering.verification.measures import PartitionMeasure, measure_partition
from include.tiering.verification.rules import QualityFinding, RuleEvaluator, Severity
from include.tiering.verification.suites import findings_of_partition

GROUP_PARTITIONS: Final = 100
"""The most partitions that are evaluated together, to share the evaluator's fixed cost in bounded memory."""

LogEnds = Callable[[Collection[str]], Mapping[TopicIdPartition, int]]
"""Returns the ends (exclusive) of the leaders' logs of these topics, for the logs that can be read."""


@dataclass(frozen=True, slots=True)
class PartitionReport:
    """The result of one call. `failed` is about critical rules. A rule has at most 100 findings per partition."""

    partitions: int
    failed: tuple[QualityFinding, ...]
    warnings: tuple[QualityFinding, ...]


def no_log_ends(_: Collection[str]) -> Mapping[TopicIdPartition, int]:
    """Return no log ends: the `LogEnds` for a place where no log can be read."""
    return {}


def verify_partitions(
    metadata: RemoteLogMetadata,
    evaluator: RuleEvaluator[PartitionMeasure],
    partitions: Iterable[TopicIdPartition],
    *,
    log_ends: LogEnds = no_log_ends,
) -> PartitionReport:
    """Evaluate these partitions and record the findings, which are returned in the order of partitions, then by rule.

    Raises:
        RuleEvaluationError: a rule could not be applied.
    """
    remaining = iter(partitions)
    verified = 0
    found: dict[Severity, list[QualityFinding]] = {severity: [] for severity in Severity}
    while group := list(islice(remaining, GROUP_PARTITIONS)):
        measures = _measured(metadata, group, log_ends)
        for broken in evaluator.evaluate(measures):
            findings = list(findings_of_partition(broken))
            for finding in findings:
                metadata.record_verification(_verification_of(finding, broken.rule.severity))
            found[broken.rule.severity] += findings
        verified += len(group)
    return PartitionReport(verified, tuple(found[Severity.CRITICAL]), tuple(found[Severity.WARNING]))


def _measured(
    metadata: RemoteLogMetadata, partitions: Sequence[TopicIdPartition], log_ends: LogEnds
) -> list[PartitionMeasure]:
    """Measure the partitions, holding the segments of one at a time in memory."""
    ends = log_ends({partition.topic for partition in partitions})
    return [_measure(metadata, partition, ends, log_ends) for partition in partitions]


def _measure(
    metadata: RemoteLogMetadata, partition: TopicIdPartition, ends: Mapping[TopicIdPartition, int], log_ends: LogEnds
) -> PartitionMeasure:
    """Measure a partition; again with a newer log end if a segment is above the log end, because logs grow."""
    rows, retained = metadata.list_segments(partition), metadata.retention_state(partition)
    divergences = metadata.divergences(partition)
    measure = partial(
        measure_partition,
        partition,
        [row.metadata for row in rows],
        histories={row.metadata.remote_log_segment_id: row.history for row in rows if row.history},
        decisions=metadata.skipped_offsets(partition),
        divergences=divergences,
        leader_epochs=retained.leader_epochs,
        log_start_offset=retained.log_start_offset,
    )
    measured = measure(log_end_offset=ends.get(partition))
    if measured.other_history:
        _record_divergence(metadata, partition, rows, divergences, retained)
    if measured.segments_above_log_end:
        return measure(log_end_offset=log_ends({partition.topic}).get(partition))
    return measured


def _record_divergence(
    metadata: RemoteLogMetadata,
    partition: TopicIdPartition,
    rows: Sequence[SegmentRow],
    divergences: Sequence[Divergence],
    retained: PartitionRetentionState,
) -> None:
    """Record that histories diverge, or extend the open divergence; see `Divergences.record_divergence`."""
    finished = [
        row for row in rows if row.metadata.is_finished and row.metadata.end_offset >= retained.log_start_offset
    ]
    others = {row: unexplained(row.metadata, row.history, divergences, retained.leader_epochs) for row in finished}
    first = min(found[0].first for found in others.values() if found)
    segments = [row.metadata for row, found in others.items() if found]
    offsets = OffsetRange(first, max(segment.end_offset for segment in segments))
    archived = {epoch for segment in segments for epoch in epochs_of(segment.segment_leader_epochs, offsets)}
    source = epochs_of(retained.leader_epochs, offsets)
    seen = SeenDivergence(offsets, tuple(sorted(archived)), source, SeenBy.VERIFICATION)
    metadata.record_divergence(partition, seen, history=newest_history(divergences))


def _verification_of(finding: QualityFinding, severity: Severity) -> Verification:
    """Convert a finding. Recording it keeps other rules' results, and has no effect on a segment not FINISHED now."""
    partition = TopicIdPartition(Uuid.parse(finding.topic_id), finding.partition, finding.topic)
    segment_id = RemoteLogSegmentId(partition, Uuid.parse(finding.segment_id))
    return Verification(
        segment_id, (QualityResult(segment_id, finding.rule, severity, passed=False, message=finding.message),)
    )
