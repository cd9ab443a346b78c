"""A handover beside somebody else: another driver, a publisher at work, a person, brokers that lag behind."""

from dataclasses import replace
from typing import Any

import pytest

from include.tiering.errors import (
    BrokersUnavailableError,
    LeaseLostError,
    PublicationRefusedError,
    StateConflictError,
    UnknownTopicError,
)
from include.tiering.handover.rules import HandoverState, HandoverStep
from include.tiering.metadata_sync.publication_contract import Intent
from include.tiering.model.ownership import TopicOwner
from include.tiering.model.segments import RemoteLogSegmentState
from tests.doubles.handover_world import HANDOVER_ID, OLD_RETENTION, TOPIC, TOPIC_ID, handover_world

SWITCHED = {"remote.storage.enable": "true"}
SWITCHED_OFF = {"remote.storage.enable": "false", "remote.log.delete.on.disable": "true"}


@pytest.fixture
def world(tmp_path):
    with handover_world(tmp_path, segments=2) as made:
        made.begin()
        yield made


def before_the_switch(world, act):
    """`act` just before the request that switches reaches the brokers."""
    done: list[Any] = []

    def at(name):
        if name == "alter_topic_configs" and world.handover.step is HandoverStep.SWITCH and not done:
            done.append(name)
            act()

    world.at = at


def test_a_retention_that_comes_back_behind_the_last_look_is_held_back_by_the_switch_itself(world):
    world.up_to(HandoverStep.SWITCH)
    seen = []
    before_the_switch(
        world, lambda: world.brokers.alter_topic_configs(TOPIC, {"retention.bytes": "900000", "retention.ms": "1000"})
    )
    world.brokers.after_call = lambda _: seen.append(world.brokers.own_configs(TOPIC))
    world.carry_on(until=HandoverStep.SWITCH)
    on = [configs for configs in seen if configs.get("remote.storage.enable") == "true"]
    assert on
    assert {(configs["retention.bytes"], configs["retention.ms"]) for configs in on} == {("-1", "-1")}


def test_overrides_are_held_for_as_long_as_brokers_do_not_know_what_is_remote(world):
    world.up_to(HandoverStep.SWITCH)
    world.forgetful = True
    world.carry_on(until=HandoverStep.SWITCH)

    def keep_as_it_was(name):
        if name == "partition_offsets":
            world.brokers.alter_topic_configs(TOPIC, OLD_RETENTION)

    world.brokers.after_call = keep_as_it_was
    assert "latest-tiered-covers-seed" in world.carry_on().detail
    world.brokers.after_call = world.act
    changed = "local.retention.bytes, retention.bytes was changed from outside: the override was set again"
    assert changed in world.messages
    world.forgetful = False
    assert world.carry_on().state is HandoverState.DONE
    assert world.configs == {**OLD_RETENTION, **SWITCHED}


def test_a_driver_that_was_followed_does_not_switch(world):
    world.up_to(HandoverStep.SWITCH)

    def follow(name):
        if name == "partition_offsets" and world.handover.step is HandoverStep.SWITCH:
            world.handovers.drive(HANDOVER_ID, "driver", lease_ms=60_000)

    world.brokers.after_call = follow
    with pytest.raises(LeaseLostError):
        world.carry_on()
    assert "remote.storage.enable" not in world.configs


def test_a_switch_that_a_broker_has_not_heard_of_is_not_undone(world):
    world.up_to(HandoverStep.SWITCH)
    before_the_switch(world, lambda: world.brokers.fail("topic_configs", BrokersUnavailableError("away"), times=None))
    assert world.carry_on(until=HandoverStep.SWITCH).step is HandoverStep.SWITCH
    world.brokers.heal()
    hear_nothing_of_the_switch(world)
    with pytest.raises(StateConflictError, match=r"remote\.storage\.enable is true"):
        world.undo()
    assert world.brokers.own_configs(TOPIC)["retention.bytes"] == "-1"


def hear_nothing_of_the_switch(world):
    real = world.brokers.topic_configs

    def stale(topic):
        configs = dict(real(topic))
        configs["remote.storage.enable"] = replace(configs["remote.storage.enable"], value="false")
        return configs

    world.brokers.topic_configs = stale


def test_a_broker_that_knows_no_topic_yet_does_not_make_it_a_deleted_one(world):
    world.up_to(HandoverStep.SWITCH)
    real = world.brokers.topics
    world.brokers.topics = lambda names=None: {name: one for name, one in real(names).items() if name != TOPIC}
    with pytest.raises(BrokersUnavailableError, match="the controller has it"):
        world.undo()
    world.brokers.topics = real
    world.undo()
    assert (world.handover.state, world.owner) == (HandoverState.PARKED, TopicOwner.HANDING_OVER)
    assert world.configs == OLD_RETENTION


@pytest.mark.parametrize("cut_off", ["", "set_owner!"])
def test_a_record_that_is_written_down_while_it_is_undone_keeps_the_topic_from_everybody(world, cut_off):
    world.up_to(HandoverStep.PUBLISH)

    def publish(name):
        if name == "set_owner" and world.owner is TopicOwner.HANDING_OVER:
            written_down(world)
        if name == cut_off and world.owner is TopicOwner.PLATFORM:
            raise KeyboardInterrupt

    world.at = publish
    if cut_off:
        with pytest.raises(KeyboardInterrupt):
            world.undo()
        assert world.owner is TopicOwner.PLATFORM
        world.at = lambda _: None
    world.undo()
    assert (world.handover.state, world.owner) == (HandoverState.PARKED, TopicOwner.HANDING_OVER)


def written_down(world):
    partition = world.partitions[0]
    lease = world.publications.claim(partition, run_id="late", batch_id="late", lease_ms=30_000)
    world.publications.begin(lease.fence, metadata_partition=0, partition_count=3, next_offset=0)
    row = world.copying.metadata.list_segments(partition)[0].metadata
    intent = Intent(row.remote_log_segment_id.id, RemoteLogSegmentState(0), row.start_offset, row.end_offset, b"value")
    world.publications.intend(lease.fence, 0, intent)
    return lease


def test_behind_an_undo_nothing_is_written_down_any_more(world):
    world.up_to(HandoverStep.PUBLISH)
    world.undo()
    assert (world.handover.state, world.owner) == (HandoverState.UNDONE, TopicOwner.PLATFORM)
    with pytest.raises(PublicationRefusedError, match="owner is platform"):
        written_down(world)


def test_one_that_went_back_to_the_gate_behind_the_fence_gives_the_topic_back(world):
    world.up_to(HandoverStep.FENCE)
    world.brokers.partition(TOPIC_ID, 0).earliest = 10
    asked = world.carry_on()
    assert (asked.step, world.owner) == (HandoverStep.APPROVAL, TopicOwner.HANDING_OVER)
    world.undo()
    assert (world.handover.state, world.owner) == (HandoverState.UNDONE, TopicOwner.PLATFORM)
    assert world.configs == OLD_RETENTION


def test_a_topic_that_was_created_again_is_left_alone(world):
    world.carry_on(until=HandoverStep.PRECONDITIONS)
    world.brokers.create_topic(TOPIC, configs={"retention.bytes": "7"})
    stopped = world.carry_on()
    assert (stopped.step, stopped.state) == (HandoverStep.OVERRIDES, HandoverState.STOPPED)
    assert stopped.detail.startswith(f"{UnknownTopicError.__name__}: topic orders is handed over under id {TOPIC_ID}")
    assert world.configs == {"retention.bytes": "7"}
    world.undo()
    assert (world.handover.state, world.configs) == (HandoverState.UNDONE, {"retention.bytes": "7"})


def test_remote_storage_of_a_topic_that_was_created_again_is_no_switch_of_this_one(world):
    world.carry_on(until=HandoverStep.OVERRIDES)
    world.forgetful = True
    world.brokers.create_topic(TOPIC, configs=SWITCHED)
    world.carry_on()
    assert world.owner is not TopicOwner.BROKER
    assert world.configs == SWITCHED


def test_a_partition_whose_leader_was_away_at_the_fence_is_published_as_well(world):
    world.up_to(HandoverStep.RECHECK)
    drive = world.handovers.drive(HANDOVER_ID, "somebody", lease_ms=1)
    world.handovers.save_seed(drive, world.handovers.seed(HANDOVER_ID)[:1])
    world.handovers.release(drive)
    ended = world.carry_on()
    if ended.step is HandoverStep.APPROVAL:
        world.approve()
        ended = world.carry_on()
    assert ended.state is HandoverState.DONE
    assert [world.publications.journal(one) is not None for one in world.partitions] == [True, True]


def test_a_log_start_that_rose_behind_the_switch_is_accepted_by_whoever_resumes(world):
    world.up_to(HandoverStep.WATCH)
    world.brokers.partition(TOPIC_ID, 1).earliest = 10
    assert world.carry_on().state is HandoverState.STOPPED
    assert world.carry_on().state is HandoverState.STOPPED
    ended = world.carry_on(resume=True)
    assert ended.state is HandoverState.DONE
    assert "orders-1: the log start was 0 and is now 10: the resume accepts it" in world.messages
    assert world.configs == {**OLD_RETENTION, **SWITCHED}


def test_what_rolled_first_behind_the_fence_is_left_to_the_broker(tmp_path):
    with handover_world(tmp_path, partitions=2, segments=0) as world:
        world.begin()
        world.up_to(HandoverStep.RECHECK)
        world.roll(0)
        ended = world.carry_on(until=HandoverStep.SWITCH)
        assert (ended.step, ended.state) == (HandoverStep.WATCH, HandoverState.ACTIVE)


def test_a_parked_one_whose_published_records_expired_goes_on_all_the_same(world):
    world.up_to(HandoverStep.SWITCH)
    world.undo()
    world.put(0, 5)
    replica_id, replica = next(iter(world.copying.source.replicas.items()))
    kept = tuple(one for one in replica.segments if one.base_offset >= 30)
    world.copying.source.change(replica_id, log_start_offset=30, segments=kept)
    model = world.brokers.partition(TOPIC_ID, 0)
    model.earliest = model.earliest_local = 30
    assert world.carry_on(resume=True).step is HandoverStep.APPROVAL
    world.approve()
    assert world.carry_on().state is HandoverState.DONE


def test_local_retention_goes_down_in_steps_to_brokers_own_default_too(tmp_path):
    with handover_world(tmp_path, partitions=1, segments=8) as world:
        world.brokers.topic_defaults["local.retention.bytes"] = "2000"
        world.brokers.broker_defaults["log.local.retention.bytes"] = "2000"
        world.brokers.alter_topic_configs(TOPIC, {"local.retention.bytes": None})
        world.begin()
        world.carry_on()
        world.approve()
        assert world.carry_on().state is HandoverState.DONE
        assert "local.retention.bytes" not in world.configs
        assert len([line for line in world.messages if line.startswith("local.retention.bytes=")]) == 8 + 1
        assert [one.compared_offset for one in world.handovers.seed(HANDOVER_ID)] == [70]


def test_a_value_set_while_overrides_are_set_is_what_comes_back(world):
    away_when_overrides_are_set(world)
    world.brokers.alter_topic_configs(TOPIC, {"retention.bytes": "700000", "local.retention.bytes": None})
    world.carry_on()
    world.approve()
    assert world.carry_on().state is HandoverState.DONE
    assert world.configs == {**SWITCHED, "retention.bytes": "700000"}


def test_a_value_set_while_overrides_are_set_is_left_by_an_undo(world):
    away_when_overrides_are_set(world)
    world.brokers.alter_topic_configs(TOPIC, {"retention.bytes": "700000"})
    world.undo()
    assert world.configs == {**OLD_RETENTION, "retention.bytes": "700000"}


def away_when_overrides_are_set(world):
    """The controller is away when old values are stored, and retention overrides are not set yet."""

    def at(name):
        if name == "alter_topic_configs" and world.handover.step is HandoverStep.OVERRIDES:
            raise BrokersUnavailableError("away")

    world.at = at
    world.carry_on()
    world.at = lambda _: None
    assert world.handovers.overrides(HANDOVER_ID)
    assert world.configs == OLD_RETENTION


@pytest.mark.parametrize("before", ["900000", None], ids=["guarded", "no-guard-needed"])
def test_what_somebody_sets_behind_the_switch_is_held_back_and_comes_back(tmp_path, before):
    with handover_world(tmp_path, segments=2) as world:
        world.brokers.alter_topic_configs(TOPIC, {"retention.bytes": before})
        world.begin()
        world.up_to(HandoverStep.SWITCH)
        world.forgetful = True
        world.carry_on(until=HandoverStep.SWITCH)
        world.brokers.alter_topic_configs(TOPIC, {"retention.bytes": "700000"})
        world.carry_on()
        assert world.configs["retention.bytes"] == "-1"
        world.forgetful = False
        assert world.carry_on().state is HandoverState.DONE
        assert world.configs == {**OLD_RETENTION, "retention.bytes": "700000", **SWITCHED}


def test_leaders_of_after_the_watch_are_asked_before_retention_goes_back(world):
    """They led nothing when the others were watched, and count local and remote bytes both."""
    world.up_to(HandoverStep.RETENTION)
    elect_again(world)
    waiting = world.carry_on()
    assert (waiting.state, waiting.step) == (HandoverState.ACTIVE, HandoverStep.RETENTION)
    assert "latest-tiered-covers-seed" in waiting.detail
    assert world.configs["retention.bytes"] == "-1"
    world.forgetful = False
    assert world.carry_on().state is HandoverState.DONE
    assert world.configs == {**OLD_RETENTION, **SWITCHED}


def test_retention_goes_back_by_the_last_answer_of_the_leaders(world):
    """A leader that was elected after the checks, and that was asked for something else, does not know it yet."""
    world.up_to(HandoverStep.RETENTION)
    told, act = [], world.brokers.after_call

    def answered(name):
        act(name)
        if name == "partition_offsets":
            told.append([world.brokers.partition(TOPIC_ID, one.partition).latest_tiered for one in world.partitions])
            elect_again(world)

    world.brokers.after_call = answered
    world.carry_on(until=HandoverStep.RETENTION)
    assert world.handover.step is HandoverStep.LOCAL_RETENTION
    assert told
    assert None not in told[-1]


def test_what_is_below_the_log_start_need_not_be_known(world):
    world.up_to(HandoverStep.RETENTION)
    elect_again(world)
    for one in world.partitions:
        world.brokers.partition(TOPIC_ID, one.partition).earliest = 20
    assert world.carry_on().step is HandoverStep.LOCAL_RETENTION


@pytest.mark.parametrize(
    ("is_recreated", "says"), [(False, "there is no topic of this name any more"), (True, "but its id is")]
)
def test_a_topic_that_is_deleted_before_retention_goes_back_is_not_waited_for(world, is_recreated, says):
    world.up_to(HandoverStep.RETENTION)
    world.brokers.delete_topic(TOPIC)
    if is_recreated:
        world.brokers.create_topic(TOPIC, partitions=2)
    stopped = world.carry_on()
    assert stopped.state is HandoverState.STOPPED
    assert says in stopped.detail
    assert {one.old_value for one in world.handovers.overrides(HANDOVER_ID)} == {"900000", "5000", None}


def elect_again(world):
    """Other leaders, which do not know yet what is remote."""
    world.forgetful = True
    for one in world.partitions:
        world.brokers.partition(TOPIC_ID, one.partition).latest_tiered = None


def test_a_level_of_ours_is_not_taken_for_somebodys_wish(tmp_path):
    """The last step lowers local retention; somebody switches off meanwhile, and undoes."""
    with handover_world(tmp_path, partitions=1, segments=8) as world:
        world.begin()
        world.up_to(HandoverStep.LOCAL_RETENTION)
        world.lost.add((0, 25))
        assert world.carry_on().state is HandoverState.STOPPED
        assert world.configs["local.retention.bytes"] not in {"-2", OLD_RETENTION["local.retention.bytes"]}
        world.brokers.alter_topic_configs(TOPIC, SWITCHED_OFF)
        world.undo()
        assert world.configs == OLD_RETENTION | SWITCHED_OFF


def test_remote_storage_that_goes_off_before_retention_goes_back_stops_it(world):
    world.up_to(HandoverStep.RETENTION)
    world.brokers.alter_topic_configs(TOPIC, SWITCHED_OFF)
    elect_again(world)
    stopped = world.carry_on()
    assert stopped.state is HandoverState.STOPPED
    assert "switch-is-on" in stopped.detail


def test_a_leader_that_ends_below_what_is_remote_knows_all_there_is(world):
    """After an unclean election."""
    world.up_to(HandoverStep.RETENTION)
    elect_again(world)
    for one in world.partitions:
        model = world.brokers.partition(TOPIC_ID, one.partition)
        model.high_watermark, model.latest_tiered = 15, 13
    assert world.carry_on().step is HandoverStep.RETENTION
    for one in world.partitions:
        world.brokers.partition(TOPIC_ID, one.partition).latest_tiered = 14
    assert world.carry_on(until=HandoverStep.RETENTION).step is HandoverStep.LOCAL_RETENTION
