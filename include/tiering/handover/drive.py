"""Run the steps of a handover until it ends, waits, stops, or a given step is done; undo it; archive the topic again.

    what dies                    what it leaves                       what continues
    the driver, in a step        the step, done in part; its lease    the next driver, once the lease has ended: it runs
                                                                      the step again, as every step is idempotent
    the driver, between steps    the stored next step; its lease      the next driver, once the lease has ended
    the database                 the step that was stored last        the same driver, or the next driver

A second thread renews the driver's lease as long as the drive lasts. If the lease is lost, the thread only logs this
and ends: the driver's next change is refused. If the database is unavailable, the thread tries again; after an outage
that is longer than the lease, another driver may take the lease.

Undo:

    step        done when it is reached                  a crash right after it leaves       cleaned up by
    undoing     the state is UNDOING                     UNDOING, overrides in force         the next try of the undo
    restored    configs have their old values            UNDOING, without overrides          the next try of the undo
    owner       if nothing was published, the topic's    UNDOING, without overrides          the next try of the undo
                owner is the platform
    checked     if something was published until then,   UNDOING, without overrides          the next try of the undo
                the owner is `handing-over` again
    ended       PARKED if something was published, else  nothing                             -
                UNDONE

Archive again, for a PARKED handover:

    step        done when it is reached                  a crash right after it leaves       cleaned up by
    checked     remote storage is off, according to the  nothing                             -
                controller
    owner       the topic's owner is the platform        a parked handover of a topic that   the next try; --resume
                                                         the platform copies                 fences the topic off again
    ended       UNDONE                                   nothing                             -

A publisher checks the owner in the transaction that stores each record before it is sent. So after `owner` no record
can be stored, and `checked` finds every record that a publisher stored until then. A single broker may lag behind the
controller. So two of its answers are not trusted: that remote storage is off although the switch may have been
requested, and that there is no such topic. Each is verified with the controller, by a request that the controller only
validates.
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
from include.tiering.handover.rules import (
    ARCHIVED_AGAIN,
    SWITCHED,
    HandoverState,
    HandoverStep,
    Undo,
    UndoAction,
    following,
    is_before,
    undo_of,
)
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
    """Ignore a progress message."""


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
    """Run the next steps, at most up to `until` (inclusive), and return the handover as it is after them.

    Its `detail` says why it waits or stopped. With `resume` a STOPPED or PARKED handover continues. If the handover is
    UNDOING, the undo continues, also without `resume`.

    Raises:
        LeaseLostError: another process drives the handover, took the lease since, or publishes one of the partitions.
        StateConflictError: there is no such handover; or it is UNDOING, and the undo cannot continue, because nothing
            can be undone any more or remote storage was enabled meanwhile.
        BrokersError: the brokers do not report the log starts that a resume needs, or fail a request of an undo.
        MetadataUnavailableError: the database cannot be reached.
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
    ports: HandoverPorts,
    handover_id: Uuid,
    driver: str,
    *,
    shown: Undo | None = None,
    on_message: Callable[[str], None] = _silent,
) -> Undo:
    """Undo a handover as far as possible, and return what was undone.

    Args:
        ports: what the steps use.
        handover_id: the handover.
        driver: name of the driver.
        shown: what a person agreed to: nothing is undone if it would end in another state by now. None: whatever is
            possible.
        on_message: called with each progress message.

    Raises:
        LeaseLostError: another process drives the handover.
        StateConflictError, BrokersError: as `undo`.
    """
    with _driving(ports, handover_id, driver, on_message) as run:
        if shown is not None and (now := possible_undo(ports, run.handover)).ends_as != shown.ends_as:
            raise StateConflictError(
                f"{run.handover.topic}: the handover went on since this was shown, and an undo would end as"
                f" {now.ends_as} now, and not as {shown.ends_as}: nothing was undone. Look at it again"
            )
        return undo(run)


def archive_again(run: HandoverRun) -> None:
    """Make the platform the owner of the topic of a parked handover again, and end the handover as UNDONE.

    The configs were restored when it was parked. The published records stay in the metadata topic; expiration deletes
    no segment to which they belong. So brokers find every published segment after a later switch.

    Raises:
        StateConflictError: the handover is not parked, or remote storage is on.
        BrokersError: the brokers do not answer.
    """
    ports, handover = run.ports, run.handover
    if handover.state is not HandoverState.PARKED:
        raise StateConflictError(
            f"the handover of {handover.topic} is {handover.state} at {handover.step}: only a parked one can be"
            " archived again. --undo parks it if something was published, and gives the topic back otherwise"
        )
    if _topic(ports, handover) is not None and (is_enabled(ports, handover.topic) or _is_refused_off(ports, handover)):
        raise StateConflictError(f"{handover.topic} cannot be archived again: {SWITCHED}")
    _set_owner(run, TopicOwner.PLATFORM, expected=TopicOwner.HANDING_OVER)
    ports.handovers.set_state(run.drive, HandoverState.UNDONE, detail=ARCHIVED_AGAIN)


def archive_handover_again(
    ports: HandoverPorts, handover_id: Uuid, driver: str, *, on_message: Callable[[str], None] = _silent
) -> Handover:
    """Give the topic of a parked handover back to the archive, and return the ended handover.

    Raises:
        LeaseLostError: another process drives the handover.
        StateConflictError, BrokersError: as `archive_again`.
    """
    with _driving(ports, handover_id, driver, on_message) as run:
        archive_again(run)
        return run.handover


def _is_due(handover: Handover, until: HandoverStep | None) -> bool:
    return handover.state is HandoverState.ACTIVE and (until is None or not is_before(until, handover.step))


def _done(run: HandoverRun, step: HandoverStep) -> StepResult:
    """Run a step. After a retriable error the handover waits, after another error it stops; the error is the detail.

    Raises:
        LeaseLostError: another process drives the handover, or publishes one of the partitions.
    """
    try:
        return notice_switch(run, step) or STEP_FUNCTIONS[step](run)
    except LeaseLostError:
        raise
    except TieringError as error:
        return StepResult(StepEnd.WAIT if error.retriable else StepEnd.STOP, f"{type(error).__name__}: {error}")


def _advance(run: HandoverRun, step: HandoverStep, result: StepResult) -> bool:
    """Store how a step ended; return whether the next step may run now."""
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
    """Resume a stopped or parked handover.

    A parked handover restarts at the step `guards`, as the undo restored the configs. A handover that stopped in
    `watch` accepts the present log starts: a log start that rose never falls again, so the handover could otherwise
    never end.
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
"""A change that is only validated: it is refused if remote storage is on, as brokers switch it off only if they may
delete what is remote."""


def possible_undo(ports: HandoverPorts, handover: Handover) -> Undo:
    """Return what an undo would do now, and why it cannot do more. Changes nothing.

    Raises:
        BrokersError: the brokers do not answer.
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
    """Undo what can be undone, and return what was undone.

    Configs of a deleted topic are not restored, although the result names that action.

    Raises:
        StateConflictError: the handover has ended, nothing can be undone, or remote storage was enabled meanwhile; the
            text says why, and what can be done instead.
        BrokersError: the brokers do not answer, or refuse a change.
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
        if (latest := possible_undo(ports, handover)).ends_as is HandoverState.PARKED:
            planned, ends_as = latest, HandoverState.PARKED
    if ends_as is HandoverState.PARKED:
        _set_owner(run, TopicOwner.HANDING_OVER, expected=TopicOwner.PLATFORM)
    ports.handovers.set_state(run.drive, ends_as, detail=planned.reason or "undone by a person")
    return planned


def _stopped(run: HandoverRun, why: str) -> StateConflictError:
    """Return the error of an undo that cannot continue. An UNDOING handover becomes STOPPED: a person resumes it."""
    if run.handover.state is HandoverState.UNDOING:
        run.ports.handovers.set_state(run.drive, HandoverState.STOPPED, detail=why)
    return StateConflictError(why)


def _set_owner(run: HandoverRun, owner: TopicOwner, *, expected: TopicOwner) -> None:
    """Set the owner if the present owner is `expected`; otherwise change nothing."""
    registry, handover = run.ports.registry, run.handover
    if registry.owner(handover.topic_id) is expected:
        registry.set_owner(handover.topic_id, handover.topic, owner, expected=expected, author=run.drive.driver)
        run.on_message(f"owner: {owner}")


def _topic(ports: HandoverPorts, handover: Handover) -> TopicMetadata | None:
    """Return the topic; None if it was deleted, even if another topic has the same name now.

    Raises:
        BrokersError: the brokers do not answer, or a broker does not have the topic yet.
    """
    topic = ports.brokers.topics([handover.topic]).get(handover.topic)
    if topic is None:
        with suppress(UnknownTopicError):
            ports.brokers.alter_topic_configs(handover.topic, RETENTION_OVERRIDES, dry_run=True)
            raise BrokersUnavailableError(f"a broker has no topic {handover.topic} yet, the controller has it")
    return topic if topic is not None and topic.topic_id == handover.topic_id else None


def _is_switched(ports: HandoverPorts, handover: Handover) -> bool:
    """Return whether remote storage is on according to the controller; always False before the step `switch`."""
    return not is_before(handover.step, HandoverStep.SWITCH) and _is_refused_off(ports, handover)


def _is_refused_off(ports: HandoverPorts, handover: Handover) -> bool:
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
    """Renew the lease from a second thread until the context exits."""
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
            _log.warning("the lease was not renewed, trying again: %s", error)
