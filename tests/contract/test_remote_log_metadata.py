"""What every implementation of `RemoteLogMetadata` does, over each database."""

from typing import Any

import pytest
from sqlalchemy import insert, update

from include.tiering.database.schema import stores
from include.tiering.errors import IllegalTransitionError, LeaseLostError, StateConflictError, UnknownSegmentError
from include.tiering.model.ownership import Fence
from include.tiering.model.segments import RemoteLogSegmentMetadata, RemoteLogSegmentState, TopicIdPartition, Verdict
from include.tiering.runs.store import SqlWorkStore
from include.tiering.segments.contract import RemoteLogMetadata
from include.tiering.segments.sql import SqlRemoteLogMetadata
from tests.doubles.segments import (
    CLUSTER_ID,
    DELETE_FINISHED,
    DELETE_STARTED,
    FINISHED,
    STARTED,
    delete,
    fence_of,
    finish,
    lease_of,
    partition_of,
    segment_of,
    update_of,
    uuid,
)


def _in_state(
    metadata: RemoteLogMetadata, segment: RemoteLogSegmentMetadata, state: RemoteLogSegmentState, fence: Fence
) -> None:
    metadata.add_segment(segment, fence=fence)
    path = {
        STARTED: [],
        FINISHED: [FINISHED],
        DELETE_STARTED: [FINISHED, DELETE_STARTED],
        DELETE_FINISHED: [FINISHED, DELETE_STARTED, DELETE_FINISHED],
    }[state]
    before = STARTED
    for after in path:
        metadata.update_segment(update_of(segment, after), expected=before, fence=fence)
        before = after


class TestAddSegment:
    def test_keeps_every_value(self, metadata, partition, fence):
        segment = segment_of(partition, 1, 10, 99, {2: 10, 3: 50, 7: 99}, size_bytes=2**31 - 1)
        metadata.add_segment(segment, fence=fence, log_crc32c=0xFFFFFFFF, source_fingerprint="inode 5")
        row = metadata.segment(segment.remote_log_segment_id)
        assert row.metadata == segment
        assert row.metadata.topic_id_partition.topic == "orders"
        assert (row.log_crc32c, row.source_fingerprint, row.verdict) == (0xFFFFFFFF, "inode 5", Verdict.NONE)

    def test_says_where_the_archive_ends(self, metadata, partition, fence):
        """FINISHED segments of the partition count, also under epochs that the new one has not."""
        first, second = segment_of(partition, 1, 0, 99, {4: 0}), segment_of(partition, 2, 100, 199, {5: 100})
        assert metadata.add_segment(first, fence=fence) is None
        finished = update_of(first, FINISHED)
        metadata.update_segment(finished, expected=STARTED, fence=fence)
        assert metadata.add_segment(second, fence=fence) == 99
        assert metadata.add_segment(second, fence=fence) == 99

    def test_repeating_is_harmless(self, metadata, partition, fence):
        segment = segment_of(partition, 1, 0, 99)
        metadata.add_segment(segment, fence=fence, log_crc32c=7)
        metadata.add_segment(segment, fence=fence, log_crc32c=7)
        assert [row.metadata for row in metadata.list_segments(partition)] == [segment]

    def test_the_same_id_with_other_values_is_refused(self, metadata, partition, fence):
        metadata.add_segment(segment_of(partition, 1, 0, 99), fence=fence)
        with pytest.raises(IllegalTransitionError, match="differs from the new segment"):
            metadata.add_segment(segment_of(partition, 1, 0, 100), fence=fence)
        with pytest.raises(IllegalTransitionError):
            metadata.add_segment(segment_of(partition, 1, 0, 99), fence=fence, log_crc32c=1)

    @pytest.mark.parametrize("state", [FINISHED, DELETE_STARTED, DELETE_FINISHED])
    def test_begins_only_as_started(self, metadata, partition, fence, state):
        with pytest.raises(IllegalTransitionError, match=state.name):
            metadata.add_segment(segment_of(partition, 1, 0, 99, state=state), fence=fence)
        assert metadata.list_segments(partition) == []

    @pytest.mark.parametrize("state", [FINISHED, DELETE_STARTED, DELETE_FINISHED])
    def test_an_id_never_begins_again(self, metadata, partition, fence, state):
        segment = segment_of(partition, 1, 0, 99)
        _in_state(metadata, segment, state, fence)
        with pytest.raises(IllegalTransitionError, match=state.name):
            metadata.add_segment(segment, fence=fence)

    def test_custom_metadata_may_be_any_bytes(self, metadata, partition, fence):
        segment = segment_of(partition, 1, 0, 99)
        metadata.add_segment(segment, fence=fence)
        metadata.update_segment(
            update_of(segment, FINISHED, custom_metadata=b"\x00\xff"), expected=STARTED, fence=fence
        )
        assert metadata.segment(segment.remote_log_segment_id).metadata.custom_metadata == b"\x00\xff"


class TestUpdateSegment:
    @pytest.mark.parametrize("source", list(RemoteLogSegmentState))
    @pytest.mark.parametrize("target", list(RemoteLogSegmentState))
    def test_every_edge(self, metadata, partition, fence, source, target):
        segment = segment_of(partition, 1, 0, 99)
        _in_state(metadata, segment, source, fence)
        if source.may_become(target):
            updated = metadata.update_segment(update_of(segment, target), expected=source, fence=fence)
            assert updated.state is target
            assert metadata.segment(segment.remote_log_segment_id).metadata == updated
        else:
            with pytest.raises(IllegalTransitionError, match=f"{source.name} may not become {target.name}"):
                metadata.update_segment(update_of(segment, target), expected=source, fence=fence)
            assert metadata.segment(segment.remote_log_segment_id).metadata.state is source

    def test_replaces_broker_time_custom_metadata_and_state_only(self, metadata, partition, fence):
        segment = segment_of(partition, 1, 0, 99, {1: 0, 2: 50})
        metadata.add_segment(segment, fence=fence)
        change = update_of(segment, FINISHED, custom_metadata=b"where")
        assert metadata.update_segment(change, expected=STARTED, fence=fence) == segment.with_update(change)
        gone = update_of(segment, DELETE_STARTED)
        assert metadata.update_segment(gone, expected=FINISHED, fence=fence).custom_metadata is None

    def test_repeating_a_change_that_was_made_is_harmless(self, metadata, partition, fence):
        segment = segment_of(partition, 1, 0, 99)
        finished = finish(metadata, segment, fence)
        assert metadata.update_segment(update_of(segment, FINISHED), expected=STARTED, fence=fence) == finished
        assert metadata.remote_log_size(partition, 0) == segment.segment_size_bytes

    def test_staying_in_a_state_on_purpose_replaces_the_values(self, metadata, partition, fence):
        segment = segment_of(partition, 1, 0, 99)
        finished = finish(metadata, segment, fence)
        change = update_of(segment, FINISHED, custom_metadata=b"later")
        assert metadata.update_segment(change, expected=FINISHED, fence=fence) == finished.with_update(change)
        assert metadata.segment(segment.remote_log_segment_id).metadata.custom_metadata == b"later"
        assert metadata.remote_log_size(partition, 0) == segment.segment_size_bytes

    def test_loses_cleanly_against_another_change(self, metadata, partition, fence):
        segment = segment_of(partition, 1, 0, 99)
        _in_state(metadata, segment, DELETE_STARTED, fence)
        with pytest.raises(StateConflictError, match="is DELETE_SEGMENT_STARTED, not COPY_SEGMENT_STARTED"):
            metadata.update_segment(update_of(segment, FINISHED), expected=STARTED, fence=fence)

    def test_an_unknown_segment(self, metadata, partition, fence):
        with pytest.raises(UnknownSegmentError):
            metadata.update_segment(update_of(segment_of(partition, 9, 0, 1), FINISHED), expected=STARTED, fence=fence)
        assert metadata.segment(segment_of(partition, 9, 0, 1).remote_log_segment_id) is None


class TestFence:
    def test_without_a_lease_nothing_changes(self, metadata, partition):
        with pytest.raises(LeaseLostError):
            metadata.add_segment(segment_of(partition, 1, 0, 99), fence=Fence(partition, 1))
        assert metadata.partitions() == []

    def test_a_superseded_token_is_refused(self, metadata, engine, partition):
        old = lease_of(engine, partition)
        segment = segment_of(partition, 1, 0, 99)
        metadata.add_segment(segment, fence=old.fence)
        SqlWorkStore(engine, CLUSTER_ID).release(old)
        new = lease_of(engine, partition)
        assert new.fence.token > old.fence.token
        with pytest.raises(LeaseLostError, match=f"{old.fence.token} was superseded by {new.fence.token}"):
            metadata.update_segment(update_of(segment, FINISHED), expected=STARTED, fence=old.fence)
        assert metadata.segment(segment.remote_log_segment_id).metadata.state is STARTED
        assert metadata.update_segment(update_of(segment, FINISHED), expected=STARTED, fence=new.fence).is_finished

    def test_a_lease_that_was_given_back_is_refused(self, metadata, engine, partition):
        lease = lease_of(engine, partition)
        SqlWorkStore(engine, CLUSTER_ID).release(lease)
        with pytest.raises(LeaseLostError, match="given back"):
            metadata.add_segment(segment_of(partition, 1, 0, 99), fence=lease.fence)

    def test_an_expired_lease_holds_until_somebody_else_claims(self, metadata, engine, partition):
        lease = lease_of(engine, partition, lease_ms=-1)
        segment = segment_of(partition, 1, 0, 99)
        metadata.add_segment(segment, fence=lease.fence)
        lease_of(engine, partition, "run-2")
        with pytest.raises(LeaseLostError):
            metadata.update_segment(update_of(segment, FINISHED), expected=STARTED, fence=lease.fence)

    def test_a_fence_holds_for_its_partition_only(self, metadata, fence):
        with pytest.raises(ValueError, match="does not hold"):
            metadata.add_segment(segment_of(partition_of("orders", 4), 1, 0, 99), fence=fence)


class TestOrder:
    def test_finished_ends_ascend(self, metadata, partition, fence):
        finish(metadata, segment_of(partition, 1, 100, 199), fence)
        for number, (start, end) in enumerate([(0, 99), (100, 199), (150, 180)], start=2):
            late = segment_of(partition, number, start, end)
            metadata.add_segment(late, fence=fence)
            with pytest.raises(StateConflictError, match=f"{start}..{end} may not finish, offsets up to 199 did"):
                metadata.update_segment(update_of(late, FINISHED), expected=STARTED, fence=fence)
        assert metadata.highest_copied_offset(partition) == 199

    def test_a_start_may_overlap(self, metadata, partition, fence):
        """After a leader change the new leader's segment with the next offset is copied whole."""
        finish(metadata, segment_of(partition, 1, 0, 100), fence)
        assert finish(metadata, segment_of(partition, 2, 50, 150, {0: 50, 1: 101}), fence).is_finished
        assert metadata.highest_copied_offset(partition) == 150

    def test_deletion_does_not_lower_what_was_copied(self, metadata, partition, fence):
        segment = segment_of(partition, 1, 0, 99)
        finish(metadata, segment, fence)
        delete(metadata, segment, fence)
        assert metadata.highest_copied_offset(partition) == 99
        again = segment_of(partition, 2, 0, 99)
        metadata.add_segment(again, fence=fence)
        with pytest.raises(StateConflictError):
            metadata.update_segment(update_of(again, FINISHED), expected=STARTED, fence=fence)

    def test_other_partitions_do_not_count(self, metadata, engine, partition, fence):
        finish(metadata, segment_of(partition, 1, 100, 199), fence)
        other = partition_of("orders", 4)
        assert metadata.highest_copied_offset(other) is None
        assert finish(metadata, segment_of(other, 2, 0, 99), fence_of(engine, other)).is_finished


class TestLookups:
    def test_trace_of_two_segments_over_three_epochs(self, metadata, partition, fence):
        """Observed on Kafka's own cache."""
        a, b = segment_of(partition, 1, 0, 99, {0: 0, 1: 60}), segment_of(partition, 2, 100, 199, {1: 100, 2: 150})
        finish(metadata, a, fence)
        finish(metadata, b, fence)
        asked = [(0, 59), (0, 60), (1, 59), (1, 60), (1, 149), (1, 150), (2, 150), (2, 199), (2, 200)]
        found = [metadata.segment_for_offset(partition, *question) for question in asked]
        names = {a.remote_log_segment_id: "A", b.remote_log_segment_id: "B"}
        answers = [one and names[one.remote_log_segment_id] for one in found]
        assert answers == ["A", None, None, "A", "B", None, "B", "B", None]
        assert [metadata.highest_offset_for_epoch(partition, epoch) for epoch in (0, 1, 2, 3)] == [59, 149, 199, None]

    def test_trace_of_a_superset(self, metadata, partition, fence):
        """KAFKA-15168. Observed on Kafka's own cache: the longer copy answers and is listed before the shorter."""
        s0, s1 = segment_of(partition, 1, 0, 100), segment_of(partition, 2, 0, 200)
        finish(metadata, s0, fence)
        finish(metadata, s1, fence)
        for offset in (0, 100, 101, 200):
            found = metadata.segment_for_offset(partition, 0, offset)
            assert found.remote_log_segment_id == s1.remote_log_segment_id
        assert _numbers(metadata, partition, 0) == [s1.remote_log_segment_id, s0.remote_log_segment_id]

    def test_what_kafka_leaks_is_refused(self, metadata, partition, fence):
        """Kafka forgets A when A2 with the same start finishes after B, and never expires it."""
        a, b, a2 = (segment_of(partition, *one) for one in [(1, 0, 100), (2, 101, 200), (3, 0, 100)])
        finish(metadata, a, fence)
        finish(metadata, b, fence)
        metadata.add_segment(a2, fence=fence)
        with pytest.raises(StateConflictError):
            metadata.update_segment(update_of(a2, FINISHED), expected=STARTED, fence=fence)
        assert len(metadata.list_segments(partition, 0)) == len(metadata.list_segments(partition)) == 3

    def test_an_overlap_is_answered_by_the_newer_segment(self, metadata, partition, fence):
        """KAFKA-15168: after a change of the leader a shorter copy must not answer where it has nothing more."""
        old, new = segment_of(partition, 1, 0, 100), segment_of(partition, 2, 50, 150)
        finish(metadata, old, fence)
        finish(metadata, new, fence)
        for offset, expected in [(49, old), (50, new), (100, new), (150, new)]:
            found = metadata.segment_for_offset(partition, 0, offset)
            assert found.remote_log_segment_id == expected.remote_log_segment_id

    def test_a_gap_answers_none(self, metadata, partition, fence):
        finish(metadata, segment_of(partition, 1, 0, 99), fence)
        finish(metadata, segment_of(partition, 2, 200, 299), fence)
        assert metadata.segment_for_offset(partition, 0, 150) is None
        assert metadata.segment_for_offset(partition, 0, 300) is None
        assert metadata.highest_offset_for_epoch(partition, 0) == 299

    @pytest.mark.parametrize("state", [STARTED, DELETE_STARTED, DELETE_FINISHED])
    def test_only_finished_segments_answer(self, metadata, partition, fence, state):
        """KAFKA-15802."""
        _in_state(metadata, segment_of(partition, 1, 0, 99), state, fence)
        assert metadata.segment_for_offset(partition, 0, 50) is None
        assert metadata.remote_log_size(partition, 0) == 0

    def test_started_segments_raise_no_highest_offset(self, metadata, partition, fence):
        metadata.add_segment(segment_of(partition, 1, 0, 99), fence=fence)
        assert metadata.highest_offset_for_epoch(partition, 0) is None
        assert metadata.highest_copied_offset(partition) is None

    def test_deletion_lowers_no_highest_offset(self, metadata, partition, fence):
        segment = segment_of(partition, 1, 0, 99)
        finish(metadata, segment, fence)
        delete(metadata, segment, fence)
        assert metadata.highest_offset_for_epoch(partition, 0) == 99

    def test_an_epoch_without_a_record_is_listed_and_holds_nothing(self, metadata, partition, fence):
        segment = segment_of(partition, 1, 10, 99, {0: 10, 1: 10, 2: 50})
        finish(metadata, segment, fence)
        assert len(metadata.list_segments(partition, 0)) == 1
        assert metadata.segment_for_offset(partition, 0, 10) is None
        assert metadata.segment_for_offset(partition, 1, 10) is not None
        assert metadata.highest_offset_for_epoch(partition, 0) is None


def _numbers(metadata: RemoteLogMetadata, partition: TopicIdPartition, leader_epoch: int | None = None) -> list[Any]:
    return [row.metadata.remote_log_segment_id for row in metadata.list_segments(partition, leader_epoch)]


class TestLists:
    def test_by_start_offset_then_what_answers_then_arrival(self, metadata, partition, fence):
        abandoned_copies = [segment_of(partition, number, 100, 199) for number in (5, 4)]
        for abandoned in abandoned_copies:
            metadata.add_segment(abandoned, fence=fence)
        first, second = segment_of(partition, 1, 0, 99), segment_of(partition, 2, 100, 199)
        finish(metadata, first, fence)
        finish(metadata, second, fence)
        assert _numbers(metadata, partition) == [
            one.remote_log_segment_id for one in (first, second, abandoned_copies[0], abandoned_copies[1])
        ]

    def test_hides_tombstones_only(self, metadata, partition, fence):
        for number, state in enumerate(RemoteLogSegmentState):
            _in_state(metadata, segment_of(partition, number, 100 * number, 100 * number + 99), state, fence)
        states = [row.metadata.state for row in metadata.list_segments(partition)]
        assert states == [STARTED, FINISHED, DELETE_STARTED]
        assert [row.metadata.state for row in metadata.list_segments(partition, 0)] == states
        assert metadata.segment(segment_of(partition, 3, 300, 399).remote_log_segment_id) is not None

    def test_by_leader_epoch(self, metadata, partition, fence):
        finish(metadata, segment_of(partition, 1, 0, 99, {0: 0, 1: 60}), fence)
        finish(metadata, segment_of(partition, 2, 100, 199, {1: 100, 2: 150}), fence)
        assert [len(metadata.list_segments(partition, epoch)) for epoch in range(4)] == [1, 2, 1, 0]

    def test_partitions_by_topic_and_number(self, metadata, engine):
        for topic, number in [("b", 0), ("a", 10), ("a", 2)]:
            partition = partition_of(topic, number)
            metadata.add_segment(segment_of(partition, 1, 0, 9), fence=fence_of(engine, partition))
        assert [str(one) for one in metadata.partitions()] == ["a-2", "a-10", "b-0"]

    def test_a_partition_of_tombstones_is_not_listed(self, metadata, partition, fence):
        _in_state(metadata, segment_of(partition, 1, 0, 9), DELETE_FINISHED, fence)
        assert metadata.partitions() == []

    def test_a_recreated_topic_is_another_topic(self, metadata, engine):
        old, new = partition_of("orders", 0, topic_number=1), partition_of("orders", 0, topic_number=2)
        finish(metadata, segment_of(old, 1, 0, 99), fence_of(engine, old))
        assert metadata.list_segments(new) == []
        assert metadata.highest_copied_offset(new) is None
        assert metadata.segment_for_offset(new, 0, 5) is None

    def test_clusters_do_not_see_each_other(self, metadata, engine, partition, fence):
        finish(metadata, segment_of(partition, 1, 0, 99), fence)
        other = SqlRemoteLogMetadata(engine, "another-cluster")
        assert other.partitions() == []
        assert other.partition_sizes() == []
        assert other.segment(segment_of(partition, 1, 0, 99).remote_log_segment_id) is None

    def test_segments_of_a_run(self, metadata, engine, partition):
        lease = lease_of(engine, partition, "run-7")
        one, two = segment_of(partition, 1, 0, 99), segment_of(partition, 2, 0, 99)
        _in_state(metadata, one, DELETE_FINISHED, lease.fence)
        metadata.add_segment(two, fence=lease.fence)
        found = [row.metadata.remote_log_segment_id for row in metadata.segments_of_run("run-7")]
        assert found == [one.remote_log_segment_id, two.remote_log_segment_id]
        assert metadata.segments_of_run("run-8") == []

    def test_unverified_segments(self, metadata, partition, fence):
        verified, unevaluated = segment_of(partition, 1, 0, 99), segment_of(partition, 2, 100, 199)
        for segment in (verified, unevaluated):
            finish(metadata, segment, fence)
        metadata.add_segment(segment_of(partition, 3, 200, 299), fence=fence)
        metadata.record_verdict(verified.remote_log_segment_id, Verdict.PASSED)
        found = [row.metadata.remote_log_segment_id for row in metadata.unverified_segments()]
        assert found == [unevaluated.remote_log_segment_id]


class TestSizes:
    def test_a_segment_that_spans_epochs_counts_once_in_the_total(self, metadata, partition, fence):
        finish(metadata, segment_of(partition, 1, 0, 99, {0: 0, 1: 60}, size_bytes=10), fence)
        finish(metadata, segment_of(partition, 2, 100, 199, {1: 100}, size_bytes=5), fence)
        metadata.add_segment(segment_of(partition, 3, 200, 299, {1: 200}, size_bytes=1_000), fence=fence)
        (size,) = metadata.partition_sizes(partition)
        assert (size.size_bytes, size.segments) == (15, 2)
        epochs = [(epoch.leader_epoch, epoch.size_bytes, epoch.segments) for epoch in size.leader_epochs]
        assert epochs == [(0, 10, 1), (1, 15, 2)]
        assert [metadata.remote_log_size(partition, epoch) for epoch in (0, 1, 2)] == [10, 15, 0]

    def test_a_deleted_segment_does_not_count(self, metadata, partition, fence):
        segment = segment_of(partition, 1, 0, 99)
        finish(metadata, segment, fence)
        metadata.update_segment(update_of(segment, DELETE_STARTED), expected=FINISHED, fence=fence)
        assert metadata.remote_log_size(partition, 0) == 0
        assert metadata.partition_sizes() == []

    def test_all_partitions(self, metadata, engine):
        for number in (1, 0):
            partition = partition_of("orders", number)
            finish(metadata, segment_of(partition, number, 0, 99, size_bytes=number + 1), fence_of(engine, partition))
        sizes = metadata.partition_sizes()
        assert [(str(one.topic_id_partition), one.size_bytes) for one in sizes] == [("orders-0", 1), ("orders-1", 2)]


class TestVerdicts:
    def test_is_kept_beside_the_state(self, metadata, partition, fence):
        segment = segment_of(partition, 1, 0, 99)
        finish(metadata, segment, fence)
        metadata.record_verdict(segment.remote_log_segment_id, Verdict.PASSED, detail="all rules")
        row = metadata.segment(segment.remote_log_segment_id)
        assert (row.verdict, row.verdict_detail, row.metadata.state) == (Verdict.PASSED, "all rules", FINISHED)
        assert metadata.stopped_reason(partition) is None

    def test_a_failed_segment_stops_its_partition(self, metadata, partition, fence):
        segment, following = segment_of(partition, 1, 0, 99), segment_of(partition, 2, 100, 199)
        finish(metadata, segment, fence)
        metadata.record_verdict(segment.remote_log_segment_id, Verdict.FAILED, detail="size\x00differs\n")
        reason = metadata.stopped_reason(partition)
        assert str(segment.remote_log_segment_id.id) in reason
        assert "0..99" in reason
        assert "size\\x00differs\\n" in reason
        metadata.add_segment(following, fence=fence)
        with pytest.raises(StateConflictError, match="is stopped"):
            metadata.update_segment(update_of(following, FINISHED), expected=STARTED, fence=fence)
        metadata.record_verdict(segment.remote_log_segment_id, Verdict.PASSED)
        assert metadata.stopped_reason(partition) is None
        metadata.update_segment(update_of(following, FINISHED), expected=STARTED, fence=fence)

    def test_a_new_copy_supersedes_a_failed_segment(self, metadata, partition, fence):
        failed, later, again = (segment_of(partition, *one) for one in [(1, 0, 99), (2, 100, 199), (3, 0, 99)])
        finish(metadata, failed, fence)
        finish(metadata, later, fence)
        metadata.record_verdict(failed.remote_log_segment_id, Verdict.FAILED)
        metadata.add_segment(again, fence=fence)
        superseding = {"expected": STARTED, "fence": fence, "supersedes": failed.remote_log_segment_id}
        assert metadata.update_segment(update_of(again, FINISHED), **superseding).is_finished
        assert metadata.update_segment(update_of(again, FINISHED), **superseding).is_finished
        assert metadata.segment(failed.remote_log_segment_id).metadata.state is DELETE_STARTED
        assert metadata.stopped_reason(partition) is None
        found = metadata.segment_for_offset(partition, 0, 50)
        assert found.remote_log_segment_id == again.remote_log_segment_id
        assert metadata.highest_copied_offset(partition) == 199
        assert metadata.remote_log_size(partition, 0) == 2_000

    @pytest.mark.parametrize(("verdict", "offsets"), [(Verdict.PASSED, (0, 99)), (Verdict.FAILED, (0, 150))])
    def test_only_a_failed_segment_of_the_same_offsets_is_superseded(
        self, metadata, partition, fence, verdict, offsets
    ):
        old, new = segment_of(partition, 1, 0, 99), segment_of(partition, 2, *offsets)
        finish(metadata, old, fence)
        metadata.record_verdict(old.remote_log_segment_id, verdict)
        metadata.add_segment(new, fence=fence)
        with pytest.raises(StateConflictError):
            metadata.update_segment(
                update_of(new, FINISHED), expected=STARTED, fence=fence, supersedes=old.remote_log_segment_id
            )
        assert metadata.segment(old.remote_log_segment_id).metadata.is_finished
        assert metadata.segment(new.remote_log_segment_id).metadata.state is STARTED

    def test_deleting_the_failed_segment_lets_the_partition_go_on(self, metadata, partition, fence):
        segment = segment_of(partition, 1, 0, 99)
        finish(metadata, segment, fence)
        metadata.record_verdict(segment.remote_log_segment_id, Verdict.FAILED)
        metadata.update_segment(update_of(segment, DELETE_STARTED), expected=FINISHED, fence=fence)
        assert metadata.stopped_reason(partition) is None

    def test_an_unknown_segment(self, metadata, partition):
        with pytest.raises(UnknownSegmentError):
            metadata.record_verdict(segment_of(partition, 1, 0, 9).remote_log_segment_id, Verdict.PASSED)


def test_is_ready_at_head(metadata, partition):
    assert metadata.is_ready(partition)


def test_is_not_ready_during_a_rebuild(engine, metadata, partition):
    store = {"cluster_id": CLUSTER_ID, "store_id": str(uuid(1)), "generation": 1, "created_at_ms": 1}
    with engine.begin() as connection:
        connection.execute(insert(stores), {**store, "rebuilding_since_ms": 1})
    assert not metadata.is_ready(partition)
    with engine.begin() as connection:
        connection.execute(update(stores).values(rebuilding_since_ms=None))
    assert metadata.is_ready(partition)


def test_the_contract_itself_says_ready(metadata, partition):
    """For an implementation that knows nothing else."""
    assert RemoteLogMetadata.is_ready(metadata, partition)
