"""Change Kafka's own configs of tiered storage on its brokers, and see that they have taken the change.

| step | what a crash after it leaves | who repairs it |
|---|---|---|
| read what every broker has | nothing | |
| check: names, what may change at run time, then the brokers' own check of the values | nothing | |
| alter: one record of the controller, all names or none | altered; a broker takes it by itself | nobody has to |
| read again until every broker shows it | as before: waiting only looks | |

Brokers store a name that they do not know, and nothing comes of it: so a name is refused unless every broker that it
would concern lists it.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from include.tiering.clock import Clock
from include.tiering.configs.config_store import ConfigEntity, EntityType
from include.tiering.errors import BrokersError, ConfigRefusedError, SettingError, printable
from include.tiering.kafka.cluster.contract import BrokerConfig, Brokers, ConfigSource
from include.tiering.settings.catalogue import nearest

WAIT_SECONDS: Final = 10.0
POLL_SECONDS: Final = 0.2
_OF_TIERED_STORAGE: Final = re.compile(r"(follower\.fetch\.last\.tiered|log\.local\.retention|log\.remote|remote)\.")


@dataclass(frozen=True, slots=True)
class BrokerConfigChange:
    """One config on one broker: what it was and is there. `error`: why the new value could not be seen, if so.

    `hidden`: the default of all brokers was changed, and the broker goes on with a value of its own.
    """

    broker_id: int
    name: str
    old: BrokerConfig
    new: BrokerConfig
    taken: bool
    error: str = ""
    hidden: bool = False


@dataclass(frozen=True, slots=True)
class AlteredBrokerConfigs:
    """Of every broker that the change is about. In a dry run `new` is what there was."""

    entity: ConfigEntity
    requested: Mapping[str, str | None]
    dry_run: bool
    changes: tuple[BrokerConfigChange, ...]

    @property
    def not_taken(self) -> tuple[BrokerConfigChange, ...]:
        return () if self.dry_run else tuple(change for change in self.changes if not change.taken)


def is_of_tiered_storage(name: str) -> bool:
    """Whether it is one of those that this platform changes on brokers."""
    return _OF_TIERED_STORAGE.match(name) is not None


def alter_broker_configs(
    entity: ConfigEntity,
    requested: Mapping[str, str | None],
    *,
    brokers: Brokers,
    clock: Clock,
    dry_run: bool = False,
    wait_seconds: float = WAIT_SECONDS,
) -> AlteredBrokerConfigs:
    """Set, or with None remove, all of `requested` on one broker, or on the default of all. Repeating is harmless.

    Raises:
        SettingError: not about brokers, or about something else than tiered storage.
        ConfigRefusedError: a broker does not list a name, or it needs a restart.
        BrokersRefusedError: the brokers do not take a value. Nothing was changed.
        BrokersError: they do not answer, or not to us. If that was the change itself, it may have been made: repeat it.
    """
    before = check_broker_configs(entity, requested, brokers=brokers)
    broker_id = None if entity.is_default else int(entity.entity_name)
    brokers.alter_broker_configs(broker_id, requested, dry_run=True)
    if dry_run:
        return AlteredBrokerConfigs(entity, requested, True, tuple(_unchanged(before, requested)))
    brokers.alter_broker_configs(broker_id, requested)
    return AlteredBrokerConfigs(
        entity, requested, False, tuple(_seen(before, entity, requested, brokers, clock, wait_seconds))
    )


def check_broker_configs(
    entity: ConfigEntity, requested: Mapping[str, str | None], *, brokers: Brokers
) -> Mapping[int, Mapping[str, BrokerConfig]]:
    """What each broker that the change is about has now, by broker id; raises as `alter_broker_configs`."""
    if entity.entity_type is not EntityType.BROKERS:
        raise SettingError(f"configs of {entity} are this platform's alone: --target brokers is about brokers")
    for name in requested:
        if not is_of_tiered_storage(name):
            raise SettingError(
                f"{printable(name)} is no config of tiered storage, and what else brokers have is not changed from here"
            )
    before = {broker_id: brokers.broker_configs(broker_id) for broker_id in _concerned(entity, brokers)}
    for name in requested:
        without = [broker_id for broker_id, configs in before.items() if name not in configs]
        if without:
            hint = nearest(name, [known for known in before[without[0]] if is_of_tiered_storage(known)])
            raise ConfigRefusedError(f"{_words(without)} no config {printable(name)}: {hint}; nothing was changed")
        fixed = [broker_id for broker_id, configs in before.items() if configs[name].read_only]
        if fixed:
            raise ConfigRefusedError(f"{_words(fixed)} {name} only from server.properties: nothing was changed")
    return before


def _concerned(entity: ConfigEntity, brokers: Brokers) -> Sequence[int]:
    known = [broker.broker_id for broker in brokers.describe().brokers]
    if entity.is_default:
        return known
    broker_id = int(entity.entity_name)
    if broker_id not in known:
        raise ConfigRefusedError(f"there is no broker {broker_id}: the cluster has {', '.join(map(str, known))}")
    return [broker_id]


def _unchanged(
    before: Mapping[int, Mapping[str, BrokerConfig]], requested: Mapping[str, str | None]
) -> Sequence[BrokerConfigChange]:
    return [
        BrokerConfigChange(broker_id, name, configs[name], configs[name], False)
        for broker_id, configs in before.items()
        for name in requested
    ]


def _seen(
    before: Mapping[int, Mapping[str, BrokerConfig]],
    entity: ConfigEntity,
    requested: Mapping[str, str | None],
    brokers: Brokers,
    clock: Clock,
    wait_seconds: float,
) -> list[BrokerConfigChange]:
    """Every broker is asked until it shows the change or the time is over."""
    deadline = clock.monotonic() + wait_seconds
    changes: list[BrokerConfigChange] = []
    for broker_id, old in before.items():
        while True:
            latest = _ask(broker_id, old, entity, requested, brokers)
            if all(change.taken for change in latest) or clock.monotonic() >= deadline:
                changes += latest
                break
            clock.sleep(POLL_SECONDS)
    return changes


def _ask(
    broker_id: int,
    old: Mapping[str, BrokerConfig],
    entity: ConfigEntity,
    requested: Mapping[str, str | None],
    brokers: Brokers,
) -> list[BrokerConfigChange]:
    try:
        new = brokers.broker_configs(broker_id)
    except BrokersError as error:
        return [BrokerConfigChange(broker_id, name, old[name], old[name], False, str(error)) for name in requested]
    return [_seen_once(broker_id, name, old[name], new[name], entity, value) for name, value in requested.items()]


def _seen_once(
    broker_id: int, name: str, old: BrokerConfig, new: BrokerConfig, entity: ConfigEntity, value: str | None
) -> BrokerConfigChange:
    own = ConfigSource.ALL_BROKERS if entity.is_default else ConfigSource.BROKER
    hidden = entity.is_default and new.source is ConfigSource.BROKER
    if value is None:
        taken = new.source is not own
    else:
        taken = new.source is own and new.value is not None and _canonical(new.value) == _canonical(value)
    return BrokerConfigChange(broker_id, name, old, new, taken or hidden, hidden=hidden)


def _canonical(value: str) -> str:
    """Brokers show numbers without the zeros and spaces that they were given with."""
    text = value.strip()
    return str(int(text)) if text.isascii() and text.removeprefix("-").isdecimal() else text


def _words(broker_ids: Sequence[int]) -> str:
    return f"broker {broker_ids[0]} has" if len(broker_ids) == 1 else f"brokers {', '.join(map(str, broker_ids))} have"
