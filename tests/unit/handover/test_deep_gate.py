"""Nothing is handed over that nobody has read as a whole, if that is asked for; and each byte is read once."""

from dataclasses import replace

import pytest

from include.tiering.handover.rules import HandoverState, HandoverStep
from include.tiering.model.segments import Verdict
from include.tiering.segments.contract import Verification
from tests.doubles.handover_world import handover_world


@pytest.fixture
def world(tmp_path):
    with handover_world(tmp_path, segments=2) as made:
        made.limits = replace(made.limits, verify_deep=True)
        made.begin()
        yield made


def spans(world):
    return sorted((one.topic_id_partition.partition, one.start_offset) for one in world.verified)


def look(world, *, is_deep):
    """At everything that was copied: it is as it should be."""
    for partition in world.partitions:
        for row in world.copying.metadata.list_segments(partition):
            segment_id = row.metadata.remote_log_segment_id
            world.copying.metadata.record_verification(Verification(segment_id, before=row, is_deep=is_deep))


def test_what_was_passed_by_a_shallow_verification_is_read_whole_once(world):
    world.carry_on(until=HandoverStep.COPY)
    look(world, is_deep=False)
    world.up_to(HandoverStep.RECHECK)
    assert spans(world) == [(0, 0), (0, 10), (1, 0), (1, 10)]
    assert "4 segments are read back whole, 3.9 KiB" in world.messages
    assert world.carry_on().state is HandoverState.DONE
    assert len(world.verified) == 4


def test_what_a_deep_verification_has_passed_is_not_read_again(world):
    world.carry_on(until=HandoverStep.COPY)
    look(world, is_deep=True)
    assert world.carry_on().step is HandoverStep.APPROVAL
    assert world.verified == []


def test_what_was_rolled_behind_the_approval_is_read_too(world):
    world.carry_on()
    world.approve()
    world.verified.clear()
    for partition in (0, 1):
        world.roll(partition)
    world.copying.work.save_plan("late", world.copying.planned("late").partitions)
    world.copying.batch("late", "late/0")
    look(world, is_deep=False)
    assert world.carry_on().state is HandoverState.DONE
    assert spans(world) == [(0, 20), (1, 20)]


def test_what_it_finds_stops_the_hand_over(world):
    world.carry_on(until=HandoverStep.COPY)
    look(world, is_deep=False)
    world.verdict = Verdict.FAILED
    stopped = world.carry_on()
    assert (stopped.step, stopped.state) == (HandoverStep.GATE, HandoverState.STOPPED)
    assert "Q102: as the test wants" in stopped.detail


def test_switched_off_a_shallow_verification_is_enough(world):
    world.limits = replace(world.limits, verify_deep=False)
    world.carry_on(until=HandoverStep.COPY)
    look(world, is_deep=False)
    assert world.carry_on().step is HandoverStep.APPROVAL
    assert world.verified == []
    assert not [line for line in world.messages if "read back" in line]
