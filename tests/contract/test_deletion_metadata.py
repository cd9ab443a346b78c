"""What every implementation of `RemoteLogMetadata` does for deletions and for the retention state of partitions."""

import pytest
from sqlalchemy import Engine, event, select

from include.tiering.database.schema import events
from include.tiering.errors import IllegalTransitionError, LeaseLostError, StateConflictError
from include.tiering.model.leader_epochs import LeaderEpochs
from include.tiering.model.ownership import Fence, LeaseRole
from include.tiering.model.segments import TopicIdPartition, Verdict
from include.tiering.model.sizes import partition_size
from include.tiering.segments.contract import PartitionRetentionState
from tests.doubles.segments import (
    DELETE_FINISHED,
    DELETE_STARTED,
    FINISHED,
    STARTED,
    expire_lease_of,
    fence_of,
    finish,
    partition_of,
    segment_of,
    update_of,
)

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
        with pytest.raises(LeaseLostError, match="nobody was ever given a lease to expire"):
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
