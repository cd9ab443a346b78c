"""What the timeline of a partition makes of segments, of what waits, and of decisions."""

import re
from dataclasses import replace
from typing import Final

import pytest

from include.tiering.model.histories import OffsetRange, SkippedOffsets
from include.tiering.model.segments import RemoteLogSegmentState, Uuid, Verdict
from include.tiering.operations.timeline import PartKind, Timeline, parts_of, present_timeline, timeline_document
from include.tiering.presentation import as_text
from include.tiering.runs.contract import PlannedSegment
from include.tiering.segments.contract import SegmentRow
from tests.doubles.segments import partition_of, segment_of
from tests.doubles.source_tree import ROOT

PARTITION: Final = partition_of("orders")


def row(first: int, last: int, verdict: Verdict = Verdict.PASSED, state: int = 1, **rest: object) -> SegmentRow:
    segment = replace(segment_of(PARTITION, first, first, last), state=RemoteLogSegmentState(state))
    return SegmentRow(metadata=segment, verdict=verdict, log_crc32c=None, **rest)  # type: ignore[arg-type]


def kinds(*parts: object) -> list[tuple[PartKind, int, int]]:
    return [(part.kind, part.offsets.first, part.offsets.last) for part in parts]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("verdict", "state", "kind"),
    [
        (Verdict.NONE, 1, PartKind.COPIED),
        (Verdict.PASSED, 1, PartKind.VERIFIED),
        (Verdict.EXPIRED, 1, PartKind.VERDICT_EXPIRED),
        (Verdict.FAILED, 1, PartKind.FAILED),
        (Verdict.NONE, 0, PartKind.COPYING),
        (Verdict.PASSED, 2, PartKind.DELETING),
        (Verdict.PASSED, 3, PartKind.EXPIRED),
    ],
)
def test_the_kind_follows_state_and_verdict(verdict: Verdict, state: int, kind: PartKind) -> None:
    assert kinds(*parts_of([row(0, 9, verdict, state)], (), ())) == [(kind, 0, 9)]
    replaced = row(0, 9, Verdict.FAILED, superseded_by=Uuid(bytes(16)))
    assert kinds(*parts_of([replaced], (), ())) == [(PartKind.REPLACED, 0, 9)]


def test_what_is_missing_is_a_gap_but_for_what_was_decided() -> None:
    decision = SkippedOffsets(OffsetRange(15, 17), "agreed", "olga", 0)
    found = parts_of([row(20, 29), row(0, 9)], [PlannedSegment(32, 39, 7)], [decision])
    assert kinds(*found) == [
        (PartKind.VERIFIED, 0, 9),
        (PartKind.GAP, 10, 14),
        (PartKind.SKIPPED, 15, 17),
        (PartKind.GAP, 18, 19),
        (PartKind.VERIFIED, 20, 29),
        (PartKind.GAP, 30, 31),
        (PartKind.WAITING, 32, 39),
    ]
    assert "olga" in found[2].why


def test_what_is_being_copied_no_longer_waits() -> None:
    """The plan of a run has its segments until the run ends, and a segment has one state."""
    planned = [PlannedSegment(10, 19, 7), PlannedSegment(20, 29, 7), PlannedSegment(30, 39, 7)]
    assert kinds(*parts_of([row(0, 9), row(10, 19, Verdict.NONE, 0), row(22, 29, Verdict.NONE, 0)], planned, ())) == [
        (PartKind.VERIFIED, 0, 9),
        (PartKind.COPYING, 10, 19),
        (PartKind.GAP, 20, 21),
        (PartKind.COPYING, 22, 29),
        (PartKind.WAITING, 30, 39),
    ]


@pytest.mark.parametrize("state", [2, 3])
def test_a_copy_that_was_given_up_is_not_listed_beside_what_has_its_offsets(state: int) -> None:
    given_up = row(10, 19, Verdict.NONE, state)
    planned = [PlannedSegment(10, 19, 7)]
    assert kinds(*parts_of([given_up], planned, ())) == [(PartKind.WAITING, 10, 19)]
    copying = row(10, 19, Verdict.NONE, 0)
    assert kinds(*parts_of([given_up, copying], planned, ())) == [(PartKind.COPYING, 10, 19)]
    (alone,) = parts_of([given_up], (), ())
    assert alone.kind in (PartKind.DELETING, PartKind.EXPIRED)
    expired = row(0, 9, Verdict.PASSED, state, finished_at_ms=5)
    assert len(parts_of([expired, row(5, 9)], (), ())) == 2


def test_each_state_has_a_look_of_its_own() -> None:
    style = (ROOT / "plugins" / "tiering_airflow" / "web" / "assets" / "page.css").read_text()
    looks = dict(re.findall(r"\.part\.([\w-]+) \{([^}]+)\}", style))
    assert looks.keys() == set(PartKind)
    assert len({look.strip() for look in looks.values()}) == len(PartKind)


def test_overlaps_are_no_gap_and_nothing_is_missing_before_the_page() -> None:
    found = parts_of([row(105, 109), row(100, 129), row(120, 140)], (), ())
    assert [kind for kind, *_ in kinds(*found)] == [PartKind.VERIFIED] * 3


def test_a_page_says_where_the_next_one_lies() -> None:
    failed = row(0, 9, Verdict.FAILED, verdict_detail="Q102: other bytes")
    timeline = Timeline(PARTITION, 0, parts_of([failed], (), ()), older_before=5)
    document = timeline_document(timeline)
    assert (document["older_before"], document["parts"][0]["why"]) == (5, "Q102: other bytes")
    assert "--before 5" in as_text(present_timeline(timeline))
    assert not present_timeline(timeline).ok
