"""After the switch: wait until the brokers know what is remote, give them the topic, put retention back.

step        done when it is reached                  a crash right after it leaves       cleaned up by
accepted    a person went on though a log start      the same                            the next try, if it is
            rose: it is stored as what it is                                             asked to go on again
seen        latest tiered covers the seed, the log   brokers that tier, guards that      the next try asks again
            start is what it was                     hold
owner       the topic is the broker's                the same                            the next try
seen again  the leaders of now know it, too          the same                            the next try
retention   retention.bytes and .ms are what they    local retention that is still       the next step
            were                                     guarded
"""

from dataclasses import replace

from include.tiering.handover.guards import RETENTION_GUARDS, hold_guards, restore_guards
from include.tiering.handover.handover import HandoverStep
from include.tiering.handover.ports import DONE, HandoverRun, StepEnd, StepResult
from include.tiering.handover.preconditions import facts_of, judged
from include.tiering.model.ownership import TopicOwner


def watch_brokers(run: HandoverRun) -> StepResult:
    """Ask until they know, or the time of one drive is over. A log start that rose stops everything at once.

    Raises:
        BrokersError, MetadataTopicUnavailableError
    """
    return _wait_for_brokers(run, HandoverStep.WATCH)


def _wait_for_brokers(run: HandoverRun, step: HandoverStep) -> StepResult:
    """Until they know it is that a limited retention loses records, so guards are held whoever puts them back."""
    deadline = run.ports.clock.monotonic() + run.ports.limits.watch_seconds
    while True:
        hold_guards(run)
        result = judged(run, step, facts_of(run))
        if result.end is not StepEnd.WAIT or run.ports.clock.monotonic() >= deadline:
            return result
        run.pause()


def accept_log_starts(run: HandoverRun) -> None:
    """From now on it is the log starts of now that must not rise: what is gone does not come back, and the topic has to
    be given to its brokers all the same.

    Raises:
        BrokersError
    """
    answer = run.ports.brokers.partition_offsets([one.topic_id_partition for one in run.seed])
    accepted = [replace(one, log_start_offset=answer.of(one.topic_id_partition).earliest) for one in run.seed]
    for before, after in zip(run.seed, accepted, strict=True):
        if after.log_start_offset != before.log_start_offset:
            run.told(
                f"{after.topic_id_partition}: the log start was {before.log_start_offset} and is"
                f" {after.log_start_offset}: accepted by whoever resumed"
            )
    run.ports.handovers.save_seed(run.drive, accepted)


def take_over(run: HandoverRun) -> StepResult:
    """The brokers copy and expire from now on. Raises StateConflictError: the topic has a third owner."""
    handover = run.handover
    run.ports.registry.set_owner(
        handover.topic_id,
        handover.topic,
        TopicOwner.BROKER,
        expected=TopicOwner.HANDING_OVER,
        author=run.drive.driver,
    )
    run.told("owner: broker")
    return DONE


def restore_retention(run: HandoverRun) -> StepResult:
    """Total retention is what it was, once the leaders of now know what is remote: there may be others since they were
    watched. Local retention follows it still: from the disks goes what expires alone.

    Raises:
        BrokersError, MetadataTopicUnavailableError
    """
    result = _wait_for_brokers(run, HandoverStep.RETENTION)
    if result.end is StepEnd.DONE:
        restore_guards(run, RETENTION_GUARDS)
    return result
