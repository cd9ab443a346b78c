"""Plans of publication, and events of the metadata topic."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from include.tiering.errors import PoisonRecordError
from include.tiering.formats.remote_log_metadata import encode
from include.tiering.formats.remote_log_metadata_records import (
    EpochEntry,
    PartitionDeleteRecord,
    PartitionEntry,
    SegmentSnapshotRecord,
    segment_record,
    update_record,
)
from include.tiering.metadata_sync.metadata_events import event_of
from include.tiering.metadata_sync.plan_publication import (
    PublicationPlan,
    PublicationStep,
    Withheld,
    intent_for,
    plan_publication,
    plan_withdrawal,
)
from include.tiering.metadata_sync.publication_contract import Intent, Journal, JournalRecord
from include.tiering.model.segments import (
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    RemotePartitionDeleteState,
    TopicIdPartition,
    Uuid,
    Verdict,
)
from include.tiering.segments.contract import SegmentRow
from include.tiering.segments.ingestion_contract import PartitionRemoval, UnusableRecord
from tests.doubles.publication_world import BROKER_ID, orders
from tests.doubles.segments import DELETE_STARTED, FINISHED, STARTED, partition_of, segment_of, update_of
from tests.doubles.tiered_topic import tiered_records

# What is to be sent next, from a journal and rows alone.

_STARTED, _FINISHED, _DELETE_STARTED, _DELETE_FINISHED = RemoteLogSegmentState
_PARTITION = orders()


def _segment(number: int, start: int, end: int) -> RemoteLogSegmentMetadata:
    return segment_of(_PARTITION, number, start, end, {0: start}, state=_FINISHED)


A, B, C = _segment(1, 100, 199), _segment(2, 200, 299), _segment(3, 300, 399)


def _rows(
    *segments: RemoteLogSegmentMetadata,
    verdicts: Mapping[int, Verdict] | None = None,
    states: Mapping[int, RemoteLogSegmentState] | None = None,
) -> dict[Uuid, SegmentRow]:
    """`verdicts` and `states` by position; the others are PASSED and as they are."""
    rows = {}
    for at, segment in enumerate(segments):
        metadata = replace(segment, state=(states or {}).get(at, segment.state))
        rows[segment.remote_log_segment_id.id] = SegmentRow(metadata, (verdicts or {}).get(at, Verdict.PASSED), 1)
    return rows


def _journal(*steps: tuple[RemoteLogSegmentMetadata, RemoteLogSegmentState], pending: bool = False) -> Journal:
    """These were sent and read back; the last one was not if `pending`."""
    journal = Journal(metadata_partition=13 if _PARTITION.partition else 0, partition_count=1, next_offset=0)
    records = []
    for number, (segment, state) in enumerate(steps):
        intent = intent_for(PublicationStep(segment, state), journal, broker_id=BROKER_ID, event_timestamp_ms=number)
        offset = None if pending and number == len(steps) - 1 else number
        records.append(JournalRecord(number, intent, 0, offset))
    return replace(journal, records=tuple(records), next_offset=len(records))


def _both(*segments: RemoteLogSegmentMetadata) -> list[tuple[RemoteLogSegmentMetadata, RemoteLogSegmentState]]:
    return [(segment, state) for segment in segments for state in (_STARTED, _FINISHED)]


def _plan(journal: Journal | None, rows: Mapping[Uuid, SegmentRow], log_start_offset: int = 100) -> PublicationPlan:
    return plan_publication(_PARTITION, journal, rows, log_start_offset=log_start_offset)


def _records(plan: PublicationPlan) -> list[tuple[int, RemoteLogSegmentState]]:
    return [(step.segment.start_offset, step.state) for step in plan.steps]


def _offsets(*steps: tuple[int, RemoteLogSegmentState]) -> Sequence[tuple[int, RemoteLogSegmentState]]:
    return list(steps)


def test_all_are_begun_and_finished_one_after_another_from_the_lowest() -> None:
    plan = _plan(None, _rows(C, A, B))
    assert _records(plan) == [(100, 0), (100, 1), (200, 0), (200, 1), (300, 0), (300, 1)]
    assert (plan.end_offset, plan.highest_recorded_end_offset, plan.withheld, plan.refused) == (399, 399, None, None)
    assert plan.live == ()


@pytest.mark.parametrize(("log_start_offset", "first"), [(100, 100), (150, 100), (199, 100), (200, 200), (250, 200)])
def test_the_first_holds_the_log_start_and_older_ones_stay_here(log_start_offset: int, first: int) -> None:
    assert _records(_plan(None, _rows(A, B, C), log_start_offset))[0] == (first, _STARTED)


def test_a_start_above_the_log_start_is_refused() -> None:
    plan = _plan(None, _rows(A, B), 99)
    assert plan.steps == ()
    assert plan.refused is not None
    assert "begins at 100, above the broker's log start 99" in plan.refused


def test_what_is_published_above_the_log_start_is_refused() -> None:
    plan = _plan(_journal(*_both(B)), _rows(B, C), 150)
    assert plan.refused is not None
    assert plan.steps == ()


def test_nothing_to_publish_is_no_error() -> None:
    for plan in (_plan(None, {}), _plan(None, _rows(A), 200), _plan(_journal(*_both(A)), _rows(A))):
        assert (plan.steps, plan.refused, plan.withheld) == ((), None, None)


def test_what_was_sent_is_not_sent_again() -> None:
    plan = _plan(_journal(*_both(A, B)), _rows(A, B, C))
    assert _records(plan) == [(300, 0), (300, 1)]
    assert [one.metadata.start_offset for one in plan.live] == [100, 200]


def test_one_that_was_begun_is_finished_first() -> None:
    plan = _plan(_journal(*_both(A), (B, _STARTED)), _rows(A, B, C))
    assert _records(plan) == [(200, 1), (300, 0), (300, 1)]


def test_a_pending_record_does_not_count_as_sent() -> None:
    plan = _plan(_journal(*_both(A), (B, _STARTED), pending=True), _rows(A, B))
    assert _records(plan) == [(200, 0), (200, 1)]


def test_a_gap_ends_the_list() -> None:
    plan = _plan(None, _rows(A, C))
    assert _records(plan) == [(100, 0), (100, 1)]
    assert plan.withheld == Withheld(200, "no segment has the offsets up to 299")


@pytest.mark.parametrize("verdict", [Verdict.NONE, Verdict.FAILED, Verdict.EXPIRED])
def test_what_has_not_passed_ends_the_list(verdict: Verdict) -> None:
    plan = _plan(None, _rows(A, B, C, verdicts={1: verdict}))
    assert _records(plan) == [(100, 0), (100, 1)]
    assert plan.withheld is not None
    assert plan.withheld.offset == 200
    assert verdict in plan.withheld.reason


def test_what_is_not_finished_here_is_as_if_it_were_not_there() -> None:
    plan = _plan(None, _rows(A, B, C, states={1: _STARTED}))
    assert _records(plan) == [(100, 0), (100, 1)]
    assert plan.withheld == Withheld(200, "no segment has the offsets up to 299")


def test_an_overlap_of_another_leader_is_sent_and_what_it_covers_is_not() -> None:
    overlap, covered, longer = _segment(4, 150, 260), _segment(5, 160, 180), _segment(6, 100, 210)
    assert _records(_plan(None, _rows(A, overlap, covered))) == [(100, 0), (100, 1), (150, 0), (150, 1)]
    assert _records(_plan(None, _rows(A, longer, overlap))) == [(100, 0), (100, 1), (150, 0), (150, 1)]
    assert [step.segment for step in _plan(None, _rows(A, longer)).steps] == [longer, longer]


def test_a_longer_copy_of_the_same_start_follows_what_is_published_and_a_shorter_never() -> None:
    longer, shorter = _segment(6, 100, 250), _segment(7, 100, 180)
    journal = _journal(*_both(A))
    assert [step.segment for step in _plan(journal, _rows(A, longer, shorter)).steps] == [longer, longer]
    assert _plan(journal, _rows(A, shorter)).steps == ()


def test_one_that_fails_before_it_was_finished_is_taken_back() -> None:
    plan = _plan(_journal(*_both(A), (B, _STARTED)), _rows(A, B, verdicts={1: Verdict.FAILED}))
    assert _records(plan) == [(200, _DELETE_STARTED), (200, _DELETE_FINISHED)]
    assert plan.withheld is not None


def test_one_that_is_not_verified_any_more_waits_as_it_is() -> None:
    plan = _plan(_journal(*_both(A), (B, _STARTED)), _rows(A, B, C, verdicts={1: Verdict.EXPIRED}))
    assert plan.steps == ()
    assert plan.withheld is not None
    assert (plan.withheld.offset, plan.end_offset) == (200, 199)


def test_a_deletion_here_is_told_as_far_as_it_got_lowest_first() -> None:
    journal = _journal(*_both(A, B, C))
    deleting = _plan(journal, _rows(A, B, C, states={0: _DELETE_STARTED, 1: _DELETE_STARTED}), 300)
    assert _records(deleting) == [(100, _DELETE_STARTED), (200, _DELETE_STARTED)]
    gone = _plan(journal, _rows(C), 300)
    assert _records(gone) == [
        (100, _DELETE_STARTED),
        (100, _DELETE_FINISHED),
        (200, _DELETE_STARTED),
        (200, _DELETE_FINISHED),
    ]
    assert (gone.end_offset, gone.highest_recorded_end_offset) == (399, 399)


def test_a_hole_in_what_is_published_ends_it_unless_it_lies_below_the_log_start() -> None:
    journal = _journal(*_both(A, B, C))
    plan = _plan(journal, _rows(A, C, _segment(4, 400, 499)))
    assert plan.steps == ()
    assert plan.refused is not None
    assert "offsets 200..299 are not remote any more" in plan.refused
    below = _plan(journal, _rows(A, C, _segment(4, 400, 499)), 300)
    assert _records(below) == [(200, _DELETE_STARTED), (200, _DELETE_FINISHED), (400, 0), (400, 1)]


def test_a_deletion_that_was_told_in_part_comes_to_its_end() -> None:
    journal = _journal(*_both(A, B), (A, _DELETE_STARTED))
    assert _records(_plan(journal, _rows(A, B, states={0: _DELETE_STARTED}), 200)) == []
    assert _records(_plan(journal, _rows(B), 200)) == [(100, _DELETE_FINISHED)]


def test_of_a_topic_that_is_archived_again_only_what_no_broker_has_is_withdrawn() -> None:
    journal = _journal(*_both(A, B), (C, _STARTED))
    rows = _rows(A, B, C, _segment(4, 400, 499))
    at_the_start = plan_withdrawal(_PARTITION, journal, rows, log_start_offset=199)
    assert (at_the_start.steps, at_the_start.refused, at_the_start.withheld) == ((), None, None)
    passed = plan_withdrawal(_PARTITION, journal, rows, log_start_offset=250)
    assert _records(passed) == [(100, _DELETE_STARTED), (100, _DELETE_FINISHED)]
    assert (passed.end_offset, passed.highest_recorded_end_offset) == (299, 299)
    gone = plan_withdrawal(_PARTITION, journal, _rows(A, C), log_start_offset=100)
    assert _records(gone) == [(200, _DELETE_STARTED), (200, _DELETE_FINISHED)]


def test_a_replaced_segment_that_reaches_the_log_start_is_not_withdrawn() -> None:
    journal = _journal(*_both(A, B, C))
    rows = _rows(A, B, C, states={1: _DELETE_STARTED})
    replaced = B.remote_log_segment_id.id
    rows[replaced] = replace(rows[replaced], superseded_by=Uuid(b"9" * 16))
    waits = plan_withdrawal(_PARTITION, journal, rows, log_start_offset=250)
    assert _records(waits) == [(100, _DELETE_STARTED), (100, _DELETE_FINISHED)], "brokers would miss 250..299"
    assert waits.end_offset == 399
    passed = plan_withdrawal(_PARTITION, journal, rows, log_start_offset=300)
    assert _records(passed)[2:] == [(200, _DELETE_STARTED)], "its objects are deleted first"
    unread = plan_withdrawal(_PARTITION, _journal((B, _STARTED)), rows, log_start_offset=250)
    assert _records(unread) == [(200, _DELETE_STARTED)], "brokers read nothing from a segment that was not FINISHED"


def test_what_was_withdrawn_below_the_log_start_is_not_published_again() -> None:
    journal = _journal(*_both(A, B), (A, _DELETE_STARTED), (A, _DELETE_FINISHED))
    assert _records(_plan(journal, _rows(A, B, C), 250)) == [(300, 0), (300, 1)]


def test_what_was_deleted_there_and_is_here_is_published_again_under_the_same_id() -> None:
    journal = _journal(*_both(A), (A, _DELETE_STARTED), (A, _DELETE_FINISHED))
    plan = _plan(journal, _rows(A, B))
    assert _records(plan) == [(100, 0), (100, 1), (200, 0), (200, 1)]
    assert plan.steps[0].segment.remote_log_segment_id == A.remote_log_segment_id


def test_custom_metadata_come_with_what_finishes_a_segment_and_stay_until_its_end() -> None:
    custom = replace(A, custom_metadata=b"key")
    journal = _journal((custom, _STARTED))
    assert journal.records[0].intent.value.count(b"key") == 0
    finishing = _plan(journal, _rows(custom)).steps[0]
    assert finishing.segment.custom_metadata == b"key"
    begun = _plan(_journal(*_both(custom)), {}, 200).steps[0]
    assert begun.segment.custom_metadata == b"key"


def test_an_intent_says_where_it_stands() -> None:
    intent = _journal((A, _STARTED)).records[0].intent
    assert (intent.segment_id, intent.state, intent.start_offset, intent.end_offset) == (
        A.remote_log_segment_id.id,
        _STARTED,
        100,
        199,
    )
    assert isinstance(intent, Intent)
    assert isinstance(_PARTITION, TopicIdPartition)


def test_segments_of_two_histories_are_never_published_together() -> None:
    """A left one that ends above a new one would hide it: the broker would take its records for tiered."""
    rows = {id_: replace(row, history=int(row.metadata == C)) for id_, row in _rows(A, B, C).items()}
    refused = plan_publication(_PARTITION, None, rows, log_start_offset=100)
    assert (refused.steps, "segments of two histories" in (refused.refused or "")) == ((), True)
    assert "offsets 100..299 were archived before" in (refused.refused or "")
    once_passed = plan_publication(_PARTITION, None, rows, log_start_offset=300)
    assert ([step.segment for step in once_passed.steps], once_passed.refused) == ([C, C], None)


# What a value of the metadata topic means: what stops brokers, what they only remember, what means nothing here.

PARTITION = partition_of("orders")
SEGMENT_A = segment_of(PARTITION, 1, 0, 99)
ENTRY = PartitionEntry("orders", PARTITION.topic_id, 0)


def test_a_segment_and_its_updates() -> None:
    assert event_of(encode(segment_record(SEGMENT_A))) == SEGMENT_A
    assert event_of(encode(update_record(update_of(SEGMENT_A, FINISHED)))) == update_of(SEGMENT_A, FINISHED)


def test_every_record_of_a_real_broker_means_something() -> None:
    events = [event_of(bytes.fromhex(record["value_hex"])) for record in tiered_records()]
    assert len(events) == 164
    assert not any(event is None or isinstance(event, UnusableRecord) for event in events)


@pytest.mark.parametrize("value", [b"", b"\x01", b"\x01\x09\x00", encode(segment_record(SEGMENT_A)) + b"\x00"])
def test_what_is_no_record_stops_brokers(value: bytes) -> None:
    with pytest.raises(PoisonRecordError, match="no record that Kafka's decoder accepts"):
        event_of(value)


@pytest.mark.parametrize("state", [FINISHED, DELETE_STARTED])
def test_a_segment_that_does_not_begin_stops_brokers(state: RemoteLogSegmentState) -> None:
    with pytest.raises(PoisonRecordError, match="begins as"):
        event_of(encode(replace(segment_record(SEGMENT_A), state=state)))


def test_a_snapshot_stops_brokers() -> None:
    snapshot = SegmentSnapshotRecord(
        id=SEGMENT_A.remote_log_segment_id.id,
        start_offset=0,
        end_offset=9,
        broker_id=1,
        max_timestamp_ms=1,
        event_timestamp_ms=1,
        epochs=(EpochEntry(0, 0),),
        size_bytes=1,
        custom_metadata=None,
        state=STARTED,
    )
    with pytest.raises(PoisonRecordError, match="snapshot"):
        event_of(encode(snapshot))


def test_the_end_of_a_partition_is_its_removal_what_comes_before_only_remembered() -> None:
    events = {
        state: event_of(encode(PartitionDeleteRecord(ENTRY, 1, 1, state))) for state in RemotePartitionDeleteState
    }
    assert events == {
        RemotePartitionDeleteState.DELETE_PARTITION_MARKED: None,
        RemotePartitionDeleteState.DELETE_PARTITION_STARTED: None,
        RemotePartitionDeleteState.DELETE_PARTITION_FINISHED: PartitionRemoval(PARTITION),
    }


@pytest.mark.parametrize(
    "changes",
    [{"size_bytes": -1}, {"epochs": (EpochEntry(0, 50), EpochEntry(1, 20))}, {"epochs": (EpochEntry(-1, 0),)}],
)
def test_what_brokers_take_and_no_segment_is_means_nothing(changes: dict[str, Any]) -> None:
    assert isinstance(event_of(encode(replace(segment_record(SEGMENT_A), **changes))), UnusableRecord)


def test_a_name_that_no_topic_has_means_nothing() -> None:
    hostile = PartitionDeleteRecord(
        replace(ENTRY, topic="../x"), 1, 1, RemotePartitionDeleteState.DELETE_PARTITION_FINISHED
    )
    assert isinstance(event_of(encode(hostile)), UnusableRecord)
