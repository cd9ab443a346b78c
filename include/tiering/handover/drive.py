"""Carry a hand-over on: its steps one after another, until it ends, waits, stops, or a given step is done.

what dies                    what it leaves                       what goes on
the driver, in a step        the step, done in part; its lease    the next driver, once the lease has ended: it does
                                                                  the step again, each is idempotent
the driver, between steps    the next step; its lease             the same
the database                 nothing is advanced                  the same driver, or the next
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import Final

from include.tiering.errors import LeaseLostError, TieringError
from include.tiering.handover.by_hand import notice_switch
from include.tiering.handover.copy_rounds import copy_until_active
from include.tiering.handover.fence import fence_off, recheck
from include.tiering.handover.gate import ask_approval, pass_gate
from include.tiering.handover.guards import set_guards
from include.tiering.handover.handover import HandoverState, HandoverStep, Undo, following, is_before
from include.tiering.handover.handover_contract import Handover
from include.tiering.handover.ports import HandoverPorts, HandoverRun, StepEnd, StepResult
from include.tiering.handover.preconditions import check_preconditions
from include.tiering.handover.switch import publish_seed, switch_on
from include.tiering.handover.tasks_local_retention import lower_local_retention
from include.tiering.handover.undo import undo
from include.tiering.handover.watch import accept_log_starts, restore_retention, take_over, watch_brokers
from include.tiering.model.ids import Uuid

StepFunction = Callable[[HandoverRun], StepResult]
STEP_FUNCTIONS: Final[Mapping[HandoverStep, StepFunction]] = MappingProxyType(
    {
        HandoverStep.PRECONDITIONS: check_preconditions,
        HandoverStep.GUARDS: set_guards,
        HandoverStep.COPY: copy_until_active,
        HandoverStep.GATE: pass_gate,
        HandoverStep.APPROVAL: ask_approval,
        HandoverStep.FENCE: fence_off,
        HandoverStep.RECHECK: recheck,
        HandoverStep.PUBLISH: publish_seed,
        HandoverStep.SWITCH: switch_on,
        HandoverStep.WATCH: watch_brokers,
        HandoverStep.TAKE_OVER: take_over,
        HandoverStep.RETENTION: restore_retention,
        HandoverStep.LOCAL_RETENTION: lower_local_retention,
    }
)


def _silent(_: str) -> None:
    """For callers that do not watch."""


def carry_on(
    ports: HandoverPorts,
    handover_id: Uuid,
    driver: str,
    *,
    until: HandoverStep | None = None,
    resume: bool = False,
    on_step: Callable[[Handover], None] = lambda _: None,
    told: Callable[[str], None] = _silent,
) -> Handover:
    """Do what is to be done, at most up to `until` (inclusive); returns the hand-over as it is then.

    What a step waits or stopped for is its `detail`. With `resume` one that STOPPED, or was PARKED, goes on again.
    One that is UNDOING goes on back.

    Raises:
        LeaseLostError: somebody else drives it, or took it over meanwhile.
        BrokersError: it was resumed, and they do not say from which log starts on.
        MetadataUnavailableError
    """
    with _driving(ports, handover_id, driver, told) as run:
        if run.handover.state is HandoverState.UNDOING:
            undo(run)
        elif resume:
            _set_going(run)
        while _is_due(run.handover, until):
            handover = run.handover
            on_step(handover)
            if not _advance(run, handover.step, _done(run, handover.step)):
                break
        return run.handover


def undo_handover(
    ports: HandoverPorts, handover_id: Uuid, driver: str, *, told: Callable[[str], None] = _silent
) -> Undo:
    """Go back as far as possible.

    Raises:
        LeaseLostError: somebody else drives it.
        StateConflictError: it has ended, or nothing can be undone any more; the text says what can be done instead.
        BrokersError
    """
    with _driving(ports, handover_id, driver, told) as run:
        return undo(run)


def _is_due(handover: Handover, until: HandoverStep | None) -> bool:
    return handover.state is HandoverState.ACTIVE and (until is None or not is_before(until, handover.step))


def _done(run: HandoverRun, step: HandoverStep) -> StepResult:
    """Errors that may pass are a reason to wait, the others stop it: each leaves its sentence."""
    try:
        return notice_switch(run, step) or STEP_FUNCTIONS[step](run)
    except LeaseLostError:
        raise
    except TieringError as error:
        return StepResult(StepEnd.WAIT if error.retriable else StepEnd.STOP, f"{type(error).__name__}: {error}")


def _advance(run: HandoverRun, step: HandoverStep, result: StepResult) -> bool:
    """Store how a step ended; whether it goes on now."""
    handovers = run.ports.handovers
    if result.end is not StepEnd.DONE:
        state = HandoverState.ACTIVE if result.end is StepEnd.WAIT else HandoverState.STOPPED
        handovers.set_state(run.drive, state, detail=result.detail)
        return False
    next_step = result.goes_to or following(step)
    if next_step is None:
        handovers.set_state(run.drive, HandoverState.DONE, detail="the brokers copy, expire and serve the topic")
        return False
    handovers.advance(run.drive, next_step, expected=step, detail=result.detail, event=result.detail or None)
    return True


def _set_going(run: HandoverRun) -> None:
    """One that was parked begins again with its guards, which were put back. One that stopped behind the switch, over a
    log start that rose, goes on from there: nothing else would ever let it end."""
    handover = run.handover
    if handover.state not in (HandoverState.STOPPED, HandoverState.PARKED):
        return
    if handover.state is HandoverState.STOPPED and handover.step is HandoverStep.WATCH:
        accept_log_starts(run)
    if handover.state is HandoverState.PARKED:
        run.ports.handovers.advance(run.drive, HandoverStep.GUARDS, expected=handover.step)
    run.ports.handovers.set_state(run.drive, HandoverState.ACTIVE, detail="resumed")


@contextmanager
def _driving(
    ports: HandoverPorts, handover_id: Uuid, driver: str, told: Callable[[str], None]
) -> Iterator[HandoverRun]:
    drive = ports.handovers.drive(handover_id, driver, lease_ms=ports.limits.lease_ms)
    if drive is None:
        holder = ports.handovers.handover(handover_id)
        raise LeaseLostError(f"{holder.driver} drives hand-over {handover_id} of {holder.topic}")
    try:
        with ports.keep_alive(drive):
            yield HandoverRun(ports, drive, told)
    finally:
        ports.handovers.release(drive)
