"""What every implementation of `RemoteLogMetadata` does for deletions, retention states and superseded segments."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import pytest
from sqlalchemy import Engine, event, select

from include.tiering.database.schema import events
from include.tiering.errors import IllegalTransitionError, LeaseLostError, StateConflictError, UnknownSegmentError
from include.tiering.model.leader_epochs import LeaderEpochs
from include.tiering.model.ownership import Fence, LeaseRole
from include.tiering.model.segments import RemoteLogSegmentMetadata, RemoteLogSegmentState, TopicIdPartition, Verdict
from include.tiering.model.sizes import partition_size
from include.tiering.segments.contract import PartitionRetentionState, RemoteLogMetadata
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

# What every implementation of `RemoteLogMetadata` does for deletions and for the retention state of partitions.

NOW_MS = 1_700_000_000_000


@pytest.fixture
def copying(engine: Engine, partition: TopicIdPartition) -> Fence:
    return fence_of(engine, partition)


@pytest.fixture
def expiring(engine: Engine, partition: TopicIdPartition) -> Fence:
    return expire_lease_of(engine, partition).fence


def _advance(metadata, segments, state, fence):
    return metadata.advance_deletion(segments, state, event_timestamp_ms=NOW_MS, fence=fence)


def _states(metadata, partition):
    return {row.metadata.start_offset: row.metadata.state for row in metadata.list_segments(partition)}


def _require_exact_counters(metadata, partition):
    recounted = partition_size(partition, [row.metadata for row in metadata.list_segments(partition)])
    assert list(metadata.partition_sizes(partition)) == ([recounted] if recounted.segments else [])


class TestRoles:
    def test_live_side_by_side(self, metadata, partition, copying, expiring):
        assert (copying.role, expiring.role) == (LeaseRole.COPY, LeaseRole.EXPIRE)
        segment = finish(metadata, segment_of(partition, 1, 0, 99), copying)
        (deleting,) = _advance(metadata, [segment], DELETE_STARTED, expiring)
        assert deleting.state is DELETE_STARTED
        assert finish(metadata, segment_of(partition, 2, 100, 199), copying).is_finished

    def test_a_new_token_of_one_role_leaves_the_other_alone(self, metadata, engine, partition, copying, expiring):
        segment = finish(metadata, segment_of(partition, 1, 0, 99), copying)
        expire_lease_of(engine, partition, "run-2", take_over=expiring)
        with pytest.raises(LeaseLostError, match="superseded"):
            _advance(metadata, [segment], DELETE_STARTED, expiring)
        assert finish(metadata, segment_of(partition, 2, 100, 199), copying).is_finished

    def test_a_token_of_the_other_role_proves_nothing(self, metadata, engine, partition, copying):
        segment = finish(metadata, segment_of(partition, 1, 0, 99), copying)
        with pytest.raises(LeaseLostError, match="there was never a lease to expire"):
            _advance(metadata, [segment], DELETE_STARTED, Fence(partition, copying.token, LeaseRole.EXPIRE))

    def test_on_one_segment_the_first_change_wins(self, metadata, partition, copying, expiring):
        segment = segment_of(partition, 1, 0, 99)
        metadata.add_segment(segment, fence=copying)
        assert _advance(metadata, [segment], DELETE_STARTED, expiring)
        with pytest.raises(StateConflictError, match="is DELETE_SEGMENT_STARTED"):
            metadata.update_segment(update_of(segment, FINISHED), expected=STARTED, fence=copying)
        other = segment_of(partition, 2, 0, 99)
        finish(metadata, other, copying)
        assert _advance(metadata, [other], DELETE_STARTED, expiring) == []
        assert metadata.segment(other.remote_log_segment_id).metadata.is_finished


class TestAdvanceDeletion:
    def test_many_segments_in_a_bounded_number_of_statements(self, metadata, engine, partition, copying, expiring):
        segments = [
            finish(
                metadata, segment_of(partition, n, 100 * n, 100 * n + 99, {n // 7: 100 * n, 50: 100 * n + 50}), copying
            )
            for n in range(40)
        ]
        statements = []

        def count(_connection, _cursor, statement, _parameters, _context, _many):
            statements.append(statement)

        event.listen(engine, "before_cursor_execute", count)
        started = _advance(metadata, segments, DELETE_STARTED, expiring)
        finished = _advance(metadata, started[:30], DELETE_FINISHED, expiring)
        event.remove(engine, "before_cursor_execute", count)
        assert len(statements) < 20
        assert [one.remote_log_segment_id for one in started] == [one.remote_log_segment_id for one in segments]
        assert {one.state for one in finished} == {DELETE_FINISHED}
        assert len(_states(metadata, partition)) == 10
        _require_exact_counters(metadata, partition)
        assert metadata.highest_copied_offset(partition) == 3_999

    def test_repeating_is_harmless(self, metadata, partition, copying, expiring):
        segment = finish(metadata, segment_of(partition, 1, 0, 99), copying)
        first = _advance(metadata, [segment], DELETE_STARTED, expiring)
        assert _advance(metadata, [segment], DELETE_STARTED, expiring) == first
        gone = _advance(metadata, first, DELETE_FINISHED, expiring)
        assert _advance(metadata, first, DELETE_FINISHED, expiring) == gone
        _require_exact_counters(metadata, partition)

    def test_copies_and_abandoned_copies_together(self, metadata, partition, copying, expiring):
        complete = finish(metadata, segment_of(partition, 1, 0, 99), copying)
        abandoned, finished_meanwhile = (segment_of(partition, n, 100, 199) for n in (2, 3))
        metadata.add_segment(abandoned, fence=copying)
        finish(metadata, finished_meanwhile, copying)
        unknown = segment_of(partition, 9, 300, 399)
        advanced = _advance(metadata, [complete, abandoned, finished_meanwhile, unknown], DELETE_STARTED, expiring)
        assert [one.remote_log_segment_id for one in advanced] == [
            complete.remote_log_segment_id,
            abandoned.remote_log_segment_id,
        ]
        assert metadata.segment(finished_meanwhile.remote_log_segment_id).metadata.is_finished
        _require_exact_counters(metadata, partition)

    def test_only_steps_of_a_deletion(self, metadata, partition, copying, expiring):
        segment = finish(metadata, segment_of(partition, 1, 0, 99), copying)
        for state in (STARTED, FINISHED, DELETE_FINISHED):
            with pytest.raises(IllegalTransitionError):
                _advance(metadata, [segment], state, expiring)
        assert _states(metadata, partition) == {0: FINISHED}

    def test_nothing_of_another_partition(self, metadata, copying, expiring):
        with pytest.raises(ValueError, match="does not hold"):
            _advance(metadata, [segment_of(partition_of("orders", 4), 1, 0, 99)], DELETE_STARTED, expiring)

    def test_a_failed_segment_that_goes_lets_the_partition_go_on(self, metadata, partition, copying, expiring):
        segment = finish(metadata, segment_of(partition, 1, 0, 99), copying)
        metadata.record_verdict(segment.remote_log_segment_id, Verdict.FAILED)
        _advance(metadata, [segment], DELETE_STARTED, expiring)
        assert metadata.stopped_reason(partition) is None

    def test_custom_metadata_stays(self, metadata, partition, copying, expiring):
        segment = segment_of(partition, 1, 0, 99)
        metadata.add_segment(segment, fence=copying)
        finished = metadata.update_segment(
            update_of(segment, FINISHED, custom_metadata=b"where"), expected=STARTED, fence=copying
        )
        (deleting,) = _advance(metadata, [finished], DELETE_STARTED, expiring)
        assert deleting == metadata.segment(segment.remote_log_segment_id).metadata
        assert deleting.custom_metadata == b"where"


class TestRetentionState:
    def test_of_a_partition_that_nobody_dealt_with(self, metadata, partition):
        assert metadata.retention_state(partition) == PartitionRetentionState(0, LeaderEpochs())

    def test_the_log_start_only_rises_and_says_why(self, metadata, engine, partition):
        assert metadata.raise_log_start(partition, 50, reason="delete-records", author="me@host") == 50
        assert metadata.raise_log_start(partition, 20, reason="a mistake", author="me@host") == 50
        assert metadata.retention_state(partition).log_start_offset == 50
        with engine.connect() as connection:
            (row,) = connection.execute(select(events.c.kind, events.c.detail, events.c.author))
        assert tuple(row) == ("log-start", "0 -> 50: delete-records", "me@host")

    def test_a_lost_lease_raises_nothing(self, metadata, engine, partition, expiring):
        expire_lease_of(engine, partition, "run-2", take_over=expiring)
        with pytest.raises(LeaseLostError):
            metadata.raise_log_start(partition, 50, reason="time", author="expire", fence=expiring)
        assert metadata.retention_state(partition).log_start_offset == 0

    def test_a_finished_segment_brings_its_epochs(self, metadata, partition, copying):
        finish(metadata, segment_of(partition, 1, 0, 99, {0: 0, 2: 60}), copying)
        metadata.add_segment(segment_of(partition, 2, 100, 199, {5: 100}), fence=copying)
        assert metadata.retention_state(partition).leader_epochs == LeaderEpochs.of([(0, 0), (2, 60)])

    def test_what_a_broker_forgets_stays(self, metadata, engine, partition):
        metadata.merge_leader_epochs(partition, LeaderEpochs.of([(0, 0), (3, 120)]), 0)
        assert metadata.merge_leader_epochs(partition, LeaderEpochs.of([(3, 150), (4, 200)]), 150) == ()
        history = LeaderEpochs.of([(0, 0), (3, 120), (4, 200)])
        assert metadata.retention_state(partition).leader_epochs == history
        with engine.connect() as connection:
            assert connection.execute(select(events)).all() == []

    def test_a_contradiction_leaves_an_event_once(self, metadata, engine, partition):
        metadata.merge_leader_epochs(partition, LeaderEpochs.of([(0, 0), (3, 120)]), 0)
        rewritten = LeaderEpochs.of([(0, 0), (4, 100)])
        assert metadata.merge_leader_epochs(partition, rewritten, 0)
        metadata.merge_leader_epochs(partition, rewritten, 0)
        assert metadata.retention_state(partition).leader_epochs == rewritten
        with engine.connect() as connection:
            (row,) = connection.execute(select(events.c.kind, events.c.detail))
        assert row.kind == "leader-epochs"
        assert "epoch 3 from offset 120" in row.detail


# What every implementation does when a new copy takes the place of a failed segment, and what it refuses.


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
        ({"offsets": (0, 98)}, r"has offsets 0\.\.99, .* 0\.\.98$"),
        ({"offsets": (1, 99)}, r"has offsets 0\.\.99, .* 1\.\.99$"),
        ({"offsets": (0, 100)}, r"has offsets 0\.\.99, .* 0\.\.100$"),
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
    with pytest.raises(StateConflictError, match="of different partitions"):
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
