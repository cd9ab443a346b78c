"""A segment may be copied if it is the planned one and joins what is copied, or a hole that somebody recorded."""

from collections.abc import Sequence

import pytest

from include.tiering.errors import SourceChangedError
from include.tiering.log_source.contract import LogSegment, ReplicaId
from include.tiering.model.ids import TopicIdPartition, Uuid
from include.tiering.model.leader_epochs import LeaderEpochs
from include.tiering.model.skipped_offsets import OffsetRange, SkippedOffsets
from include.tiering.tasks.copy_checks import require_planned
from include.tiering.work.contract import PlannedSegment

REPLICA_ID = ReplicaId(TopicIdPartition(Uuid(b"1" * 16), 3, "orders"), 1, "dir")
SEGMENT = LogSegment(200, 299, 1_000, 0, LeaderEpochs.of([(0, 0)]), active=False, reason=None)
PLANNED = PlannedSegment(200, 299, 1_000)


def joins(highest: int | None, *holes: tuple[int, int]) -> None:
    decisions = [SkippedOffsets(OffsetRange(*hole), "lost", "me", 0) for hole in holes]
    require_planned(REPLICA_ID, SEGMENT, PLANNED, highest, lambda: decisions)


def nobody_asks() -> Sequence[SkippedOffsets]:
    raise AssertionError("asked although there is no gap")


@pytest.mark.parametrize("highest", [None, 199, 250])
def test_where_there_is_no_gap_nobody_asks_for_decisions(highest: int | None) -> None:
    require_planned(REPLICA_ID, SEGMENT, PLANNED, highest, nobody_asks)


@pytest.mark.parametrize(
    ("holes", "missing"),
    [([], r"100\.\.199"), ([(100, 149)], r"150\.\.199"), ([(150, 199)], r"100\.\.149"), ([(300, 400)], r"100\.\.199")],
)
def test_a_gap_that_no_decision_covers_is_refused_by_its_offsets(holes: list[tuple[int, int]], missing: str) -> None:
    with pytest.raises(SourceChangedError, match=rf"orders-3@1, segment 200: offsets {missing} would be left out"):
        joins(99, *holes)


@pytest.mark.parametrize("holes", [[(100, 199)], [(100, 149), (150, 199)], [(0, 500)]])
def test_a_gap_by_decision_is_none(holes: list[tuple[int, int]]) -> None:
    joins(99, *holes)
