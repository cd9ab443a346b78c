"""What of a plan goes on, by what would be planned now."""

from dataclasses import dataclass, replace
from typing import Any

import pytest

from include.tiering.expiration.checks import still_planned
from include.tiering.model.retention import DeletionReason
from include.tiering.model.segments import Verdict
from include.tiering.runs.deletion_run import PlannedExpiration
from include.tiering.segments.values import SegmentRow
from tests.doubles.expirations import planned_deletion
from tests.doubles.segments import partition_of, segment_of

ORDERS = partition_of("orders", 0)
COPY = segment_of(ORDERS, 1, 0, 9)


@dataclass
class OneSegment:
    """Metadata that know of an abandoned copy alone."""

    def list_segments(self, _partition: object) -> list[SegmentRow]:
        return [SegmentRow(COPY, Verdict.NONE, None)]


@pytest.mark.parametrize(
    ("planned", "now", "goes"),
    [
        (DeletionReason.TIME, DeletionReason.TIME, True),
        (DeletionReason.TIME, DeletionReason.LOG_START, True),
        (DeletionReason.TIME, DeletionReason.ABANDONED_COPY, False),
        (DeletionReason.ABANDONED_COPY, DeletionReason.ABANDONED_COPY, True),
        (DeletionReason.ABANDONED_COPY, DeletionReason.TIME, True),
    ],
)
def test_what_is_due_only_as_an_abandoned_copy_waits_for_a_plan_that_says_so(
    planned: DeletionReason, now: DeletionReason, goes: bool
) -> None:
    """Only of such a one is proved that its offsets are elsewhere, by what the plan calls it."""
    before = PlannedExpiration(ORDERS, 0, 0, (planned_deletion(COPY, planned),))
    again = replace(before, deletions=(planned_deletion(COPY, now),))
    metadata: Any = OneSegment()
    checked = still_planned(before, again, metadata, history=0)
    assert (checked.planned.deletions, checked.kept) == ((before.deletions, ()) if goes else ((), before.deletions))
