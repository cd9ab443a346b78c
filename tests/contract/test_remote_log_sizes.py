"""Counters by state, and what waits to be deleted, on every database."""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from sqlalchemy import Engine, insert, update

from include.tiering.database.schema import approvals, planned_deletions, planned_expirations, runs, size_counters
from include.tiering.model.ownership import TopicOwner
from include.tiering.model.segments import RemoteLogSegmentMetadata, TopicIdPartition, Verdict
from include.tiering.model.sizes import EpochSize, PartitionStates, StateSize, partition_states
from include.tiering.segments.sizes_contract import ArchiveSize, TopicTotal
from include.tiering.segments.sql_rows import split_segments
from include.tiering.segments.sql_topics import SqlTopicRegistry
from include.tiering.sizes import store
from include.tiering.sizes.store import SqlRemoteLogSizes
from tests.doubles.databases import EVERY, AdjustableNow
from tests.doubles.segments import (
    CLUSTER_ID,
    DELETE_STARTED,
    FINISHED,
    STARTED,
    delete,
    fence_of,
    finish,
    partition_of,
    segment_of,
    update_of,
)

pytestmark = pytest.mark.parametrize("database_kind", EVERY, scope="module")
ORDERS = partition_of("orders")


@pytest.fixture
def sizes(engine: Engine, now: AdjustableNow) -> SqlRemoteLogSizes:
    return SqlRemoteLogSizes(engine, CLUSTER_ID, now_ms=now)


def test_counters_say_what_the_segments_of_every_state_add_up_to(engine, metadata, sizes):
    segments = [segment_of(ORDERS, n, 100 * n, 100 * n + 99, {0: 100 * n, 1: 100 * n + 50}) for n in range(4)]
    fence = fence_of(engine, ORDERS)
    for segment in segments[:3]:
        finish(metadata, segment, fence)
    metadata.add_segment(segments[3], fence=fence)
    metadata.update_segment(update_of(segments[0], DELETE_STARTED), expected=FINISHED, fence=fence)
    expected = partition_states(ORDERS, (row.metadata for row in metadata.list_segments(ORDERS)))
    assert [size.state for size in expected.states] == [STARTED, FINISHED, DELETE_STARTED]
    assert sizes.partition_states() == sizes.partition_states(ORDERS) == [expected]
    assert sizes.recount(ORDERS) == expected
    assert sizes.topic_names() == {ORDERS.topic_id: "orders"}


def test_totals_by_topic_are_those_of_its_partitions(engine, metadata, sizes):
    for number in range(2):
        partition = partition_of("orders", number)
        fence = fence_of(engine, partition)
        segments = [segment_of(partition, 10 * number + n, 100 * n, 100 * n + 99, size_bytes=7) for n in range(3)]
        for segment in segments:
            finish(metadata, segment, fence)
        metadata.update_segment(update_of(segments[0], DELETE_STARTED), expected=FINISHED, fence=fence)
    (found,) = sizes.topic_totals()
    states = sizes.partition_states()
    assert (found.topic_id, found.topic, found.owner, found.partitions) == (ORDERS.topic_id, "orders", "none", 2)
    assert found.segments == sum(partition.finished.segments for partition in states) == 4
    assert found.finished_bytes == sum(partition.finished.size_bytes for partition in states) == 28
    assert found.stored_bytes == sum(partition.stored_bytes for partition in states) == 42
    assert sizes.topic_totals(["orders", "order"]) == [found]
    assert sizes.topic_totals(["order"]) == sizes.topic_totals([]) == []
    pay = partition_of("pay")
    finish(metadata, segment_of(pay, 90, 0, 99, size_bytes=5), fence_of(engine, pay))
    gone = partition_of("gone")
    deleted, fence = segment_of(gone, 91, 0, 99), fence_of(engine, gone)
    finish(metadata, deleted, fence)
    delete(metadata, deleted, fence)
    assert [total.topic for total in sizes.topic_totals()] == ["gone", "orders", "pay"]
    assert sizes.listed_topics() == {total.topic_id: total.topic for total in sizes.topic_totals()}
    assert sizes.archive_size() == ArchiveSize(2, 5, 33, 47)


def test_a_topic_that_the_platform_copies_is_listed_before_anything_of_it_is_copied(engine, sizes):
    registry, clicks, views = SqlTopicRegistry(engine, CLUSTER_ID), partition_of("clicks"), partition_of("views")
    for partition, owner in ((clicks, TopicOwner.PLATFORM), (views, TopicOwner.BROKER)):
        registry.set_owner(partition.topic_id, partition.topic, owner, expected=TopicOwner.NONE, author="test")
    (found,) = sizes.topic_totals()
    assert found == TopicTotal(clicks.topic_id, "clicks", TopicOwner.PLATFORM, 0, 0, 0, 0)
    assert sizes.topic_totals(["clicks"]) == [found]
    assert sizes.topic_totals(["views"]) == []
    assert sizes.listed_topics() == {clicks.topic_id: "clicks"}
    assert sizes.archive_size() == ArchiveSize(0, 0, 0, 0)


def test_an_empty_archive_has_the_size_0(engine, metadata, sizes):
    assert sizes.archive_size() == ArchiveSize(0, 0, 0, 0)


def test_a_recount_reads_its_segments_page_by_page(engine, metadata, sizes, monkeypatch):
    segments = [segment_of(ORDERS, n, 100 * n, 100 * n + 99, {n % 2: 100 * n}, size_bytes=n) for n in range(7)]
    fence = fence_of(engine, ORDERS)
    for segment in segments:
        finish(metadata, segment, fence)
    monkeypatch.setattr(store, "PAGE_KEYS", 3)
    expected = partition_states(ORDERS, (replace(segment, state=FINISHED) for segment in segments))
    assert sizes.recount(ORDERS) == expected


def test_a_partition_that_has_nothing_left_is_known_to_hold_nothing(engine, metadata, sizes):
    segment = segment_of(ORDERS, 1, 0, 99)
    fence = fence_of(engine, ORDERS)
    finish(metadata, segment, fence)
    delete(metadata, segment, fence)
    assert sizes.partition_states() == [PartitionStates(ORDERS, ())]
    assert sizes.recount(ORDERS) == PartitionStates(ORDERS, ())
    assert sizes.partition_states(partition_of("payments")) == []


def test_a_counter_of_an_epoch_alone_is_not_hidden(engine, metadata, sizes):
    fence = fence_of(engine, ORDERS)
    finish(metadata, segment_of(ORDERS, 1, 0, 99), fence)
    with engine.begin() as connection:
        total = size_counters.c.leader_epoch == -1
        connection.execute(update(size_counters).where(total).values(size_bytes=0, segments=0))
    (found,) = sizes.partition_states()
    assert found.states == (StateSize(FINISHED, 0, 0, (EpochSize(0, 1_000, 1),)),)


def test_other_clusters_do_not_count(engine, metadata):
    finish(metadata, segment_of(ORDERS, 1, 0, 99), fence_of(engine, ORDERS))
    other = SqlRemoteLogSizes(engine, "another-cluster")
    assert (other.partition_states(), other.topic_names(), other.delete_lags()) == ([], {}, [])


def test_a_delete_waits_from_its_beginning_to_its_end(engine, metadata, sizes, now):
    fence = fence_of(engine, ORDERS)
    first, second, kept = (segment_of(ORDERS, n, 100 * n, 100 * n + 99) for n in range(3))
    for segment in (first, second, kept):
        finish(metadata, segment, fence)
    assert sizes.delete_lags() == []
    for segment in (first, second):
        metadata.update_segment(update_of(segment, DELETE_STARTED), expected=FINISHED, fence=fence)
        now.advance(5_000)
    (lag,) = sizes.delete_lags()
    assert (lag.topic_id_partition, lag.size_bytes, lag.segments, lag.seconds) == (ORDERS, 2_000, 2, 10.0)


def plan(engine: Engine, now: AdjustableNow, run_id: str, segment: RemoteLogSegmentMetadata, **run: Any) -> None:
    """A plan that deletes one segment."""
    partition: TopicIdPartition = segment.topic_id_partition
    key = {
        "cluster_id": CLUSTER_ID,
        "run_id": run_id,
        "topic_id": str(partition.topic_id),
        "partition": partition.partition,
    }
    with engine.begin() as connection:
        values = {"kind": "expire", "plan_hash": "h", "created_at_ms": now.now_ms, "needs_approval": False, **run}
        connection.execute(insert(runs), {"cluster_id": CLUSTER_ID, "run_id": run_id, **values})
        connection.execute(
            insert(planned_expirations), {**key, "topic": "orders", "log_start_before": 0, "log_start_offset": 1}
        )
        deletion = {
            "position": 0,
            "segment_id": str(segment.remote_log_segment_id.id),
            "start_offset": segment.start_offset,
            "end_offset": segment.end_offset,
            "size_bytes": segment.segment_size_bytes,
            "state": int(FINISHED),
            "reason": "size",
            "detail": "",
            "outcome": "planned",
        }
        connection.execute(insert(planned_deletions), {**key, **deletion})


@pytest.fixture
def finished(engine, metadata) -> RemoteLogSegmentMetadata:
    segment = segment_of(ORDERS, 1, 0, 99)
    finish(metadata, segment, fence_of(engine, ORDERS))
    return segment


def test_what_a_plan_may_delete_waits_since_the_plan(engine, metadata, sizes, now, finished):
    plan(engine, now, "expire-1", finished)
    now.advance(3_000)
    (lag,) = sizes.delete_lags()
    assert (lag.size_bytes, lag.segments, lag.seconds) == (1_000, 1, 3.0)
    fence = fence_of(engine, ORDERS)
    metadata.update_segment(update_of(finished, DELETE_STARTED), expected=FINISHED, fence=fence)
    (lag,) = sizes.delete_lags()
    assert (lag.size_bytes, lag.segments) == (1_000, 1), "once begun it still counts once"


def test_what_is_superseded_waits_only_once_it_is_planned(engine, metadata, sizes, now, finished):
    """Its objects are held on purpose."""
    fence, again = fence_of(engine, ORDERS), segment_of(ORDERS, 9, finished.start_offset, finished.end_offset)
    metadata.record_verdict(finished.remote_log_segment_id, Verdict.FAILED)
    metadata.add_segment(again, fence=fence)
    metadata.update_segment(
        update_of(again, FINISHED), expected=STARTED, fence=fence, supersedes=finished.remote_log_segment_id
    )
    assert sizes.delete_lags() == []
    (states,) = sizes.partition_states()
    assert {one.state: one.size_bytes for one in states.states} == {FINISHED: 1_000, DELETE_STARTED: 1_000}
    plan(engine, now, "expire-1", finished)
    assert [(lag.size_bytes, lag.segments) for lag in sizes.delete_lags()] == [(1_000, 1)]


def test_a_plan_waits_for_its_approval_without_a_lag(engine, sizes, now, finished):
    plan(engine, now, "expire-1", finished, needs_approval=True)
    assert sizes.delete_lags() == []
    approval = {"plan_hash": "h", "author": "ann", "approved_at_ms": now.now_ms}
    with engine.begin() as connection:
        connection.execute(insert(approvals), {"cluster_id": CLUSTER_ID, "run_id": "expire-1", **approval})
    assert [lag.segments for lag in sizes.delete_lags()] == [1]


def test_only_the_newest_plan_counts(engine, sizes, now, finished):
    plan(engine, now, "expire-1", finished)
    now.advance(1_000)
    other = replace(finished, remote_log_segment_id=segment_of(ORDERS, 9, 0, 99).remote_log_segment_id)
    plan(engine, now, "expire-2", other)
    assert sizes.delete_lags() == []


def test_a_dry_run_neither_raises_the_lag_nor_hides_that_of_the_plan_before(engine, sizes, now, finished):
    other = replace(finished, remote_log_segment_id=segment_of(ORDERS, 9, 0, 99).remote_log_segment_id)
    plan(engine, now, "expire-1", finished, needs_approval=None)
    assert sizes.delete_lags() == []
    now.advance(1_000)
    plan(engine, now, "expire-2", finished)
    now.advance(1_000)
    plan(engine, now, "expire-3", other, needs_approval=None)
    assert [(lag.segments, lag.seconds) for lag in sizes.delete_lags()] == [(1, 1.0)]


@pytest.mark.parametrize(
    ("ranges", "widths"), [(1, [4]), (2, [2, 2]), (3, [2, 2]), (4, [1, 1, 1, 1]), (5, [1, 1, 1, 1])]
)
def test_a_scan_is_split_into_ranges_as_even_as_can_be(engine, metadata, ranges, widths):
    assert split_segments(engine, CLUSTER_ID, ranges) == []
    fence = fence_of(engine, ORDERS)
    for number in range(4):
        metadata.add_segment(segment_of(ORDERS, number + 1, 100 * number, 100 * number + 99), fence=fence)
    found = split_segments(engine, CLUSTER_ID, ranges)
    assert [one.last_key - one.first_key + 1 for one in found] == widths
    assert all(one.last_key + 1 == following.first_key for one, following in pairwise(found))
