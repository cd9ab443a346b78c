"""A hand-over from its first check to the end, over doubles that act as brokers do."""

import pytest

from include.tiering.handover.contract import LocalRetention
from include.tiering.handover.rules import HandoverState, HandoverStep
from include.tiering.model.ownership import TopicOwner
from tests.doubles.handover_world import OLD_RETENTION, TOPIC_ID, handover_world


@pytest.fixture
def world(tmp_path):
    with handover_world(tmp_path) as made:
        made.begin()
        yield made


def test_it_waits_for_an_approval_with_everything_copied_and_overridden(world):
    waiting = world.carry_on()
    assert (waiting.step, waiting.state) == (HandoverStep.APPROVAL, HandoverState.ACTIVE)
    assert waiting.plan_hash in waiting.detail
    assert world.owner is TopicOwner.PLATFORM
    assert world.configs["retention.bytes"] == world.configs["retention.ms"] == "-1"
    assert world.configs["local.retention.bytes"] == "-2"
    assert [(one.start_offset, one.end_offset) for one in world.handovers.seed(waiting.handover_id)] == [(0, 29)] * 2


def test_it_ends_with_the_brokers_and_the_configs_that_were(world):
    world.carry_on()
    world.approve()
    ended = world.carry_on()
    assert (ended.state, ended.detail) == (HandoverState.DONE, "the brokers copy, expire and serve the topic")
    assert world.owner is TopicOwner.BROKER
    assert world.configs == {**OLD_RETENTION, "remote.storage.enable": "true"}
    assert all(override.restored for override in world.handovers.overrides(ended.handover_id))


def test_local_retention_goes_down_in_steps_and_every_segment_is_compared(tmp_path):
    with handover_world(tmp_path, partitions=2, segments=8) as world:
        world.begin(LocalRetention(None, 2_000))
        world.carry_on()
        world.approve()
        assert world.carry_on().state is HandoverState.DONE
        assert world.configs["local.retention.bytes"] == "2000"
        assert [world.brokers.partition(TOPIC_ID, number).earliest_local for number in (0, 1)] == [70, 70]
        assert [one.compared_offset for one in world.handovers.seed(world.handover.handover_id)] == [70, 70]
        levels = [line for line in world.messages if line.startswith("local.retention.bytes=")]
        assert len(levels) == 8 + 1


def test_a_record_that_brokers_serve_otherwise_stops_it(tmp_path):
    with handover_world(tmp_path, segments=8) as world:
        world.begin(LocalRetention(None, 2_000))
        world.up_to(HandoverStep.LOCAL_RETENTION)
        world.lost.add((1, 25))
        stopped = world.carry_on()
        assert stopped.state is HandoverState.STOPPED
        assert "orders-1: of offsets 20..29 the brokers serve 9 records, copied were 10" in stopped.detail
        assert world.brokers.partition(TOPIC_ID, 0).earliest_local == 30
        world.lost.clear()
        assert world.carry_on(resume=True).state is HandoverState.DONE


def test_a_batch_that_is_not_opened_is_named_and_not_compared(tmp_path):
    with handover_world(tmp_path, segments=8) as world:
        world.begin(LocalRetention(None, 2_000))
        world.up_to(HandoverStep.LOCAL_RETENTION)
        world.too_large.add((1, 20))
        assert world.carry_on().state is HandoverState.DONE
        messages = [line for line in world.messages if "not compared" in line]
        assert messages == ["orders-1: offsets 23..24 are in a batch too large to be opened, and were not compared"]


def test_a_topic_in_which_nothing_was_rolled_yet_is_handed_over_as_well(tmp_path):
    with handover_world(tmp_path, partitions=1, segments=0) as world:
        world.begin()
        world.carry_on()
        world.approve()
        assert world.carry_on().state is HandoverState.DONE
        assert world.owner is TopicOwner.BROKER
        assert [one.is_empty for one in world.handovers.seed(world.handover.handover_id)] == [True]
