"""Retention overrides: configs of the topic that prevent deletions while it is handed over, and their old values.

    step        done when it is reached                  a crash right after it leaves       cleaned up by
    stored      old values are in the database           rows of overrides                   the next try keeps them
    set         the controller accepted all at once      overrides in force                  A
    read back   a broker shows the new values            overrides in force                  A

    restoring
    old values  the controller accepted the old values   rows that are not restored          the next try
    read back   a broker shows the old values, and the   nothing                             -
                rows are marked as restored

A: the next driver, or an undo. If neither comes, the DAG `tiering_handover_watch` reports the handover.
If `guards`, `watch`, `retention` or `local-retention` (of retention.bytes only) finds a config that was set from
outside, the found value replaces the old value in the database, so that it is restored later; the config is overridden
again. `recheck` and `switch` instead stop the handover (state STOPPED) if one of the four configs limits retention,
that is, if its value is 0 or more; they do not override it again. While the overrides are in force, retention deletes
nothing of the topic on any tier: total retention is unlimited, and local retention follows total retention.
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
TOTAL_BYTES: Final = "retention.bytes"
LOCAL_BYTES: Final = "local.retention.bytes"
LOCAL_MS: Final = "local.retention.ms"
LOCAL_OVERRIDES: Final = {LOCAL_BYTES: "-2", LOCAL_MS: "-2"}
OVERRIDES: Final = RETENTION_OVERRIDES | LOCAL_OVERRIDES


def wanted_overrides(configs: Mapping[str, BrokerConfig]) -> list[RetentionOverride]:
    """Return the overrides that have to be set, ordered by key, each with the topic's own value if it has one."""
    overrides = []
    for key, value in sorted(OVERRIDES.items()):
        config = configs.get(key)
        if config is None or config.value != value:
            overrides.append(RetentionOverride(key, _own_value(configs, key), value))
    return overrides


def set_overrides(run: HandoverRun) -> StepResult:
    """Store the old values, set the overrides, and read them back.

    Raises:
        BrokersError: the topic was deleted, or the brokers do not answer, refuse a value, or do not show it in time.
    """
    topic = run.handover.topic
    _require_same_topic(run)
    configs = run.ports.brokers.topic_configs(topic)
    held = _held(run, OVERRIDES)
    found = [*_changed_since(held, configs), *_missing(configs, {override.key for override in held})]
    overrides = run.ports.handovers.save_overrides(run.drive, found)
    values = {override.key: override.set_value for override in overrides if not override.restored}
    if values:
        change_configs(run, topic, values)
        for override in overrides:
            run.on_message(f"{override.key}: {override.old_value or 'unset'} -> {override.set_value}")
    return DONE


def hold_overrides(run: HandoverRun, keys: Collection[str] = tuple(OVERRIDES)) -> None:
    """Set overrides again that were changed from outside, by a person or a tool, and store the changed values.

    Restored configs stay as they are. A config that needed no override until now gets one if its value has changed. If
    no override is stored, because `guards` needed none or was never run, none is set. Only `keys` are looked at.

    The values are read from one broker. If that broker lags behind, an older value may be stored in place of the
    newest.

    Raises:
        LeaseLostError: another process drives the handover.
        BrokersRefusedError: the brokers refuse a value.
        BrokersUnavailableError: the brokers do not answer, or do not show the new values in time.
        UnknownTopicError: the topic was deleted; another one may have its name.
    """
    topic = run.handover.topic
    _require_same_topic(run)
    configs = run.ports.brokers.topic_configs(topic)
    known = {override.key for override in run.ports.handovers.overrides(run.drive.handover_id)}
    wanted = [override for override in _missing(configs, known) if override.key in keys]
    found = [*_changed_since(_held(run, keys), configs), *wanted]
    if known and found:
        run.ports.handovers.save_overrides(run.drive, found)
        change_configs(run, topic, {override.key: override.set_value for override in found})
        keys = ", ".join(sorted(override.key for override in found))
        run.on_message(f"{keys} was changed from outside: the override was set again")


def restore_overrides(run: HandoverRun, keys: Collection[str], *, is_off: bool = False) -> None:
    """Restore the old values of these configs, and mark them as restored once a broker shows them.

    Configs that are marked as restored already are not changed. A config that was set from outside since keeps that
    value, except local retention at the last step, which sets it itself.

    Args:
        run: the drive.
        keys: the configs to restore.
        is_off: whether remote storage must still be off, according to the same response of a broker as the values.
            After a switch a limited retention could delete the only copy of records.

    Raises:
        StateConflictError: `is_off`, and remote storage is on.
        LeaseLostError: another process drives the handover.
        BrokersRefusedError: the brokers refuse a value.
        BrokersUnavailableError: the brokers do not answer, or do not show the old values in time.
        UnknownTopicError: the topic was deleted; another one may have its name.
    """
    left = _held(run, keys)
    if not left:
        return
    _require_same_topic(run)
    # The last step lowers local retention itself: a value that is found then was not set from outside.
    is_last = run.handover.step is HandoverStep.LOCAL_RETENTION
    set_by_others = [override for override in left if not is_last or override.key not in LOCAL_OVERRIDES]
    configs = run.ports.brokers.topic_configs(run.handover.topic)
    if is_off and _own_value(configs, REMOTE_STORAGE) == "true":
        raise StateConflictError(f"{run.handover.topic}: remote storage was enabled meanwhile; continue with --resume")
    changed = _changed_since(set_by_others, configs)
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
    """Return the overrides that are not in force any more, each with the value that was set from outside."""
    own = {override.key: _own_value(configs, override.key) for override in held}
    changed = [override for override in held if own[override.key] != override.set_value]
    return [replace(override, old_value=own[override.key]) for override in changed]


def _missing(configs: Mapping[str, BrokerConfig], known: Collection[str]) -> list[RetentionOverride]:
    return [wanted_override for wanted_override in wanted_overrides(configs) if wanted_override.key not in known]


def change_configs(run: HandoverRun, topic: str, changes: Mapping[str, str | None]) -> None:
    """Change all configs in one request, then wait until a broker shows the new values.

    A request to brokers cannot be fenced. So the lease and the topic's id are checked right before it.

    Raises:
        LeaseLostError: another process drives the handover.
        UnknownTopicError: the topic was deleted; another one may have its name.
        BrokersRefusedError: the brokers refuse a value.
        BrokersUnavailableError: the brokers do not answer, or do not show the new values in time.
    """
    _require_same_topic(run)
    run.renew()
    run.ports.brokers.alter_topic_configs(topic, changes)
    deadline = run.ports.clock.monotonic() + run.ports.limits.watch_seconds
    while not _shows(run.ports.brokers.topic_configs(topic), changes):
        if run.ports.clock.monotonic() >= deadline:
            raise BrokersUnavailableError(f"the brokers accepted {sorted(changes)} of {topic}, but do not show it yet")
        run.pause()


def _require_same_topic(run: HandoverRun) -> None:
    handover = run.handover
    found = run.ports.brokers.topics([handover.topic]).get(handover.topic)
    if found is None or found.topic_id != handover.topic_id:
        now = "there is no topic of this name any more" if found is None else f"its id is {found.topic_id} now"
        raise UnknownTopicError(f"topic {handover.topic} is handed over under id {handover.topic_id}, but {now}")


def _shows(configs: Mapping[str, BrokerConfig], changes: Mapping[str, str | None]) -> bool:
    return all(_own_value(configs, key) == value for key, value in changes.items())


def _own_value(configs: Mapping[str, BrokerConfig], key: str) -> str | None:
    config = configs.get(key)
    return config.value if config is not None and config.source is ConfigSource.TOPIC else None
