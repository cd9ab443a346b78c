"""How one segment follows another: gaps, overlaps after a change of the leader, falling epochs."""

from include.tiering.model.histories import (
    OffsetRange,
    SkippedOffsets,
    leader_epochs_back,
    missing_offsets,
    unexplained_overlap,
)
from include.tiering.model.leader_epochs import LeaderEpochs
from include.tiering.model.segments import RemoteLogSegmentMetadata
from tests.doubles.storage_segments import some_metadata


def segment(start: int, end: int, *epochs: tuple[int, int], broker_id: int = 1) -> RemoteLogSegmentMetadata:
    template = some_metadata(100)
    return RemoteLogSegmentMetadata(
        template.remote_log_segment_id,
        start,
        end,
        max_timestamp_ms=-1,
        broker_id=broker_id,
        event_timestamp_ms=0,
        segment_size_bytes=100,
        segment_leader_epochs=LeaderEpochs.of(epochs or [(0, start)]),
    )


def test_the_first_segment_follows_nothing() -> None:
    first = segment(500, 600, (7, 500))
    assert missing_offsets(None, first) == ()
    assert unexplained_overlap(None, first) == leader_epochs_back(None, first) == 0


def test_a_gap_has_the_offsets_that_nobody_holds() -> None:
    assert missing_offsets(segment(0, 99), segment(100, 199)) == ()
    assert missing_offsets(segment(0, 99), segment(101, 199)) == ((100, 100),)
    assert missing_offsets(segment(0, 99), segment(50, 199)) == ()


def test_what_was_skipped_by_decision_is_not_missing() -> None:
    decisions = [SkippedOffsets(OffsetRange(100, 149), "lost", "me", 0)]
    assert missing_offsets(segment(0, 99), segment(150, 199), decisions) == ()
    assert missing_offsets(segment(0, 99), segment(160, 199), decisions) == ((150, 159),)


def test_an_overlap_of_the_same_leader_is_counted() -> None:
    assert unexplained_overlap(segment(0, 99), segment(100, 199)) == 0
    assert unexplained_overlap(segment(0, 99), segment(90, 199)) == 10


def test_an_overlap_is_explained_by_another_broker_or_a_later_epoch() -> None:
    assert unexplained_overlap(segment(0, 99), segment(90, 199, broker_id=2)) == 0
    assert unexplained_overlap(segment(0, 99), segment(90, 199, (0, 90), (1, 150))) == 0


def test_a_segment_that_brings_nothing_new_is_never_explained() -> None:
    assert unexplained_overlap(segment(0, 99), segment(40, 99, broker_id=2)) == 60
    assert unexplained_overlap(segment(0, 99), segment(40, 59, broker_id=2)) == 20


def test_epochs_may_stay_or_rise() -> None:
    before = segment(0, 99, (0, 0), (3, 50))
    assert leader_epochs_back(before, segment(100, 199, (3, 100))) == 0
    assert leader_epochs_back(before, segment(100, 199, (5, 100))) == 0
    assert leader_epochs_back(before, segment(100, 199, (1, 100))) == 2


def test_an_overlapping_segment_is_compared_at_its_first_new_offset() -> None:
    before = segment(0, 99, (0, 0), (3, 50))
    assert leader_epochs_back(before, segment(20, 199, (0, 20), (3, 50), broker_id=2)) == 0
    assert leader_epochs_back(before, segment(20, 199, (0, 20), (4, 120), broker_id=2)) == 3


def test_a_history_that_begins_inside_the_segment_is_compared_where_it_begins() -> None:
    before = segment(0, 99, (3, 0))
    assert leader_epochs_back(before, segment(100, 199, (3, 150))) == 0
    assert leader_epochs_back(before, segment(100, 199, (1, 150))) == 2
