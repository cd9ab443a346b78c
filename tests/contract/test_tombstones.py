"""When every implementation of `RemoteLogMetadata` forgets what was deleted, and what it never forgets."""

import pytest
from sqlalchemy import Engine, func, select

from include.tiering.database.schema import leases, quality_results, segment_epochs, segments
from include.tiering.errors import RemoteMetadataError
from include.tiering.metadata_sync.publication_contract import Intent
from include.tiering.metadata_sync.sql_publication import SqlPublicationStore
from include.tiering.model.ownership import TopicOwner
from include.tiering.model.segments import TopicIdPartition
from include.tiering.runs.contract import Lease
from include.tiering.runs.store import SqlWorkStore
from include.tiering.segments.contract import QualityResult, Verification
from include.tiering.segments.sql import SqlRemoteLogMetadata
from include.tiering.segments.sql_topics import SqlTopicRegistry
from tests.doubles.segments import (
    CLUSTER_ID,
    DELETE_STARTED,
    FINISHED,
    delete,
    finish,
    partition_of,
    planned,
    segment_of,
    update_of,
)

KEPT_MS = 1_000
AT_MOST = 100


@pytest.fixture
def partition(engine: Engine) -> TopicIdPartition:
    owned = partition_of("orders", 3)
    registry = SqlTopicRegistry(engine, CLUSTER_ID)
    registry.set_owner(owned.topic_id, "orders", TopicOwner.PLATFORM, expected=TopicOwner.NONE, author="test")
    return owned


def lease(work: SqlWorkStore, partition: TopicIdPartition, run_id: str = "run") -> Lease:
    work.save_plan(run_id, [planned(partition)])
    found = work.claim(run_id, "batch", lease_ms=600_000)
    assert found is not None
    return found


@pytest.fixture
def deleted(metadata, work, partition):
    """Five attempts of two epochs; the first three are tombstones with results, the lease was given back."""
    copying = lease(work, partition)
    made = []
    for number in range(5):
        start = 100 * number
        attempt = finish(
            metadata, segment_of(partition, number, start, start + 99, {0: start, 1: start + 50}), copying.fence
        )
        segment_id = attempt.remote_log_segment_id
        metadata.record_verification(
            Verification(segment_id, (QualityResult(segment_id, "Q302", "warning", passed=False),))
        )
        made.append(attempt)
    for attempt in made[:3]:
        delete(metadata, attempt, copying.fence)
    work.release(copying)
    return made[:3]


def forget(metadata, *, at_most: int = AT_MOST) -> int:
    return metadata.forget_tombstones(KEPT_MS, at_most=at_most)


def stored(metadata, attempts) -> list[bool]:
    return [metadata.segment(one.remote_log_segment_id) is not None for one in attempts]


def test_only_what_is_older_goes(metadata, deleted, now):
    now.advance(KEPT_MS)
    assert forget(metadata) == 0
    now.advance(1)
    assert forget(metadata) == 3
    assert stored(metadata, deleted) == [False] * 3
    assert forget(metadata) == 0


def test_nothing_of_it_stays_behind_and_nothing_else_goes(metadata, engine, deleted, now):
    now.advance(KEPT_MS + 1)
    forget(metadata)
    with engine.connect() as connection:
        counts = [
            connection.execute(select(func.count()).select_from(table)).scalar_one()
            for table in (segments, segment_epochs, quality_results)
        ]
    assert counts == [2, 4, 2]


def test_answers_are_the_same_before_and_after(metadata, partition, deleted, now):
    def answers():
        return (
            metadata.list_segments(partition),
            metadata.partition_sizes(),
            metadata.retention_state(partition),
            metadata.partitions(),
            metadata.highest_copied_offset(partition),
            [metadata.highest_offset_for_epoch(partition, epoch) for epoch in (0, 1)],
            [metadata.remote_log_size(partition, epoch) for epoch in (0, 1)],
            [metadata.segment_for_offset(partition, 0, offset) for offset in (0, 300)],
            metadata.stopped_reason(partition),
        )

    metadata.raise_log_start(partition, 300, reason="time", author="test")
    before = answers()
    now.advance(KEPT_MS + 1)
    assert forget(metadata) == 3
    assert answers() == before


def test_a_page_is_bounded_and_takes_the_oldest(metadata, work, partition, deleted, now):
    now.advance(10)
    copying = lease(work, partition, "later")
    last = segment_of(partition, 9, 500, 599)
    finish(metadata, last, copying.fence)
    delete(metadata, last, copying.fence)
    work.release(copying)
    now.advance(KEPT_MS + 1)
    assert [forget(metadata, at_most=2), stored(metadata, deleted)] == [2, [False, False, True]]
    assert [forget(metadata, at_most=2), forget(metadata, at_most=2)] == [2, 0]


def test_a_deletion_that_is_not_finished_stays_however_old(metadata, work, partition, deleted, now):
    copying = lease(work, partition, "later")
    attempt = finish(metadata, segment_of(partition, 9, 500, 599), copying.fence)
    metadata.update_segment(update_of(attempt, DELETE_STARTED), expected=FINISHED, fence=copying.fence)
    work.release(copying)
    now.advance(100 * KEPT_MS)
    forget(metadata)
    assert stored(metadata, [attempt]) == [True]


@pytest.mark.parametrize("owner", [TopicOwner.NONE, TopicOwner.HANDING_OVER, TopicOwner.BROKER])
def test_what_may_have_been_published_stays_until_the_topic_is_the_platforms(
    metadata, engine, partition, deleted, now, owner
):
    registry = SqlTopicRegistry(engine, CLUSTER_ID)
    registry.set_owner(partition.topic_id, "orders", owner, expected=TopicOwner.PLATFORM, author="test")
    now.advance(KEPT_MS + 1)
    assert forget(metadata) == 0
    registry.set_owner(partition.topic_id, "orders", TopicOwner.PLATFORM, expected=owner, author="test")
    assert forget(metadata) == 3


class TestAnIdThatACopyMayBeginAgain:
    @pytest.fixture
    def abandoned(self, metadata, work, partition):
        """An attempt that its own batch has cleaned up; the batch goes on under the same lease."""
        copying = lease(work, partition)
        attempt = segment_of(partition, 1, 0, 99)
        finish(metadata, attempt, copying.fence)
        delete(metadata, attempt, copying.fence)
        return copying, attempt

    def test_stays_while_the_copy_lasts(self, metadata, work, abandoned, now):
        copying, attempt = abandoned
        for _ in range(3):
            now.advance(KEPT_MS)
            work.renew(copying, lease_ms=600_000)
        assert forget(metadata) == 0
        with pytest.raises(RemoteMetadataError):
            metadata.add_segment(attempt, fence=copying.fence)
        work.release(copying)
        assert forget(metadata) == 1

    def test_goes_when_a_later_copy_holds_the_partition(self, metadata, work, partition, abandoned, now):
        copying, _ = abandoned
        work.release(copying)
        now.advance(KEPT_MS + 1)
        lease(work, partition, "later")
        assert forget(metadata) == 1

    def test_goes_when_its_batch_died_longer_ago_than_tombstones_are_kept(self, metadata, engine, abandoned, now):
        now.advance(600_000 + KEPT_MS - 1)
        assert forget(metadata) == 0
        with engine.connect() as connection:
            assert connection.execute(select(leases.c.expires_at_ms)).scalar_one() > 0
        now.advance(1)
        assert forget(metadata) == 1


def test_each_cluster_has_its_own(engine, deleted, now):
    now.advance(KEPT_MS + 1)
    assert SqlRemoteLogMetadata(engine, "another", now_ms=now).forget_tombstones(KEPT_MS, at_most=AT_MOST) == 0


def test_what_was_published_is_remembered_also_in_an_archive(metadata, engine, partition, deleted, now):
    journals = SqlPublicationStore(engine, CLUSTER_ID, now_ms=now)
    publishing = journals.claim(partition, run_id="publish", batch_id="one", lease_ms=600_000)
    journals.begin(publishing.fence, metadata_partition=0, partition_count=1, next_offset=0)
    named = deleted[1]
    ids = named.remote_log_segment_id.id, DELETE_STARTED, named.start_offset, named.end_offset
    journals.intend(publishing.fence, 0, Intent(*ids, b"record"))
    now.advance(KEPT_MS + 1)
    assert forget(metadata) == 2
    assert stored(metadata, deleted) == [False, True, False], "an ingest would take it for a broker's"
