"""The page of a deletion plan: numbers by topic."""

from include.tiering.expiration.deletion_page import ShownPlan, deletion_page
from include.tiering.runs.deletion_run import DeletionItem, DeletionOutcome, DeletionRun, TopicTotals
from tests.doubles.segments import FINISHED, partition_of, planned_expiration, segment_of

ORDERS = partition_of("orders")


def test_what_an_earlier_run_began_is_counted_once_in_the_share() -> None:
    """It is among the planned bytes and among the recent bytes: together they would be more than all there was."""
    expiration = planned_expiration(
        ORDERS, *(segment_of(ORDERS, n, 10 * n, 10 * n + 9, state=FINISHED) for n in (1, 2))
    )
    items = [DeletionItem(planned, DeletionOutcome.PLANNED) for planned in expiration.deletions]
    totals = TopicTotals(
        ORDERS.topic_id,
        "orders",
        2,
        2_000,
        recent_bytes=1_000,
        remote_bytes=1_000,
        above_log_start=0,
        begun_bytes=1_000,
    )
    plan = ShownPlan(DeletionRun("run", "0" * 64, True, None), [expiration], items, [totals])
    page = deletion_page("scheduled", [plan], withdraw_at=None).decode()
    assert ">100.0%<" in page
    assert "150.0%" not in page
