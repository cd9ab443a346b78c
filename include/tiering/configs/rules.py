"""Rules for changes of dynamic configs, the quotas that result from the values, and loosened deletion limits.

A change that is invalid by itself raises a SettingError; a change that breaks a rule together with the other values
raises a ConfigRefusedError.

A change loosens a deletion limit if more may be deleted without an approval, or sooner, with the new value than with
the old one. The declaration of the setting says whether a higher or a lower value does that. Effective values are
compared: where no value is set, or the change removes it, the value from the settings counts.

A change cuts a retention if less is kept with the new value than with the old one.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

from include.tiering.configs.config_catalogue import (
    FETCH_QUOTA,
    NARROW_FETCH_QUOTA,
    TOTAL_FETCH_QUOTA,
    DynamicConfig,
    all_configs,
    config_on,
)
from include.tiering.configs.config_store import (
    ALL_BROKERS,
    KEPT_FOR_EVER,
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
_MOST_SHOWN: Final = 100


def checked_entity(entity_type: str, entity_name: str | None) -> ConfigEntity:
    """Return the entity of this type and name; None is the default of the type.

    Raises:
        SettingError: the type is unknown, or the name is not valid for it. Valid are a broker id, a legal topic name,
            or a client id of 1 to 255 printable characters.
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
    """Return `changes` with current names instead of aliases, and with values as they are stored; None removes a value.

    A config whose name is in `stored` can always be removed, even if this version does not know it.

    Raises:
        SettingError: an unknown name, a name that is not legal on this entity or occurs twice, or an invalid value.
    """
    checked: dict[str, str | None] = {}
    called: dict[str, str] = {}
    for name, value in changes.items():
        if value is None and name in stored:
            checked[name] = None
            continue
        config = config_on(entity, name)
        if config.name in checked:
            both = f"{called.get(config.name, config.name)} and {name}"
            raise SettingError(f"{both} are names of one config, {config.name}: leave one of them out")
        called[config.name] = name
        checked[config.name] = None if value is None else config.canonical(value)
    return checked


def parsed_changes(added: Iterable[str], removed: Iterable[str]) -> dict[str, str | None]:
    """Return the changes that texts ask for: `NAME=VALUE` sets a value, a name in `removed` removes its value.

    Raises:
        SettingError: a text is not NAME=VALUE, or a name occurs twice.
    """
    changes: dict[str, str | None] = {}
    for text in added:
        name, separator, value = text.partition("=")
        if not separator:
            raise SettingError(f"{printable(text[:_MOST_SHOWN])}: NAME=VALUE is needed")
        _put(changes, name.strip(), value.strip())
    for name in removed:
        _put(changes, name.strip(), None)
    return changes


def _put(changes: dict[str, str | None], name: str, value: str | None) -> None:
    if name in changes:
        raise SettingError(f"{name} is changed twice: leave one of them out")
    changes[name] = value


def refuse_removal_of_unset(
    entity: ConfigEntity, changes: Mapping[str, str | None], history: Iterable[ConfigChange]
) -> Callable[[ConfigValues, ConfigValues], None]:
    """Return a check that refuses a change that would remove a value that is not set on the entity, as Kafka does.

    The check raises ConfigRefusedError. `changes` are as the user wrote them, also with aliases. A value that was
    removed before may be removed again, because a command is repeated if it could not claim the store: `history` are
    the entity's changes, oldest first.
    """
    newest = {change.name: change.new_value for change in history}

    def check(before: ConfigValues, after: ConfigValues) -> None:
        own = before.get(entity, {})
        removed = [name for name, value in checked_changes(entity, changes, stored=own).items() if value is None]
        unset = [name for name in removed if name not in own and newest.get(name, "never set") is not None]
        if unset:
            raise ConfigRefusedError(
                f"{', '.join(unset)} cannot be deleted on {entity}: it has no value there; nothing was changed. "
                "./tiering configs --describe shows what is set, and where"
            )

    return check


def check_rules(values: ConfigValues, before: ConfigValues | None = None, *, gone: Collection[str] = ()) -> None:
    """Check that all of these values may be in force together.

    A value that already breaks a rule in `before`, the values before the change, may still break it, but not by more: a
    rule that an earlier version did not have must not refuse changes of other configs, and must not refuse a repair in
    several steps. `gone` are names of topics that were deleted: their thresholds do not count towards a total.

    Raises:
        ConfigRefusedError: the values break a rule; the message contains the values.
    """
    old = before or {}
    _check_clients(values, old)
    _check_thresholds(values, old, gone)


def quotas_in_force(snapshot: ConfigSnapshot) -> QuotasInForce:
    """Return the quotas of all scopes that have one; a value of 0 becomes `UNLIMITED`.

    Configs that this version does not know are ignored.
    """
    quotas: dict[Scope, int] = {}
    for config in (known for known in all_configs() if known.quota is not None):
        for entity, value in numbers_of(snapshot.values, config.entity_type, config.name).items():
            scope = config.scope(entity)
            if scope is not None and config.is_legal_on(entity):
                quotas[scope] = min(value * scope.kind.units, UNLIMITED) if value else UNLIMITED
    return QuotasInForce(snapshot.version, quotas)


def _check_clients(values: ConfigValues, before: ConfigValues) -> None:
    """Check that each fetch quota set for clients is below each one set for brokers or in total, defaults included."""
    allowed = _client_excesses(before)
    broken = [pair for pair, excess in _client_excesses(values).items() if excess > allowed.get(pair, 0)]
    if not broken:
        return
    clients = numbers_of(values, EntityType.CLIENTS, NARROW_FETCH_QUOTA)
    wider = {name: numbers_of(values, EntityType.BROKERS, name) for name in _WIDER_FETCH_QUOTAS}
    client, entity, name = max(broken, key=lambda pair: (clients[pair[0]], -wider[pair[2]][pair[1]]))
    raise ConfigRefusedError(
        f"{client}: {NARROW_FETCH_QUOTA} = {clients[client]} is not below {entity}: {name} = "
        f"{wider[name][entity]}: a client's quota must be lower than the lowest of the brokers, and than the total"
    )


_WIDER_FETCH_QUOTAS: Final = (FETCH_QUOTA, TOTAL_FETCH_QUOTA)


def _client_excesses(values: ConfigValues) -> dict[tuple[ConfigEntity, ConfigEntity, str], int]:
    """Return by how much quotas of clients are too high: by client, and by broker and name of the wider quota.

    `UNLIMITED` is no quota: for a client it means that only the quotas of the brokers and the total limit it.
    """
    wider = {
        (entity, name): value
        for name in _WIDER_FETCH_QUOTAS
        for entity, value in numbers_of(values, EntityType.BROKERS, name).items()
        if value != UNLIMITED
    }
    return {
        (client, *place): value - limit + 1
        for client, value in numbers_of(values, EntityType.CLIENTS, NARROW_FETCH_QUOTA).items()
        if value != UNLIMITED
        for place, limit in wider.items()
        if value >= limit
    }


def _check_thresholds(values: ConfigValues, before: ConfigValues, gone: Collection[str]) -> None:
    explicit, old = _explicit(values, gone), _explicit(before, gone)
    totals_before = numbers_of(before, EntityType.BROKERS, TOTAL_THRESHOLD)
    for broker, total in numbers_of(values, EntityType.BROKERS, TOTAL_THRESHOLD).items():
        excess_before = sum(old.values()) - totals_before[broker] if broker in totals_before else 0
        if 0 < sum(explicit.values()) - total <= excess_before:
            continue
        try:
            check_thresholds(total, explicit)
        except SettingError as error:
            raise ConfigRefusedError(f"{broker}: {error}") from None


def _explicit(values: ConfigValues, gone: Collection[str]) -> dict[str, int]:
    """Return the thresholds of topics by name, without those of topics that are gone."""
    thresholds = numbers_of(values, EntityType.TOPICS, TOPIC_THRESHOLD)
    return {entity.entity_name: value for entity, value in thresholds.items() if entity.entity_name not in gone}


def _invalid_name(kind: EntityType, name: str, accepted: str) -> str:
    return f"{printable(name[:_MOST_CLIENT_CHARACTERS])!r} is no {kind.singular}: accepted: {accepted}"


@dataclass(frozen=True, slots=True)
class LoosenedLimit:
    """A deletion limit by name, with the values in force before and after a change."""

    name: str
    before: str
    after: str

    def __str__(self) -> str:
        return f"{self.name} {self.before} -> {self.after}"


@dataclass(frozen=True, slots=True)
class Loosening:
    """A change that loosened a deletion limit, its author, and its time by the database's clock."""

    limit: LoosenedLimit
    author: str
    at_ms: int

    def __str__(self) -> str:
        limit = self.limit
        return f"`{limit.name}` {limit.before} -> {limit.after}, by {self.author} at {format_utc(self.at_ms)}"


def deletion_limits() -> tuple[DynamicConfig, ...]:
    """Return the configs that are deletion limits: their declaration says in which direction they loosen."""
    return tuple(config for config in all_configs() if config.loosens is not None)


def loosened_limits(before: ConfigValues, after: ConfigValues, settings: TieringSettings) -> tuple[LoosenedLimit, ...]:
    """Return the deletion limits that a change from `before` to `after` loosens; unset values are as in `settings`."""
    old, new = before.get(ALL_BROKERS, {}), after.get(ALL_BROKERS, {})
    return tuple(_loosened(old, new, settings))


def loosenings(changes: Sequence[ConfigChange], settings: TieringSettings, *, since_ms: int) -> tuple[Loosening, ...]:
    """Return the changes at `since_ms` or later that loosened a deletion limit, in the order of `changes`.

    A loosening is also returned if a later change has reverted it.
    """
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
    """Return the number that a limit's value means, so that values can be compared.

    For segments of deleted topics this is the number of days after which they expire, infinity if they are kept.
    """
    if text == KEEP:
        return Decimal("Infinity")
    if text.startswith("expire:"):
        return Decimal(days_of_expiry(text) or 0)
    return Decimal(text)


def last_cuts(changes: Sequence[ConfigChange]) -> dict[str, tuple[ConfigChange, ...]]:
    """Return, by topic, the last change of each config that cut it to less, if now still less is kept than before it.

    A small raise after a large cut does not hide the cut. `changes` are the newest first.
    """
    now: dict[tuple[str, str], float] = {}
    cuts: dict[tuple[str, str], ConfigChange] = {}
    for change in changes:
        key, before = (change.entity.entity_name, change.name), _kept(change.old_value)
        is_less = now.setdefault(key, _kept(change.new_value)) < before
        if is_less and _kept(change.new_value) < before:
            cuts.setdefault(key, change)
    found: dict[str, list[ConfigChange]] = {}
    for (topic, _), change in cuts.items():
        found.setdefault(topic, []).append(change)
    return {topic: tuple(own) for topic, own in found.items()}


def _kept(value: str | None) -> float:
    return float("inf") if value is None or int(value) == KEPT_FOR_EVER else int(value)
