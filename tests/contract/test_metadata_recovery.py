"""Metadata that come from a store: an empty database is marked, filled and released; single copies are adopted."""

from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import Engine, func, select

from include.tiering.database.schema import events, partitions, segments, topics
from include.tiering.database.store_identity import StoreIdentities, is_being_rebuilt, known_clusters, require_whole
from include.tiering.errors import IllegalTransitionError, LeaseLostError, MetadataUnavailableError, StateConflictError
from include.tiering.model.histories import OffsetRange, SeenBy
from include.tiering.model.leader_epochs import LeaderEpochs
from include.tiering.model.ownership import Fence, StoreMarker, StorePlace, TopicOwner
from include.tiering.model.recovered_log import recovered_log
from include.tiering.model.segments import Verdict
from include.tiering.recovery.contract import RecoveredPartition, StoredSegment
from include.tiering.recovery.sql_recovery import SqlMetadataRecovery
from include.tiering.segments.contract import RemoteLogMetadata
from include.tiering.segments.sql_topics import SqlTopicRegistry
from tests.doubles.databases import AdjustableNow
from tests.doubles.segments import (
    CLUSTER_ID,
    FINISHED,
    delete,
    fence_of,
    finish,
    lease_of,
    partition_of,
    segment_of,
    uuid,
)

FOUND = StoreMarker(CLUSTER_ID, str(uuid(1)), 3)
ORDERS_0 = partition_of()
PLACE = StorePlace("file:///store", "aiven", "")


@pytest.fixture
def recovery(engine: Engine, now: AdjustableNow) -> SqlMetadataRecovery:
    return SqlMetadataRecovery(engine, CLUSTER_ID, now_ms=now)


def stored(number: int, start: int, end: int, epochs: dict[int, int] | None = None) -> StoredSegment:
    return StoredSegment(segment_of(ORDERS_0, number, start, end, epochs), 1_000 + number)


SEGMENTS = (stored(0, 0, 99), stored(1, 100, 199, {0: 100, 2: 150}), stored(2, 300, 399, {2: 300}))


def next_of(number: int) -> StoreMarker:
    """What is to follow the marker that was found."""
    return StoreMarker(CLUSTER_ID, str(uuid(number)), FOUND.generation + 1, str(uuid(100 + number)), PLACE)


def recovered(partition=ORDERS_0, segments=SEGMENTS) -> RecoveredPartition:
    epochs = LeaderEpochs.of([(0, 0), (2, 150)])
    return RecoveredPartition(partition, segments, epochs, (OffsetRange(200, 299),), "what was found")


def rows(engine: Engine, query: Any) -> list[Any]:
    with engine.connect() as connection:
        return list(connection.execute(query))


class TestRebuild:
    def test_an_empty_database_is_marked_and_serves_nobody_until_it_is_whole(
        self, recovery: SqlMetadataRecovery, engine: Engine
    ) -> None:
        assert recovery.begun(FOUND) is None
        marker = recovery.begin(FOUND, next_of(2), author="me")
        assert marker == StoreMarker(CLUSTER_ID, str(uuid(2)), 4, str(uuid(102)))
        stored_marker = StoreIdentities(engine, CLUSTER_ID).accepted()
        assert (stored_marker.current, stored_marker.current.place) == (marker, PLACE)
        assert is_being_rebuilt(engine)
        with pytest.raises(MetadataUnavailableError, match="tiering rebuild to continue"):
            require_whole(engine)
        recovery.finish(author="me")
        assert not is_being_rebuilt(engine)
        require_whole(engine)
        assert known_clusters(engine) == [CLUSTER_ID]

    def test_it_goes_on_as_it_was_begun(self, recovery: SqlMetadataRecovery) -> None:
        marker = recovery.begin(FOUND, next_of(2), author="me")
        assert recovery.begun(FOUND) == marker
        assert recovery.begin(FOUND, next_of(3), author="me") == marker
        assert recovery.begin(marker, next_of(4), author="me") == marker

    def test_one_with_rows_is_refused_with_their_numbers(
        self, recovery: SqlMetadataRecovery, engine: Engine, metadata: RemoteLogMetadata
    ) -> None:
        finish(metadata, segment_of(ORDERS_0, 1, 0, 99), fence_of(engine, ORDERS_0))
        for call in (lambda: recovery.begin(FOUND, next_of(2), author="me"), lambda: recovery.begun(FOUND)):
            with pytest.raises(StateConflictError, match=r"not empty \(rows: .*partitions 1, .*segments 1, .*topics 1"):
                call()
        assert StoreIdentities(engine, CLUSTER_ID).read() is None

    def test_one_that_was_set_up_is_not_empty(self, recovery: SqlMetadataRecovery, engine: Engine) -> None:
        StoreIdentities(engine, CLUSTER_ID).create(uuid(7))
        with pytest.raises(StateConflictError, match="stores 1"):
            recovery.begin(FOUND, next_of(2), author="me")

    def test_one_that_is_rebuilt_for_another_cluster_is_refused(self, recovery: SqlMetadataRecovery) -> None:
        recovery.begin(FOUND, next_of(2), author="me")
        with pytest.raises(StateConflictError, match="is being rebuilt for cluster"):
            recovery.begin(replace(FOUND, cluster_id="another"), next_of(2), author="me")

    def test_later_histories_are_decisions_and_the_newest_one_goes_on(
        self, recovery: SqlMetadataRecovery, engine: Engine, metadata: RemoteLogMetadata
    ) -> None:
        old = (stored(0, 0, 99), stored(1, 100, 199))
        new = (stored(2, 50, 149, {0: 50, 3: 80}),)
        log = recovered_log([one.metadata for one in (*old, *new)])
        found = RecoveredPartition(
            ORDERS_0, (*old, *new), LeaderEpochs.of([(0, 0), (3, 80)]), (), "", log.decided, log.histories
        )
        recovery.begin(FOUND, next_of(2), author="me")
        for _ in range(2):
            recovery.add_partition(found, author="me")
        recovery.finish(author="me")
        assert {row.metadata.start_offset: row.history for row in metadata.list_segments(ORDERS_0)} == {
            0: 0,
            100: 0,
            50: 1,
        }
        (decided,) = metadata.divergences(ORDERS_0)
        assert (decided.number, decided.seen.offsets, decided.seen.seen_by) == (1, OffsetRange(80, 199), SeenBy.REBUILD)
        assert decided.followed is not None
        assert (decided.followed.from_offset, decided.followed.author) == (80, "me")
        assert metadata.highest_copied_offset(ORDERS_0) == 149
        SqlTopicRegistry(engine, CLUSTER_ID).set_owner(
            ORDERS_0.topic_id, ORDERS_0.topic, TopicOwner.PLATFORM, expected=TopicOwner.NONE, author="test"
        )
        finish(metadata, segment_of(ORDERS_0, 5, 150, 249, {3: 150}), fence_of(engine, ORDERS_0))
        assert metadata.highest_copied_offset(ORDERS_0) == 249

    def test_a_partition_is_there_with_all_that_belongs_to_it(
        self, recovery: SqlMetadataRecovery, engine: Engine, metadata: RemoteLogMetadata, now: AdjustableNow
    ) -> None:
        recovery.begin(FOUND, next_of(2), author="me")
        recovery.add_partition(recovered(), author="me")
        found = metadata.list_segments(ORDERS_0)
        assert [row.metadata for row in found] == [replace(one.metadata, state=FINISHED) for one in SEGMENTS]
        assert [row.log_crc32c for row in found] == [one.log_crc32c for one in SEGMENTS]
        assert {(row.verdict, row.finished_at_ms) for row in found} == {(Verdict.NONE, now.now_ms)}
        assert metadata.retention_state(ORDERS_0).leader_epochs == LeaderEpochs.of([(0, 0), (2, 150)])
        assert metadata.retention_state(ORDERS_0).log_start_offset == 0
        assert metadata.highest_copied_offset(ORDERS_0) == 399
        assert metadata.highest_offset_for_epoch(ORDERS_0, 0) == 149
        assert [one.size_bytes for one in metadata.partition_sizes(ORDERS_0)] == [3_000]
        assert metadata.remote_log_size(ORDERS_0, 2) == 2_000
        assert metadata.segment_for_offset(ORDERS_0, 2, 160) == found[1].metadata
        assert metadata.segment_for_offset(ORDERS_0, 0, 160) is None
        (decision,) = metadata.skipped_offsets(ORDERS_0)
        assert (decision.offsets, decision.author) == (OffsetRange(200, 299), "me")
        assert metadata.stopped_reason(ORDERS_0) is None
        assert SqlTopicRegistry(engine, CLUSTER_ID).owner(ORDERS_0.topic_id) is TopicOwner.NONE
        said = rows(engine, select(events.c.kind, events.c.subject, events.c.author).order_by(events.c.event_id))
        assert said[1:] == [("rebuild", f"{ORDERS_0} ({ORDERS_0.topic_id})", "me")]

    def test_a_partition_that_is_there_stays_as_it_is(self, recovery: SqlMetadataRecovery, engine: Engine) -> None:
        recovery.begin(FOUND, next_of(2), author="me")
        recovery.add_partition(recovered(), author="me")
        before = rows(engine, select(segments)), rows(engine, select(partitions)), rows(engine, select(events))
        recovery.add_partition(recovered(segments=SEGMENTS[:1]), author="you")
        assert (
            rows(engine, select(segments)),
            rows(engine, select(partitions)),
            rows(engine, select(events)),
        ) == before
        assert recovery.recovered() == {ORDERS_0: 3}

    def test_a_topic_that_was_created_again_is_another_topic(
        self, recovery: SqlMetadataRecovery, engine: Engine
    ) -> None:
        again = partition_of(topic_number=77)
        segment = StoredSegment(segment_of(again, 0, 0, 99), 1)
        recovery.begin(FOUND, next_of(2), author="me")
        recovery.add_partition(recovered(), author="me")
        recovery.add_partition(RecoveredPartition(again, (segment,), LeaderEpochs(), (), ""), author="me")
        assert recovery.recovered() == {ORDERS_0: 3, again: 1}
        assert rows(engine, select(topics.c.name, func.count()).group_by(topics.c.name)) == [("orders", 2)]

    def test_nothing_is_added_to_a_database_that_is_not_rebuilt(
        self, recovery: SqlMetadataRecovery, engine: Engine
    ) -> None:
        with pytest.raises(StateConflictError, match="not being rebuilt"):
            recovery.add_partition(recovered(), author="me")
        recovery.begin(FOUND, next_of(2), author="me")
        recovery.finish(author="me")
        for call in (
            lambda: recovery.add_partition(recovered(), author="me"),
            lambda: recovery.finish(author="me"),
        ):
            with pytest.raises(StateConflictError, match="not being rebuilt"):
                call()
        assert rows(engine, select(segments)) == []

    def test_copies_go_on_behind_what_was_rebuilt(
        self, recovery: SqlMetadataRecovery, engine: Engine, metadata: RemoteLogMetadata
    ) -> None:
        recovery.begin(FOUND, next_of(2), author="me")
        recovery.add_partition(recovered(), author="me")
        recovery.finish(author="me")
        fence = fence_of(engine, ORDERS_0)
        with pytest.raises(StateConflictError, match="up to 399"):
            finish(metadata, segment_of(ORDERS_0, 8, 200, 299, {2: 200}), fence)
        finish(metadata, segment_of(ORDERS_0, 9, 400, 499, {2: 400}), fence)
        delete(metadata, replace(SEGMENTS[0].metadata, state=FINISHED), fence)
        assert metadata.partition_sizes(ORDERS_0)[0].segments == 3


class TestAdoption:
    @pytest.fixture
    def fence(self, engine: Engine, metadata: RemoteLogMetadata) -> Fence:
        fence = fence_of(engine, ORDERS_0)
        finish(metadata, segment_of(ORDERS_0, 1, 0, 99), fence)
        return fence

    def test_a_copy_is_finished_at_once_with_an_event(
        self, recovery: SqlMetadataRecovery, engine: Engine, metadata: RemoteLogMetadata, fence: Any
    ) -> None:
        one = stored(2, 100, 199, {1: 100})
        recovery.adopt(one, fence=fence, author="me")
        row = metadata.segment(one.metadata.remote_log_segment_id)
        assert row is not None
        assert row.metadata == replace(one.metadata, state=FINISHED)
        assert (row.verdict, row.log_crc32c) == (Verdict.NONE, one.log_crc32c)
        assert metadata.highest_copied_offset(ORDERS_0) == 199
        assert metadata.retention_state(ORDERS_0).leader_epochs == LeaderEpochs.of([(0, 0), (1, 100)])
        said = rows(engine, select(events.c.detail, events.c.author).where(events.c.kind == "adoption"))
        assert said == [(f"{one.metadata.remote_log_segment_id.id}: offsets 100..199", "me")]
        recovery.adopt(one, fence=fence, author="me")
        assert len(rows(engine, select(events).where(events.c.kind == "adoption"))) == 1
        assert metadata.partition_sizes(ORDERS_0)[0].segments == 2

    def test_what_is_refused_leaves_nothing(
        self, recovery: SqlMetadataRecovery, engine: Engine, metadata: RemoteLogMetadata, fence: Any
    ) -> None:
        renamed = replace(segment_of(partition_of("other", topic_number=sum(b"orders")), 5, 100, 199))
        deleted = segment_of(ORDERS_0, 6, 100, 199)
        delete(metadata, finish(metadata, deleted, fence), fence)
        refused = (
            (stored(3, 50, 99), StateConflictError, "up to 199"),
            (StoredSegment(renamed, 1), StateConflictError, "is known as orders"),
            (StoredSegment(deleted, 1), IllegalTransitionError, "DELETE_SEGMENT_FINISHED"),
            (stored(1, 0, 98), IllegalTransitionError, "exists as COPY_SEGMENT_FINISHED"),
        )
        before = rows(engine, select(segments)), rows(engine, select(events))
        for one, error, match in refused:
            with pytest.raises(error, match=match):
                recovery.adopt(one, fence=fence, author="me")
        assert (rows(engine, select(segments)), rows(engine, select(events))) == before

    @pytest.mark.parametrize("owner", [TopicOwner.HANDING_OVER, TopicOwner.BROKER])
    def test_a_topic_that_is_handed_over_meanwhile_takes_none(
        self, recovery: SqlMetadataRecovery, engine: Engine, metadata: RemoteLogMetadata, fence: Any, owner: TopicOwner
    ) -> None:
        registry = SqlTopicRegistry(engine, CLUSTER_ID)
        registry.set_owner(ORDERS_0.topic_id, ORDERS_0.topic, owner, expected=TopicOwner.NONE, author="me")
        with pytest.raises(StateConflictError, match=f"the topic's owner is {owner}"):
            recovery.adopt(stored(2, 100, 199), fence=fence, author="me")
        assert metadata.highest_copied_offset(ORDERS_0) == 99

    def test_a_stopped_partition_takes_none(
        self, recovery: SqlMetadataRecovery, metadata: RemoteLogMetadata, fence: Any
    ) -> None:
        metadata.record_verdict(segment_of(ORDERS_0, 1, 0, 99).remote_log_segment_id, Verdict.FAILED, detail="Q101")
        with pytest.raises(StateConflictError, match="stopped"):
            recovery.adopt(stored(2, 100, 199), fence=fence, author="me")

    def test_only_the_newest_lease_may(
        self, recovery: SqlMetadataRecovery, engine: Engine, metadata: RemoteLogMetadata, now: AdjustableNow
    ) -> None:
        old = lease_of(engine, ORDERS_0, "old", lease_ms=0).fence
        lease_of(engine, ORDERS_0, "new")
        with pytest.raises(LeaseLostError):
            recovery.adopt(stored(2, 100, 199), fence=old, author="me")
        assert metadata.list_segments(ORDERS_0) == []
