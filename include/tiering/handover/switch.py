"""Publish what is handed over, then switch remote storage on.

    step        done when it is reached                  a crash right after it leaves       cleaned up by
    published   STARTED and FINISHED of every segment    a valid prefix in the metadata      the next try sends the
                were read back                           topic; nobody acts on it yet        rest, nothing twice
    looked      guards hold, log start as decided        the same                            the same
    switched    the controller took it                   brokers that take over, guards      the next try: asking again
                                                         that hold                           changes nothing
    read back   the brokers say: enabled                 the same                            the same

From the first record on there is no way back but the one that `undo` names.
The switch and the guards are one request: whenever it arrives, and whoever puts a config back meanwhile, no broker sees
remote storage on with a limited retention.
"""

from collections.abc import Mapping

from include.tiering.errors import PublicationRefusedError
from include.tiering.handover.by_hand import notice_switch
from include.tiering.handover.guards import GUARDS, change_configs
from include.tiering.handover.handover import HandoverStep
from include.tiering.handover.metadata_scan import published_end
from include.tiering.handover.ports import DONE, REMOTE_STORAGE, HandoverRun, StepEnd, StepResult
from include.tiering.kafka.cluster.contract import BrokerConfig


def publish_seed(run: HandoverRun) -> StepResult:
    """Partition by partition; whoever switched by hand meanwhile is noticed before the next one.

    Raises:
        PublicationError: a record would break a rule, or somebody else writes about the partition.
        MetadataTopicUnavailableError
    """
    for one in run.seed:
        if one.is_empty:
            continue
        run.renew()
        if (by_hand := notice_switch(run, HandoverStep.PUBLISH)) is not None:
            return by_hand
        run.ports.verbs.publish(one)
        end = published_end(run.ports.publications, one.topic_id_partition)
        if end != one.end_offset:
            raise PublicationRefusedError(
                f"{one.topic_id_partition}: published up to {end}, to be handed over is what ends at {one.end_offset}"
            )
        run.told(f"{one.topic_id_partition}: published up to offset {end}")
    return DONE


def switch_on(run: HandoverRun) -> StepResult:
    """Look once more at what the switch depends on, then set remote.storage.enable=true, and the guards with it.

    Raises:
        BrokersError
    """
    topic = run.handover.topic
    configs = run.ports.brokers.topic_configs(topic)
    if _value(configs, REMOTE_STORAGE).lower() != "true":
        loose = [f"{key}={_value(configs, key)}" for key in GUARDS if _is_limited(configs, key)]
        if loose:
            return StepResult(StepEnd.STOP, f"somebody changed {', '.join(sorted(loose))} of {topic}: set them back")
        offsets = run.ports.brokers.partition_offsets([one.topic_id_partition for one in run.seed])
        for one in run.seed:
            if offsets.of(one.topic_id_partition).earliest != one.log_start_offset:
                detail = f"{one.topic_id_partition}: the log start moved from {one.log_start_offset}"
                return StepResult(StepEnd.DONE, detail, HandoverStep.FENCE)
        guards = run.ports.handovers.guards(run.handover.handover_id)
        held = {one.key: one.set_value for one in guards if not one.restored}
        change_configs(run, topic, held | {REMOTE_STORAGE: "true"})
        run.told(f"{REMOTE_STORAGE}=true")
    return DONE


def _is_limited(configs: Mapping[str, BrokerConfig], key: str) -> bool:
    """-1: unlimited; -2: as the retention above it, which is unlimited."""
    return _value(configs, key).isdigit()


def _value(configs: Mapping[str, BrokerConfig], key: str) -> str:
    config = configs.get(key)
    return "" if config is None or config.value is None else config.value
