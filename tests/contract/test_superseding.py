"""What every implementation does when a new copy takes the place of a failed segment, and what it refuses."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import pytest
from sqlalchemy import select

from include.tiering.database.schema import events
from include.tiering.errors import LeaseLostError, StateConflictError, UnknownSegmentError
from include.tiering.model.ownership import Fence
from include.tiering.model.segments import RemoteLogSegmentMetadata, RemoteLogSegmentState, TopicIdPartition, Verdict
from include.tiering.segments.contract import RemoteLogMetadata
from tests.doubles.databases import SHARED
from tests.doubles.segments import (
    DELETE_FINISHED,
    DELETE_STARTED,
    FINISHED,
    STARTED,
    expire_lease_of,
    fence_of,
    finish,
    lease_of,
    partition_of,
    segment_of,
    update_of,
)


@pytest.fixture
def failed(metadata: RemoteLogMetadata, partition: TopicIdPartition, fence: Fence) -> RemoteLogSegmentMetadata:
    """0..99, in front of 100..199."""
    failed = segment_of(partition, 1, 0, 99)
    metadata.add_segment(failed, fence=fence, log_crc32c=0xAB)
    metadata.update_segment(update_of(failed, FINISHED), expected=STARTED, fence=fence)
    finish(metadata, segment_of(partition, 2, 100, 199), fence)
    metadata.record_verdict(failed.remote_log_segment_id, Verdict.FAILED, detail="Q102: other bytes")
    return failed


def begun(
    metadata: RemoteLogMetadata, fence: Fence, number: int = 9, offsets: tuple[int, int] = (0, 99), **rest: Any
) -> RemoteLogSegmentMetadata:
    again = segment_of(fence.topic_id_partition, number, *offsets, **rest)
    metadata.add_segment(again, fence=fence, log_crc32c=0xCD)
    return again


def supersede(
    metadata: RemoteLogMetadata, new: RemoteLogSegmentMetadata, old: RemoteLogSegmentMetadata, fence: Fence
) -> RemoteLogSegmentMetadata:
    return metadata.update_segment(
        update_of(new, FINISHED), expected=STARTED, fence=fence, supersedes=old.remote_log_segment_id
    )


def state_of(metadata: RemoteLogMetadata, segment: RemoteLogSegmentMetadata) -> RemoteLogSegmentState:
    row = metadata.segment(segment.remote_log_segment_id)
    assert row is not None
    return row.metadata.state


def test_it_is_one_change_that_says_what_took_whose_place(metadata, engine, now, fence, failed):
    again = begun(metadata, fence)
    supersede(metadata, again, failed, fence)
    row = metadata.segment(failed.remote_log_segment_id)
    assert (row.metadata.state, row.verdict) == (DELETE_STARTED, Verdict.FAILED)
    assert (row.superseded_by, row.delete_started_at_ms) == (again.remote_log_segment_id.id, now.now_ms)
    assert metadata.segment(again.remote_log_segment_id).verdict is Verdict.NONE
    with engine.connect() as connection:
        (event,) = connection.execute(select(events).where(events.c.kind == "superseded")).all()
    old_id, new_id = failed.remote_log_segment_id.id, again.remote_log_segment_id.id
    told = f"0..99: {old_id} by {new_id}; CRC-32C of the log 000000ab, now 000000cd; Q102: other bytes"
    assert (event.detail, event.author) == (told, "batch-1")


def test_sizes_of_each_state_and_the_order_of_ends_stay_right(metadata, partition, fence, failed):
    again = begun(metadata, fence, size_bytes=900)
    supersede(metadata, again, failed, fence)
    (size,) = metadata.partition_sizes(partition)
    assert (size.size_bytes, size.segments) == (1_900, 2)
    assert metadata.highest_copied_offset(partition) == 199
    with pytest.raises(StateConflictError, match="offsets up to 199 did already"):
        metadata.update_segment(update_of(begun(metadata, fence, 10), FINISHED), expected=STARTED, fence=fence)
    finish(metadata, segment_of(partition, 11, 200, 299), fence)
    assert metadata.highest_copied_offset(partition) == 299


def test_a_repeated_call_is_harmless_also_after_the_old_one_is_gone(metadata, engine, fence, failed):
    again = begun(metadata, fence)
    supersede(metadata, again, failed, fence)
    metadata.update_segment(update_of(failed, DELETE_FINISHED), expected=DELETE_STARTED, fence=fence)
    assert supersede(metadata, again, failed, fence).is_finished
    with engine.connect() as connection:
        assert len(connection.execute(select(events).where(events.c.kind == "superseded")).all()) == 1


def test_the_new_copy_may_fail_and_be_superseded_in_its_turn(metadata, partition, fence, failed):
    first, second = begun(metadata, fence, 9), begun(metadata, fence, 10)
    supersede(metadata, first, failed, fence)
    metadata.record_verdict(first.remote_log_segment_id, Verdict.FAILED)
    assert metadata.stopped_reason(partition) is not None
    with pytest.raises(StateConflictError, match="DELETE_SEGMENT_STARTED and failed"):
        supersede(metadata, second, failed, fence)
    supersede(metadata, second, first, fence)
    assert metadata.stopped_reason(partition) is None


def test_another_failed_segment_stops_the_partition_still(metadata, partition, fence, failed):
    other = metadata.list_segments(partition)[1].metadata
    metadata.record_verdict(other.remote_log_segment_id, Verdict.FAILED)
    supersede(metadata, begun(metadata, fence), failed, fence)
    assert str(other.remote_log_segment_id.id) in metadata.stopped_reason(partition)


def _passed_meanwhile(metadata: RemoteLogMetadata, old: RemoteLogSegmentMetadata, fence: Fence) -> None:
    metadata.record_verdict(old.remote_log_segment_id, Verdict.PASSED)


def _is_being_deleted(metadata: RemoteLogMetadata, old: RemoteLogSegmentMetadata, fence: Fence) -> None:
    metadata.update_segment(update_of(old, DELETE_STARTED), expected=FINISHED, fence=fence)


def _is_superseded(metadata: RemoteLogMetadata, old: RemoteLogSegmentMetadata, fence: Fence) -> None:
    supersede(metadata, begun(metadata, fence, 20), old, fence)


@pytest.mark.parametrize(
    ("meanwhile", "says"),
    [
        (_passed_meanwhile, "COPY_SEGMENT_FINISHED and passed"),
        (_is_being_deleted, "DELETE_SEGMENT_STARTED and failed"),
        (_is_superseded, "DELETE_SEGMENT_STARTED and failed"),
    ],
)
def test_whoever_comes_first_has_decided(
    metadata: RemoteLogMetadata,
    fence: Fence,
    failed: RemoteLogSegmentMetadata,
    meanwhile: Callable[[RemoteLogMetadata, RemoteLogSegmentMetadata, Fence], None],
    says: str,
):
    again = begun(metadata, fence)
    meanwhile(metadata, failed, fence)
    before = state_of(metadata, failed)
    with pytest.raises(StateConflictError, match=says):
        supersede(metadata, again, failed, fence)
    assert (state_of(metadata, again), state_of(metadata, failed)) == (STARTED, before)


@pytest.mark.parametrize(
    ("shape", "says"),
    [
        ({"offsets": (0, 98)}, "other offsets"),
        ({"offsets": (1, 99)}, "other offsets"),
        ({"offsets": (0, 100)}, "other offsets"),
        ({"leader_epochs": {1: 0}}, "other leader epochs"),
        ({"leader_epochs": {0: 0, 1: 50}}, "other leader epochs"),
    ],
)
def test_it_must_be_of_the_same_offsets_and_leader_epochs(metadata, fence, failed, shape, says):
    again = begun(metadata, fence, **shape)
    with pytest.raises(StateConflictError, match=says):
        supersede(metadata, again, failed, fence)
    assert (state_of(metadata, again), state_of(metadata, failed)) == (STARTED, FINISHED)


def test_an_epoch_without_a_record_makes_no_difference(metadata, partition, fence):
    """The replica that led for a moment and wrote nothing knows of an epoch that the others never saw."""
    failed = segment_of(partition, 1, 0, 99, {0: 0, 2: 50, 3: 50})
    finish(metadata, failed, fence)
    metadata.record_verdict(failed.remote_log_segment_id, Verdict.FAILED)
    again = begun(metadata, fence, leader_epochs={0: 0, 3: 50})
    assert supersede(metadata, again, failed, fence).is_finished


def test_neither_itself_nor_one_of_another_partition_nor_an_unknown_one(metadata, engine, fence, failed):
    again = begun(metadata, fence)
    with pytest.raises(StateConflictError, match="COPY_SEGMENT_STARTED and none"):
        supersede(metadata, again, again, fence)
    elsewhere = partition_of("orders", 4)
    foreign = segment_of(elsewhere, 30, 0, 99)
    finish(metadata, foreign, fence_of(engine, elsewhere))
    metadata.record_verdict(foreign.remote_log_segment_id, Verdict.FAILED)
    with pytest.raises(StateConflictError, match="another partition"):
        supersede(metadata, again, foreign, fence)
    with pytest.raises(UnknownSegmentError):
        supersede(metadata, again, segment_of(fence.topic_id_partition, 31, 0, 99), fence)
    assert (state_of(metadata, again), state_of(metadata, failed)) == (STARTED, FINISHED)


def test_a_lost_lease_supersedes_nothing(metadata, engine, partition):
    old, failed = lease_of(engine, partition, "run-a", lease_ms=0).fence, segment_of(partition, 1, 0, 99)
    finish(metadata, failed, old)
    metadata.record_verdict(failed.remote_log_segment_id, Verdict.FAILED)
    again = begun(metadata, old)
    lease_of(engine, partition, "run-b", lease_ms=0)
    with pytest.raises(LeaseLostError):
        supersede(metadata, again, failed, old)
    assert state_of(metadata, failed) is FINISHED


def test_an_expiration_that_wanted_the_segment_leaves_it_to_its_hold(metadata, engine, partition, fence, failed):
    """Its plan is about a FINISHED segment: the deletion that the new copy began is not the one that was planned."""
    expire = expire_lease_of(engine, partition).fence
    seen = metadata.segment(failed.remote_log_segment_id).metadata
    supersede(metadata, begun(metadata, fence), failed, fence)
    assert metadata.advance_deletion([seen], DELETE_STARTED, event_timestamp_ms=5, fence=expire) == []
    row = metadata.segment(failed.remote_log_segment_id)
    assert metadata.advance_deletion([row.metadata], DELETE_FINISHED, event_timestamp_ms=5, fence=expire)
    assert state_of(metadata, failed) is DELETE_FINISHED


@pytest.mark.parametrize("database_kind", SHARED, indirect=True)
def test_a_new_copy_against_an_expiration_one_of_the_two(metadata, engine, partition, fence, failed):
    again, expire = begun(metadata, fence), expire_lease_of(engine, partition).fence
    seen = metadata.segment(failed.remote_log_segment_id).metadata
    begin = Barrier(2)

    def copy() -> bool:
        begin.wait()
        try:
            supersede(metadata, again, failed, fence)
        except StateConflictError:
            return False
        return True

    def delete() -> bool:
        begin.wait()
        return bool(metadata.advance_deletion([seen], DELETE_STARTED, event_timestamp_ms=5, fence=expire))

    with ThreadPoolExecutor(2) as threads:
        copied, deleted = threads.submit(copy), threads.submit(delete)
        assert copied.result() is not deleted.result()
    row = metadata.segment(failed.remote_log_segment_id)
    assert row.metadata.state is DELETE_STARTED
    assert (row.superseded_by is not None) is copied.result()
    assert state_of(metadata, again) is (FINISHED if copied.result() else STARTED)
