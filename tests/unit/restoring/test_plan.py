"""Which segment holds the producers before a part."""

from include.tiering.model.segments import Verdict
from include.tiering.reading.plan_scan import ScanPlan
from include.tiering.reading.scan import SegmentRange
from include.tiering.restoring.plan import parts_of
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
