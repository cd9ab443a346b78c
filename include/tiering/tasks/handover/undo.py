"""Go back as far as that is possible, and say why not further.

step        done when it is reached                  a crash right after it leaves       cleaned up by
undoing     the state says so                        that state, guards that hold        the next try goes on back
restored    configs are what they were               the same, without guards            the same
owner       the topic is the platform's again        the same                            the same
ended       UNDONE or PARKED                         nothing                             -
"""

from include.tiering.cluster.contract import TopicFacts
from include.tiering.errors import StateConflictError
from include.tiering.model.handover import HandoverState, Undo, UndoAction, undo_of
from include.tiering.model.ids import TopicIdPartition
from include.tiering.model.topic_owner import TopicOwner
from include.tiering.tasks.handover.gather import is_enabled
from include.tiering.tasks.handover.guards import GUARDS, restore_guards
from include.tiering.tasks.handover.metadata_scan import is_published
from include.tiering.tasks.handover.ports import HandoverPorts, HandoverRun
from include.tiering.work.handover_contract import Handover


def possible_undo(ports: HandoverPorts, handover: Handover) -> Undo:
    """What an undo would do now, and why not more. Changes nothing.

    Raises:
        BrokersError
    """
    topic = _topic(ports, handover)
    if topic is None:
        return undo_of(handover.step, is_published=False, is_enabled=False)
    partitions = _partitions(topic)
    return undo_of(
        handover.step,
        is_published=is_published(ports.publications, partitions),
        is_enabled=is_enabled(ports, handover.topic),
    )


def undo(run: HandoverRun) -> Undo:
    """Do what is possible; returns what that was. Of a topic that is gone, configs went with it.

    Raises:
        StateConflictError: nothing can be undone; the text says why, and what can be done instead.
        BrokersError
    """
    ports, handover = run.ports, run.handover
    planned = possible_undo(ports, handover)
    if planned.ends_as is None:
        raise StateConflictError(f"{handover.topic} cannot be given back: {planned.reason}")
    ports.handovers.set_state(run.drive, HandoverState.UNDOING, detail=planned.reason or "undone by a person")
    if UndoAction.RESTORE_GUARDS in planned.actions and _topic(ports, handover) is not None:
        restore_guards(run, GUARDS)
    if UndoAction.OWNER_TO_PLATFORM in planned.actions:
        _give_back(run, handover)
    ports.handovers.set_state(run.drive, planned.ends_as, detail=planned.reason or "undone by a person")
    return planned


def _give_back(run: HandoverRun, handover: Handover) -> None:
    registry = run.ports.registry
    if registry.owner(handover.topic_id) is TopicOwner.HANDING_OVER:
        registry.set_owner(
            handover.topic_id,
            handover.topic,
            TopicOwner.PLATFORM,
            expected=TopicOwner.HANDING_OVER,
            author=run.drive.driver,
        )
        run.told("owner: platform")


def _topic(ports: HandoverPorts, handover: Handover) -> TopicFacts | None:
    """None if it is gone; one of the same name is another topic."""
    topic = ports.brokers.topics([handover.topic]).get(handover.topic)
    return topic if topic is not None and topic.topic_id == handover.topic_id else None


def _partitions(topic: TopicFacts) -> list[TopicIdPartition]:
    return [TopicIdPartition(topic.topic_id, number, topic.topic) for number in topic.partitions]
