"""What an audit reads of the metadata, on each database."""

import pytest
from sqlalchemy import Engine

from include.tiering.audit.finding import AuditedSegment, AuditedTopic, epochs_of_text
from include.tiering.audit.store import SqlAuditedMetadata
from include.tiering.model.ownership import TopicOwner
from include.tiering.model.segments import RemoteLogSegmentMetadata
from include.tiering.runs.store import SqlWorkStore
from include.tiering.segments.contract import RemoteLogMetadata
from include.tiering.segments.sql_topics import SqlTopicRegistry
from tests.doubles.databases import ONE_HOST, AdjustableNow
from tests.doubles.segments import (
    CLUSTER_ID,
    DELETE_STARTED,
    FINISHED,
    STARTED,
    delete,
    finish,
    lease_of,
    partition_of,
    planned,
    segment_of,
    update_of,
)

pytestmark = pytest.mark.parametrize("database_kind", ONE_HOST, scope="module")
ORDERS = partition_of("orders", 3)


def audited_by_id(engine: Engine, now: AdjustableNow) -> dict[str, AuditedSegment]:
    stored = SqlAuditedMetadata(engine, CLUSTER_ID, now_ms=now)
    rows = [audited for keys in stored.split(3) for page in stored.export(keys) for audited in page]
    assert len({audited.segment_id for audited in rows}) == len(rows)
    return {audited.segment_id: audited for audited in rows}


def test_each_state_is_told_with_the_time_at_which_it_began(
    engine: Engine, metadata: RemoteLogMetadata, now: AdjustableNow
) -> None:
    fence = lease_of(engine, ORDERS).fence
    segments = [segment_of(ORDERS, number, number * 10, number * 10 + 9) for number in range(4)]
    finished, deleting, deleted, started = segments
    expected = {}

    def finish_and_delete(one: RemoteLogSegmentMetadata) -> None:
        finish(metadata, one, fence)
        delete(metadata, one, fence)

    for segment, make in (
        (finished, lambda one: finish(metadata, one, fence)),
        (deleting, lambda one: finish(metadata, one, fence)),
        (deleted, finish_and_delete),
        (started, lambda one: metadata.add_segment(one, fence=fence)),
    ):
        now.advance(1_000)
        make(segment)
        expected[str(segment.remote_log_segment_id.id)] = now.now_ms
    now.advance(5_000)
    metadata.update_segment(update_of(deleting, DELETE_STARTED), expected=FINISHED, fence=fence)
    expected[str(deleting.remote_log_segment_id.id)] = now.now_ms

    audited_segments = audited_by_id(engine, now)
    assert {segment_id: audited.changed_at_ms for segment_id, audited in audited_segments.items()} == expected
    states = [audited_segments[str(one.remote_log_segment_id.id)].state for one in segments]
    assert states == [int(FINISHED), int(DELETE_STARTED), 3, int(STARTED)]
    audited = audited_segments[str(finished.remote_log_segment_id.id)]
    assert (audited.topic_id, audited.partition) == (str(ORDERS.topic_id), 3)
    assert (audited.start_offset, audited.end_offset, audited.size_bytes) == (0, 9, 1_000)
    assert epochs_of_text(audited.leader_epochs) == finished.segment_leader_epochs
    arrivals = [audited_segments[str(one.remote_log_segment_id.id)].arrival for one in segments]
    assert arrivals == sorted(set(arrivals))


def test_partitions_with_a_live_lease_in_any_role_are_worked_on(engine: Engine, now: AdjustableNow) -> None:
    work = SqlWorkStore(engine, CLUSTER_ID, now_ms=now)
    stored = SqlAuditedMetadata(engine, CLUSTER_ID, now_ms=now)
    other = partition_of("payments")
    work.save_plan("run", [planned(ORDERS), planned(other)])
    leases = [work.claim("run", f"batch-{number}", lease_ms=10_000) for number in range(2)]
    assert stored.leased_partitions() == {(str(one.topic_id), one.partition) for one in (ORDERS, other)}
    for lease in leases:
        if lease is not None and lease.fence.topic_id_partition == other:
            work.release(lease)
    assert stored.leased_partitions() == {(str(ORDERS.topic_id), ORDERS.partition)}
    now.advance(10_001)
    assert stored.leased_partitions() == frozenset()


def test_topics_are_told_with_their_owner(engine: Engine) -> None:
    registry = SqlTopicRegistry(engine, CLUSTER_ID)
    expected = {}
    for owner in TopicOwner:
        partition = partition_of(f"of-{owner}")
        if owner is not TopicOwner.NONE:
            registry.set_owner(partition.topic_id, partition.topic, owner, expected=TopicOwner.NONE, author="a test")
            expected[str(partition.topic_id)] = AuditedTopic(partition.topic, owner)
    known = SqlAuditedMetadata(engine, CLUSTER_ID).topics()
    assert known == expected
    assert [topic.owner for topic in known.values() if topic.is_ours] == [TopicOwner.PLATFORM]
