"""What stops a handover, what it waits for, and that nothing has left the platform by then."""

from dataclasses import replace
from typing import Any

import pytest

from include.tiering.errors import BrokersRefusedError, BrokersUnavailableError, LeaseLostError, StateConflictError
from include.tiering.formats.remote_log_metadata import encode
from include.tiering.formats.remote_log_metadata_records import segment_record, update_record
from include.tiering.handover.contract import ALONE_MS, PERSON_MS, LocalRetention, forgotten_handovers
from include.tiering.handover.rules import ARCHIVED_AGAIN, HandoverState, HandoverStep
from include.tiering.kafka.log_dirs.contract import IneligibleReason
from include.tiering.kafka.metadata_topic.contract import metadata_partition_of
from include.tiering.model.ownership import LeaseRole, TopicOwner
from include.tiering.model.segments import RemoteLogSegmentState, Verdict
from include.tiering.operations.doctor import diagnose_handovers
from tests.doubles.handover_world import HANDOVER_ID, OLD_RETENTION, TOPIC, TOPIC_ID, handover_world
from tests.doubles.present import present
from tests.doubles.segments import CLUSTER_ID, delete, segment_of, update_of, uuid


@pytest.fixture
def world(tmp_path):
    with handover_world(tmp_path, segments=2) as made:
        made.begin()
        yield made


def is_published(world):
    return any(world.publications.journal(one) is not None for one in world.partitions)


def test_a_refusal_names_the_check_and_changes_nothing(world):
    world.brokers.create_topic("__remote_log_metadata", partitions=3, configs={"retention.ms": "3600000"})
    stopped = world.carry_on()
    assert (stopped.step, stopped.state) == (HandoverStep.PRECONDITIONS, HandoverState.STOPPED)
    assert stopped.detail.startswith("metadata-topic-keeps-all: __remote_log_metadata has retention.ms=3600000")
    assert world.configs == OLD_RETENTION
    assert world.carry_on().state is HandoverState.STOPPED
    world.brokers.alter_topic_configs("__remote_log_metadata", {"retention.ms": "-1"})
    assert world.carry_on(resume=True).step is HandoverStep.APPROVAL


def test_a_record_that_decodes_and_stops_every_broker_is_seen_at_the_first_look(world):
    segment = segment_of(world.partitions[0], 1, 0, 9)
    poison = encode(replace(segment_record(segment), state=RemoteLogSegmentState.COPY_SEGMENT_FINISHED))
    for number in range(3):
        world.metadata_topic.append(number, poison)
    stopped = world.carry_on()
    assert (stopped.step, stopped.state) == (HandoverStep.PRECONDITIONS, HandoverState.STOPPED)
    assert stopped.detail.startswith("metadata-topic-is-readable: __remote_log_metadata-")


def test_what_brokers_tiered_and_deleted_before_is_remembered(world):
    partition = world.partitions[1]
    segment = segment_of(partition, 1, 0, 9)
    number = metadata_partition_of(partition, 3)
    world.metadata_topic.append(number, encode(segment_record(segment)))
    for state in list(RemoteLogSegmentState)[1:]:
        world.metadata_topic.append(number, encode(update_record(update_of(segment, state))))
    stopped = world.carry_on()
    assert (stopped.step, stopped.state) == (HandoverStep.PRECONDITIONS, HandoverState.STOPPED)
    assert stopped.detail == (
        "nothing-is-published-twice (partition 1): offsets up to 9 were tiered by a broker or another tool,"
        " and deleted again"
    )


@pytest.mark.parametrize(
    ("own", "wanted", "said"),
    [
        ({"local.retention.bytes": "900001"}, LocalRetention(), "local-retention-fits-total: local.retention."),
        ({"local.retention.ms": "-1"}, LocalRetention(), "BrokersRefusedError: local.retention."),
        ({}, LocalRetention(None, 900_001), "local-retention-fits-total: local.retention."),
    ],
)
def test_what_brokers_would_refuse_at_the_end_is_refused_at_the_beginning(tmp_path, own, wanted, said):
    """With remote storage off they compare local retention with nothing."""
    with handover_world(tmp_path, partitions=1, segments=2) as world:
        world.brokers.alter_topic_configs(TOPIC, own)
        world.begin(wanted)
        stopped = world.carry_on()
        assert (stopped.step, stopped.state) == (HandoverStep.PRECONDITIONS, HandoverState.STOPPED)
        assert stopped.detail.startswith(said)
        assert world.configs == {**OLD_RETENTION, **own}


def test_a_failed_segment_stops_at_the_gate(world):
    world.verdict = Verdict.FAILED
    stopped = world.carry_on()
    assert (stopped.step, stopped.state) == (HandoverStep.QUALITY_CHECK, HandoverState.STOPPED)
    assert "seed-passed-the-gate (partition 0)" in stopped.detail
    assert not is_published(world)


def test_what_cannot_be_copied_stops_with_its_reason(world):
    replica_id, replica = next(iter(world.copying.source.replicas.items()))
    segments = list(replica.segments)
    segments[1] = replace(segments[1], reason=IneligibleReason.CORRUPT)
    world.copying.source.change(replica_id, segments=tuple(segments))
    stopped = world.carry_on()
    assert (stopped.step, stopped.state) == (HandoverStep.COPY, HandoverState.STOPPED)
    assert "corrupt" in stopped.detail


def test_a_topic_that_was_created_again_is_not_waited_for(world):
    world.carry_on(until=HandoverStep.COPY)
    world.brokers.create_topic(TOPIC, partitions=2)
    stopped = world.carry_on()
    assert (stopped.step, stopped.state) == (HandoverStep.QUALITY_CHECK, HandoverState.STOPPED)
    assert stopped.detail.startswith("topic-is-the-same")


def test_what_has_expired_here_and_not_there_is_for_a_person(world):
    copying, partition = world.copying, world.partitions[0]
    copying.work.save_plan("long-ago", copying.planned("long-ago").partitions)
    assert len(copying.batch("long-ago").copied) == 4
    fence = world.publications.claim(partition, run_id="r", batch_id="b", lease_ms=30_000).fence
    for row in copying.metadata.list_segments(partition):
        delete(copying.metadata, row.metadata, fence)
    stopped = world.carry_on()
    assert (stopped.step, stopped.state) == (HandoverStep.COPY, HandoverState.STOPPED)
    assert "partition 0, offset 0: segments up to offset 19 were copied and have expired here" in stopped.detail


def test_what_is_above_the_last_stable_offset_is_left_to_the_broker(world):
    replica_id, replica = next(iter(world.copying.source.replicas.items()))
    segments = list(replica.segments)
    segments[1] = replace(segments[1], reason=IneligibleReason.ABOVE_LAST_STABLE_OFFSET)
    world.copying.source.change(replica_id, segments=tuple(segments))
    world.brokers.partition(TOPIC_ID, 0).last_stable_offset = 12
    assert world.carry_on().step is HandoverStep.APPROVAL
    assert [one.end_offset for one in world.handovers.seed(HANDOVER_ID)] == [9, 19]


def test_what_is_not_flushed_yet_is_waited_for(world):
    replica_id, replica = next(iter(world.copying.source.replicas.items()))
    segments = list(replica.segments)
    segments[1] = replace(segments[1], reason=IneligibleReason.NOT_FLUSHED)
    world.copying.source.change(replica_id, segments=tuple(segments))
    began = world.clock.monotonic()
    waiting = world.carry_on()
    assert (waiting.step, waiting.state) == (HandoverStep.COPY, HandoverState.ACTIVE)
    assert "recovery point" in waiting.detail
    assert world.clock.monotonic() - began >= world.limits.watch_seconds
    rounds = []

    def flushed_before_the_third_round(name):
        if name == "copy_round":
            rounds.append(name)
            if len(rounds) == 3:
                world.copying.source.change(replica_id, segments=replica.segments)

    world.at = flushed_before_the_third_round
    assert world.carry_on().step is HandoverStep.APPROVAL
    assert [one.end_offset for one in world.handovers.seed(HANDOVER_ID)] == [19, 19]


def test_producers_that_go_on_are_met_by_another_round(world):
    rolled: list[Any] = []

    def roll_behind_the_first_round(name):
        if name == "copy_round!" and not rolled:
            rolled.append(name)
            world.roll(0)

    world.at = roll_behind_the_first_round
    assert world.carry_on().step is HandoverStep.APPROVAL
    assert [one.end_offset for one in world.handovers.seed(HANDOVER_ID)] == [29, 19]


def test_what_was_copied_since_the_approval_is_handed_over_too(world):
    world.carry_on()
    world.approve()
    world.roll(1)
    plan = world.copying.planned("by-the-schedule")
    world.copying.work.save_plan("by-the-schedule", plan.partitions)
    assert len(world.copying.batch("by-the-schedule").copied) == 1
    assert world.carry_on().state is HandoverState.DONE
    assert [one.end_offset for one in world.handovers.seed(HANDOVER_ID)] == [19, 29]


def test_an_approval_is_not_for_another_plan(world):
    world.carry_on()
    world.approve()
    shorten_the_seed(world)
    asked = world.carry_on()
    assert (asked.step, asked.state, asked.approval) == (HandoverStep.APPROVAL, HandoverState.ACTIVE, None)


def test_segments_that_are_not_the_approved_ones_go_through_the_gate_again(world):
    world.up_to(HandoverStep.FENCE)
    shorten_the_seed(world)
    steps = []
    ended = world.carry_on(on_step=lambda one: steps.append(one.step))
    assert steps[:5] == [HandoverStep(name) for name in ("fence", "gate", "approval", "fence", "recheck")]
    assert ended.state is HandoverState.DONE
    assert [one.end_offset for one in world.handovers.seed(HANDOVER_ID)] == [19, 19]


def shorten_the_seed(world):
    drive = world.handovers.drive(HANDOVER_ID, "somebody", lease_ms=1)
    seed = world.handovers.seed(HANDOVER_ID)
    world.handovers.save_seed(drive, [replace(one, end_offset=one.end_offset - 10) for one in seed])
    world.handovers.release(drive)


def test_a_batch_that_still_copies_is_waited_for(world):
    world.up_to(HandoverStep.FENCE)
    partition = world.partitions[0]
    held = _hold(world, partition)
    waiting = world.carry_on()
    assert (waiting.step, waiting.state) == (HandoverStep.FENCE, HandoverState.ACTIVE)
    assert "still has the lease to expire" in waiting.detail
    world.copying.work.release(held)
    assert world.carry_on().state is HandoverState.DONE


def _hold(world, partition):
    from include.tiering.database.transactions import writing
    from include.tiering.model.ownership import PartitionLease
    from include.tiering.runs import sql_batches

    engine, now_ms = world.copying.work._engine, world.handovers.now_ms()
    with writing(engine) as connection:
        fence = sql_batches.take(
            connection,
            CLUSTER_ID,
            partition,
            LeaseRole.EXPIRE,
            run_id="r",
            batch_id="b",
            now_ms=now_ms,
            lease_ms=600_000,
        )
    return PartitionLease(run_id="r", batch_id="b", fence=present(fence), expires_at_ms=now_ms + 600_000)


def test_a_missing_override_stops_before_the_switch(world):
    world.up_to(HandoverStep.SWITCH)
    world.brokers.alter_topic_configs(TOPIC, {"retention.bytes": "900000"})
    stopped = world.carry_on()
    assert (stopped.step, stopped.state) == (HandoverStep.SWITCH, HandoverState.STOPPED)
    assert "retention.bytes=900000" in stopped.detail
    assert "remote.storage.enable" not in world.configs


def test_a_log_start_that_moves_before_the_switch_is_looked_at_again(world):
    world.up_to(HandoverStep.SWITCH)
    world.brokers.partition(TOPIC_ID, 0).earliest = 4
    assert world.carry_on().state is HandoverState.DONE
    assert [one.log_start_offset for one in world.handovers.seed(HANDOVER_ID)] == [4, 0]


def test_a_log_start_that_rises_after_the_switch_stops_with_the_overrides_in_place(world):
    world.up_to(HandoverStep.WATCH)
    world.brokers.partition(TOPIC_ID, 1).earliest = 10
    stopped = world.carry_on()
    assert (stopped.step, stopped.state) == (HandoverStep.WATCH, HandoverState.STOPPED)
    assert "earliest-is-unchanged (partition 1): the broker's log start rose from 0 to 10" in stopped.detail
    assert world.configs["retention.bytes"] == "-1"


def test_brokers_that_do_not_learn_are_waited_for_with_patience(world):
    world.up_to(HandoverStep.SWITCH)
    world.forgetful = True
    began = world.clock.monotonic()
    waiting = world.carry_on()
    assert (waiting.step, waiting.state) == (HandoverStep.WATCH, HandoverState.ACTIVE)
    assert "latest-tiered-covers-seed" in waiting.detail
    assert world.clock.monotonic() - began >= world.limits.watch_seconds
    world.forgetful = False
    assert world.carry_on().state is HandoverState.DONE


@pytest.mark.parametrize("method", ["topics", "topic_configs", "describe", "partition_offsets", "broker_configs"])
def test_brokers_that_do_not_answer_are_asked_again_and_those_that_refuse_stop_it(world, method):
    world.brokers.fail(method, BrokersUnavailableError("no answer in 5000 ms"))
    waiting = world.carry_on()
    assert waiting.state is HandoverState.ACTIVE
    assert waiting.detail == "BrokersUnavailableError: no answer in 5000 ms"
    world.brokers.fail(method, BrokersRefusedError("not you"))
    assert world.carry_on().detail == "BrokersRefusedError: not you"
    assert world.handover.state is HandoverState.STOPPED
    assert world.carry_on(resume=True).step is HandoverStep.APPROVAL


def test_configs_that_brokers_took_and_do_not_show_are_waited_for(world):
    real = world.brokers.alter_topic_configs
    world.brokers.alter_topic_configs = lambda *_, **__: None
    waiting = world.carry_on()
    assert (waiting.step, waiting.state) == (HandoverStep.OVERRIDES, HandoverState.ACTIVE)
    assert "do not show it" in waiting.detail
    world.brokers.alter_topic_configs = real
    assert world.carry_on().step is HandoverStep.APPROVAL


def test_a_parked_handover_begins_again_with_its_overrides_and_publishes_nothing_twice(world):
    world.up_to(HandoverStep.SWITCH)
    before = [world.publications.journal(one).records for one in world.partitions]
    assert "never lower the highest offset" in world.undo().reason
    assert world.configs == OLD_RETENTION
    assert world.handover.state is HandoverState.PARKED
    again = world.carry_on(resume=True)
    assert again.state is HandoverState.ACTIVE or again.state is HandoverState.DONE
    if again.step is HandoverStep.APPROVAL:
        world.approve()
        again = world.carry_on()
    assert again.state is HandoverState.DONE
    assert [world.publications.journal(one).records for one in world.partitions] == before


def test_a_parked_one_is_archived_again_and_handed_over_later(world):
    world.up_to(HandoverStep.SWITCH)
    world.undo()
    ended = world.archive_again()
    assert (ended.state, ended.detail, world.owner) == (HandoverState.UNDONE, ARCHIVED_AGAIN, TopicOwner.PLATFORM)
    assert world.configs == OLD_RETENTION
    assert all(world.publications.held_segments(one) for one in world.partitions)
    world.roll(0)
    assert world.ports.actions.copy_round(TOPIC, "again").copied_segments == 1, "the archive goes on"
    world.handover_id = uuid(99)
    world.begin()
    world.carry_on()
    world.approve()
    assert world.carry_on().state is HandoverState.DONE
    assert [world.brokers.partition(TOPIC_ID, number).latest_tiered for number in (0, 1)] == [29, 19]


@pytest.mark.parametrize("step", [HandoverStep.COPY, HandoverStep.SWITCH, HandoverStep.TAKE_OVER])
def test_only_a_parked_one_is_archived_again(world, step):
    world.up_to(step) if step is not HandoverStep.COPY else world.carry_on(until=HandoverStep.OVERRIDES)
    with pytest.raises(StateConflictError, match="only a parked one can be archived again"):
        world.archive_again()


@pytest.mark.parametrize("shown", [True, False])
def test_a_topic_that_was_switched_on_is_not_archived_again(world, shown):
    world.up_to(HandoverStep.SWITCH)
    world.undo()
    world.switch_by_hand()
    if not shown:  # One broker lags behind the controller.
        real = world.brokers.topic_configs
        world.brokers.topic_configs = lambda topic: {
            key: value for key, value in real(topic).items() if key != "remote.storage.enable"
        }
    with pytest.raises(StateConflictError, match=r"cannot be archived again: remote\.storage.enable is true"):
        world.archive_again()
    assert (world.handover.state, world.owner) == (HandoverState.PARKED, TopicOwner.HANDING_OVER)


def test_an_end_between_the_owner_and_the_end_of_the_handover_is_repeated_or_resumed(world):
    world.up_to(HandoverStep.SWITCH)
    world.undo()

    def end(name):
        if name == "set_state":
            raise KeyboardInterrupt

    world.at = end
    with pytest.raises(KeyboardInterrupt):
        world.archive_again()
    world.at = lambda _: None
    assert (world.handover.state, world.owner) == (HandoverState.PARKED, TopicOwner.PLATFORM)
    assert world.archive_again().state is HandoverState.UNDONE


def test_what_has_ended_is_not_undone(world):
    world.carry_on()
    world.undo()
    with pytest.raises(StateConflictError, match="has ended"):
        world.undo()


def test_a_topic_that_was_deleted_can_be_given_up(world):
    world.carry_on()
    world.brokers.delete_topic(TOPIC)
    world.undo()
    assert world.handover.state is HandoverState.UNDONE


def test_two_drivers_do_not_drive_at_once(world):
    drive = world.handovers.drive(HANDOVER_ID, "other", lease_ms=60_000)
    with pytest.raises(LeaseLostError, match="other drives"):
        world.carry_on()
    world.handovers.release(drive)
    assert world.carry_on().step is HandoverStep.APPROVAL


def test_a_forgotten_one_is_named_after_a_while_and_one_that_waits_for_a_person_after_a_day(world):
    world.carry_on(until=HandoverStep.OVERRIDES)
    now_ms = world.handover.updated_at_ms
    assert forgotten_handovers([world.handover], now_ms + ALONE_MS) == []
    (found,) = forgotten_handovers([world.handover], now_ms + ALONE_MS + 1)
    assert "orders has no driver any more, at copy" in found.message
    world.carry_on()
    now_ms = world.handover.updated_at_ms
    assert forgotten_handovers([world.handover], now_ms + PERSON_MS) == []
    (found,) = forgotten_handovers([world.handover], now_ms + PERSON_MS + 1)
    assert "waits for a person, at approval" in found.message
    world.undo()
    assert forgotten_handovers([world.handover], now_ms + 10 * PERSON_MS) == []


def test_a_parked_one_is_named_after_a_day_because_nobody_copies_its_topic(world):
    world.up_to(HandoverStep.SWITCH)
    world.undo()
    now_ms = world.handover.updated_at_ms
    assert forgotten_handovers([world.handover], now_ms + PERSON_MS) == []
    (found,) = forgotten_handovers([world.handover], now_ms + PERSON_MS + 1)
    assert found.message.endswith(
        "and the platform neither copies nor expires the topic. ./tiering handover orders --resume, or --archive-again"
    )


def test_the_doctor_says_what_it_waits_for(world):
    world.carry_on()
    (line,) = diagnose_handovers((one, ()) for one in world.handovers.open_handovers())
    assert line.finding.startswith("a handover is active at approval: plan ")
    assert line.advice == "./tiering handover orders --resume, or --undo"


@pytest.mark.parametrize(
    "step", [HandoverStep.RECHECK, HandoverStep.WATCH, HandoverStep.RETENTION, HandoverStep.LOCAL_RETENTION]
)
def test_a_decided_partition_that_a_broker_does_not_list_is_waited_for(world, step):
    """A broker may answer from metadata of before the partition was added: of it nothing is known then."""
    world.up_to(step)
    real = world.brokers.topics

    def lagging(names=None):
        found = real(names)
        orders = found[TOPIC]
        return {**found, TOPIC: replace(orders, partitions={0: orders.partitions[0]})}

    world.brokers.topics = lagging
    waiting = world.carry_on(until=step)
    assert (waiting.step, waiting.state) == (step, HandoverState.ACTIVE)
    assert "partition 1" in waiting.detail
    assert "does not list it" in waiting.detail
    world.brokers.topics = real
    assert world.carry_on().state is HandoverState.DONE
