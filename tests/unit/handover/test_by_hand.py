"""What people do in the middle of a handover, and logs that diverged."""

from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import select

from include.tiering.database.schema import events
from include.tiering.errors import BrokersUnavailableError, StateConflictError
from include.tiering.handover.ports import published_end
from include.tiering.handover.rules import HandoverState, HandoverStep
from include.tiering.kafka.log_dirs.contract import ReplicaId
from include.tiering.model.leader_epochs import LeaderEpochs
from include.tiering.model.ownership import TopicOwner
from include.tiering.model.segments import TopicIdPartition
from tests.doubles.handover_world import HANDOVER_ID, OLD_RETENTION, TOPIC, TOPIC_ID, HandoverWorld, handover_world

# Somebody switches remote storage on while a handover is on its way.

PARTITIONS = [TopicIdPartition(TOPIC_ID, number, TOPIC) for number in (0, 1)]
BEFORE_PUBLISH = [
    HandoverStep.OVERRIDES,
    HandoverStep.COPY,
    HandoverStep.QUALITY_CHECK,
    HandoverStep.FENCE,
    HandoverStep.RECHECK,
]


@pytest.fixture
def world(tmp_path):
    with handover_world(tmp_path, segments=2) as made:
        made.begin()
        yield made


def go_to(world, step):
    if step in (HandoverStep.FENCE, HandoverStep.RECHECK):
        world.up_to(step)
    else:
        steps = list(HandoverStep)
        world.carry_on(until=steps[steps.index(step) - 1])


@pytest.mark.parametrize("step", BEFORE_PUBLISH)
def test_before_anything_is_published_the_topic_is_the_brokers_and_nothing_of_ours_is_sent(world, step):
    go_to(world, step)
    world.switch_by_hand()
    waiting = world.carry_on()
    assert (waiting.step, waiting.state) == (HandoverStep.WATCH, HandoverState.ACTIVE)
    assert world.owner is TopicOwner.BROKER
    assert any("set by hand" in line and "nothing was published" in line for line in world.messages)
    assert [published_end(world.publications, one) for one in PARTITIONS] == [None, None]
    assert world.configs.get("retention.bytes") == ("900000" if step is HandoverStep.OVERRIDES else "-1")


def test_overrides_are_put_back_once_the_brokers_know_their_own_copies(world):
    go_to(world, HandoverStep.QUALITY_CHECK)
    world.switch_by_hand()
    assert "brokers-know-their-copies" in world.carry_on().detail
    world.forgetful = True
    for number in (0, 1):
        world.brokers.partition(TOPIC_ID, number).latest_tiered = 9
    ended = world.carry_on()
    assert ended.state is HandoverState.DONE
    assert world.configs == {**OLD_RETENTION, "remote.storage.enable": "true"}


def test_between_two_partitions_publishing_stops_and_what_was_published_is_watched(world):
    world.up_to(HandoverStep.PUBLISH)
    published = []

    def switch_behind_the_first(name):
        if name == "publish!":
            published.append(name)
            world.switch_by_hand()

    world.at = switch_behind_the_first
    waiting = world.carry_on()
    assert published == ["publish!"]
    assert [published_end(world.publications, one) for one in PARTITIONS] == [19, None]
    assert [one.topic_id_partition.partition for one in world.handovers.seed(HANDOVER_ID)] == [0]
    assert (waiting.step, world.owner) == (HandoverStep.WATCH, TopicOwner.BROKER)
    assert any("brokers serve the segments that were published" in line for line in world.messages)
    world.brokers.partition(TOPIC_ID, 1).latest_tiered = 19
    world.forgetful = True
    assert world.carry_on().state is HandoverState.DONE


def test_it_is_an_event_with_what_it_means(world):
    go_to(world, HandoverStep.QUALITY_CHECK)
    world.switch_by_hand()
    world.carry_on()
    with world.copying.work._engine.connect() as connection:
        details = list(connection.scalars(select(events.c.detail).where(events.c.kind == "handover")))
    assert any(detail.startswith("remote.storage.enable=true was set by hand at gate") for detail in details)


def test_switched_by_hand_just_before_we_do_it_goes_on_as_ours(world):
    world.up_to(HandoverStep.SWITCH)
    world.switch_by_hand()
    assert world.carry_on().state is HandoverState.DONE
    assert not [line for line in world.messages if "by hand" in line]


def test_in_the_midst_of_an_undo_nothing_is_put_back_and_a_resumed_one_follows(world):
    """It is off when the undo begins, and on when the configs are read that it is about to change."""
    go_to(world, HandoverStep.QUALITY_CHECK)
    seen: list[Any] = []

    def switch_while_undoing(_name):
        if world.handover.state is HandoverState.UNDOING and not seen:
            seen.append(True)
            world.switch_by_hand()

    world.at = switch_while_undoing
    with pytest.raises(StateConflictError, match="remote storage was enabled meanwhile; continue with --resume"):
        world.undo()
    assert world.configs["retention.bytes"] == "-1"
    assert world.handover.state is HandoverState.STOPPED
    waiting = world.carry_on(resume=True)
    assert (waiting.step, world.owner) == (HandoverStep.WATCH, TopicOwner.BROKER)


def test_an_undo_that_was_cut_short_before_the_switch_can_be_resumed_forwards(world):
    go_to(world, HandoverStep.QUALITY_CHECK)

    def die_while_undoing(_name):
        if world.handover.state is HandoverState.UNDOING:
            raise BrokersUnavailableError("gone")

    world.at = die_while_undoing
    with pytest.raises(BrokersUnavailableError):
        world.undo()
    world.at = lambda _name: None
    assert world.handover.state is HandoverState.UNDOING
    world.switch_by_hand()
    with pytest.raises(StateConflictError, match="cannot be given back"):
        world.carry_on(resume=True)
    waiting = world.carry_on(resume=True)
    assert (waiting.step, world.owner) == (HandoverStep.WATCH, TopicOwner.BROKER)


# A topic whose archive holds two histories: brokers take an end of either for tiered, so it is not handed over.


@pytest.fixture
def diverged(tmp_path):
    """Offsets 0..19 are archived; then the leader of an unclean election has others from offset 5 on."""
    with handover_world(tmp_path, partitions=1, segments=2) as made:
        assert copy_round(made) == 2
        elect_unclean(made)
        made.begin()
        yield made


def replica_of(diverged: HandoverWorld) -> ReplicaId:
    return ReplicaId(diverged.partitions[0], 1, "memory")


def elect_unclean(diverged: HandoverWorld) -> None:
    epochs, replica = LeaderEpochs.of([(0, 0), (3, 5)]), diverged.copying.source.replicas[replica_of(diverged)]
    segments = tuple(
        replace(one, leader_epochs=epochs.range(one.base_offset, one.end_offset + 1)) for one in replica.segments
    )
    diverged.copying.source.change(replica_of(diverged), segments=segments, leader_epochs=epochs, leader_epoch=3)
    diverged.brokers.partition(diverged.partitions[0].topic_id, 0).leader_epoch = 3


def copy_round(diverged: HandoverWorld) -> int:
    return diverged.ports.actions.copy_round(TOPIC, diverged.ports.new_run_id()).copied_segments


def follow_source(diverged: HandoverWorld) -> None:
    diverged.copying.metadata.follow_source(
        diverged.partitions[0], 1, 5, source_epochs=LeaderEpochs(), reason="agreed", author="ada"
    )


def require_refused(diverged: HandoverWorld, why: str) -> None:
    stopped = diverged.carry_on(resume=True)
    assert (stopped.step, stopped.state) == (HandoverStep.PRECONDITIONS, HandoverState.STOPPED)
    assert "history-is-one" in stopped.detail
    assert why in stopped.detail
    assert diverged.owner is TopicOwner.PLATFORM


def test_it_is_refused_while_nobody_decided(diverged):
    assert copy_round(diverged) == 0
    require_refused(diverged, "offsets 5..19 are remote under other leader epochs")


def test_it_is_refused_as_long_as_the_other_history_reaches_into_the_log(diverged):
    copy_round(diverged)
    follow_source(diverged)
    assert copy_round(diverged) == 2
    require_refused(diverged, "offsets 0..19 were archived from a history that the source has left")


def test_it_goes_on_once_the_log_start_has_passed_the_other_history(diverged):
    copy_round(diverged)
    follow_source(diverged)
    diverged.roll(0)
    elect_unclean(diverged)
    assert copy_round(diverged) == 3
    segments = diverged.copying.source.replicas[replica_of(diverged)].segments
    diverged.copying.source.change(replica_of(diverged), log_start_offset=20, segments=segments[2:])
    diverged.brokers.partition(diverged.partitions[0].topic_id, 0).earliest = 20
    going_on = diverged.carry_on()
    assert (going_on.step, going_on.state) == (HandoverStep.APPROVAL, HandoverState.ACTIVE), going_on.detail
