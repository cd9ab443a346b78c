"""What is next to be copied, where some of it was compacted: from values alone."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from include.tiering.copying.next_segments import compacted_away, next_segments, with_compacted
from include.tiering.copying.plan import HeldBack
from include.tiering.errors import SourceVanishedError
from include.tiering.kafka.log_dirs.contract import IneligibleReason, LogSegment, Replica, ReplicaId, ScanReport
from include.tiering.model.histories import OffsetRange, SkippedOffsets
from include.tiering.segments.failed_copies import FailedCopy
from tests.doubles.segments import FINISHED, segment_of
from tests.unit.copying.test_plan_copy import replica, segment

COMPACTED = IneligibleReason.COMPACTED_SEGMENT
ACTIVE = segment(400, 410, reason=IneligibleReason.ACTIVE)


class Known:
    """Stands for the metadata of one partition."""

    def __init__(self, copied: int | None = None, *skipped: tuple[int, int]) -> None:
        self.copied = copied
        self.skipped = [SkippedOffsets(OffsetRange(*one), "why", "me", 0) for one in skipped]

    def highest_copied_offset(self, _partition: object) -> int | None:
        return self.copied

    def skipped_offsets(self, _partition: object) -> Sequence[SkippedOffsets]:
        return self.skipped


def source(*reasons: IneligibleReason | None, log_start: int = 0) -> Replica:
    segments = [segment(100 * at, 100 * at + 99, reason=reason) for at, reason in enumerate(reasons)]
    return replace(replica("a", *segments, ACTIVE, log_start=log_start), was_compacted=True)


def bases(segments: Sequence[LogSegment]) -> list[int]:
    return [one.base_offset for one in segments]


@pytest.mark.parametrize(
    ("copied", "skipped", "expected"),
    [
        (None, [], [0, 100, 200]),
        (None, [(0, 99)], [100, 200]),
        (None, [(0, 199)], [200]),
        (None, [(0, 98)], [0, 100, 200]),
        (49, [(50, 99)], [100, 200]),
        (49, [(51, 99)], [0, 100, 200]),
        (49, [(50, 299)], [200]),
    ],
)
def test_only_whole_compacted_segments_are_left_out_by_decision(
    copied: int | None, skipped: list[tuple[int, int]], expected: list[int]
) -> None:
    known: Any = Known(copied, *skipped)
    assert bases(next_segments(source(COMPACTED, COMPACTED, None), copied, known)) == expected


def test_a_segment_that_is_whole_is_copied_whatever_was_decided() -> None:
    known: Any = Known(None, (0, 299))
    assert bases(next_segments(source(None, COMPACTED, None), None, known)) == [0, 100, 200]


def test_what_lies_below_the_log_start_is_not_asked_about() -> None:
    known: Any = Known(None, (50, 99))
    assert bases(next_segments(source(COMPACTED, None, log_start=50), None, known)) == [100]


@pytest.mark.parametrize(
    ("reasons", "copied", "offsets"),
    [
        ([COMPACTED, COMPACTED, None], None, (0, 199)),
        ([COMPACTED, None, COMPACTED], None, (0, 99)),
        ([COMPACTED, IneligibleReason.CORRUPT], 49, (50, 99)),
    ],
)
def test_all_that_lie_behind_each_other_are_one_decision(
    reasons: list[IneligibleReason | None], copied: int | None, offsets: tuple[int, int]
) -> None:
    made = source(*reasons)
    known: Any = Known(copied)
    held = compacted_away(made, next_segments(made, copied, known), copied, known, is_next=True)
    assert held is not None
    assert (held.reason, held.next_offset, held.hole) == (HeldBack.COMPACTED, offsets[0], offsets)
    behind = compacted_away(made, next_segments(made, copied, known), copied, known, is_next=False)
    assert behind is not None
    assert behind.hole is None
    assert compacted_away(made, made.segments[2:], copied, known, is_next=True) is None or reasons[2] is COMPACTED


@pytest.mark.parametrize(
    ("copied", "skipped", "offsets"),
    [
        (None, [(0, 39)], (40, 199)),
        (19, [(20, 39)], (40, 199)),
        (None, [(0, 39), (60, 79)], (40, 199)),
        (None, [(150, 199)], (0, 199)),
    ],
)
def test_what_is_decided_of_the_first_segment_already_is_not_asked_about_again(
    copied: int | None, skipped: list[tuple[int, int]], offsets: tuple[int, int]
) -> None:
    """The replica that led then rolled its segments elsewhere: a decision has to begin behind that one."""
    made, known = source(COMPACTED, COMPACTED, None), Known(copied, *skipped)
    metadata: Any = known
    held = compacted_away(made, next_segments(made, copied, metadata), copied, metadata, is_next=True)
    assert held is not None
    assert (held.next_offset, held.hole) == (offsets[0], offsets)


def looked(
    made: Replica, known: Any, *compacted: int, failed: Sequence[FailedCopy] = ()
) -> tuple[list[int], list[IneligibleReason | None]]:
    """What was looked into, and the reasons afterwards."""
    asked: list[int] = []

    def look(_replica_id: ReplicaId, segments: Sequence[LogSegment]) -> list[LogSegment]:
        asked.extend(bases(segments))
        return [one for one in segments if one.base_offset in compacted]

    copies = {made.topic_id_partition: failed}
    (found,) = with_compacted(ScanReport("c", (made,), ()), known, look, copies).replicas
    return asked, [one.reason for one in found.segments[:-1]]


def test_what_comes_next_is_looked_into_and_only_where_the_topic_was_compacted() -> None:
    made = source(None, None, None)
    assert looked(made, Known(99), 100) == ([100, 200], [None, COMPACTED, None])
    assert looked(replace(made, was_compacted=False), Known(99), 100) == ([], [None, None, None])
    assert looked(replace(made, chosen=False), Known(99), 100) == ([], [None, None, None])
    assert looked(made, Known(299)) == ([], [None, None, None])


def test_what_waits_for_another_reason_is_not_looked_into() -> None:
    above = IneligibleReason.ABOVE_HIGH_WATERMARK
    assert looked(source(None, COMPACTED, above), Known(), 0, 100) == ([0, 100], [COMPACTED, COMPACTED, above])
    assert looked(source(above, None), Known(), 0) == ([], [above, None])


@pytest.mark.parametrize(("end", "asked"), [(99, [0]), (98, [])])
def test_the_source_of_what_failed_is_looked_into_too(end: int, asked: list[int]) -> None:
    """Else it would be planned to be copied anew for ever, and never could be."""
    made = source(None, None, None)
    copies = [FailedCopy(segment_of(made.topic_id_partition, 1, 0, end, {0: 0}, state=FINISHED), "Q102")]
    reasons = [COMPACTED if asked else None, None, None]
    assert looked(made, Known(299), 0, failed=copies) == (asked, reasons)
    assert looked(replace(made, was_compacted=False), Known(299), 0, failed=copies) == ([], [None, None, None])
    below = IneligibleReason.BELOW_LOG_START
    assert looked(source(below, None, None), Known(299), 0, failed=copies) == ([], [below, None, None])


def test_a_replica_that_went_away_is_left_as_it_was_seen() -> None:
    def gone(_replica_id: ReplicaId, _segments: Sequence[LogSegment]) -> list[LogSegment]:
        raise SourceVanishedError("/broker-1/a-0", "no such directory")

    known: Any = Known()
    report = ScanReport("c", (source(None),), ())
    assert with_compacted(report, known, gone) == report
