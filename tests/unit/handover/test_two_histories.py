"""A topic whose archive holds two histories: brokers take an end of either for tiered, so it is not handed over."""

from dataclasses import replace

import pytest

from include.tiering.handover.rules import HandoverState, HandoverStep
from include.tiering.kafka.log_dirs.contract import ReplicaId
from include.tiering.model.leader_epochs import LeaderEpochs
from include.tiering.model.ownership import TopicOwner
from tests.doubles.handover_world import TOPIC, HandoverWorld, handover_world


@pytest.fixture
def world(tmp_path):
    """Offsets 0..19 are archived; then the leader of an unclean election has others from offset 5 on."""
    with handover_world(tmp_path, partitions=1, segments=2) as made:
        assert copy_round(made) == 2
        elect_unclean(made)
        made.begin()
        yield made


def replica_of(world: HandoverWorld) -> ReplicaId:
    return ReplicaId(world.partitions[0], 1, "memory")


def elect_unclean(world: HandoverWorld) -> None:
    epochs, replica = LeaderEpochs.of([(0, 0), (3, 5)]), world.copying.source.replicas[replica_of(world)]
    segments = tuple(
        replace(one, leader_epochs=epochs.range(one.base_offset, one.end_offset + 1)) for one in replica.segments
    )
    world.copying.source.change(replica_of(world), segments=segments, leader_epochs=epochs, leader_epoch=3)
    world.brokers.partition(world.partitions[0].topic_id, 0).leader_epoch = 3


def copy_round(world: HandoverWorld) -> int:
    return world.ports.actions.copy_round(TOPIC, world.ports.new_run_id()).copied_segments


def follow_source(world: HandoverWorld) -> None:
    world.copying.metadata.follow_source(
        world.partitions[0], 1, 5, source_epochs=LeaderEpochs(), reason="agreed", author="ada"
    )


def require_refused(world: HandoverWorld, why: str) -> None:
    stopped = world.carry_on(resume=True)
    assert (stopped.step, stopped.state) == (HandoverStep.PRECONDITIONS, HandoverState.STOPPED)
    assert "history-is-one" in stopped.detail
    assert why in stopped.detail
    assert world.owner is TopicOwner.PLATFORM


def test_it_is_refused_while_nobody_decided(world):
    assert copy_round(world) == 0
    require_refused(world, "offsets 5..19 are remote under other leader epochs")


def test_it_is_refused_as_long_as_the_other_history_reaches_into_the_log(world):
    copy_round(world)
    follow_source(world)
    assert copy_round(world) == 2
    require_refused(world, "offsets 0..19 were archived before the source's history was followed")


def test_it_goes_on_once_the_log_start_has_passed_the_other_history(world):
    copy_round(world)
    follow_source(world)
    world.roll(0)
    elect_unclean(world)
    assert copy_round(world) == 3
    segments = world.copying.source.replicas[replica_of(world)].segments
    world.copying.source.change(replica_of(world), log_start_offset=20, segments=segments[2:])
    world.brokers.partition(world.partitions[0].topic_id, 0).earliest = 20
    going_on = world.carry_on()
    assert (going_on.step, going_on.state) == (HandoverStep.APPROVAL, HandoverState.ACTIVE), going_on.detail
