"""Configs that take effect while jobs run: what they apply to, what changed, and the store that keeps them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Protocol


class EntityType(StrEnum):
    """Kafka's entity types, those that have configs here."""

    BROKERS = "brokers"
    TOPICS = "topics"
    CLIENTS = "clients"

    @property
    def singular(self) -> str:
        return self.removesuffix("s")


@dataclass(frozen=True, slots=True)
class ConfigEntity:
    """What a config applies to: one broker, topic or client; an empty name is the default of the type."""

    entity_type: EntityType
    entity_name: str = ""

    def __str__(self) -> str:
        return f"{self.entity_type.singular} {self.entity_name}" if self.entity_name else f"{self.entity_type} default"

    @property
    def is_default(self) -> bool:
        return not self.entity_name

    @property
    def default(self) -> "ConfigEntity":
        """The entity whose values apply where this one has none."""
        return ConfigEntity(self.entity_type)


ALL_BROKERS: Final = ConfigEntity(EntityType.BROKERS)

ConfigValues = Mapping[ConfigEntity, Mapping[str, str]]
"""Everything that is set, by entity and name; entities without a value are absent."""


def numbers_of(values: ConfigValues, entity_type: EntityType, name: str) -> dict[ConfigEntity, int]:
    """The numbers of one name on entities of one type, by entity."""
    return {
        entity: int(configs[name])
        for entity, configs in values.items()
        if entity.entity_type == entity_type and name in configs
    }


@dataclass(frozen=True, slots=True)
class ConfigChange:
    """One change. None means: was not set, or was removed."""

    entity: ConfigEntity
    name: str
    old_value: str | None
    new_value: str | None
    author: str
    changed_at_ms: int


@dataclass(frozen=True, slots=True)
class ConfigSnapshot:
    """All values, none older than `version`."""

    version: int
    values: ConfigValues


@dataclass(frozen=True, slots=True)
class ConfigAlteration:
    """What one `alter` changed, in order, and all values after it."""

    changes: tuple[ConfigChange, ...]
    snapshot: ConfigSnapshot


ConfigCheck = Callable[[ConfigValues, ConfigValues], None]
"""Gets all values as they are, and as they would be."""


def accept_all(before: ConfigValues, after: ConfigValues) -> None:
    """The check of those who have none."""


class ConfigStore(Protocol):
    """The dynamic configs of one cluster. Names and values are checked by the caller. All may raise
    MetadataUnavailableError."""

    def snapshot(self) -> ConfigSnapshot:
        """Version 0 before the first change."""
        ...

    def of_entity(self, entity: ConfigEntity) -> Mapping[str, str]:
        """What is set on this very entity, without the defaults behind it."""
        ...

    def alter(
        self,
        entity: ConfigEntity,
        changes: Mapping[str, str | None],
        *,
        author: str,
        check: ConfigCheck = accept_all,
    ) -> ConfigAlteration:
        """Set, or with None remove, all of `changes` or nothing. What stays the same leaves no history.

        What `check` raises comes out of here and nothing was changed. Nobody else alters between the reading of the
        values that it gets and the end, so two changes never break a rule together.
        """
        ...

    def history(self, entity: ConfigEntity | None = None) -> Sequence[ConfigChange]:
        """Oldest first, of one entity or of all."""
        ...
