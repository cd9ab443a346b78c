"""What a change of dynamic configs must hold to, and the quotas that values put in force. Pure.

A change that is wrong by itself is a SettingError; one that breaks a rule together with the other values is a
ConfigRefusedError.
"""

import re
from collections.abc import Collection, Mapping
from typing import Final

from include.tiering.configs.config_catalogue import (
    FETCH_QUOTA,
    NARROW_FETCH_QUOTA,
    all_configs,
    config_on,
)
from include.tiering.configs.config_store import ConfigEntity, ConfigSnapshot, ConfigValues, EntityType, numbers_of
from include.tiering.errors import ConfigRefusedError, SettingError, printable
from include.tiering.model.ids import is_legal_topic_name
from include.tiering.quotas.contract import UNLIMITED, QuotasInForce
from include.tiering.quotas.scopes import Scope
from include.tiering.quotas.topic_thresholds import TOPIC_THRESHOLD, TOTAL_THRESHOLD, check_thresholds

_BROKER_ID: Final = re.compile(r"[0-9]{1,10}\Z")
_MOST_BROKER_ID: Final = 2**31 - 1
_MOST_CLIENT_CHARACTERS: Final = 255


def checked_entity(entity_type: str, entity_name: str | None) -> ConfigEntity:
    """The entity called so; None is the default of its type.

    Raises:
        SettingError: no such type, or no name of that type: broker id, legal topic name, or a client id of 1 to 255
            printable characters.
    """
    try:
        kind = EntityType(entity_type)
    except ValueError:
        raise SettingError(f"entity type {printable(entity_type)!r}: accepted: {', '.join(EntityType)}") from None
    if entity_name is None:
        return ConfigEntity(kind)
    if kind is EntityType.BROKERS:
        if _BROKER_ID.match(entity_name) is None or int(entity_name) > _MOST_BROKER_ID:
            raise SettingError(_no_name(kind, entity_name, f"the id of a broker, 0 to {_MOST_BROKER_ID}"))
        return ConfigEntity(kind, str(int(entity_name)))
    if kind is EntityType.TOPICS and not is_legal_topic_name(entity_name):
        raise SettingError(_no_name(kind, entity_name, "1 to 249 of letters, digits, '.', '_' and '-'"))
    if not (0 < len(entity_name) <= _MOST_CLIENT_CHARACTERS and entity_name.isprintable()):
        raise SettingError(_no_name(kind, entity_name, f"1 to {_MOST_CLIENT_CHARACTERS} printable characters"))
    return ConfigEntity(kind, entity_name)


def checked_changes(
    entity: ConfigEntity, changes: Mapping[str, str | None], *, stored: Collection[str] = ()
) -> dict[str, str | None]:
    """`changes` with names without alias and values as they are stored; None removes.

    What is `stored` on the entity can always be removed, also if this version does not know it.

    Raises:
        SettingError: an unknown name, one that is not legal on this entity, an unacceptable value, a name twice.
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
    """Whether all of these may be in force together.

    Raises:
        ConfigRefusedError: with the numbers.
    """
    _check_clients(values)
    _check_thresholds(values)


def quotas_in_force(snapshot: ConfigSnapshot) -> QuotasInForce:
    """What limiters go by. Names that this version does not know hold nothing down."""
    quotas: dict[Scope, int] = {}
    for config in (one for one in all_configs() if one.quota is not None):
        for entity, value in numbers_of(snapshot.values, config.entity_type, config.name).items():
            scope = config.scope(entity)
            if scope is not None and config.is_legal_on(entity):
                quotas[scope] = min(value * scope.kind.units, UNLIMITED) if value else UNLIMITED
    return QuotasInForce(snapshot.version, quotas)


def _check_clients(values: ConfigValues) -> None:
    """Every client's fetch quota is below every broker's, the default's included; an unset one bounds nothing."""
    brokers = numbers_of(values, EntityType.BROKERS, FETCH_QUOTA)
    clients = numbers_of(values, EntityType.CLIENTS, NARROW_FETCH_QUOTA)
    if not brokers or not clients:
        return
    lowest, greatest = min(brokers, key=lambda one: brokers[one]), max(clients, key=lambda one: clients[one])
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


def _no_name(kind: EntityType, name: str, accepted: str) -> str:
    return f"{printable(name[:_MOST_CLIENT_CHARACTERS])!r} is no {kind.singular}: accepted: {accepted}"
