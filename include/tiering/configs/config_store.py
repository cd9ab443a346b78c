"""Dynamic configs, which take effect while jobs run: entities, changes, the store, and the values in force.

Three kinds of values in force are read here: the settings, overridden by dynamic configs; the time and size retention
of the platform's topics, which comes from this platform's configs of a topic, not from the brokers' configs; and topic
quotas, which are read again when they are half a second old.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Protocol

from include.tiering.clock import Clock
from include.tiering.quotas.contract import QuotaKind
from include.tiering.quotas.topic_quotas import TOPIC_QUOTAS_ENABLE, TOPIC_THRESHOLD, TOTAL_THRESHOLD, TopicQuotaConfigs
from include.tiering.settings import TieringSettings, with_dynamic


class EntityType(StrEnum):
    """The types of entities, as in Kafka, that can have dynamic configs."""

    BROKERS = "brokers"
    TOPICS = "topics"
    CLIENTS = "clients"

    @property
    def singular(self) -> str:
        return self.removesuffix("s")


@dataclass(frozen=True, slots=True)
class ConfigEntity:
    """What a config applies to: a broker, topic or client, or (with an empty name) the default of a type."""

    entity_type: EntityType
    entity_name: str = ""

    def __str__(self) -> str:
        return f"{self.entity_type.singular} {self.entity_name}" if self.entity_name else f"{self.entity_type} default"

    @property
    def is_default(self) -> bool:
        return not self.entity_name

    @property
    def default(self) -> "ConfigEntity":
        """The default of this entity's type."""
        return ConfigEntity(self.entity_type)


ALL_BROKERS: Final = ConfigEntity(EntityType.BROKERS)

ConfigValues = Mapping[ConfigEntity, Mapping[str, str]]
"""All values that are set, by entity and name; entities without a value are absent."""


def numbers_of(values: ConfigValues, entity_type: EntityType, name: str) -> dict[ConfigEntity, int]:
    """Return the integer values of a config on the entities of a type, by entity."""
    return {
        entity: int(configs[name])
        for entity, configs in values.items()
        if entity.entity_type == entity_type and name in configs
    }


@dataclass(frozen=True, slots=True)
class ConfigChange:
    """A change of one value.

    `old_value` is None if no value was set before; `new_value` is None if the change removed the value.
    """

    entity: ConfigEntity
    name: str
    old_value: str | None
    new_value: str | None
    author: str
    changed_at_ms: int


@dataclass(frozen=True, slots=True)
class ConfigSnapshot:
    """All values, as they were at `version` or later."""

    version: int
    values: ConfigValues


@dataclass(frozen=True, slots=True)
class ConfigAlteration:
    """The changes of an `alter` call, in order, and all values after it."""

    changes: tuple[ConfigChange, ...]
    snapshot: ConfigSnapshot


ConfigCheck = Callable[[ConfigValues, ConfigValues], None]
"""Receives all values before and after a change, and raises an error to refuse the change."""


def accept_all(before: ConfigValues, after: ConfigValues) -> None:
    """Accept every change."""


class ConfigStore(Protocol):
    """The dynamic configs of a cluster. The caller checks names and values.

    All methods may raise MetadataUnavailableError.
    """

    def snapshot(self) -> ConfigSnapshot:
        """Return all values and their version, which is 0 before the first change."""
        ...

    def of_entity(self, entity: ConfigEntity) -> Mapping[str, str]:
        """Return the values that are set on this entity itself, without defaults."""
        ...

    def alter(
        self,
        entity: ConfigEntity,
        changes: Mapping[str, str | None],
        *,
        author: str,
        check: ConfigCheck = accept_all,
    ) -> ConfigAlteration:
        """Make all of `changes` or none of them: set a value, or remove it if the new value is None.

        Values that do not differ from the stored ones add no history. If `check` raises, the error is passed on and no
        value is changed. No other change takes place after the values for `check` were read and before this change is
        stored, so two changes never break a rule together.
        """
        ...

    def history(
        self,
        entity: ConfigEntity | None = None,
        *,
        entity_type: EntityType | None = None,
        since_ms: int = 0,
        newest: int | None = None,
    ) -> Sequence[ConfigChange]:
        """Return changes, the oldest first.

        Args:
            entity: of this entity; None: of all.
            entity_type: of entities of this type; None: of all types.
            since_ms: from this time on (inclusive), in UTC milliseconds.
            newest: the highest number of changes to return, the newest ones; None: all.
        """
        ...

    def changes_of_topics(
        self, topics: Collection[str], names: Collection[str], *, at_most: int
    ) -> Sequence[ConfigChange]:
        """Return the newest changes of the configs with these names on these topics, the newest first."""
        ...


RETENTION_MS: Final = "retention.ms"
RETENTION_BYTES: Final = "retention.bytes"
KEPT_FOR_EVER: Final = -1


@dataclass(frozen=True, slots=True)
class TopicRetention:
    """The retention of each partition of a topic: values of 0 or more, or None for no limit."""

    retention_ms: int | None = None
    retention_bytes: int | None = None

    @classmethod
    def of(cls, configs: Mapping[str, str]) -> "TopicRetention":
        """Return the retention from the configs that are set on the topic itself; the default of topics has none."""
        return cls(_retention_limit(configs.get(RETENTION_MS)), _retention_limit(configs.get(RETENTION_BYTES)))


FOR_EVER: Final = TopicRetention()


def _retention_limit(stored: str | None) -> int | None:
    limit = KEPT_FOR_EVER if stored is None else int(stored)
    return None if limit == KEPT_FOR_EVER else limit


COPY_LAG_MS: Final = "remote.copy.lag.ms"
COPY_LAG_BYTES: Final = "remote.copy.lag.bytes"
DEFAULT_COPY_LAG_MS: Final = "log.remote.copy.lag.ms"
DEFAULT_COPY_LAG_BYTES: Final = "log.remote.copy.lag.bytes"
"""`DEFAULT_COPY_LAG_MS` and `DEFAULT_COPY_LAG_BYTES` are set on the default of the brokers.

They apply to topics without a value of their own (KIP-1241)."""


@dataclass(frozen=True, slots=True)
class CopyLag:
    """How long a topic delays the copy of a rolled segment, in milliseconds of age and in bytes that follow it.

    The segment is copied as soon as one of the two is reached. If one of them is 0, nothing is delayed; -1 stands for
    the retention that the brokers have for the topic. The defaults are Kafka's.
    """

    lag_ms: int = 0
    lag_bytes: int = -1

    @classmethod
    def of(cls, topic: Mapping[str, str], brokers: Mapping[str, str]) -> "CopyLag":
        """Return the copy lag from the configs of the topic and those of the default of the brokers."""
        lag_ms = topic.get(COPY_LAG_MS, brokers.get(DEFAULT_COPY_LAG_MS, "0"))
        return cls(int(lag_ms), int(topic.get(COPY_LAG_BYTES, brokers.get(DEFAULT_COPY_LAG_BYTES, "-1"))))


class EffectiveConfigs:
    """The settings of this process, overridden by the dynamic configs."""

    def __init__(self, *, settings: TieringSettings, store: ConfigStore) -> None:
        self._settings = settings
        self._store = store

    def settings(self) -> TieringSettings:
        return with_dynamic(self._settings, self._store.of_entity(ALL_BROKERS))

    def quota_windows(self) -> dict[QuotaKind, tuple[int, int]]:
        """Return, by kind of quota, the number of samples that rates are averaged over, and a sample's milliseconds."""
        settings = self.settings()
        copy, fetch = settings.copy_quota_window, settings.fetch_quota_window
        return {
            QuotaKind.COPY: (copy.num, copy.size_seconds * 1000),
            QuotaKind.FETCH: (fetch.num, fetch.size_seconds * 1000),
        }

    def topic_retentions(self) -> dict[str, TopicRetention]:
        """Return the retention of each topic with a dynamic config, by name; "" stands for the default of topics."""
        return {
            entity.entity_name: TopicRetention.of(configs)
            for entity, configs in self._store.snapshot().values.items()
            if entity.entity_type is EntityType.TOPICS
        }

    def copy_lags(self) -> Callable[[str], CopyLag]:
        """Return a function that returns a topic's copy lag, by the topic's name, as it is configured now."""
        values = self._store.snapshot().values
        brokers = values.get(ALL_BROKERS, {})
        return lambda topic: CopyLag.of(values.get(ConfigEntity(EntityType.TOPICS, topic), {}), brokers)

    def retention_of(self, topic: str) -> TopicRetention:
        return TopicRetention.of(self._store.of_entity(ConfigEntity(EntityType.TOPICS, topic)))


TOPIC_QUOTAS_FRESH_SECONDS: Final = 0.5


class FreshTopicQuotaConfigs:
    """`CurrentTopicQuotaConfigs` of a process; reads the store at most twice a second.

    `gone` returns the names of topics that were deleted; it is called only while topic quotas are on.
    """

    def __init__(
        self, store: ConfigStore, clock: Clock, *, enabled: bool, gone: Callable[[], frozenset[str]] = frozenset
    ) -> None:
        self._store = store
        self._clock = clock
        self._enabled = enabled
        self._gone = gone
        self._known: tuple[float, TopicQuotaConfigs] | None = None

    def current(self) -> TopicQuotaConfigs:
        """Return the configs as they were read less than half a second ago. Raises MetadataUnavailableError."""
        now = self._clock.monotonic()
        if self._known is None or now - self._known[0] >= TOPIC_QUOTAS_FRESH_SECONDS:
            values = self._store.snapshot().values
            configs = topic_quota_configs(values, enabled=self._enabled)
            self._known = (now, configs.without(self._gone()) if configs.enabled else configs)
        return self._known[1]


def topic_quota_configs(values: ConfigValues, *, enabled: bool) -> TopicQuotaConfigs:
    """Return the configs of topic quotas; `enabled` applies if no dynamic config switches them on or off."""
    switch = values.get(ALL_BROKERS, {}).get(TOPIC_QUOTAS_ENABLE)
    return TopicQuotaConfigs(
        enabled=enabled if switch is None else switch == "true",
        totals=_by_name(values, EntityType.BROKERS, TOTAL_THRESHOLD),
        explicit=_by_name(values, EntityType.TOPICS, TOPIC_THRESHOLD),
    )


def _by_name(values: ConfigValues, entity_type: EntityType, name: str) -> dict[str, int]:
    return {entity.entity_name: number for entity, number in numbers_of(values, entity_type, name).items()}
