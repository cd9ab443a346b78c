"""Which segment answers for an offset where the history that answers has no served copy of it."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from include.tiering.errors import OffsetOutOfRangeError
from include.tiering.model.histories import (
    Divergence,
    Followed,
    OffsetRange,
    SeenBy,
    SeenDivergence,
    SkippedOffsets,
    same_before,
)
from include.tiering.model.segments import Verdict
from include.tiering.reading.fetch import PartitionFetch, RecordReader
from include.tiering.segments.contract import PartitionRetentionState, SegmentRow
from tests.doubles.segments import FINISHED, partition_of, segment_of

PARTITION = partition_of("orders", 3)


def row(
    number: int,
    offsets: tuple[int, int],
    epochs: dict[int, int],
    history: int = 0,
    verdict: Verdict = Verdict.PASSED,
) -> SegmentRow:
    return SegmentRow(segment_of(PARTITION, number, *offsets, epochs, state=FINISHED), verdict, None, history=history)


def divergence(number: int, differs: int, followed: int | None) -> Divergence:
    seen = SeenDivergence(OffsetRange(differs, 299), (0,), (6,), SeenBy.PLAN)
    decided = None if followed is None else Followed(followed, "why", "me", 0)
    return Divergence(number, seen, 0, decided)


class Histories:
    """Metadata that knows these rows alone."""

    def __init__(
        self, rows: Sequence[SegmentRow], divergences: Sequence[Divergence], skipped: Sequence[OffsetRange] = ()
    ) -> None:
        self._rows, self._divergences = rows, divergences
        self._skipped = [SkippedOffsets(one, "why", "me", 0) for one in skipped]

    def retention_state(self, _: Any) -> PartitionRetentionState:
        return PartitionRetentionState()

    def divergences(self, _: Any) -> Sequence[Divergence]:
        return self._divergences

    def skipped_offsets(self, _: Any) -> Sequence[SkippedOffsets]:
        return self._skipped

    def partition_sizes(self, _: Any) -> Sequence[Any]:
        return [SimpleNamespace(leader_epochs=[SimpleNamespace(leader_epoch=epoch) for epoch in (0, 6)])]

    def list_segments(self, _: Any, epoch: int | None = None) -> Sequence[SegmentRow]:
        return [one for one in self._rows if epoch is None or epoch in dict(one.metadata.segment_leader_epochs)]

    def segment(self, segment_id: Any) -> SegmentRow | None:
        return next((one for one in self._rows if one.metadata.remote_log_segment_id == segment_id), None)


def found(metadata: Any, offset: int) -> Any:
    """The start of the segment that answers, or why none does."""
    reader: Any = RecordReader(metadata, None, None, None)  # type: ignore[arg-type]
    try:
        return reader.find(PartitionFetch(PARTITION, offset, 1_000)).start_offset
    except OffsetOutOfRangeError as error:
        return str(error)


OLD, FAILED_OLD = row(1, (30, 39), {0: 30}), row(1, (30, 39), {0: 30}, verdict=Verdict.FAILED)
WHOLE = row(2, (28, 59), {0: 28, 6: 35}, history=1)
AT_35, AT_38 = divergence(1, 35, 35), divergence(1, 35, 38)


def test_its_own_copy_answers_as_long_as_it_is_served():
    assert found(Histories([OLD, WHOLE], [AT_35]), 32) == 30


@pytest.mark.parametrize("rows", [[FAILED_OLD, WHOLE], [WHOLE]])
def test_else_a_later_one_that_was_copied_whole(rows: Sequence[SegmentRow]):
    assert [found(Histories(rows, [AT_35]), offset) for offset in (30, 34, 35)] == [28, 28, 28]


def test_not_one_that_is_not_served():
    unserved = row(2, (28, 59), {0: 28, 6: 35}, history=1, verdict=Verdict.NONE)
    assert "(30..39) is not served: its verdict is failed" in found(Histories([FAILED_OLD, unserved], [AT_35]), 32)
    assert "no segment in remote storage holds offset 32" in found(Histories([unserved], [AT_35]), 32)


@pytest.mark.parametrize("offset", [35, 37])
def test_not_with_the_records_of_the_source_below_where_it_is_followed(offset: int):
    assert "its verdict is failed" in found(Histories([FAILED_OLD, WHOLE], [AT_38]), offset)
    assert "no segment in remote storage" in found(Histories([WHOLE], [AT_38]), offset)
    assert found(Histories([FAILED_OLD, WHOLE], [AT_38]), 38) == 28


def test_not_under_another_leader_epoch_than_the_copy_that_failed():
    """What was seen to differ begins behind what somebody skipped before: nothing was compared there."""
    late = [divergence(1, 40, 38)]
    assert "its verdict is failed" in found(Histories([FAILED_OLD, WHOLE], late), 36)
    assert "36..39 were skipped" in found(Histories([WHOLE], late, [OffsetRange(36, 39)]), 36)


def test_a_history_before_answers_for_nothing():
    """After a second decision the newest one begins below the other one."""
    twice = [AT_35, divergence(2, 20, 20)]
    assert "no segment in remote storage holds offset 32" in found(Histories([OLD, WHOLE], twice), 32)


def test_the_lowest_offset_that_differs_between_two_histories_counts():
    known = [divergence(1, 35, 40), divergence(2, 20, 50), divergence(3, 10, None), divergence(4, 60, 60)]
    assert [same_before(0, later, known) for later in (0, 1, 2, 3, 4)] == [0, 35, 20, 20, 20]
    assert [same_before(2, later, known) for later in (1, 2, 3, 4)] == [0, 0, 0, 60]
