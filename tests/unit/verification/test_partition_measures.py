"""A whole partition measured: holes, duplicates, overlaps, falling epochs, what lies outside of the log."""

from collections import Counter
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from include.tiering.model.histories import Divergence, Followed, OffsetRange, SeenBy, SeenDivergence, SkippedOffsets
from include.tiering.model.leader_epochs import LeaderEpochs
from include.tiering.model.segments import RemoteLogSegmentId, RemoteLogSegmentMetadata, RemoteLogSegmentState, Uuid
from include.tiering.verification.measures import MAX_NAMED_FAULTS, PartitionMeasure, measure_partition
from include.tiering.verification.rules import RULES, BrokenRule, QualityFinding
from include.tiering.verification.suites import PARTITION_RULES, findings_of_partition
from tests.doubles.plain_evaluator import PlainEvaluator
from tests.doubles.storage_segments import some_metadata

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
    assert "2 below leader epoch 5" in finding.message


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
