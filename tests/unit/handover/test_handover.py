"""The state machine of a hand-over: what follows, how far it goes back, what a switch by hand means."""

import pytest

from include.tiering.handover.rules import (
    STEPS,
    HandoverState,
    HandoverStep,
    UndoAction,
    following,
    is_before,
    switched_by_hand,
    undo_of,
)
from tests.doubles.present import present

BEFORE_SWITCH = [step for step in STEPS if is_before(step, HandoverStep.SWITCH)]


def test_steps_follow_each_other_to_the_end():
    walked: list[HandoverStep] = []
    step: HandoverStep | None = STEPS[0]
    while step is not None:
        walked.append(step)
        step = following(step)
    assert tuple(walked) == STEPS
    assert STEPS[-1] is HandoverStep.LOCAL_RETENTION


def test_without_the_fence_configs_are_all_that_is_undone():
    undo = undo_of(is_fenced=False, is_published=False, is_enabled=False)
    assert (undo.actions, undo.ends_as, undo.reason) == ((UndoAction.RESTORE_OVERRIDES,), HandoverState.UNDONE, None)


def test_behind_the_fence_the_topic_is_given_back_too():
    undo = undo_of(is_fenced=True, is_published=False, is_enabled=False)
    assert undo.actions == (UndoAction.RESTORE_OVERRIDES, UndoAction.OWNER_TO_PLATFORM)
    assert undo.ends_as is HandoverState.UNDONE


@pytest.mark.parametrize("is_fenced", [False, True])
def test_what_was_published_is_not_taken_back(is_fenced):
    undo = undo_of(is_fenced=is_fenced, is_published=True, is_enabled=False)
    assert undo.actions == (UndoAction.RESTORE_OVERRIDES,)
    assert undo.ends_as is HandoverState.PARKED
    assert "never lower the highest offset" in present(undo.reason)


@pytest.mark.parametrize("is_fenced", [False, True])
@pytest.mark.parametrize("is_published", [False, True])
def test_a_switched_topic_is_not_taken_back(is_fenced, is_published):
    undo = undo_of(is_fenced=is_fenced, is_published=is_published, is_enabled=True)
    assert (undo.actions, undo.ends_as) == ((), None)
    assert "remote.log.delete.on.disable" in present(undo.reason)


@pytest.mark.parametrize("step", BEFORE_SWITCH)
def test_a_switch_by_hand_ends_copying_and_publishing(step):
    for is_published in (False, True):
        by_hand = switched_by_hand(step, is_published=is_published)
        assert by_hand is not None
        assert by_hand.goes_to is HandoverStep.WATCH
        assert ("nothing was published" in by_hand.meaning) is not is_published


@pytest.mark.parametrize("step", [step for step in STEPS if step not in BEFORE_SWITCH])
def test_from_the_switch_on_it_is_ours(step):
    assert switched_by_hand(step, is_published=True) is None


def test_only_an_ended_hand_over_leaves_nothing_to_put_back():
    assert [state for state in HandoverState if state.has_ended] == [HandoverState.UNDONE, HandoverState.DONE]
    assert {state for state in HandoverState if state.holds_overrides} == {
        HandoverState.ACTIVE,
        HandoverState.STOPPED,
        HandoverState.UNDOING,
    }
