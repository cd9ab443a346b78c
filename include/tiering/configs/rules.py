"""Rules for changes of dynamic configs, the quotas that result from the values, and loosened deletion limits. Pure.

A change that is invalid by itself raises a SettingError; a change that breaks a rule together with the other values
raises a ConfigRefusedError.

A deletion limit is loosened by a value with which more bytes are deleted without an approval, or sooner. The setting
declares in which direction that is. The effective values are compared: if a value is removed, the settings apply.
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

from include.tiering.configs.config_catalogue import (
    FETCH_QUOTA,
    NARROW_FETCH_QUOTA,
    DynamicConfig,
    all_configs,
    config_on,
)
from include.tiering.configs.config_store import (
    ALL_BROKERS,
    ConfigChange,
    ConfigEntity,
    ConfigSnapshot,
    ConfigValues,
    EntityType,
    numbers_of,
)
from include.tiering.errors import ConfigRefusedError, SettingError, printable
from include.tiering.model.segments import is_legal_topic_name
from include.tiering.quotas.contract import UNLIMITED, QuotasInForce, Scope
from include.tiering.quotas.topic_quotas import TOPIC_THRESHOLD, TOTAL_THRESHOLD, check_thresholds
from include.tiering.settings import TieringSettings
from include.tiering.settings.fields import KEEP, Loosens, days_of_expiry
from include.tiering.units import format_utc

_BROKER_ID: Final = re.compile(r"[0-9]{1,10}\Z")
_MOST_BROKER_ID: Final = 2**31 - 1
_MOST_CLIENT_CHARACTERS: Final = 255


def checked_entity(entity_type: str, entity_name: str | None) -> ConfigEntity:
    """Return the entity of this type and name; None is the default of the type.

    Raises:
        SettingError: unknown type, or the name is not valid for it: a broker id, a legal topic name, or a client id of
            1 to 255 printable characters.
    """
    try:
        kind = EntityType(entity_type)
    except ValueError:
        raise SettingError(f"entity type {printable(entity_type)!r}: accepted: {', '.join(EntityType)}") from None
    if entity_name is None:
        return ConfigEntity(kind)
    if kind is EntityType.BROKERS:
        if _BROKER_ID.match(entity_name) is None or int(entity_name) > _MOST_BROKER_ID:
            raise SettingError(_invalid_name(kind, entity_name, f"the id of a broker, 0 to {_MOST_BROKER_ID}"))
        return ConfigEntity(kind, str(int(entity_name)))
    if kind is EntityType.TOPICS and not is_legal_topic_name(entity_name):
        raise SettingError(_invalid_name(kind, entity_name, "1 to 249 of letters, digits, '.', '_' and '-'"))
    if not (0 < len(entity_name) <= _MOST_CLIENT_CHARACTERS and entity_name.isprintable()):
        raise SettingError(_invalid_name(kind, entity_name, f"1 to {_MOST_CLIENT_CHARACTERS} printable characters"))
    return ConfigEntity(kind, entity_name)


def checked_changes(
    entity: ConfigEntity, changes: Mapping[str, str | None], *, stored: Collection[str] = ()
) -> dict[str, str | None]:
    """Return `changes` with current names instead of aliases, and values as they are stored; None removes a value.

    A config that is `stored` on the entity can always be removed, also if this version does not know it.

    Raises:
        SettingError: an unknown name, a name that is not legal on this entity or occurs twice, or an invalid value.
    """
    checked: dict[str, str | None] = {}
    for name, value in changes.items():
        if value is None and name in stored:
            checked[name] = None
            continue
        config = config_on(entity, name)
        if config.name in checked:
            raise SettingError(f"{name} changes {config.name} a second time: leave one of them out")
        checked[config.name] = None if value is None else config.canonical(value)
    return checked


def check_rules(values: ConfigValues) -> None:
    """Check that all of these values may be in force together.

    Raises:
        ConfigRefusedError: the values break a rule; contains the numbers.
    """
    _check_clients(values)
    _check_thresholds(values)


def quotas_in_force(snapshot: ConfigSnapshot) -> QuotasInForce:
    """Return the quotas of all scopes. Configs that this version does not know are ignored."""
    quotas: dict[Scope, int] = {}
    for config in (known for known in all_configs() if known.quota is not None):
        for entity, value in numbers_of(snapshot.values, config.entity_type, config.name).items():
            scope = config.scope(entity)
            if scope is not None and config.is_legal_on(entity):
                quotas[scope] = min(value * scope.kind.units, UNLIMITED) if value else UNLIMITED
    return QuotasInForce(snapshot.version, quotas)


def _check_clients(values: ConfigValues) -> None:
    """Check that every client's fetch quota is below every broker's, defaults included; unset quotas do not count."""
    brokers = numbers_of(values, EntityType.BROKERS, FETCH_QUOTA)
    clients = numbers_of(values, EntityType.CLIENTS, NARROW_FETCH_QUOTA)
    if not brokers or not clients:
        return
    lowest, greatest = (
        min(brokers, key=lambda broker: brokers[broker]),
        max(clients, key=lambda client: clients[client]),
    )
    if brokers[lowest] != UNLIMITED and clients[greatest] >= brokers[lowest]:
        raise ConfigRefusedError(
            f"{greatest}: {NARROW_FETCH_QUOTA} = {clients[greatest]} is not below {lowest}: {FETCH_QUOTA} = "
            f"{brokers[lowest]}: a client's quota must be lower than the lowest of the brokers"
        )


def _check_thresholds(values: ConfigValues) -> None:
    explicit = {
        entity.entity_name: value for entity, value in numbers_of(values, EntityType.TOPICS, TOPIC_THRESHOLD).items()
    }
    for broker, total in numbers_of(values, EntityType.BROKERS, TOTAL_THRESHOLD).items():
        try:
            check_thresholds(total, explicit)
        except SettingError as error:
            raise ConfigRefusedError(f"{broker}: {error}") from None


def _invalid_name(kind: EntityType, name: str, accepted: str) -> str:
    return f"{printable(name[:_MOST_CLIENT_CHARACTERS])!r} is no {kind.singular}: accepted: {accepted}"


@dataclass(frozen=True, slots=True)
class LoosenedLimit:
    """A limit that was in force before a change, and the limit after it."""

    name: str
    before: str
    after: str

    def __str__(self) -> str:
        return f"{self.name} {self.before} -> {self.after}"


@dataclass(frozen=True, slots=True)
class Loosening:
    """A change that loosened a limit: its author, and when by the database's clock."""

    limit: LoosenedLimit
    author: str
    at_ms: int

    def __str__(self) -> str:
        limit = self.limit
        return f"`{limit.name}` {limit.before} -> {limit.after}, by {self.author} at {format_utc(self.at_ms)}"


def deletion_limits() -> tuple[DynamicConfig, ...]:
    """Return the configs that limit deletions."""
    return tuple(config for config in all_configs() if config.loosens is not None)


def loosened_limits(before: ConfigValues, after: ConfigValues, settings: TieringSettings) -> tuple[LoosenedLimit, ...]:
    """Return the limits that a change from `before` to `after` loosens; `settings` apply where no config is set."""
    old, new = before.get(ALL_BROKERS, {}), after.get(ALL_BROKERS, {})
    return tuple(_loosened(old, new, settings))


def loosenings(changes: Sequence[ConfigChange], settings: TieringSettings, *, since_ms: int) -> tuple[Loosening, ...]:
    """Return the loosening changes of a history at `since_ms` or later, also if reverted since; oldest first."""
    found = []
    for change in changes:
        if change.entity != ALL_BROKERS or change.changed_at_ms < since_ms:
            continue
        old, new = _single(change.name, change.old_value), _single(change.name, change.new_value)
        found += [Loosening(limit, change.author, change.changed_at_ms) for limit in _loosened(old, new, settings)]
    return tuple(found)


def _loosened(old: Mapping[str, str], new: Mapping[str, str], settings: TieringSettings) -> Iterator[LoosenedLimit]:
    for config in deletion_limits():
        if config.setting is None:
            continue
        without = config.setting.text(settings)
        before, after = old.get(config.name, without), new.get(config.name, without)
        is_larger = _amount(after) > _amount(before)
        is_smaller = _amount(after) < _amount(before)
        if is_larger if config.loosens is Loosens.UPWARDS else is_smaller:
            yield LoosenedLimit(config.name, before, after)


def _single(name: str, value: str | None) -> dict[str, str]:
    return {} if value is None else {name: value}


def _amount(text: str) -> Decimal:
    """The number, or the days after which the segments of a deleted topic expire."""
    if text == KEEP:
        return Decimal("Infinity")
    if text.startswith("expire:"):
        return Decimal(days_of_expiry(text) or 0)
    return Decimal(text)
