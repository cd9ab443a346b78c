"""Partitions measured as a whole: what is recorded about the segments that a finding names."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from include.tiering.model.histories import OffsetRange, SkippedOffsets
from include.tiering.model.segments import RemoteLogSegmentId, RemoteLogSegmentState, TopicIdPartition, Verdict
from include.tiering.segments.contract import SegmentRow
from include.tiering.verification.rules import BrokenRule
from include.tiering.verification.suites import PARTITION_RULES
from include.tiering.verification.verify_partitions import GROUP_PARTITIONS, PartitionReport, verify_partitions
from tests.doubles.memory_metadata import MemoryMetadata
from tests.doubles.plain_evaluator import PlainEvaluator
from tests.doubles.storage_segments import some_metadata

EVALUATOR = PlainEvaluator(PARTITION_RULES)


def row(start: int, *, partition: int = 3) -> SegmentRow:
    """25 offsets from `start` on, passed."""
    metadata = some_metadata(100, seed=f"{partition}:{start}", start_offset=start, partition=partition)
    return SegmentRow(replace(metadata, state=RemoteLogSegmentState.COPY_SEGMENT_FINISHED), Verdict.PASSED, 1)


@pytest.fixture
def metadata() -> MemoryMetadata:
    """Offsets 25 to 49 are missing."""
    return MemoryMetadata([row(0), row(50), row(75)])


def id_of(one: SegmentRow) -> RemoteLogSegmentId:
    return one.metadata.remote_log_segment_id


def verdicts(metadata: MemoryMetadata) -> list[Verdict]:
    return [one.verdict for one in metadata.rows.values()]


def test_the_segment_behind_a_hole_fails_with_its_rule(metadata: MemoryMetadata) -> None:
    report = verify_partitions(metadata, EVALUATOR, metadata.partitions())
    (finding,) = report.failed
    assert (report.partitions, finding.rule, finding.start_offset, report.warnings) == (1, "Q401", 50, ())
    assert verdicts(metadata) == [Verdict.PASSED, Verdict.FAILED, Verdict.PASSED]
    assert metadata.rows[id_of(row(50))].verdict_detail == f"Q401: {finding.message}"
    assert [(r.rule, r.passed) for r in metadata.quality_results(id_of(row(50)))] == [("Q401", False)]


def test_a_recorded_hole_is_none(metadata: MemoryMetadata) -> None:
    metadata.skipped = [SkippedOffsets(OffsetRange(25, 49), "lost", "me", 0)]
    assert verify_partitions(metadata, EVALUATOR, metadata.partitions()) == PartitionReport(1, (), ())
    assert verdicts(metadata) == [Verdict.PASSED] * 3


class LogEnds:
    """Answers in this order; `partition` is the only one that is known."""

    def __init__(self, *answers: int | None) -> None:
        self.answers = list(answers)
        self.partition = row(0).metadata.topic_id_partition

    def __call__(self, topics: Collection[str]) -> Mapping[TopicIdPartition, int]:
        assert topics == {"orders"}
        end = self.answers.pop(0)
        return {} if end is None else {self.partition: end}


def test_a_warning_leaves_verdicts_alone() -> None:
    metadata = MemoryMetadata([row(0), row(25)])
    report = verify_partitions(metadata, EVALUATOR, metadata.partitions(), log_ends=LogEnds(45, 45))
    (finding,) = report.warnings
    assert (finding.rule, finding.start_offset, report.failed) == ("Q405", 25, ())
    assert verdicts(metadata) == [Verdict.PASSED] * 2
    assert [r.rule for r in metadata.quality_results(id_of(row(25)))] == ["Q405"]


@pytest.mark.parametrize("answers", [(50,), (45, 50), (45, None), (None,)])
def test_a_segment_is_above_its_log_only_if_it_is_so_twice(answers: tuple[int | None, ...]) -> None:
    metadata = MemoryMetadata([row(0), row(25)])
    log_ends = LogEnds(*answers)
    report = verify_partitions(metadata, EVALUATOR, metadata.partitions(), log_ends=log_ends)
    assert report == PartitionReport(1, (), ())
    assert log_ends.answers == []


def test_a_segment_that_goes_meanwhile_is_left_alone(metadata: MemoryMetadata) -> None:
    gone = id_of(row(50))

    class Deleting(PlainEvaluator):
        def evaluate(self, measures: Sequence[Any]) -> tuple[BrokenRule[Any], ...]:
            now = metadata.rows[gone]
            deleted = replace(now.metadata, state=RemoteLogSegmentState.DELETE_SEGMENT_STARTED)
            metadata.put(replace(now, metadata=deleted))
            return super().evaluate(measures)

    assert len(verify_partitions(metadata, Deleting(PARTITION_RULES), metadata.partitions()).failed) == 1
    assert metadata.results == {}
    assert verdicts(metadata) == [Verdict.PASSED] * 3


def test_many_partitions_are_evaluated_in_groups() -> None:
    count = GROUP_PARTITIONS + 1
    metadata = MemoryMetadata(row(start, partition=number) for number in range(count) for start in (0, 50))
    sizes = []

    class Counting(PlainEvaluator):
        def evaluate(self, measures: Sequence[Any]) -> tuple[BrokenRule[Any], ...]:
            sizes.append(len(measures))
            return super().evaluate(measures)

    report = verify_partitions(metadata, Counting(PARTITION_RULES), metadata.partitions())
    assert sizes == [GROUP_PARTITIONS, 1]
    assert report.partitions == len({finding.partition for finding in report.failed}) == count
