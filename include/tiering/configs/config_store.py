"""Configs that take effect while jobs run: what they apply to, what changed, the store, and what holds now.

What holds now is read in three ways: the settings with the dynamic configs over them; how long, and how much of, a
platform topic is kept (our own configs of the topic, not the brokers'); and topic quotas, read again when they are half
a second old.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Protocol

from include.tiering.clock import Clock
from include.tiering.quotas.topic_quotas import TOPIC_THRESHOLD, TOTAL_THRESHOLD, TopicQuotaConfigs
from include.tiering.settings import TieringSettings, with_dynamic


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
    MetadataUnavailableError.
    """

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


RETENTION_MS: Final = "retention.ms"
RETENTION_BYTES: Final = "retention.bytes"
KEPT_FOR_EVER: Final = -1


@dataclass(frozen=True, slots=True)
class TopicRetention:
    """Limits of each partition of a topic, 0 and above; None keeps for ever."""

    retention_ms: int | None = None
    retention_bytes: int | None = None

    @classmethod
    def of(cls, configs: Mapping[str, str]) -> "TopicRetention":
        """From what is set on the topic, by name, as it is stored. There is no default of all topics."""
        return cls(_retention_limit(configs.get(RETENTION_MS)), _retention_limit(configs.get(RETENTION_BYTES)))


FOR_EVER: Final = TopicRetention()


def _retention_limit(stored: str | None) -> int | None:
    limit = KEPT_FOR_EVER if stored is None else int(stored)
    return None if limit == KEPT_FOR_EVER else limit


class EffectiveConfigs:
    """What holds now: the settings of this process with the dynamic configs over them."""

    def __init__(self, *, settings: TieringSettings, store: ConfigStore) -> None:
        self._settings = settings
        self._store = store

    def settings(self) -> TieringSettings:
        return with_dynamic(self._settings, self._store.of_entity(ALL_BROKERS))

    def topic_retentions(self) -> dict[str, TopicRetention]:
        """What is set on topics, by name."""
        return {
            entity.entity_name: TopicRetention.of(configs)
            for entity, configs in self._store.snapshot().values.items()
            if entity.entity_type is EntityType.TOPICS
        }

    def retention_of(self, topic: str) -> TopicRetention:
        return TopicRetention.of(self._store.of_entity(ConfigEntity(EntityType.TOPICS, topic)))


TOPIC_QUOTAS_ENABLE: Final = "tiering.topic.quotas.enable"
TOPIC_QUOTAS_FRESH_SECONDS: Final = 0.5


class FreshTopicQuotaConfigs:
    """For one process; `current` asks the store at most twice a second."""

    def __init__(self, store: ConfigStore, clock: Clock, *, enabled: bool) -> None:
        self._store = store
        self._clock = clock
        self._enabled = enabled
        self._known: tuple[float, TopicQuotaConfigs] | None = None

    def current(self) -> TopicQuotaConfigs:
        """Raises MetadataUnavailableError."""
        now = self._clock.monotonic()
        if self._known is None or now - self._known[0] >= TOPIC_QUOTAS_FRESH_SECONDS:
            values = self._store.snapshot().values
            self._known = (now, _topic_quotas_of(values, enabled=self._enabled))
        return self._known[1]


def _topic_quotas_of(values: ConfigValues, *, enabled: bool) -> TopicQuotaConfigs:
    """`enabled` is the setting where no dynamic config speaks."""
    switch = values.get(ALL_BROKERS, {}).get(TOPIC_QUOTAS_ENABLE)
    return TopicQuotaConfigs(
        enabled=enabled if switch is None else switch == "true",
        totals=_by_name(values, EntityType.BROKERS, TOTAL_THRESHOLD),
        explicit=_by_name(values, EntityType.TOPICS, TOPIC_THRESHOLD),
    )


def _by_name(values: ConfigValues, entity_type: EntityType, name: str) -> dict[str, int]:
    return {entity.entity_name: number for entity, number in numbers_of(values, entity_type, name).items()}
