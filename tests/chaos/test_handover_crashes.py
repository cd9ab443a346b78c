"""The driver is killed wherever something changes: the next one goes on, or goes back, and no override is forgotten.

Killed means: nothing of it runs any more, its lease stays until it ends. What it did before is durable.
"""

from dataclasses import replace

import pytest

from include.tiering.handover.contract import LocalRetention
from include.tiering.handover.ports import is_published, published_end
from include.tiering.handover.rules import HandoverState, HandoverStep
from include.tiering.model.ownership import TopicOwner
from include.tiering.model.segments import TopicIdPartition
from tests.doubles.deployment import Crash
from tests.doubles.handover_world import HANDOVER_ID, OLD_RETENTION, TOPIC, TOPIC_ID, handover_world

pytestmark = pytest.mark.chaos
WANTED = LocalRetention(None, 2_000)
PARTITIONS = [TopicIdPartition(TOPIC_ID, number, TOPIC) for number in (0, 1)]


reads_leaders = pytest.mark.parametrize("reads_leaders", [False, True], ids=["log-dirs", "leaders"])


class Killer:
    """Kills at each point that was not reached before, once; with `only`, at the n-th point alone."""

    def __init__(self, only: int | None = None) -> None:
        self.points: list[str] = []
        self.passed: dict[str, int] = {}
        self.only = only
        self.killed_at: str | None = None

    def begin(self) -> None:
        self.passed = {}
        self.killed_at = None

    def __call__(self, name: str) -> None:
        count = self.passed[name] = self.passed.get(name, 0) + 1
        point = f"{name} {count}"
        if point in self.points or self.killed_at is not None:
            return
        self.points.append(point)
        if self.only is None or len(self.points) - 1 == self.only:
            self.killed_at = point
            raise Crash


def drive_to_the_end(world, killer):
    """Drivers one after another, each killed at the first new point of the step that it is in; returns how many."""
    step, drivers = None, 0
    while not (handover := world.handover).state.has_ended:
        if handover.step is not step:
            step = handover.step
            killer.points.clear()
        killer.begin()
        drivers += 1
        try:
            handover = world.carry_on(f"driver-{drivers}")
        except Crash:
            continue
        if handover.step is HandoverStep.APPROVAL and handover.approval is None:
            world.approve()
    return drivers


@reads_leaders
def test_killed_at_every_point_it_still_comes_to_the_same_end(tmp_path, reads_leaders):
    with handover_world(tmp_path, partitions=1, segments=2, reads_leaders=reads_leaders) as world:
        world.limits = replace(world.limits, local_steps=2)
        world.begin(LocalRetention(None, 1_000))
        killer = Killer()
        world.at = killer
        drivers = drive_to_the_end(world, killer)
        assert drivers > 60
        assert world.handover.state is HandoverState.DONE
        assert world.owner is TopicOwner.BROKER
        assert world.configs == {**OLD_RETENTION, "local.retention.bytes": "1000", "remote.storage.enable": "true"}
        assert all(override.restored for override in world.handovers.overrides(HANDOVER_ID))
        assert published_end(world.publications, PARTITIONS[0]) == 19
        records = world.publications.journal(PARTITIONS[0]).records
        finished = [one.intent.start_offset for one in records if one.intent.state.name.endswith("FINISHED")]
        assert finished == [0, 10]


STEPS_THAT_CHANGE = [step for step in HandoverStep if step is not HandoverStep.PRECONDITIONS]


@pytest.mark.parametrize("step", [step for step in STEPS_THAT_CHANGE if step.value != "approval"])
@reads_leaders
def test_killed_in_any_step_it_can_be_undone_or_says_why_not(tmp_path, step, reads_leaders):
    with handover_world(tmp_path, reads_leaders=reads_leaders) as world:
        world.begin(WANTED)
        world.up_to(step)
        killer = Killer(only=1)
        world.at = killer
        with pytest.raises(Crash):
            world.carry_on("dead")
        world.at = lambda _: None
        enabled = world.configs.get("remote.storage.enable") == "true"
        published = is_published(world.publications, PARTITIONS)
        if enabled:
            with pytest.raises(Exception, match=r"remote\.log\.delete\.on\.disable"):
                world.undo()
            assert world.carry_on("next", resume=True).state is HandoverState.DONE
            return
        world.undo()
        assert world.configs == OLD_RETENTION
        assert world.handover.state is (HandoverState.PARKED if published else HandoverState.UNDONE)
        assert world.owner is (TopicOwner.HANDING_OVER if published else TopicOwner.PLATFORM)
