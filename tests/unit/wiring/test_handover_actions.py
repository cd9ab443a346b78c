"""What a copy round of a hand-over says about trying again."""

from types import SimpleNamespace
from typing import Any

import pytest

from include.tiering.model.ids import TopicIdPartition, Uuid
from include.tiering.tasks.copy_plan import CopyPlan, HeldBack, HeldBackPartition
from include.tiering.wiring.handover_actions import HandoverActions

PASSES_BY_ITSELF = {
    HeldBack.NOT_READY,
    HeldBack.STOPPED,
    HeldBack.BYTE_LIMIT,
    HeldBack.NOT_ELIGIBLE,
    HeldBack.DAMAGED,
}
ORDERS = TopicIdPartition(Uuid(bytes(range(16))), 0, "orders")


@pytest.mark.parametrize("reason", HeldBack)
def test_what_only_a_person_can_end_is_not_waited_for(reason: HeldBack) -> None:
    held = HeldBackPartition(ORDERS, 7, reason, "in words")
    tiering: Any = SimpleNamespace(plan_copy=lambda run_id, topics: CopyPlan(run_id, (), (held,), ()))
    nobody: Any = None
    done = HandoverActions(tiering, nobody, nobody).copy_round("orders", "run")
    assert done.worth_retrying == (reason in PASSES_BY_ITSELF)
    assert done.held_back == (f"{ORDERS}, offset 7: {reason}: in words",)
