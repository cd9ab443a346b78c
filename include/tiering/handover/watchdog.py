"""Hand-overs that nobody carries on, while configs of their topics stand at values that only a hand-over wants, or
while the topic is nobody's: what is not copied then goes with the brokers' retention."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from include.tiering.handover.handover import HandoverState, HandoverStep
from include.tiering.handover.handover_contract import Handover
from include.tiering.units import format_duration

ALONE_MS: Final = 5 * 60 * 1000
"""A driver that has been gone for longer died: between two tasks of a DAG run lies less."""
PERSON_MS: Final = 24 * 60 * 60 * 1000
"""How long a person may let a hand-over wait before somebody is told again."""


@dataclass(frozen=True, slots=True)
class ForgottenHandover:
    """`since_ms`: when anybody last did anything about it, by the database's clock. `message` is for a person."""

    handover: Handover
    since_ms: int
    message: str


def forgotten_handovers(open_handovers: Iterable[Handover], now_ms: int) -> list[ForgottenHandover]:
    """Those that ought to go on and have no driver, and those that wait for a person for too long."""
    return [found for one in open_handovers if (found := _forgotten(one, now_ms)) is not None]


def _forgotten(handover: Handover, now_ms: int) -> ForgottenHandover | None:
    is_parked = handover.state is HandoverState.PARKED
    # A lease that ends an hour ahead was taken by a clock that was ahead: nobody drives under it.
    is_driven = now_ms < handover.driven_until_ms <= now_ms + ALONE_MS
    if not (handover.state.holds_guards or is_parked) or is_driven:
        return None
    since_ms = min(now_ms, max(handover.driven_until_ms, handover.updated_at_ms))
    idle_ms = now_ms - since_ms
    is_a_persons = is_parked or handover.state is HandoverState.STOPPED or handover.step is HandoverStep.APPROVAL
    if idle_ms <= (PERSON_MS if is_a_persons else ALONE_MS):
        return None
    waits = "is parked" if is_parked else "waits for a person" if is_a_persons else "has no driver any more"
    meanwhile = "nobody copies or expires the topic" if is_parked else "its guards hold: nothing of the topic expires"
    ways_out = f"./tiering handover {handover.topic} --resume" + ("" if is_parked else ", or --undo")
    return ForgottenHandover(
        handover,
        since_ms,
        f"the hand-over of {handover.topic} {waits}, at {handover.step} for {format_duration(idle_ms / 1000)}, and"
        f" {meanwhile}. {ways_out}",
    )
