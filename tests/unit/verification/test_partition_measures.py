"""Verification of partitions."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from include.tiering.model.histories import Divergence, Followed, OffsetRange, SeenBy, SeenDivergence, SkippedOffsets
from include.tiering.model.leader_epochs import LeaderEpochs
from include.tiering.model.segments import (
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    TopicIdPartition,
    Uuid,
    Verdict,
)
from include.tiering.segments.contract import SegmentRow
from include.tiering.verification.measures import MAX_NAMED_FAULTS, PartitionMeasure, measure_partition
from include.tiering.verification.record_verdicts import PartitionPresence, doubt_of
from include.tiering.verification.rules import RULES, BrokenRule, QualityFinding
from include.tiering.verification.suites import PARTITION_RULES, findings_of_partition
from include.tiering.verification.verify_partitions import GROUP_PARTITIONS, PartitionReport, verify_partitions
from tests.doubles.memory_stores import MemoryMetadata
from tests.doubles.plain_evaluator import PlainEvaluator
from tests.doubles.segments import partition_of
from tests.doubles.stored_log import some_metadata

# A whole partition measured: holes, duplicates, overlaps, falling epochs, what lies outside of the log.

PARTITION = some_metadata(100).topic_id_partition


def segment(number: int, start: int, end: int, epoch: int = 0, *, broker_id: int = 1) -> RemoteLogSegmentMetadata:
    """`number` makes its id."""
    return RemoteLogSegmentMetadata(
        RemoteLogSegmentId(PARTITION, Uuid(number.to_bytes(16, "big"))),
        start,
        end,
        max_timestamp_ms=-1,
        broker_id=broker_id,
        event_timestamp_ms=0,
        segment_size_bytes=100,
        segment_leader_epochs=LeaderEpochs.of([(epoch, start)]),
        state=RemoteLogSegmentState.COPY_SEGMENT_FINISHED,
    )


def skipped(first: int, last: int) -> SkippedOffsets:
    return SkippedOffsets(OffsetRange(first, last), "lost", "me", 0)


def findings(measure: PartitionMeasure) -> list[QualityFinding]:
    broken: tuple[BrokenRule[PartitionMeasure], ...] = PlainEvaluator(PARTITION_RULES).evaluate([measure])
    return [finding for each in broken for finding in findings_of_partition(each)]


def test_a_partition_without_faults() -> None:
    measure = measure_partition(
        PARTITION, [segment(2, 100, 199, 1), segment(1, 0, 99), segment(3, 150, 299, 2)], log_end_offset=300
    )
    assert (measure.segments, measure.start_offset, measure.end_offset) == (3, 0, 299)
    assert findings(measure) == []


def test_a_partition_without_finished_segments() -> None:
    copying = replace(segment(1, 500, 599), state=RemoteLogSegmentState.COPY_SEGMENT_STARTED)
    measure = measure_partition(PARTITION, [copying], log_start_offset=500, log_end_offset=0)
    assert (measure.segments, measure.start_offset, measure.end_offset) == (0, None, None)
    assert findings(measure) == []


def test_a_gap_is_named_at_the_segment_behind_it() -> None:
    behind = segment(2, 130, 199)
    (finding,) = findings(measure_partition(PARTITION, [segment(1, 0, 99), behind], decisions=[skipped(100, 109)]))
    assert (finding.rule, finding.level, finding.start_offset) == ("Q401", "partition", 130)
    assert finding.segment_id == str(behind.remote_log_segment_id.id)
    assert finding.message.endswith(
        "missing_offsets = 20; this segment follows the offsets 110..129, which no segment holds"
    )


def test_a_decision_fills_its_gap_and_no_other() -> None:
    segments = [segment(1, 0, 99), segment(2, 130, 199)]
    assert findings(measure_partition(PARTITION, segments, decisions=[skipped(100, 129)])) == []
    assert findings(measure_partition(PARTITION, segments, decisions=[skipped(0, 50), skipped(200, 300)]))


def test_what_a_later_segment_holds_is_no_gap() -> None:
    segments = [segment(1, 0, 9), segment(2, 20, 29), segment(3, 5, 39, broker_id=2)]
    assert measure_partition(PARTITION, segments).missing_offsets == 0


def test_below_the_log_start_nothing_is_missing() -> None:
    segments = [segment(1, 0, 9), segment(2, 100, 199)]
    assert measure_partition(PARTITION, segments, log_start_offset=100).missing_offsets == 0
    assert measure_partition(PARTITION, segments, log_start_offset=60).missing_offsets == 40


def test_duplicates_and_overlaps_are_told_apart() -> None:
    segments = [segment(1, 0, 99), segment(2, 0, 99), segment(3, 90, 199), segment(4, 150, 299, broker_id=2)]
    measure = measure_partition(PARTITION, segments)
    assert (measure.duplicate_segments, measure.unexplained_overlap) == (1, 10)
    assert [finding.rule for finding in findings(measure)] == ["Q402", "Q403"]


def test_falling_epochs_are_named() -> None:
    measure = measure_partition(PARTITION, [segment(1, 0, 99, 5), segment(2, 100, 199, 3), segment(3, 200, 299, 5)])
    (finding,) = findings(measure)
    assert (finding.rule, finding.start_offset) == ("Q404", 100)
    assert "2 epochs below leader epoch 5" in finding.message


def test_the_ends_of_the_log() -> None:
    segments = [segment(1, 0, 99), segment(2, 100, 199), segment(3, 200, 299)]
    measure = measure_partition(PARTITION, segments, log_start_offset=100, log_end_offset=299)
    assert [(finding.rule, finding.start_offset) for finding in findings(measure)] == [("Q405", 200), ("Q406", 0)]
    within = measure_partition(PARTITION, segments, log_start_offset=99, log_end_offset=300)
    assert findings(within) == []


def test_all_faults_are_counted_and_some_are_named() -> None:
    apart = [segment(number, 10 * number, 10 * number) for number in range(300)]
    measure = measure_partition(PARTITION, apart)
    assert measure.missing_offsets == 299 * 9
    assert len(measure.faults) == MAX_NAMED_FAULTS == len(findings(measure))


RANGES = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 12)), max_size=8)


@given(ranges=RANGES, holes=RANGES, log_start=st.integers(0, 50), log_end=st.one_of(st.none(), st.integers(0, 60)))
def test_it_agrees_with_sets_of_offsets(
    ranges: list[tuple[int, int]], holes: list[tuple[int, int]], log_start: int, log_end: int | None
) -> None:
    spans = [range(start, start + length + 1) for start, length in ranges]
    segments = [segment(number, span[0], span[-1]) for number, span in enumerate(spans)]
    measure = measure_partition(
        PARTITION,
        segments,
        decisions=[skipped(first, first + more) for first, more in holes],
        log_start_offset=log_start,
        log_end_offset=log_end,
    )
    held = {offset for span in spans for offset in span}
    decided = {offset for first, more in holes for offset in range(first, first + more + 1)}
    wanted = range(max(min(held), log_start), max(held) + 1) if held else range(0)
    assert measure.missing_offsets == len(set(wanted) - held - decided)
    same = Counter((span[0], span[-1]) for span in spans)
    assert measure.duplicate_segments == sum(count - 1 for count in same.values())
    assert measure.segments_below_log_start == sum(span[-1] < log_start for span in spans)
    assert measure.segments_above_log_end == sum(log_end is not None and span[-1] >= log_end for span in spans)


def test_rule_ids_are_those_of_no_other_suite() -> None:
    assert {rule.rule_id for rule in PARTITION_RULES}.isdisjoint(rule.rule_id for rule in RULES)
    assert all(rule.rule_id.startswith("Q4") for rule in PARTITION_RULES)


HISTORY = LeaderEpochs.of([(0, 0), (6, 150)])
REPLACED = SeenDivergence(OffsetRange(150, 299), (0, 4), (6,), SeenBy.PLAN)
LEFT = Divergence(1, REPLACED, 0, Followed(150, "agreed", "me", 0))


def test_segments_of_another_history_are_named_while_nobody_decided() -> None:
    old, new = segment(3, 200, 299, 4), segment(4, 250, 399, 6)
    held = [segment(1, 0, 99), segment(2, 100, 199), old, new]
    named = findings(measure_partition(PARTITION, held, leader_epochs=HISTORY))
    assert [(one.rule, one.start_offset) for one in named] == [("Q407", 100), ("Q407", 200)]
    assert "holds the offsets 150..199 under other leader epochs" in named[0].message
    undecided = Divergence(1, REPLACED, 0)
    assert findings(measure_partition(PARTITION, held, divergences=[undecided], leader_epochs=HISTORY)) == named
    histories = {new.remote_log_segment_id: 1}
    decided = replace(LEFT, followed=Followed(250, "agreed", "me", 0))
    assert not findings(
        measure_partition(PARTITION, held, histories=histories, divergences=[decided], leader_epochs=HISTORY)
    )


def test_below_the_log_start_no_history_is_asked_for() -> None:
    held = [segment(3, 200, 299, 4), segment(4, 300, 399, 6)]
    assert findings(measure_partition(PARTITION, held, leader_epochs=HISTORY))
    measure = measure_partition(PARTITION, held, leader_epochs=HISTORY, log_start_offset=300)
    assert [one.rule for one in findings(measure)] == ["Q406"]


def test_what_a_decision_left_is_beside_nothing() -> None:
    """Its ends lie between those of the history that is followed, and its epochs are lower."""
    old = [segment(1, 0, 99), segment(2, 100, 199), segment(3, 200, 299, 4)]
    new = [segment(5, 130, 180, 6), segment(6, 181, 250, 6), segment(7, 251, 310, 6)]
    histories = {one.remote_log_segment_id: 1 for one in new}
    measure = measure_partition(PARTITION, [*old, *new], histories=histories, divergences=[LEFT])
    assert findings(measure) == []
    assert (measure.segments, measure.end_offset) == (5, 310)


def test_a_hole_of_the_history_that_is_followed_is_one_whatever_was_left() -> None:
    old = [segment(1, 0, 99), segment(2, 100, 199), segment(3, 200, 299, 4)]
    new = [segment(5, 130, 180, 6), segment(7, 251, 310, 6)]
    histories = {one.remote_log_segment_id: 1 for one in new}
    (finding,) = findings(measure_partition(PARTITION, [*old, *new], histories=histories, divergences=[LEFT]))
    assert (finding.rule, finding.start_offset) == ("Q401", 251)
    assert "follows the offsets 181..250" in finding.message


# Partitions measured as a whole: what is recorded about the segments that a finding names.

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


# How many missing segments are believed to be lost, and what is held back until that is known.


def presences(*counts: tuple[int, ...]) -> list[PartitionPresence]:
    """(found, missing, stored), and how many failed as missing before, by partition."""
    return [PartitionPresence(partition_of("orders", number), *each) for number, each in enumerate(counts)]


def doubted(presences: list[PartitionPresence], **rest: int) -> str | None:
    return doubt_of(presences, **{"max_missing_segments": 3, "max_missing_total": 20} | rest)


@pytest.mark.parametrize(
    "counts",
    [
        [],
        [(6, 0, 6)],
        [(5, 1, 6)],
        [(3, 3, 6)],
        [(0, 1, 1), (1, 0, 1)],
        [(0, 1, 1)],
        [(0, 2, 6), (1, 0, 1)],
        [(3, 3, 6), (2, 3, 5), (7, 1, 8)],
        [(9, 2, 11, 1)],
        [(9, 3, 12), (9, 0, 9, 8)],
        [(1, 1, 3)] * 20,
        [(0, 1, 3, 1), (1, 0, 1)],
        [(5, 0, 5, 30)],
    ],
)
def test_a_few_of_a_partition_are_lost(counts: list[tuple[int, int, int]]) -> None:
    assert doubted(presences(*counts)) is None


@pytest.mark.parametrize(
    ("counts", "says"),
    [
        ([(2, 4, 6)], "4 of 6 segments that were checked lack objects in the store (orders-0: 4 of 6);"),
        ([(0, 2, 2), (9, 0, 9)], "2 of 11 segments that were checked lack objects in the store (orders-0: 2 of 2)"),
        (
            [(0, 1, 9), (0, 1, 9)],
            "2 of 2 segments that were checked lack objects in the store (orders-0: 1 of 1; ord",
        ),
        ([(0, 2, 9)], "2 of 2 segments"),
        (
            [(1, 1, 2), (1, 9, 10), (5, 5, 10)],
            "15 of 22 segments that were checked lack objects in the store (orders-1",
        ),
        ([(0, 5, 5)] * 5, "; and 2 more partitions); at most 3 of a partition"),
        (
            [(5, 1, 6, 3)],
            "(orders-0: 1 of 6, and 3 before), 3 more failed for the same reason before and wait to be replaced",
        ),
        ([(0, 1, 1, 1), (9, 0, 9)], "(orders-0: 1 of 1, and 1 before)"),
        ([(0, 1, 2, 0), (9, 0, 9, 20)], "(orders-0: 1 of 1), 20 more failed"),
        ([(9, 1, 10)] * 500, "500 of 5000 segments"),
        ([(9, 1, 10)] * 21, "and 20 in all are recorded as lost"),
    ],
)
def test_much_of_a_partition_all_of_it_or_everything_is_not(counts: list[tuple[int, int, int]], says: str) -> None:
    assert says in (doubted(presences(*counts)) or "")


def test_what_earlier_tries_of_the_run_found_counts() -> None:
    assert doubted(presences((0, 2, 9)), found_before=1) is None


def test_what_failed_in_partitions_that_nobody_looks_at_counts() -> None:
    assert doubted(presences((9, 1, 10)), failed_elsewhere=19) is None
    assert "20 more failed" in (doubted(presences((9, 1, 10)), failed_elsewhere=20) or "")


def test_no_missing_one_is_believed_where_the_setting_says_so() -> None:
    assert doubted(presences((9, 1, 10)), max_missing_segments=0) is not None
    assert doubted(presences((9, 1, 10)), max_missing_total=0) is not None
