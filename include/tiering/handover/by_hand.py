"""Somebody switches remote storage on while a hand-over is on its way: noticed before each step, and followed.

    step        done when it is reached                  a crash right after it leaves       cleaned up by
    decided     what was published is what is handed     all of it                           the next look, which finds
                over                                                                         the same
    owner       the topic is the broker's                the same                            the same
    step        `watch` is next                          guards that hold                    the steps that follow

Guards are not put back at once: a limited retention.bytes just after the switch is what loses records.
"""

from dataclasses import replace

from include.tiering.handover.handover import HandoverStep, switched_by_hand
from include.tiering.handover.handover_contract import SeededPartition
from include.tiering.handover.metadata_scan import is_published, published_end
from include.tiering.handover.ports import HandoverRun, StepEnd, StepResult
from include.tiering.model.ownership import TopicOwner


def notice_switch(run: HandoverRun, step: HandoverStep) -> StepResult | None:
    """What follows from remote storage being on already; None while it is off, or where the hand-over switches it. A
    topic that was created again under the same name says nothing about this one.

    Raises:
        BrokersError
    """
    handover = run.handover
    found = run.ports.brokers.topics([handover.topic]).get(handover.topic)
    if found is None or found.topic_id != handover.topic_id or not found.is_remote_storage_enabled:
        return None
    partitions = [one.topic_id_partition for one in run.seed]
    by_hand = switched_by_hand(step, is_published=is_published(run.ports.publications, partitions))
    if by_hand is None:
        return None
    published = [_as_published(run, one) for one in run.seed]
    run.ports.handovers.save_seed(run.drive, [one for one in published if not one.is_empty])
    owner = run.ports.registry.owner(handover.topic_id)
    run.ports.registry.set_owner(
        handover.topic_id, handover.topic, TopicOwner.BROKER, expected=owner, author=run.drive.driver
    )
    detail = f"remote.storage.enable=true was set by hand at {step}: {by_hand.meaning}"
    run.told(detail)
    return StepResult(StepEnd.DONE, detail, by_hand.goes_to)


def _as_published(run: HandoverRun, one: SeededPartition) -> SeededPartition:
    end = published_end(run.ports.publications, one.topic_id_partition)
    return replace(one, end_offset=one.start_offset - 1 if end is None else end)
