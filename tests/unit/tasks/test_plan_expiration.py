"""What a plan rests on: owners, our truth, our retention, local bytes, live copies. Decisions have their own tests."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import pytest

from include.tiering.database.engine import open_engine
from include.tiering.database.migrations import upgrade
from include.tiering.log_source.contract import Replica, ScanReport
from include.tiering.model.ids import TopicIdPartition
from include.tiering.model.segment_metadata import RemoteLogSegmentMetadata
from include.tiering.model.topic_owner import TopicOwner
from include.tiering.quota.topic_retention import TopicRetention
from include.tiering.remote_metadata.sql import SqlRemoteLogMetadata
from include.tiering.remote_metadata.sql_topics import SqlTopicRegistry
from include.tiering.tasks.plan_expiration import ExpirationPlan, ExpirationPlanner, local_only_bytes
from include.tiering.work.contract import Lease
from include.tiering.work.sql import SqlWorkStore
from tests.doubles.memory_source import MemorySource
from tests.doubles.segments import CLUSTER_ID, finish, lease_of, partition_of, segment_of

ORDERS, OTHERS = partition_of("orders"), partition_of("others")
NOW_MS = 1_600_000_000_000 + 1_000
DAY_MS = 86_400_000


@dataclass
class World:
    engine: object
    retentions: dict[str, TopicRetention] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.metadata = SqlRemoteLogMetadata(self.engine, CLUSTER_ID)
        self.registry = SqlTopicRegistry(self.engine, CLUSTER_ID)
        self.work = SqlWorkStore(self.engine, CLUSTER_ID)

    def own(self, partition: TopicIdPartition, owner: TopicOwner = TopicOwner.PLATFORM) -> None:
        before = self.registry.owner(partition.topic_id)
        self.registry.set_owner(partition.topic_id, partition.topic, owner, expected=before, author="test")

    def copied(self, partition: TopicIdPartition, count: int = 3) -> list[RemoteLogSegmentMetadata]:
        """Segments of 100 offsets and 1,000 bytes, whose timestamps are their end offsets after 1.6e12."""
        lease = lease_of(self.engine, partition, f"copy-{partition}")
        segments = [segment_of(partition, n, 100 * n, 100 * n + 99) for n in range(count)]
        finished = [finish(self.metadata, one, lease.fence) for one in segments]
        self.work.release(lease)
        return finished

    def started(self, partition: TopicIdPartition, number: int) -> Lease:
        """A copy that began; the lease is held."""
        lease = lease_of(self.engine, partition, f"copy-again-{number}")
        segment = segment_of(partition, number, 100 * number, 100 * number + 99)
        self.metadata.add_segment(segment, fence=lease.fence)
        return lease

    def plan(self, report: ScanReport | None = None, *, now_ms: int = NOW_MS, patterns=()) -> ExpirationPlan:
        planner = ExpirationPlanner(self.metadata, self.registry, self.work, self.retentions, DAY_MS)
        return planner.plan("run", planner.owned_partitions(patterns), report, now_ms=now_ms)


@pytest.fixture
def world() -> Iterator[World]:
    engine = open_engine("sqlite://")
    upgrade(engine)
    world = World(engine)
    world.own(ORDERS)
    world.copied(ORDERS)
    yield world
    engine.dispose()


def bases(plan: ExpirationPlan) -> list[tuple[str, list[int]]]:
    return [(str(one.topic_id_partition), [d.start_offset for d in one.deletions]) for one in plan.expirations]


def test_unset_keeps_for_ever(world):
    assert bases(world.plan(now_ms=2**62)) == []


def test_by_our_retention_with_reason_numbers_and_log_start(world):
    world.retentions["orders"] = TopicRetention(retention_ms=NOW_MS - 1_600_000_000_000 - 150)
    plan = world.plan()
    assert bases(plan) == [("orders-0", [0])]
    (planned,) = plan.expirations
    assert (planned.log_start_before, planned.log_start_offset) == (0, 100)
    assert planned.deletions[0].reason == "time"
    assert "1600000000099" in planned.deletions[0].detail
    assert (plan.segments, plan.size_bytes) == (1, 1_000)


@pytest.mark.parametrize("owner", [TopicOwner.NONE, TopicOwner.HANDING_OVER, TopicOwner.BROKER])
def test_only_what_the_platform_owns(world, owner):
    world.own(OTHERS, owner)
    world.copied(OTHERS)
    world.retentions |= {name: TopicRetention(retention_ms=0) for name in ("orders", "others")}
    assert bases(world.plan()) == [("orders-0", [0, 100, 200])]
    world.own(OTHERS)
    assert bases(world.plan(patterns=["oth*"])) == [("others-0", [0, 100, 200])]


def test_our_log_start_counts(world):
    world.metadata.raise_log_start(ORDERS, 250, reason="delete-records", author="me")
    (planned,) = world.plan().expirations
    assert [(d.start_offset, d.reason) for d in planned.deletions] == [(0, "log start"), (100, "log start")]


def test_a_live_copy_is_left_alone_and_an_abandoned_one_goes(world):
    lease = world.started(ORDERS, 3)
    late_ms = NOW_MS + 10 * DAY_MS
    assert bases(world.plan(now_ms=late_ms)) == []
    world.work.release(lease)
    (planned,) = world.plan(now_ms=late_ms).expirations
    assert [(d.start_offset, d.reason) for d in planned.deletions] == [(300, "abandoned copy")]
    assert bases(world.plan()) == []


class TestLocalBytes:
    @pytest.fixture
    def replica(self) -> Replica:
        source = MemorySource()
        replica_id = source.add("orders", segments=5, size_bytes=10)
        return source.replicas[replica_id]

    def test_only_what_is_behind_what_was_copied(self, replica):
        assert local_only_bytes(replica, None, 0) == 50
        assert local_only_bytes(replica, 19, 0) == 30
        assert local_only_bytes(replica, 49, 0) == 0

    def test_a_segment_that_is_remote_in_part_is_remote(self, replica):
        assert local_only_bytes(replica, 15, 0) == 30

    def test_nothing_below_a_log_start(self, replica):
        assert local_only_bytes(replica, None, 25) == 30
        assert local_only_bytes(replace(replica, log_start_offset=40), None, 25) == 10

    def test_count_in_the_total_and_are_named_if_unknown(self, world, replica):
        world.retentions["orders"] = TopicRetention(retention_bytes=3_000)
        unknown = world.plan()
        assert bases(unknown) == []
        assert [one.topic_id_partition for one in unknown.unknowns] == [ORDERS]
        segments = tuple(
            replace(one, base_offset=300 + one.base_offset, end_offset=300 + one.end_offset, size_bytes=500)
            for one in replica.segments[:2]
        )
        behind = replace(replica, replica_id=replace(replica.replica_id, topic_id_partition=ORDERS), segments=segments)
        known = world.plan(ScanReport("cluster", (behind,), ()))
        assert bases(known) == [("orders-0", [0])]
        assert known.unknowns == ()
        other = replace(behind, chosen=False)
        assert bases(world.plan(ScanReport("cluster", (other,), ()))) == []


def test_only_topics_with_a_size_are_scanned(world):
    world.own(OTHERS)
    world.copied(OTHERS)
    planner = ExpirationPlanner(
        world.metadata,
        world.registry,
        world.work,
        {"orders": TopicRetention(retention_ms=1), "others": TopicRetention(retention_bytes=1)},
        DAY_MS,
    )
    assert planner.topics_by_size(planner.owned_partitions()) == ["others"]
