"""A handover of a topic whose segments are read from the leaders: what the leader is asked, and what stops it."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from include.tiering.clock import SystemClock
from include.tiering.errors import SourceChangedError
from include.tiering.handover.brokers_disks import local_segments
from include.tiering.handover.contract import LocalRetention
from include.tiering.handover.ports import is_published
from include.tiering.handover.rules import HandoverState, HandoverStep
from include.tiering.kafka.cluster.cluster_metadata import AdminClusterMetadata, UnknownClusterMetadata
from include.tiering.kafka.fetch_api.source import FetchLimits, FetchSource
from include.tiering.kafka.fetch_api.spool import Spool
from include.tiering.kafka.log_dirs.contract import IneligibleReason, LogSegment, Replica, ReplicaId
from include.tiering.model.leader_epochs import LeaderEpochs
from include.tiering.model.segments import TopicIdPartition, Uuid
from tests.doubles.handover_world import (
    EPOCHS,
    HANDOVER_ID,
    OLD_RETENTION,
    SEGMENT_BYTES,
    TOPIC,
    TOPIC_ID,
    HandoverWorld,
    handover_world,
)
from tests.doubles.leader_logs import MemoryRanges, ModelLogs
from tests.doubles.present import present
from tests.doubles.segments import whole_replica
from tests.unit.kafka.fetch_api.test_cut_log import BATCH, batches

PARTITION = TopicIdPartition(TOPIC_ID, 0, TOPIC)
REPLICA = ReplicaId(PARTITION, 1, "memory")
CHANGED = LeaderEpochs.of([(0, 0), (4, 15)])


def checks_of(world: HandoverWorld, step: HandoverStep) -> dict[str, str]:
    results = world.handovers.checks(HANDOVER_ID, step)
    return {one.name: str(one.outcome) for one in results if str(one.outcome) not in ("passed", "note")}


def answer_with(world: HandoverWorld, epochs: LeaderEpochs | Exception) -> None:
    """What the leader answers of its epochs; what was read when ranges were cut stays."""

    def leader_epochs(_replica: Replica) -> LeaderEpochs:
        if isinstance(epochs, Exception):
            raise epochs
        return epochs

    source: Any = world.copying.source
    source.leader_epochs = leader_epochs


def test_it_comes_to_the_same_end_as_with_log_dirs(tmp_path: Path) -> None:
    with handover_world(tmp_path, segments=8, reads_leaders=True) as world:
        world.begin(LocalRetention(None, 2_000))
        world.carry_on()
        world.approve()
        assert world.carry_on().state is HandoverState.DONE
        assert world.configs == {**OLD_RETENTION, "local.retention.bytes": "2000", "remote.storage.enable": "true"}
        assert [one.compared_offset for one in world.handovers.seed(HANDOVER_ID)] == [70, 70]


@pytest.mark.parametrize("step", [HandoverStep.QUALITY_CHECK, HandoverStep.RECHECK])
def test_a_leader_with_another_history_stops_it_before_a_record_is_sent(tmp_path: Path, step: HandoverStep) -> None:
    with handover_world(tmp_path, partitions=1, reads_leaders=True) as world:
        world.begin()
        if step is HandoverStep.QUALITY_CHECK:
            world.carry_on(until=HandoverStep.COPY)
        else:
            world.up_to(step)
        answer_with(world, CHANGED)
        stopped = world.carry_on()
        assert (stopped.state, stopped.step) == (HandoverState.STOPPED, step)
        assert checks_of(world, step) == {"epochs-are-the-leaders": "refused"}
        assert not is_published(world.publications, [PARTITION])
        answer_with(world, EPOCHS)
        goes_on_to = HandoverState.ACTIVE if step is HandoverStep.QUALITY_CHECK else HandoverState.DONE
        assert world.carry_on(resume=True).state is goes_on_to


def test_a_leader_that_changes_while_it_is_asked_is_waited_for(tmp_path: Path) -> None:
    with handover_world(tmp_path, partitions=1, reads_leaders=True) as world:
        world.begin()
        world.up_to(HandoverStep.RECHECK)
        answer_with(world, SourceChangedError("orders-0 of broker 1", "leader was 1 in epoch 2, now 2 in epoch 3"))
        waiting = world.carry_on()
        assert (waiting.state, waiting.step) == (HandoverState.ACTIVE, HandoverStep.RECHECK)
        assert "now 2 in epoch 3" in waiting.detail
        assert not is_published(world.publications, [PARTITION])
        answer_with(world, EPOCHS)
        assert world.carry_on().state is HandoverState.DONE


def test_answers_of_an_older_leader_epoch_are_waited_for(tmp_path: Path) -> None:
    """The scan was answered before the election, the offsets after it."""
    with handover_world(tmp_path, partitions=1, reads_leaders=True) as world:
        world.begin()
        world.up_to(HandoverStep.RECHECK)
        world.brokers.partition(TOPIC_ID, 0).leader_epoch = 3
        waiting = world.carry_on()
        assert (waiting.state, waiting.step) == (HandoverState.ACTIVE, HandoverStep.RECHECK)
        assert checks_of(world, HandoverStep.RECHECK) == {
            "leader-is-read": "waiting",
            "nothing-changed-since": "waiting",
        }
        world.copying.source.change(REPLICA, leader_epoch=3)
        assert world.carry_on().state is HandoverState.DONE


def test_a_log_start_that_rose_is_decided_again(tmp_path: Path) -> None:
    with handover_world(tmp_path, partitions=1, reads_leaders=True) as world:
        world.begin()
        world.up_to(HandoverStep.RECHECK)
        world.brokers.partition(TOPIC_ID, 0).earliest = 12
        answer_with(world, LeaderEpochs.of([(0, 12), (2, 15)]))
        assert world.carry_on().step is HandoverStep.APPROVAL, "one segment less is another plan"
        assert not is_published(world.publications, [PARTITION])
        world.approve()
        assert world.carry_on().state is HandoverState.DONE
        assert [(one.start_offset, one.log_start_offset) for one in world.handovers.seed(HANDOVER_ID)] == [(10, 12)]


def test_a_topic_that_was_created_again_is_not_published(tmp_path: Path) -> None:
    with handover_world(tmp_path, partitions=1, reads_leaders=True) as world:
        world.begin()
        world.up_to(HandoverStep.RECHECK)
        world.brokers.create_topic(TOPIC, topic_id=Uuid(b"another-topic-id"), configs=OLD_RETENTION)
        stopped = world.carry_on()
        assert (stopped.state, stopped.step) == (HandoverState.STOPPED, HandoverStep.RECHECK)
        assert checks_of(world, HandoverStep.RECHECK)["topic-is-the-same"] == "refused"
        assert not is_published(world.publications, [PARTITION])


def test_without_the_size_of_the_log_nothing_begins(tmp_path: Path) -> None:
    with handover_world(tmp_path, partitions=1, reads_leaders=True) as world:
        world.begin()
        world.copying.source.change(REPLICA, log_bytes=None)
        assert world.carry_on().state is HandoverState.STOPPED
        assert checks_of(world, HandoverStep.PRECONDITIONS) == {"leader-is-read": "refused"}
        assert world.configs == OLD_RETENTION


class SlowPlans:
    """Each plan reads one range more; the last one is open."""

    def __init__(self, world: HandoverWorld) -> None:
        self._world = world
        self._whole = world.copying.source.replicas[REPLICA].segments
        self._planned = world.copying.planned
        self.most = len(self._whole)
        self.plans = 0
        world.copying.planned = self  # type: ignore[method-assign, assignment]
        self._read(0)

    def __call__(self, run_id: str) -> Any:
        self.plans += 1
        self._read(min(self.plans, self.most))
        return self._planned(run_id)

    def _read(self, ranges: int) -> None:
        known = self._whole[:ranges]
        found_to = known[-1].end_offset + 1 if known else 0
        self._world.copying.source.change(REPLICA, segments=known, found_to=found_to)


def test_it_copies_until_plans_have_read_the_whole_log(tmp_path: Path) -> None:
    with handover_world(tmp_path, partitions=1, segments=4, reads_leaders=True) as world:
        world.begin()
        plans = SlowPlans(world)
        assert world.carry_on().step is HandoverStep.APPROVAL
        assert [one.end_offset for one in world.handovers.seed(HANDOVER_ID)] == [39]
        assert plans.plans == 5


def test_a_log_that_no_plan_can_read_is_not_left_out(tmp_path: Path) -> None:
    with handover_world(tmp_path, partitions=1, segments=4, reads_leaders=True) as world:
        world.begin()
        SlowPlans(world).most = 2
        waiting = world.carry_on()
        assert (waiting.state, waiting.step) == (HandoverState.ACTIVE, HandoverStep.COPY)
        assert waiting.detail == "partition 0, offset 20: its log is not read from there on"


def test_a_log_that_is_not_read_beyond_an_open_transaction_is_left_to_the_broker(tmp_path: Path) -> None:
    """Plans read no further while so many bytes wait for its end."""
    with handover_world(tmp_path, partitions=1, segments=4, reads_leaders=True) as world:
        world.begin()
        held = IneligibleReason.ABOVE_LAST_STABLE_OFFSET
        known = world.copying.source.replicas[REPLICA].segments[:3]
        world.copying.source.change(
            REPLICA, segments=(*known[:2], replace(known[2], reason=held)), found_to=30, last_stable_offset=25
        )
        assert world.carry_on().step is HandoverStep.APPROVAL
        assert [one.end_offset for one in world.handovers.seed(HANDOVER_ID)] == [19]


def test_a_round_that_only_reads_what_producers_write_is_no_progress(tmp_path: Path) -> None:
    """Segments wait until they count as flushed: the next round begins after a pause, and not at once."""
    with handover_world(tmp_path, partitions=1, segments=2, reads_leaders=True) as world:
        world.begin()
        copying: Any = world.copying
        planned, rounds = copying.planned, list[str]()
        waiting = [
            replace(one, reason=one.reason or IneligibleReason.NOT_FLUSHED)
            for one in world.copying.source.replicas[REPLICA].segments
        ]

        def plan_and_read(run_id: str) -> Any:
            rounds.append(run_id)
            end = 25 + len(rounds)
            world.copying.source.change(REPLICA, segments=tuple(waiting), found_to=end)
            world.brokers.partition(TOPIC_ID, 0).high_watermark = end + 1
            return planned(run_id)

        copying.planned = plan_and_read
        assert world.carry_on().step is HandoverStep.COPY
        assert 2 < len(rounds) < 10


def test_what_was_written_while_a_round_copied_is_read_by_another_round(tmp_path: Path) -> None:
    """The log was read up to where it ended before the round. Then a segment was rolled, which no plan has read."""
    with handover_world(tmp_path, partitions=1, segments=2, reads_leaders=True) as world:
        world.begin()
        copying: Any = world.copying
        planned, batch, plans = copying.planned, copying.batch, list[str]()

        def batch_while_producers_write(*args: Any, **limits: Any) -> Any:
            if len(plans) == 1:
                world.copying.source.change(REPLICA, log_bytes=3_500)
            return batch(*args, **limits)

        def plan_and_read(run_id: str) -> Any:
            plans.append(run_id)
            if len(plans) == 2:
                world.put(0, 3)
            return planned(run_id)

        copying.batch, copying.planned = batch_while_producers_write, plan_and_read
        assert world.carry_on().step is HandoverStep.APPROVAL
        assert [one.end_offset for one in world.handovers.seed(HANDOVER_ID)] == [29]


def segment(base: int, end: int, size_bytes: int, *, active: bool = False) -> LogSegment:
    reason = IneligibleReason.ACTIVE if active else None
    return LogSegment(base, end, size_bytes, 1_000, EPOCHS.range(base, end + 1), active, reason)


CUT = (segment(0, 9, 1_000), segment(10, 19, 1_000), segment(20, 24, 300, active=True))


@pytest.mark.parametrize(
    ("segments", "log_bytes", "earliest_local", "expected"),
    [
        # What is unread is part of the active segment.
        (CUT, 2_300, 0, [(0, 1_000), (10, 1_000), (20, 300)]),
        (CUT, 9_300, 0, [(0, 1_000), (10, 1_000), (20, 7_300)]),
        (CUT, 1_000, 0, [(0, 1_000), (10, 1_000), (20, 300)]),
        # What has left the disk does not count.
        (CUT, 1_500, 15, [(10, 1_000), (20, 500)]),
        # Nothing is read yet: a log smaller than a segment has one.
        ((), 999, 0, [(0, 999)]),
        ((), 5_000, 0, [(30, 5_000)]),
    ],
)
def test_what_is_unread_counts_as_active(
    segments: tuple[LogSegment, ...], log_bytes: int, earliest_local: int, expected: list[tuple[int, int]]
) -> None:
    known = whole_replica(REPLICA, segments, 30, leader_epochs=EPOCHS, found_to=25, segment_bytes=SEGMENT_BYTES)
    found = local_segments(replace(known, log_bytes=log_bytes), earliest_local)
    assert [(one.base_offset, one.size_bytes) for one in found] == expected
    assert [one.active for one in found] == [False] * (len(found) - 1) + [True]


def test_a_level_is_reached_when_the_log_is_small_enough(tmp_path: Path) -> None:
    """Brokers that take their time: no record is compared before they have deleted."""
    with handover_world(tmp_path, partitions=1, segments=8, reads_leaders=True) as world:
        world.begin(LocalRetention(None, 1))
        world.up_to(HandoverStep.LOCAL_RETENTION)
        acting, calls = world.brokers.after_call, []

        def slowly(call: str) -> None:
            calls.append(call)
            if call == "log_sizes" and calls.count(call) % 3 == 0:
                acting(call)

        world.brokers.after_call = slowly
        assert world.carry_on().state is HandoverState.DONE
        assert [one.compared_offset for one in world.handovers.seed(HANDOVER_ID)] == [80]


# The same with the source itself, over a log of two leader epochs in memory.


class Fetched:
    """A handover of `orders-0`: three ranges of ten offsets, the third of which begins epoch 2, and five more."""

    def __init__(self, world: HandoverWorld, spool: Path) -> None:
        self.world = world
        self.log = batches(0, 5, 10, 15) + batches(20, 25, 30, leader_epoch=2)
        self.logs = ModelLogs(world.brokers, {PARTITION: self.log})
        self.model = world.brokers.partition(TOPIC_ID, 0)
        self.model.replicas = self.model.isr = (1, 2)
        world.brokers.nodes[2] = replace(world.brokers.nodes[1], broker_id=2)
        self.model.high_watermark, self.model.leader_epoch, self.model.log_bytes = 35, 2, len(self.log)
        world.brokers.alter_topic_configs(TOPIC, {"segment.bytes": str(2 * BATCH), "min.insync.replicas": "2"})
        world.brokers.after_call = lambda _: None
        source = FetchSource(
            world.brokers,
            AdminClusterMetadata(world.brokers, UnknownClusterMetadata()),
            self.logs,
            MemoryRanges(),
            Spool(spool, 1 << 20, SystemClock()),
            limits=FetchLimits(find_bytes=1 << 30, settle_ms=60_000),
        )
        copying: Any = world.copying
        planned = copying.planned

        def find_and_plan(run_id: str) -> Any:
            assert source.find_segments(topics=[TOPIC], copied_to=lambda _: None, go_on=lambda _topic: None) == []
            return planned(run_id)

        copying.source, copying.planned = source, find_and_plan


def test_what_was_fetched_is_handed_over_up_to_its_publication(tmp_path: Path) -> None:
    with handover_world(tmp_path, partitions=1, segments=0) as world:
        Fetched(world, tmp_path)
        world.begin()
        world.up_to(HandoverStep.SWITCH)
        assert world.handover.step is HandoverStep.SWITCH, world.handover.detail
        assert [one.end_offset for one in world.handovers.seed(HANDOVER_ID)] == [29]


@pytest.mark.parametrize("is_truncated", [True, False], ids=["unclean", "another-leader"])
def test_a_leader_that_lost_records_after_the_approval_is_found_out(tmp_path: Path, is_truncated: bool) -> None:
    """Nothing but its own answers shows it: all that was recorded when ranges were cut is as it was."""
    with handover_world(tmp_path, partitions=1, segments=0) as world:
        fetched = Fetched(world, tmp_path)
        world.begin()
        world.up_to(HandoverStep.RECHECK)
        if is_truncated:
            fetched.logs.logs[PARTITION] = batches(0, 5, 10, 15, 20) + batches(25, 30, leader_epoch=3)
        fetched.model.leader, fetched.model.leader_epoch = 2, 3
        ended = world.carry_on()
        if is_truncated:
            assert (ended.state, ended.step) == (HandoverState.STOPPED, HandoverStep.RECHECK)
            assert checks_of(world, HandoverStep.RECHECK)["epochs-are-the-leaders"] == "refused"
            assert not is_published(world.publications, [PARTITION])
        else:
            assert [(one.leader, one.leader_epoch) for one in world.handovers.seed(HANDOVER_ID)] == [(2, 3)]
            assert ended.step not in (HandoverStep.FENCE, HandoverStep.RECHECK)


@pytest.mark.parametrize("step", [HandoverStep.PUBLISH, HandoverStep.SWITCH])
def test_a_leader_elected_after_the_last_checks_is_checked_before_brokers_take_over(
    tmp_path: Path, step: HandoverStep
) -> None:
    """A driver may die after the recheck, and be continued days later: what was proved then holds for that leader."""
    with handover_world(tmp_path, partitions=1, segments=0) as world:
        fetched = Fetched(world, tmp_path)
        world.begin()
        world.up_to(step)
        fetched.logs.logs[PARTITION] = batches(0, 5, 10, 15, 20) + batches(25, 30, leader_epoch=3)
        fetched.model.leader, fetched.model.leader_epoch = 2, 3
        stopped = world.carry_on()
        assert (stopped.state, stopped.step) == (HandoverState.STOPPED, HandoverStep.RECHECK)
        assert checks_of(world, HandoverStep.RECHECK)["epochs-are-the-leaders"] == "refused"
        assert is_published(world.publications, [PARTITION]) is (step is HandoverStep.SWITCH)
        assert "remote.storage.enable" not in world.configs


@pytest.mark.parametrize("step", [HandoverStep.PUBLISH, HandoverStep.SWITCH])
def test_a_leader_elected_after_the_last_checks_that_has_all_records_takes_over(
    tmp_path: Path, step: HandoverStep
) -> None:
    with handover_world(tmp_path, partitions=1, segments=0) as world:
        fetched = Fetched(world, tmp_path)
        world.begin()
        world.up_to(step)
        journal = world.publications.journal(PARTITION)
        fetched.model.leader, fetched.model.leader_epoch = 2, 3
        ended = world.carry_on()
        assert ended.step is HandoverStep.WATCH
        assert world.configs["remote.storage.enable"] == "true"
        assert [(one.leader, one.leader_epoch) for one in world.handovers.seed(HANDOVER_ID)] == [(2, 3)]
        published = present(world.publications.journal(PARTITION)).records
        assert len(published) == 6
        assert journal is None or journal.records == published, "nothing is published twice"
