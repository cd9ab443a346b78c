"""Go back as far as that is possible, and say why not further.

step        done when it is reached                  a crash right after it leaves       cleaned up by
undoing     the state says so                        that state, guards that hold        the next try goes on back
restored    configs are what they were               the same, without guards            the same
owner       the topic is the platform's again        the same                            the same
looked      nothing was published until then, or it  the same                            the same
            is nobody's again
ended       UNDONE or PARKED                         nothing                             -

A publisher proves the owner in the transaction of each record, so one that was still at work is seen behind `owner`.
Two answers of one broker are not believed, as it may lag behind: that the topic is not switched on, once that may have
been asked for, and that there is no such topic. The controller is asked, by changes that it only checks.
"""

from contextlib import suppress
from typing import Final

from include.tiering.errors import BrokersRefusedError, BrokersUnavailableError, StateConflictError, UnknownTopicError
from include.tiering.handover.gather import is_enabled
from include.tiering.handover.guards import GUARDS, RETENTION_GUARDS, restore_guards
from include.tiering.handover.handover import HandoverState, HandoverStep, Undo, UndoAction, is_before, undo_of
from include.tiering.handover.handover_contract import Handover
from include.tiering.handover.metadata_scan import is_published
from include.tiering.handover.ports import REMOTE_STORAGE, HandoverPorts, HandoverRun
from include.tiering.kafka.cluster.contract import TopicFacts
from include.tiering.model.ids import TopicIdPartition
from include.tiering.model.ownership import TopicOwner

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
    if UndoAction.RESTORE_GUARDS in planned.actions and _topic(ports, handover) is not None:
        try:
            restore_guards(run, GUARDS, is_off=True)
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
        run.told(f"owner: {owner}")


def _topic(ports: HandoverPorts, handover: Handover) -> TopicFacts | None:
    """None if it is gone; one of the same name is another topic. Raises BrokersError."""
    topic = ports.brokers.topics([handover.topic]).get(handover.topic)
    if topic is None:
        with suppress(UnknownTopicError):
            ports.brokers.alter_topic_configs(handover.topic, RETENTION_GUARDS, dry_run=True)
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


def _partitions(topic: TopicFacts) -> list[TopicIdPartition]:
    return [TopicIdPartition(topic.topic_id, number, topic.topic) for number in topic.partitions]
