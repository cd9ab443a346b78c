"""Limits of deletions among the dynamic configs: which change loosens one, and in what words. Pure.

A limit is loosened by a value that lets more go without a question, or lets it go sooner. In which direction that is,
is declared with the setting. What counts is the effect: a value that is removed leaves what the settings say.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

from include.tiering.configs.config_catalogue import DynamicConfig, all_configs
from include.tiering.configs.config_store import ALL_BROKERS, ConfigChange, ConfigValues
from include.tiering.settings import TieringSettings
from include.tiering.settings.rules import KEEP, days_of_expiry
from include.tiering.settings.section import Loosens
from include.tiering.units import format_utc


@dataclass(frozen=True, slots=True)
class LoosenedLimit:
    """One limit before and after, as they were in force."""

    name: str
    before: str
    after: str

    def __str__(self) -> str:
        return f"{self.name} {self.before} -> {self.after}"


@dataclass(frozen=True, slots=True)
class Loosening:
    """One that happened: by whom, and when by the database's clock."""

    limit: LoosenedLimit
    author: str
    at_ms: int

    def __str__(self) -> str:
        limit = self.limit
        return f"`{limit.name}` {limit.before} -> {limit.after}, by {self.author} at {format_utc(self.at_ms)}"


def deletion_limits() -> tuple[DynamicConfig, ...]:
    return tuple(config for config in all_configs() if config.loosens is not None)


def loosened_limits(before: ConfigValues, after: ConfigValues, settings: TieringSettings) -> tuple[LoosenedLimit, ...]:
    """What a change of all dynamic configs from `before` to `after` loosens, over `settings` without dynamic ones."""
    old, new = before.get(ALL_BROKERS, {}), after.get(ALL_BROKERS, {})
    return tuple(_loosened(old, new, settings))


def loosenings(changes: Sequence[ConfigChange], settings: TieringSettings, *, since_ms: int) -> tuple[Loosening, ...]:
    """Those of a history that happened at `since_ms` or later, whatever was changed after them; oldest first."""
    found = []
    for change in changes:
        if change.entity != ALL_BROKERS or change.changed_at_ms < since_ms:
            continue
        old, new = _one(change.name, change.old_value), _one(change.name, change.new_value)
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


def _one(name: str, value: str | None) -> dict[str, str]:
    return {} if value is None else {name: value}


def _amount(text: str) -> Decimal:
    """A number, or the days after which the segments of a deleted topic go."""
    if text == KEEP:
        return Decimal("Infinity")
    if text.startswith("expire:"):
        return Decimal(days_of_expiry(text) or 0)
    return Decimal(text)
