"""Publish the seed, enable remote storage, wait until brokers know what is remote, and restore retention.

    step        done when it is reached                  a crash right after it leaves       cleaned up by
    published   STARTED and FINISHED of every segment    a valid prefix in the metadata      the next try sends the
                were read back                           topic without effect yet            rest
    checked     overrides are in force, log starts and   the same                            the same
                leaders are the decided ones
    switched    the controller accepted the change       brokers that take over, overrides   the next try; a repeated
                                                         in force                            request changes nothing
    read back   a broker shows remote storage enabled    the same                            the same

After the first published record an undo ends as PARKED at best, see `rules.undo_of`. The switch and the overrides are
one request. So no broker sees remote storage on before the overrides, whenever the request arrives and even if another
tool restored an overridden config just before.

After the switch:

    step        done when it is reached                  a crash right after it leaves       cleaned up by
    accepted    a person resumed after a stop in         brokers that tier, overrides in     the next try, if a person
                `watch`: present log starts are stored   force                               resumes it again
    seen        latest tiered covers the seed, no log    the same                            the next try reads the
                start has risen                                                              offsets again
    owner       the owner is `broker`                    the same                            the next try
    seen again  latest tiered of the present leaders     the same                            the next try
                covers the seed as well
    retention   retention.ms has its old value, and so   local retention that is still       the next step
                has retention.bytes if brokers are       overridden, and perhaps
                known to count every byte once           retention.bytes

The step `recheck` checks the leaders of its time. A driver may die after that step, and another may continue days
later. So log starts and leaders are compared again before each partition is published and before the switch. A leader
that was elected since may have lost records that were copied: then the step `fence` is next, and the checks are
repeated.

If remote storage is enabled by hand during a handover, this is noticed before each step up to `publish`, and before
each partition is published. The handover follows it:

    step        done when it is reached                  a crash right after it leaves       cleaned up by
    decided     the stored seed is what was published    the stored seed                     the next try, which stores
                                                                                             the same
    owner       the owner is `broker`                    the same                            the same
    step        `watch` is next                          overrides in force                  the steps that follow

Retention overrides are not removed at once: a limited retention.bytes right after the switch can delete records.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from include.tiering.errors import PublicationRefusedError
from include.tiering.handover.checks import HandoverEvidence
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
    TOTAL_BYTES,
    change_configs,
    hold_overrides,
    restore_overrides,
)
from include.tiering.handover.rules import HandoverStep, RetentionOrder, switched_by_hand
from include.tiering.handover.run_checks import evaluate_checks, evidence_of
from include.tiering.kafka.cluster.contract import BrokerConfig
from include.tiering.model.ownership import TopicOwner


def publish_seed(run: HandoverRun) -> StepResult:
    """Publish partition by partition. Before each partition, follow a switch by hand if there was one.

    If the log start or the leader of the partition changed since the step `fence`, `fence` is next.

    Raises:
        PublicationError: a record would break a rule, another writer writes about the partition, or the published
            offsets are not the decided ones.
        MetadataTopicError: the metadata topic cannot be read or written.
        BrokersError: the brokers do not say whether remote storage is on, or who leads a partition.
        SendingStoppedError: the topic, or all topics, are paused.
        LeaseLostError: another process drives the handover, or publishes the partition.
    """
    for seeded in run.seed:
        if seeded.is_empty:
            continue
        run.renew()
        if (by_hand := notice_switch(run, HandoverStep.PUBLISH)) is not None:
            return by_hand
        if (changed := _decide_again(run, [seeded])) is not None:
            return changed
        run.ports.actions.publish(seeded)
        end = published_end(run.ports.publications, seeded.topic_id_partition)
        if end != seeded.end_offset:
            raise PublicationRefusedError(
                f"{seeded.topic_id_partition}: published up to offset {end}, but up to {seeded.end_offset} was decided"
            )
        run.on_message(f"{seeded.topic_id_partition}: published up to offset {end}")
    return DONE


def switch_on(run: HandoverRun) -> StepResult:
    """Check overrides, log starts and leaders, then set remote.storage.enable=true and the overrides in one request.

    A limited retention stops the handover; if a log start or leader changed, the step `fence` is next. If remote
    storage is on already, nothing is checked or changed.

    Raises:
        BrokersError: the brokers do not answer, or refuse the change.
    """
    topic = run.handover.topic
    configs = run.ports.brokers.topic_configs(topic)
    if _value(configs, REMOTE_STORAGE).lower() != "true":
        limited = [f"{key}={_value(configs, key)}" for key in OVERRIDES if _is_limited(configs, key)]
        if limited:
            return StepResult(StepEnd.STOP, f"{', '.join(sorted(limited))} of {topic} was set from outside: restore it")
        if (changed := _decide_again(run, run.seed)) is not None:
            return changed
        overrides = run.ports.handovers.overrides(run.handover.handover_id)
        held = {override.key: override.set_value for override in overrides if not override.restored}
        change_configs(run, topic, held | {REMOTE_STORAGE: "true"})
        run.on_message(f"{REMOTE_STORAGE}=true")
    return DONE


def _decide_again(run: HandoverRun, seed: Sequence[SeededPartition]) -> StepResult | None:
    """Return a result with the step `fence` if a log start or leader is not the decided one; None if all are.

    Raises:
        BrokersError: a leader does not answer.
    """
    answer = run.ports.brokers.partition_offsets([seeded.topic_id_partition for seeded in seed])
    for seeded in seed:
        partition, now = seeded.topic_id_partition, answer.of(seeded.topic_id_partition)
        if now.earliest != seeded.log_start_offset:
            detail = f"{partition}: the log start is not {seeded.log_start_offset} any more"
        elif (now.leader, now.leader_epoch) != (seeded.leader, seeded.leader_epoch):
            detail = f"{partition}: broker {now.leader} leads in epoch {now.leader_epoch} now"
        else:
            continue
        return StepResult(StepEnd.DONE, detail, HandoverStep.FENCE)
    return None


def _is_limited(configs: Mapping[str, BrokerConfig], key: str) -> bool:
    """Return whether the config is a limit. -1 means none; -2 means total retention, which is checked, too."""
    return _value(configs, key).isdigit()


def _value(configs: Mapping[str, BrokerConfig], key: str) -> str:
    config = configs.get(key)
    return "" if config is None or config.value is None else config.value


def watch_brokers(run: HandoverRun) -> StepResult:
    """Wait at most `watch_seconds` until brokers report the seed as tiered.

    A log start that rose stops the handover at once.

    Raises:
        BrokersError: the brokers do not answer, or refuse an override.
        MetadataTopicError: the metadata topic cannot be read.
    """
    result, _ = _wait_for_brokers(run, HandoverStep.WATCH)
    return result


def restores_bytes_last(run: HandoverRun, evidence: HandoverEvidence) -> bool:
    """Return whether retention.bytes is still overridden and is restored only after local retention was lowered.

    That is so if the handover began with the order LOCAL_FIRST, and it is not known that every broker counts bytes that
    are both local and remote once. An unlimited value has no override.
    """
    held = run.ports.handovers.overrides(run.handover.handover_id)
    is_held = any(override.key == TOTAL_BYTES and not override.restored for override in held)
    is_last = run.handover.retention_order is RetentionOrder.LOCAL_FIRST
    return is_held and is_last and not evidence.brokers_count_once


def _wait_for_brokers(run: HandoverRun, step: HandoverStep) -> tuple[StepResult, HandoverEvidence]:
    """Evaluate the checks of a step until they pass or stop the handover, or `watch_seconds` are over.

    While brokers have not read the seed, a limited retention can delete records. So overrides that were changed from
    outside are set again before each evaluation.

    Returns:
        The result, and the evidence that it follows from.
    """
    deadline = run.ports.clock.monotonic() + run.ports.limits.watch_seconds
    while True:
        hold_overrides(run)
        evidence = evidence_of(run)
        result = evaluate_checks(run, step, evidence)
        if result.end is not StepEnd.WAIT or run.ports.clock.monotonic() >= deadline:
            return result, evidence
        run.pause()


def accept_log_starts(run: HandoverRun) -> None:
    """Store the present log starts, which must not rise from now on, in place of the decided log starts.

    Deleted records do not come back, and the topic still has to be handed over to its brokers.

    Raises:
        BrokersError: the brokers do not report the log starts.
    """
    answer = run.ports.brokers.partition_offsets([seeded.topic_id_partition for seeded in run.seed])
    accepted = [replace(seeded, log_start_offset=answer.of(seeded.topic_id_partition).earliest) for seeded in run.seed]
    for before, after in zip(run.seed, accepted, strict=True):
        if after.log_start_offset != before.log_start_offset:
            run.on_message(
                f"{after.topic_id_partition}: the log start was {before.log_start_offset} and is now"
                f" {after.log_start_offset}: the resume accepts it"
            )
    run.ports.handovers.save_seed(run.drive, accepted)


def take_over(run: HandoverRun) -> StepResult:
    """Make the brokers the owner of the topic, which they copy and expire.

    Raises:
        StateConflictError: the topic's owner is neither HANDING_OVER nor BROKER.
    """
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
    """Restore total retention once the present leaders report the seed as tiered; leaders may differ from `watch`.

    If brokers may count bytes twice when they start, retention.bytes stays unlimited until local retention was lowered:
    otherwise the restart of a broker would delete records that are within retention.bytes, also records that producers
    have written since the switch. Local retention still follows total retention: brokers delete from their disks only
    segments that expire.

    Raises:
        BrokersError: the brokers do not answer, or refuse a change.
        MetadataTopicError: the metadata topic cannot be read.
    """
    result, evidence = _wait_for_brokers(run, HandoverStep.RETENTION)
    if result.end is StepEnd.DONE:
        # Brokers are not asked again here: a leader elected since may not know the seed, and its answer is not checked.
        is_bytes_last = restores_bytes_last(run, evidence)
        at_once = [key for key in RETENTION_OVERRIDES if key != TOTAL_BYTES or not is_bytes_last]
        restore_overrides(run, at_once)
        if TOTAL_BYTES not in at_once:
            run.on_message(f"{TOTAL_BYTES} stays -1 until local retention is lowered: brokers may count bytes twice")
    return result


def notice_switch(run: HandoverRun, step: HandoverStep) -> StepResult | None:
    """Follow a switch by hand: if remote storage is on before the handover enables it, make the brokers the owner.

    If the topic was deleted, nothing is done, even if another topic has its name now.

    Returns:
        A result with the next step; None if there is no switch to follow, or if `step` is `switch` or a later step.

    Raises:
        BrokersError: the brokers do not answer.
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
    run.ports.handovers.save_seed(run.drive, [seeded for seeded in published if not seeded.is_empty])
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
