"""Configs of the topic that hold everything back while it is handed over, and their old values.

    step        done when it is reached                  a crash right after it leaves       cleaned up by
    stored      old values are in the database           rows that say so                    the next try keeps them
    set         the controller took all of them at once  overrides that hold                 A
    read back   the brokers say the new values           overrides that hold                 A

    restoring
    put back    the controller took the old values       rows that say: not restored         the next try
    read back   rows say: restored                       nothing                             -

A: whoever goes on, or an undo; the DAG `tiering_handover_watch` names it until then.
What is put back is what the topic had last: a value that somebody sets meanwhile is held back like the first one, and
stored in its place. Nothing of the topic is deleted while the overrides hold, on any tier: retention is unlimited, and
local retention follows it.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Final

from include.tiering.errors import BrokersUnavailableError, StateConflictError, UnknownTopicError
from include.tiering.handover.contract import RetentionOverride
from include.tiering.handover.ports import DONE, REMOTE_STORAGE, HandoverRun, StepResult
from include.tiering.handover.rules import HandoverStep
from include.tiering.kafka.cluster.contract import BrokerConfig, ConfigSource

RETENTION_OVERRIDES: Final = {"retention.bytes": "-1", "retention.ms": "-1"}
LOCAL_BYTES: Final = "local.retention.bytes"
LOCAL_MS: Final = "local.retention.ms"
LOCAL_OVERRIDES: Final = {LOCAL_BYTES: "-2", LOCAL_MS: "-2"}
OVERRIDES: Final = RETENTION_OVERRIDES | LOCAL_OVERRIDES


def wanted_overrides(configs: Mapping[str, BrokerConfig]) -> list[RetentionOverride]:
    """What has to be changed, each with the value that the topic itself has now, if any. By key."""
    overrides = []
    for key, value in sorted(OVERRIDES.items()):
        config = configs.get(key)
        if config is None or config.value != value:
            overrides.append(RetentionOverride(key, _own_value(configs, key), value))
    return overrides


def set_overrides(run: HandoverRun) -> StepResult:
    """Store old values, then set, then read back.

    Raises:
        BrokersUnavailableError: the brokers do not show the new values in time.
    """
    topic = run.handover.topic
    _require_same_topic(run)
    configs = run.ports.brokers.topic_configs(topic)
    held = _held(run, OVERRIDES)
    found = [*_changed_since(held, configs), *_loose(configs, {one.key for one in held})]
    overrides = run.ports.handovers.save_overrides(run.drive, found)
    values = {override.key: override.set_value for override in overrides if not override.restored}
    if values:
        change_configs(run, topic, values)
        for override in overrides:
            run.on_message(f"{override.key}: {override.old_value or 'unset'} -> {override.set_value}")
    return DONE


def hold_overrides(run: HandoverRun) -> None:
    """Set again what somebody, or something that keeps configs as they were, changed since; store what it was. What was
    restored is let go, what needed no override until now gets one; where none was ever set, because somebody switched
    before that, none is.

    One broker is believed: one that lags far behind brings back the value before the last one.

    Raises:
        BrokersUnavailableError
        UnknownTopicError: the topic of this name is another one by now, or gone.
    """
    topic = run.handover.topic
    _require_same_topic(run)
    configs = run.ports.brokers.topic_configs(topic)
    known = {override.key for override in run.ports.handovers.overrides(run.drive.handover_id)}
    found = [*_changed_since(_held(run, OVERRIDES), configs), *_loose(configs, known)]
    if known and found:
        run.ports.handovers.save_overrides(run.drive, found)
        change_configs(run, topic, {one.key: one.set_value for one in found})
        run.on_message(f"somebody put {', '.join(sorted(one.key for one in found))} back: held again")


def restore_overrides(run: HandoverRun, keys: Collection[str], *, is_off: bool = False) -> None:
    """Put the old values of these configs back, and note it once the brokers say so. What is restored stays so, and
    what somebody has set since, too.

    Args:
        is_off: whether remote storage has to be off still, by the same answer that is compared. Behind a switch a
            limited retention takes records that nobody else knows of.

    Raises:
        StateConflictError: it is on.
        BrokersUnavailableError
        UnknownTopicError: the topic of this name is another one by now, or gone.
    """
    left = _held(run, keys)
    if not left:
        return
    _require_same_topic(run)
    # The last step lowers local retention itself: what is found then is ours.
    may_be_theirs = [one for one in left if run.handover.step is not HandoverStep.LOCAL_RETENTION]
    configs = run.ports.brokers.topic_configs(run.handover.topic)
    if is_off and _own_value(configs, REMOTE_STORAGE) == "true":
        raise StateConflictError(f"{run.handover.topic}: remote storage was switched on meanwhile; --resume follows it")
    changed = _changed_since(may_be_theirs, configs)
    if changed:
        run.ports.handovers.save_overrides(run.drive, changed)
        left = _held(run, keys)
    change_configs(run, run.handover.topic, {override.key: override.old_value for override in left})
    run.ports.handovers.overrides_restored(run.drive, [override.key for override in left])
    for override in left:
        run.on_message(f"{override.key} is {'unset' if override.old_value is None else override.old_value} again")


def _held(run: HandoverRun, keys: Collection[str]) -> list[RetentionOverride]:
    overrides = run.ports.handovers.overrides(run.drive.handover_id)
    return [override for override in overrides if not override.restored and override.key in keys]


def _changed_since(held: Sequence[RetentionOverride], configs: Mapping[str, BrokerConfig]) -> list[RetentionOverride]:
    """Those that are not held any more, each with what somebody has set."""
    own = {one.key: _own_value(configs, one.key) for one in held}
    return [replace(one, old_value=own[one.key]) for one in held if own[one.key] != one.set_value]


def _loose(configs: Mapping[str, BrokerConfig], known: Collection[str]) -> list[RetentionOverride]:
    return [wanted_override for wanted_override in wanted_overrides(configs) if wanted_override.key not in known]


def change_configs(run: HandoverRun, topic: str, changes: Mapping[str, str | None]) -> None:
    """Change all at once, then wait until a broker says the same.

    Nothing fences off a request to brokers: who drives, and which topic has the name, is looked at just before.

    Raises:
        LeaseLostError: somebody else drives.
        UnknownTopicError: the topic of this name is another one by now, or gone.
        BrokersRefusedError: a value that the brokers do not take.
        BrokersUnavailableError: no answer, or not the new values in time.
    """
    _require_same_topic(run)
    run.renew()
    run.ports.brokers.alter_topic_configs(topic, changes)
    deadline = run.ports.clock.monotonic() + run.ports.limits.watch_seconds
    while not _shows(run.ports.brokers.topic_configs(topic), changes):
        if run.ports.clock.monotonic() >= deadline:
            raise BrokersUnavailableError(f"the brokers took {sorted(changes)} of {topic}, and do not show it")
        run.pause()


def _require_same_topic(run: HandoverRun) -> None:
    handover = run.handover
    found = run.ports.brokers.topics([handover.topic]).get(handover.topic)
    if found is None or found.topic_id != handover.topic_id:
        now = "there is none" if found is None else f"it is {found.topic_id}"
        raise UnknownTopicError(f"topic {handover.topic} with id {handover.topic_id} is handed over; by now {now}")


def _shows(configs: Mapping[str, BrokerConfig], changes: Mapping[str, str | None]) -> bool:
    return all(_own_value(configs, key) == value for key, value in changes.items())


def _own_value(configs: Mapping[str, BrokerConfig], key: str) -> str | None:
    config = configs.get(key)
    return config.value if config is not None and config.source is ConfigSource.TOPIC else None
