"""Publish what is handed over, switch remote storage on, wait until the brokers know what is remote, give them the
topic, put retention back. And follow whoever switches by hand meanwhile.

    step        done when it is reached                  a crash right after it leaves       cleaned up by
    published   STARTED and FINISHED of every segment    a valid prefix in the metadata      the next try sends the
                were read back                           topic; nobody acts on it yet        rest, nothing twice
    looked      retention overrides hold, log start as decided        the same                            the same
    switched    the controller took it                   brokers that take over, overrides   the next try: asking again
                                                         that hold                           changes nothing
    read back   the brokers say: enabled                 the same                            the same

From the first record on there is no way back but the one that `undo` names.
The switch and the overrides are one request: whenever it arrives, and whoever puts a config back meanwhile, no broker
sees remote storage on with a limited retention.

After the switch:

    step        done when it is reached                  a crash right after it leaves       cleaned up by
    accepted    a person went on though a log start      the same                            the next try, if it is
                rose: it is stored as what it is                                             asked to go on again
    seen        latest tiered covers the seed, the log   brokers that tier, overrides that   the next try asks again
                start is what it was                     hold
    owner       the topic is the broker's                the same                            the next try
    seen again  the leaders of now know it, too          the same                            the next try
    retention   retention.bytes and .ms are what they    local retention that is still       the next step
                were                                     guarded

Somebody switches remote storage on while a handover is on its way: noticed before each step, and followed.

    step        done when it is reached                  a crash right after it leaves       cleaned up by
    decided     what was published is what is handed     all of it                           the next look, which finds
                over                                                                         the same
    owner       the topic is the broker's                the same                            the same
    step        `watch` is next                          overrides that hold                 the steps that follow

Retention overrides are not put back at once: a limited retention.bytes just after the switch is what loses records.
"""

from collections.abc import Mapping
from dataclasses import replace

from include.tiering.errors import PublicationRefusedError
from include.tiering.handover.contract import SeededPartition
from include.tiering.handover.ports import (
    DONE,
    REMOTE_STORAGE,
    HandoverRun,
    StepEnd,
    StepResult,
    is_published,
    published_end,
)
from include.tiering.handover.retention_overrides import (
    OVERRIDES,
    RETENTION_OVERRIDES,
    change_configs,
    hold_overrides,
    restore_overrides,
)
from include.tiering.handover.rules import HandoverStep, switched_by_hand
from include.tiering.handover.run_checks import evaluate_checks, evidence_of
from include.tiering.kafka.cluster.contract import BrokerConfig
from include.tiering.model.ownership import TopicOwner


def publish_seed(run: HandoverRun) -> StepResult:
    """Partition by partition; whoever switched by hand meanwhile is noticed before the next one.

    Raises:
        PublicationError: a record would break a rule, or somebody else writes about the partition.
        MetadataTopicUnavailableError
    """
    for seeded in run.seed:
        if seeded.is_empty:
            continue
        run.renew()
        if (by_hand := notice_switch(run, HandoverStep.PUBLISH)) is not None:
            return by_hand
        run.ports.actions.publish(seeded)
        end = published_end(run.ports.publications, seeded.topic_id_partition)
        if end != seeded.end_offset:
            raise PublicationRefusedError(
                f"{seeded.topic_id_partition}: published up to {end},"
                f" to be handed over is what ends at {seeded.end_offset}"
            )
        run.on_message(f"{seeded.topic_id_partition}: published up to offset {end}")
    return DONE


def switch_on(run: HandoverRun) -> StepResult:
    """Look once more at what the switch depends on, then set remote.storage.enable=true, and the overrides with it.

    Raises:
        BrokersError
    """
    topic = run.handover.topic
    configs = run.ports.brokers.topic_configs(topic)
    if _value(configs, REMOTE_STORAGE).lower() != "true":
        loose = [f"{key}={_value(configs, key)}" for key in OVERRIDES if _is_limited(configs, key)]
        if loose:
            return StepResult(StepEnd.STOP, f"somebody changed {', '.join(sorted(loose))} of {topic}: set them back")
        offsets = run.ports.brokers.partition_offsets([seeded.topic_id_partition for seeded in run.seed])
        for seeded in run.seed:
            if offsets.of(seeded.topic_id_partition).earliest != seeded.log_start_offset:
                detail = f"{seeded.topic_id_partition}: the log start moved from {seeded.log_start_offset}"
                return StepResult(StepEnd.DONE, detail, HandoverStep.FENCE)
        overrides = run.ports.handovers.overrides(run.handover.handover_id)
        held = {override.key: override.set_value for override in overrides if not override.restored}
        change_configs(run, topic, held | {REMOTE_STORAGE: "true"})
        run.on_message(f"{REMOTE_STORAGE}=true")
    return DONE


def _is_limited(configs: Mapping[str, BrokerConfig], key: str) -> bool:
    """-1: unlimited; -2: as the retention above it, which is unlimited."""
    return _value(configs, key).isdigit()


def _value(configs: Mapping[str, BrokerConfig], key: str) -> str:
    config = configs.get(key)
    return "" if config is None or config.value is None else config.value


def watch_brokers(run: HandoverRun) -> StepResult:
    """Ask until they know, or the time of one drive is over. A log start that rose stops everything at once.

    Raises:
        BrokersError, MetadataTopicUnavailableError
    """
    return _wait_for_brokers(run, HandoverStep.WATCH)


def _wait_for_brokers(run: HandoverRun, step: HandoverStep) -> StepResult:
    """Until they know it is that a limited retention loses records, so overrides are held whoever puts them back."""
    deadline = run.ports.clock.monotonic() + run.ports.limits.watch_seconds
    while True:
        hold_overrides(run)
        result = evaluate_checks(run, step, evidence_of(run))
        if result.end is not StepEnd.WAIT or run.ports.clock.monotonic() >= deadline:
            return result
        run.pause()


def accept_log_starts(run: HandoverRun) -> None:
    """From now on it is the log starts of now that must not rise: what is gone does not come back, and the topic has to
    be given to its brokers all the same.

    Raises:
        BrokersError
    """
    answer = run.ports.brokers.partition_offsets([seeded.topic_id_partition for seeded in run.seed])
    accepted = [replace(seeded, log_start_offset=answer.of(seeded.topic_id_partition).earliest) for seeded in run.seed]
    for before, after in zip(run.seed, accepted, strict=True):
        if after.log_start_offset != before.log_start_offset:
            run.on_message(
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
    run.on_message("owner: broker")
    return DONE


def restore_retention(run: HandoverRun) -> StepResult:
    """Total retention is what it was, once the leaders of now know what is remote: there may be others since they were
    watched. Local retention follows it still: from the disks goes what expires alone.

    Raises:
        BrokersError, MetadataTopicUnavailableError
    """
    result = _wait_for_brokers(run, HandoverStep.RETENTION)
    if result.end is StepEnd.DONE:
        restore_overrides(run, RETENTION_OVERRIDES)
    return result


def notice_switch(run: HandoverRun, step: HandoverStep) -> StepResult | None:
    """What follows from remote storage being on already; None while it is off, or where the handover switches it. A
    topic that was created again under the same name says nothing about this one.

    Raises:
        BrokersError
    """
    handover = run.handover
    found = run.ports.brokers.topics([handover.topic]).get(handover.topic)
    if found is None or found.topic_id != handover.topic_id or not found.is_remote_storage_enabled:
        return None
    partitions = [seeded.topic_id_partition for seeded in run.seed]
    by_hand = switched_by_hand(step, is_published=is_published(run.ports.publications, partitions))
    if by_hand is None:
        return None
    published = [_as_published(run, seeded) for seeded in run.seed]
    run.ports.handovers.save_seed(run.drive, [one for one in published if not one.is_empty])
    owner = run.ports.registry.owner(handover.topic_id)
    run.ports.registry.set_owner(
        handover.topic_id, handover.topic, TopicOwner.BROKER, expected=owner, author=run.drive.driver
    )
    detail = f"remote.storage.enable=true was set by hand at {step}: {by_hand.meaning}"
    run.on_message(detail)
    return StepResult(StepEnd.DONE, detail, by_hand.goes_to)


def _as_published(run: HandoverRun, seeded: SeededPartition) -> SeededPartition:
    end = published_end(run.ports.publications, seeded.topic_id_partition)
    return replace(seeded, end_offset=seeded.start_offset - 1 if end is None else end)
