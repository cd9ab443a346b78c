"""Which segment holds the producers before a part, and where a restore begins before what is served."""

from include.tiering.model.histories import OffsetRange
from include.tiering.model.segments import Verdict
from include.tiering.reading.plan_scan import ScanPlan
from include.tiering.reading.scan import SegmentRange
from include.tiering.reading.served_log import served_parts
from include.tiering.restoring.plan import PartitionLog, RestoreRequest, parts_of, said_of_ends, wanted_offsets
from include.tiering.segments.values import SegmentRow
from tests.doubles.segments import FINISHED, partition_of, segment_of

ORDERS = partition_of()


def row(number: int, start: int, end: int, *, history: int = 0) -> SegmentRow:
    segment = segment_of(ORDERS, number, start, end, {number: start}, state=FINISHED)
    return SegmentRow(segment, Verdict.PASSED, None, history=history)


def test_producers_before_a_part_are_those_of_its_own_history() -> None:
    """A segment of the history that was replaced ends at the same offset, and has other producers."""
    replaced, followed, later = row(1, 100, 199), row(2, 100, 199, history=1), row(3, 200, 299, history=1)
    cut = SegmentRange(later.metadata, 0, 1_000, 200, 250)
    for rows in ([replaced, followed, later], [followed, replaced, later]):
        (part,) = parts_of(ScanPlan(((cut,),), 1), {ORDERS: rows})[ORDERS]
        assert part.before == followed.metadata
    (part,) = parts_of(ScanPlan(((cut,),), 1), {ORDERS: [replaced, later]})[ORDERS]
    assert part.before == replaced.metadata, "of one log, before the decision"


def test_an_unserved_segment_has_no_offsets_below_the_log_start_with_which_it_was_copied() -> None:
    cut = segment_of(ORDERS, 1, 0, 99, {0: 40}, state=FINISHED)
    rows = [SegmentRow(cut, Verdict.FAILED, None), row(2, 100, 199)]
    log, scanned = PartitionLog(rows, served_parts(rows), (), 0), OffsetRange(100, 199)
    assert wanted_offsets(RestoreRequest((ORDERS,)), log, scanned) == OffsetRange(40, 199)
    (said,) = said_of_ends(log, OffsetRange(0, 199))
    assert said.startswith("offsets 40..99: segment ")


def test_a_copy_from_the_same_log_start_leaves_nothing_to_restore_before_it() -> None:
    cut = segment_of(ORDERS, 1, 0, 99, {0: 40}, state=FINISHED)
    rows = [SegmentRow(cut, Verdict.FAILED, None), row(40, 40, 199)]
    log = PartitionLog(rows, served_parts(rows), (), 0)
    assert log.before == ()
    assert wanted_offsets(RestoreRequest((ORDERS,)), log, OffsetRange(40, 199)) == OffsetRange(40, 199)
