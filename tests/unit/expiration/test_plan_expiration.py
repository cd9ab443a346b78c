"""What a plan rests on: owners, retention state, configs, local bytes, live copies. Decisions have their own tests."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import Engine

from include.tiering.configs.config_store import TopicRetention
from include.tiering.expiration.plan import ExpirationPlan, ExpirationPlanner, HeldSegments, Waits
from include.tiering.kafka.log_dirs.contract import Replica, ScanReport
from include.tiering.kafka.log_dirs.rules import local_only_bytes
from include.tiering.model.histories import FIRST_HISTORY, OffsetRange, SeenBy, SeenDivergence
from include.tiering.model.leader_epochs import LeaderEpochs
from include.tiering.model.ownership import TopicOwner
from include.tiering.model.segments import RemoteLogSegmentMetadata, TopicIdPartition, Uuid, Verdict
from include.tiering.runs.contract import Lease
from include.tiering.runs.deletion_run import PlannedExpiration
from include.tiering.segments.selected_segments import OldestSegments
from include.tiering.segments.topics import TopicLifecycleState
from tests.doubles.databases import migrated_database
from tests.doubles.deployment import Deployment
from tests.doubles.memory_source import MemorySource
from tests.doubles.segments import FINISHED, STARTED, finish, lease_of, partition_of, segment_of, update_of

ORDERS, OTHERS = partition_of("orders"), partition_of("others")
NOW_MS = 1_600_000_000_000 + 1_000
DAY_MS = 86_400_000


class World(Deployment):
    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self.retentions: dict[str, TopicRetention] = {}
        self.lifecycle_states: dict[Uuid, TopicLifecycleState] = {}

    def copied(self, partition: TopicIdPartition, count: int = 3) -> list[RemoteLogSegmentMetadata]:
        """Segments of 100 offsets and 1,000 bytes, whose timestamps are their end offsets after 1.6e12."""
        lease = lease_of(self.engine, partition, f"copy-{partition.topic_id}")
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

    @property
    def planner(self) -> ExpirationPlanner:
        return ExpirationPlanner(
            self.metadata, self.registry, self.work, self.retentions, DAY_MS, self.lifecycle_states
        )

    def plan(self, report: ScanReport | None = None, *, now_ms: int = NOW_MS, patterns=()) -> ExpirationPlan:
        return self.planner.plan("run", self.planner.partitions(patterns), report, now_ms=now_ms)


@pytest.fixture
def world() -> Iterator[World]:
    with migrated_database() as engine:
        world = World(engine)
        world.own(ORDERS)
        world.copied(ORDERS)
        yield world


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
        assert local_only_bytes(replica, None, 20) == 30
        assert local_only_bytes(replica, None, 25) == 20
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
        same = world.plan(ScanReport("cluster", (behind, other), ()))
        assert bases(same) == [("orders-0", [0])]

    def test_are_unknown_where_another_replica_knows_a_later_leader_epoch(self, world, replica):
        """The cluster metadata lags: what the old leader has may be lost."""
        world.retentions["orders"] = TopicRetention(retention_bytes=3_000)
        old = replace(
            replica,
            replica_id=replace(replica.replica_id, topic_id_partition=ORDERS),
            segments=(replace(replica.segments[0], base_offset=300, end_offset=309, size_bytes=5_000),),
            leader_epochs=LeaderEpochs.of([(0, 0)]),
        )
        new = replace(old, chosen=False, leader_epochs=LeaderEpochs.of([(0, 0), (1, 300)]))
        plan = world.plan(ScanReport("cluster", (old, new), ()))
        assert bases(plan) == []
        assert [one.topic_id_partition for one in plan.unknowns] == [ORDERS]
        assert bases(world.plan(ScanReport("cluster", (old,), ()))) != []

    def test_what_a_decision_left_was_not_copied_since(self, world, replica):
        """Offsets 100..299 are remote under epoch 0, and local under epoch 6: their source is followed from 100 on."""
        seen = SeenDivergence(OffsetRange(100, 299), (0,), (6,), SeenBy.PLAN)
        number = world.metadata.record_divergence(ORDERS, seen, history=FIRST_HISTORY).number
        epochs = LeaderEpochs.of([(0, 0), (6, 100)])
        world.metadata.follow_source(ORDERS, number, 100, source_epochs=epochs, reason="agreed", author="me")
        world.retentions["orders"] = TopicRetention(retention_bytes=2_000)
        local = replace(replica.segments[0], base_offset=100, end_offset=299, size_bytes=2_000)
        leader = replace(
            replica,
            replica_id=replace(replica.replica_id, topic_id_partition=ORDERS),
            segments=(local,),
            leader_epochs=epochs,
        )
        plan = world.plan(ScanReport("cluster", (leader,), ()))
        assert bases(plan) == [("orders-0", [0])]
        assert world.planner.plan_again(plan.expirations[0], now_ms=NOW_MS) == plan.expirations[0]
        known = replace(plan.expirations[0], local_history=FIRST_HISTORY)
        assert world.planner.plan_again(known, now_ms=NOW_MS).deletions == (), "decided since: another log was counted"
        copied = segment_of(ORDERS, 9, 100, 199, {6: 100}, size_bytes=500)
        finish(world.metadata, copied, lease_of(world.engine, ORDERS, "copy-on").fence)
        assert world.planner.plan_again(plan.expirations[0], now_ms=NOW_MS) == plan.expirations[0]


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
    assert planner.topics_by_size(planner.partitions()) == ["others"]


def waits(plan: ExpirationPlan) -> list[tuple[str, Waits, str]]:
    return [(str(one.topic_id_partition), one.reason, one.detail) for one in plan.waiting]


def test_what_is_superseded_is_held_by_the_databases_clock_and_then_goes(world):
    old = world.metadata.list_segments(ORDERS)[1].metadata
    world.metadata.record_verdict(old.remote_log_segment_id, Verdict.FAILED)
    fence = lease_of(world.engine, ORDERS, "copy-again").fence
    again = segment_of(ORDERS, 9, old.start_offset, old.end_offset)
    world.metadata.add_segment(again, fence=fence)
    world.metadata.update_segment(
        update_of(again, FINISHED), expected=STARTED, fence=fence, supersedes=old.remote_log_segment_id
    )
    since_ms = world.metadata.segment(old.remote_log_segment_id).delete_started_at_ms
    held = world.plan(now_ms=since_ms + DAY_MS - 1)
    assert bases(held) == []
    assert held.held == (HeldSegments(ORDERS, 1, 1_000, since_ms + DAY_MS),)
    world.retentions["orders"] = TopicRetention(retention_ms=0)
    assert bases(world.plan(now_ms=since_ms + DAY_MS - 1)) == [("orders-0", [0, 100, 200])]
    world.retentions.clear()
    over = world.plan(now_ms=since_ms + DAY_MS)
    (deletion,) = over.expirations[0].deletions
    assert (deletion.segment_id, deletion.reason) == (old.remote_log_segment_id, "superseded")
    assert deletion.detail == f"age_ms {DAY_MS}, hold_ms {DAY_MS}"
    assert over.held == ()
    assert over.expirations[0].log_start_offset == 0


class TestReadiness:
    """Nothing is deleted of a partition before it is ready; the others go."""

    @pytest.fixture(autouse=True)
    def both_expire(self, world):
        world.own(OTHERS)
        world.copied(OTHERS)
        world.retentions |= {name: TopicRetention(retention_ms=0) for name in ("orders", "others")}

    def test_metadata_that_is_not_complete(self, world, monkeypatch):
        """KAFKA-15181, KAFKA-16105: right after an assignment, segments seem to be missing."""
        monkeypatch.setattr(world.metadata, "is_ready", lambda partition: partition != ORDERS)
        plan = world.plan()
        assert bases(plan) == [("others-0", [0, 100, 200])]
        assert waits(plan) == [("orders-0", Waits.NOT_READY, "./tiering ready")]

    @pytest.mark.parametrize("owner", [TopicOwner.HANDING_OVER, TopicOwner.BROKER])
    def test_another_owner(self, world, owner):
        world.own(ORDERS, owner)
        plan = world.plan()
        assert bases(plan) == [("others-0", [0, 100, 200])]
        assert waits(plan) == [("orders-0", Waits.NOT_OURS, f"owner: {owner}")]

    def test_a_broker_that_is_seen_to_tier_the_topic(self, world):
        world.lifecycle_states[ORDERS.topic_id] = TopicLifecycleState(is_broker_tiered=True, deletion_due=True)
        plan = world.plan()
        assert bases(plan) == [("others-0", [0, 100, 200])]
        assert waits(plan) == [("orders-0", Waits.NOT_OURS, "remote.storage.enable is true")]

    def test_stopped_by_a_failed_segment(self, world):
        first = world.metadata.list_segments(ORDERS)[0].metadata
        world.metadata.record_verdict(first.remote_log_segment_id, Verdict.FAILED, detail="Q101")
        plan = world.plan()
        assert bases(plan) == [("others-0", [0, 100, 200])]
        ((partition, reason, detail),) = waits(plan)
        assert (partition, reason) == ("orders-0", Waits.STOPPED)
        assert "Q101" in detail

    def test_what_somebody_decided_goes_from_a_stopped_partition_all_the_same(self, world):
        first = world.metadata.list_segments(ORDERS)[0].metadata
        world.metadata.record_verdict(first.remote_log_segment_id, Verdict.FAILED)
        world.metadata.raise_log_start(ORDERS, 100, reason="delete-records", author="me")
        plan = world.plan(patterns=["orders"])
        assert bases(plan) == [("orders-0", [0])]
        assert plan.expirations[0].deletions[0].reason == "log start"

    def test_a_stop_without_a_retention_holds_nothing_up(self, world):
        world.retentions.clear()
        first = world.metadata.list_segments(ORDERS)[0].metadata
        world.metadata.record_verdict(first.remote_log_segment_id, Verdict.FAILED)
        assert waits(world.plan()) == []


class TestADeletedTopic:
    def test_all_of_it_goes_with_its_reason_and_the_log_start_rises(self, world):
        world.lifecycle_states[ORDERS.topic_id] = TopicLifecycleState(deletion_due=True)
        plan = world.plan()
        (planned,) = plan.expirations
        assert [(d.start_offset, d.reason) for d in planned.deletions] == [
            (0, "topic deleted"),
            (100, "topic deleted"),
            (200, "topic deleted"),
        ]
        assert (planned.log_start_before, planned.log_start_offset) == (0, 300)
        assert plan.waiting == ()

    def test_a_topic_of_the_same_name_is_untouched(self, world):
        again = partition_of("orders", topic_number=77)
        world.own(again)
        world.copied(again)
        world.lifecycle_states[ORDERS.topic_id] = TopicLifecycleState(
            deletion_due=True, name_taken_because="another has it"
        )
        (planned,) = world.plan().expirations
        assert planned.topic_id_partition.topic_id == ORDERS.topic_id

    def test_before_its_time_it_is_named_and_its_own_retention_goes_on(self, world):
        world.lifecycle_states[ORDERS.topic_id] = TopicLifecycleState(kept_because="seen yesterday")
        assert bases(world.plan()) == []
        world.retentions["orders"] = TopicRetention(retention_ms=NOW_MS - 1_600_000_000_000 - 150)
        plan = world.plan()
        assert bases(plan) == [("orders-0", [0])]
        assert waits(plan) == [("orders-0", Waits.TOPIC_DELETED, "seen yesterday")]

    def test_a_copy_that_is_under_way_is_left_alone(self, world):
        world.started(ORDERS, 3)
        world.lifecycle_states[ORDERS.topic_id] = TopicLifecycleState(deletion_due=True)
        assert bases(world.plan()) == [("orders-0", [0, 100, 200])]

    def test_retention_set_on_a_name_is_about_the_topic_that_has_it_now(self, world):
        again = partition_of("orders", topic_number=77)
        world.own(again)
        world.copied(again)
        world.retentions["orders"] = TopicRetention(retention_ms=0)
        world.lifecycle_states[ORDERS.topic_id] = TopicLifecycleState(name_taken_because="another has it")
        plan = world.plan()
        assert [one.topic_id_partition.topic_id for one in plan.expirations] == [again.topic_id]
        assert waits(plan) == [("orders-0", Waits.NAME_TAKEN, f"topic id {ORDERS.topic_id} keeps all: another has it")]


def test_what_brokers_may_take_over_stays_and_ends_the_scan_until_its_deletion_was_published(world):
    world.retentions["orders"] = TopicRetention(retention_ms=0)
    first, second, _ = (row.metadata.remote_log_segment_id for row in world.metadata.list_segments(ORDERS))
    held = {second.id}
    planner = replace(world.planner, held=lambda _: held)
    plan = planner.plan("run", planner.partitions(), None, now_ms=NOW_MS)
    assert bases(plan) == [("orders-0", [0])], "what lies above it would leave a hole below itself"
    (waits,) = plan.waiting
    assert (waits.reason, waits.detail.split(";")[0]) == (Waits.PUBLISHED, "segments that brokers know: 1")
    assert "./tiering publish orders" in waits.detail
    held.clear()
    (planned,) = planner.plan("run", planner.partitions(), None, now_ms=NOW_MS).expirations
    held.add(first.id)
    again = planner.plan_again(planned, now_ms=NOW_MS)
    assert again.deletions == (), "published between the plan and the deletion"
    world.lifecycle_states[ORDERS.topic_id] = TopicLifecycleState(deletion_due=True)
    assert bases(planner.plan("run", planner.partitions(), None, now_ms=NOW_MS)) == [("orders-0", [0, 100, 200])]


def test_what_brokers_have_is_read_once_and_after_the_segments(world, monkeypatch):
    """A segment that is published while a plan is made is among the segments, or its publication is seen."""
    world.retentions["orders"] = TopicRetention(retention_ms=0)
    reads: list[str] = []
    rows = world.metadata.list_segments(ORDERS)
    answers = {"segments": tuple(rows), "held": {rows[0].metadata.remote_log_segment_id.id}}

    def answer(name: str) -> Any:
        reads.append(name)
        return answers[name]

    def oldest_segments(*_: object, **__: object) -> OldestSegments:
        return OldestSegments(answer("segments"), None)

    monkeypatch.setattr(world.metadata.selected, "oldest_segments", oldest_segments)
    planner = replace(world.planner, held=lambda _: answer("held"))
    plan = planner.plan("run", [ORDERS], None, now_ms=NOW_MS)
    assert (reads, [wait.reason for wait in plan.waiting]) == (["segments", "held"], [Waits.PUBLISHED])
    reads.clear()
    planned = PlannedExpiration(ORDERS, 0, 0, (), None, -1, FIRST_HISTORY)
    assert planner.plan_again(planned, now_ms=NOW_MS).deletions == ()
    assert reads == ["segments", "held"]
    assert planner.why_it_waits(ORDERS).startswith(f"{Waits.PUBLISHED}: segments that brokers know: 1")


def test_published_segments_of_a_topic_that_others_expire_are_no_reason_of_their_own(world):
    world.registry.set_owner(ORDERS.topic_id, "orders", TopicOwner.BROKER, expected=TopicOwner.PLATFORM, author="test")
    planner = replace(world.planner, held=lambda _: pytest.fail("read for a partition in which nothing expires"))
    plan = planner.plan("run", [ORDERS], None, now_ms=NOW_MS)
    assert [wait.reason for wait in plan.waiting] == [Waits.NOT_OURS]
    assert planner.why_it_waits(ORDERS) == f"{Waits.NOT_OURS}: owner: {TopicOwner.BROKER}"


def test_published_segments_of_a_deleted_topic_that_is_kept_name_their_only_way_out(world):
    world.retentions["orders"] = TopicRetention(retention_ms=0)
    first, *_ = (row.metadata.remote_log_segment_id for row in world.metadata.list_segments(ORDERS))
    world.lifecycle_states[ORDERS.topic_id] = TopicLifecycleState(is_deleted=True)
    planner = replace(world.planner, held=lambda _: {first.id})
    plan = planner.plan("run", planner.partitions(), None, now_ms=NOW_MS)
    assert bases(plan) == []
    (waits,) = plan.waiting
    assert "expire only by tiering.on.topic.delete=expire:Nd, with an approval" in waits.detail
    assert "publish" not in waits.detail, "the cluster has no such topic to publish about"


def test_a_raised_log_start_deletes_nothing_that_brokers_may_take_over(world):
    first, *_ = (row.metadata.remote_log_segment_id for row in world.metadata.list_segments(ORDERS))
    world.metadata.raise_log_start(ORDERS, 200, reason="delete-records", author="ada")
    assert bases(world.plan()) == [("orders-0", [0, 100])]
    planner = replace(world.planner, held=lambda _: {first.id})
    assert bases(planner.plan("run", planner.partitions(), None, now_ms=NOW_MS)) == []


def test_what_passes_without_a_person_and_what_does_not():
    assert {reason.code: reason.retriable for reason in Waits} == {
        "not-ready": True,
        "not-ours": True,
        "stopped": False,
        "name-taken": False,
        "topic-deleted": False,
        "published": False,
    }
