"""Carry a handover on: its steps one after another, until it ends, waits, stops, or a given step is done; or go back
as far as that is possible, and say why not further.

    what dies                    what it leaves                       what goes on
    the driver, in a step        the step, done in part; its lease    the next driver, once the lease has ended: it does
                                                                      the step again, each is idempotent
    the driver, between steps    the next step; its lease             the same
    the database                 nothing is advanced                  the same driver, or the next

A second thread prolongs the lease of whoever drives, for as long as the driver lives. A lease that was lost is not
mourned there: the driver's next change is refused. A database that is away is asked again; what lasts longer than the
lease lets another driver go on.

Going back:

    step        done when it is reached                  a crash right after it leaves       cleaned up by
    undoing     the state says so                        that state, overrides that hold     the next try goes on back
    restored    configs are what they were               the same, without overrides         the same
    owner       the topic is the platform's again        the same                            the same
    looked      nothing was published until then, or it  the same                            the same
                is nobody's again
    ended       UNDONE or PARKED                         nothing                             -

A publisher proves the owner in the transaction of each record, so one that was still at work is seen behind `owner`.
Two answers of one broker are not believed, as it may lag behind: that the topic is not switched on, once that may have
been asked for, and that there is no such topic. The controller is asked, by changes that it only checks.
"""

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from types import MappingProxyType
from typing import Final

from include.tiering.errors import (
    BrokersRefusedError,
    BrokersUnavailableError,
    LeaseLostError,
    StateConflictError,
    TieringError,
    UnknownTopicError,
)
from include.tiering.handover.contract import Drive, Handover, HandoverStore
from include.tiering.handover.copy_and_fence import ask_approval, check_quality, copy_until_active, fence_off, recheck
from include.tiering.handover.lower_local_retention import lower_local_retention
from include.tiering.handover.ports import REMOTE_STORAGE, HandoverPorts, HandoverRun, StepEnd, StepResult, is_published
from include.tiering.handover.publish_and_switch import (
    accept_log_starts,
    notice_switch,
    publish_seed,
    restore_retention,
    switch_on,
    take_over,
    watch_brokers,
)
from include.tiering.handover.retention_overrides import (
    OVERRIDES,
    RETENTION_OVERRIDES,
    restore_overrides,
    set_overrides,
)
from include.tiering.handover.rules import HandoverState, HandoverStep, Undo, UndoAction, following, is_before, undo_of
from include.tiering.handover.run_checks import check_preconditions, is_enabled
from include.tiering.kafka.cluster.contract import TopicMetadata
from include.tiering.model.ownership import TopicOwner
from include.tiering.model.segments import TopicIdPartition, Uuid
from include.tiering.telemetry import get_logger

StepFunction = Callable[[HandoverRun], StepResult]
STEP_FUNCTIONS: Final[Mapping[HandoverStep, StepFunction]] = MappingProxyType(
    {
        HandoverStep.PRECONDITIONS: check_preconditions,
        HandoverStep.OVERRIDES: set_overrides,
        HandoverStep.COPY: copy_until_active,
        HandoverStep.QUALITY_CHECK: check_quality,
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
    on_message: Callable[[str], None] = _silent,
) -> Handover:
    """Do what is to be done, at most up to `until` (inclusive); returns the handover as it is then.

    What a step waits or stopped for is its `detail`. With `resume` one that STOPPED, or was PARKED, goes on again.
    One that is UNDOING goes on back.

    Raises:
        LeaseLostError: somebody else drives it, or took it over meanwhile.
        BrokersError: it was resumed, and they do not say from which log starts on.
        MetadataUnavailableError
    """
    with _driving(ports, handover_id, driver, on_message) as run:
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
    ports: HandoverPorts, handover_id: Uuid, driver: str, *, on_message: Callable[[str], None] = _silent
) -> Undo:
    """Go back as far as possible.

    Raises:
        LeaseLostError: somebody else drives it.
        StateConflictError: it has ended, or nothing can be undone any more; the text says what can be done instead.
        BrokersError
    """
    with _driving(ports, handover_id, driver, on_message) as run:
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
    """One that was parked begins again with its overrides, which were put back. One that stopped behind the switch,
    over a log start that rose, goes on from there: nothing else would ever let it end.
    """
    handover = run.handover
    if handover.state not in (HandoverState.STOPPED, HandoverState.PARKED):
        return
    if handover.state is HandoverState.STOPPED and handover.step is HandoverStep.WATCH:
        accept_log_starts(run)
    if handover.state is HandoverState.PARKED:
        run.ports.handovers.advance(run.drive, HandoverStep.OVERRIDES, expected=handover.step)
    run.ports.handovers.set_state(run.drive, HandoverState.ACTIVE, detail="resumed")


@contextmanager
def _driving(
    ports: HandoverPorts, handover_id: Uuid, driver: str, on_message: Callable[[str], None]
) -> Iterator[HandoverRun]:
    drive = ports.handovers.drive(handover_id, driver, lease_ms=ports.limits.lease_ms)
    if drive is None:
        holder = ports.handovers.handover(handover_id)
        raise LeaseLostError(f"{holder.driver} drives handover {handover_id} of {holder.topic}")
    try:
        with ports.keep_alive(drive):
            yield HandoverRun(ports, drive, on_message)
    finally:
        ports.handovers.release(drive)


OFF: Final = {REMOTE_STORAGE: "false", "remote.log.delete.on.disable": "false"}
"""What brokers with remote storage on refuse: it goes off with all that is remote, or not at all."""


def possible_undo(ports: HandoverPorts, handover: Handover) -> Undo:
    """What an undo would do now, and why not more. Changes nothing.

    Raises:
        BrokersError
    """
    topic = _topic(ports, handover)
    is_fenced = ports.registry.owner(handover.topic_id) is TopicOwner.HANDING_OVER
    if topic is None:
        return undo_of(is_fenced=is_fenced, is_published=False, is_enabled=False)
    return undo_of(
        is_fenced=is_fenced,
        is_published=is_published(ports.publications, _partitions(topic)),
        is_enabled=is_enabled(ports, handover.topic) or _is_switched(ports, handover),
    )


def undo(run: HandoverRun) -> Undo:
    """Do what is possible; returns what that was. Of a topic that is gone, configs went with it.

    Raises:
        StateConflictError: nothing can be undone; the text says why, and what can be done instead.
        BrokersError
    """
    ports, handover = run.ports, run.handover
    planned = possible_undo(ports, handover)
    ends_as = planned.ends_as
    if ends_as is None:
        raise _stopped(run, f"{handover.topic} cannot be given back: {planned.reason}")
    ports.handovers.set_state(run.drive, HandoverState.UNDOING, detail=planned.reason or "undone by a person")
    if UndoAction.RESTORE_OVERRIDES in planned.actions and _topic(ports, handover) is not None:
        try:
            restore_overrides(run, OVERRIDES, is_off=True)
        except StateConflictError as error:
            raise _stopped(run, str(error)) from error
    if UndoAction.OWNER_TO_PLATFORM in planned.actions:
        _set_owner(run, TopicOwner.PLATFORM, expected=TopicOwner.HANDING_OVER)
        if (by_now := possible_undo(ports, handover)).ends_as is HandoverState.PARKED:
            planned, ends_as = by_now, HandoverState.PARKED
    if ends_as is HandoverState.PARKED:
        _set_owner(run, TopicOwner.HANDING_OVER, expected=TopicOwner.PLATFORM)
    ports.handovers.set_state(run.drive, ends_as, detail=planned.reason or "undone by a person")
    return planned


def _stopped(run: HandoverRun, why: str) -> StateConflictError:
    """What an undo that was begun cannot go on with, a person can go on with forwards: it is not undoing any more."""
    if run.handover.state is HandoverState.UNDOING:
        run.ports.handovers.set_state(run.drive, HandoverState.STOPPED, detail=why)
    return StateConflictError(why)


def _set_owner(run: HandoverRun, owner: TopicOwner, *, expected: TopicOwner) -> None:
    """A topic that has a third owner keeps it."""
    registry, handover = run.ports.registry, run.handover
    if registry.owner(handover.topic_id) is expected:
        registry.set_owner(handover.topic_id, handover.topic, owner, expected=expected, author=run.drive.driver)
        run.on_message(f"owner: {owner}")


def _topic(ports: HandoverPorts, handover: Handover) -> TopicMetadata | None:
    """None if it is gone; one of the same name is another topic. Raises BrokersError."""
    topic = ports.brokers.topics([handover.topic]).get(handover.topic)
    if topic is None:
        with suppress(UnknownTopicError):
            ports.brokers.alter_topic_configs(handover.topic, RETENTION_OVERRIDES, dry_run=True)
            raise BrokersUnavailableError(f"a broker knows no topic {handover.topic}, the controller does")
    return topic if topic is not None and topic.topic_id == handover.topic_id else None


def _is_switched(ports: HandoverPorts, handover: Handover) -> bool:
    """Whether remote storage is on by the word of the controller."""
    if is_before(handover.step, HandoverStep.SWITCH):
        return False
    try:
        ports.brokers.alter_topic_configs(handover.topic, OFF, dry_run=True)
    except BrokersRefusedError:
        return True
    return False


def _partitions(topic: TopicMetadata) -> list[TopicIdPartition]:
    return [TopicIdPartition(topic.topic_id, number, topic.topic) for number in topic.partitions]


_log = get_logger(__name__)
_BEATS_PER_LEASE = 3


@contextmanager
def kept_alive(handovers: HandoverStore, drive: Drive, lease_ms: int) -> Iterator[None]:
    """Until the block ends."""
    ended = threading.Event()
    thread = threading.Thread(
        target=_beat, args=(handovers, drive, lease_ms, ended), name=f"handover-{drive.handover_id}", daemon=True
    )
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _beat(handovers: HandoverStore, drive: Drive, lease_ms: int, ended: threading.Event) -> None:
    while not ended.wait(lease_ms / 1000 / _BEATS_PER_LEASE):
        try:
            handovers.renew(drive, lease_ms=lease_ms)
        except LeaseLostError as error:
            _log.warning("%s", error)
            return
        except TieringError as error:
            _log.warning("the lease is not prolonged now: %s", error)
