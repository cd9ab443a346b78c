"""All configs that can be changed while jobs run: where each is legal, what it accepts, what it means. Pure.

Quotas, thresholds, retention and sizes of pools are declared here, and dynamic settings in `settings/operational.py`;
all are rows of the same table. A dynamic setting applies to the whole cluster: it is set on the default of the brokers.
So is the size of a pool, whose value Airflow stores.
"""

import re
from collections.abc import Collection
from dataclasses import dataclass
from functools import cache
from typing import Final

from include.tiering.configs.config_store import KEPT_FOR_EVER, RETENTION_BYTES, RETENTION_MS, ConfigEntity, EntityType
from include.tiering.configs.pools import POOLS, UNLIMITED_SLOTS, PoolSpec
from include.tiering.errors import SettingError, printable
from include.tiering.quotas.contract import UNLIMITED, QuotaKind, QuotaLevel, Scope
from include.tiering.quotas.topic_quotas import TOPIC_THRESHOLD, TOTAL_THRESHOLD
from include.tiering.settings.catalogue import Setting, canonical_value, dynamic_settings, nearest
from include.tiering.settings.fields import Loosens

COPY_QUOTA: Final = "remote.log.manager.copy.max.bytes.per.second"
FETCH_QUOTA: Final = "remote.log.manager.fetch.max.bytes.per.second"
TOTAL_COPY_QUOTA: Final = "tiering.copy.total.max.bytes.per.second"
TOTAL_FETCH_QUOTA: Final = "tiering.fetch.total.max.bytes.per.second"
NARROW_COPY_QUOTA: Final = "tiering.copy.max.bytes.per.second"
NARROW_FETCH_QUOTA: Final = "tiering.fetch.max.bytes.per.second"
"""Of a topic, and for fetches also of a client."""

DELETE_RATE: Final = "tiering.delete.max.requests.per.second"
MOST_DELETE_REQUESTS: Final = 1_000_000

_INTEGER: Final = re.compile(r"-?[0-9]{1,19}\Z")
_MOST_SHOWN: Final = 100


@dataclass(frozen=True, slots=True)
class DynamicConfig:
    """A config on an entity type. `on_default` and `on_named` say on which of its entities it may be set.

    `quota` is the kind and level that a quota limits; `setting` is the declaration of a dynamic setting. Without a
    setting the value is an integer, `at_least` to `at_most`. `pool` is the name of the pool whose size this is.
    """

    name: str
    entity_type: EntityType
    on_default: bool
    on_named: bool
    accepts: str
    unit: str | None
    default: str
    sentence: str
    quota: tuple[QuotaKind, QuotaLevel] | None = None
    setting: Setting | None = None
    at_least: int = 1
    at_most: int = UNLIMITED
    pool: str | None = None

    def is_legal_on(self, entity: ConfigEntity) -> bool:
        return entity.entity_type == self.entity_type and (self.on_default if entity.is_default else self.on_named)

    def scope(self, entity: ConfigEntity) -> Scope | None:
        """The scope that its value on this entity limits; None if it is no quota."""
        return None if self.quota is None else Scope(*self.quota, entity.entity_name)

    def canonical(self, text: str) -> str:
        """The value as it is stored. Raises SettingError that names the accepted values."""
        if self.setting is not None:
            return canonical_value(self.setting, text)
        digits = text.strip()
        if _INTEGER.match(digits) is None or not self.at_least <= int(digits) <= self.at_most:
            raise SettingError(
                f"{self.name} is {printable(text[:_MOST_SHOWN])!r}: accepted: {self.accepts} ({self.unit})"
            )
        return str(int(digits))

    @property
    def loosens(self) -> Loosens | None:
        """The direction in which a deletion limit is loosened; None for other configs."""
        return None if self.setting is None else self.setting.loosens

    @property
    def places(self) -> str:
        """Where the config may be set, as text."""
        where = {(True, True): "default and named", (True, False): "default", (False, True): "named"}
        return f"{self.entity_type}: {where[self.on_default, self.on_named]}"


@cache
def all_configs() -> tuple[DynamicConfig, ...]:
    """Quotas from the widest scope to the narrowest, thresholds, retention, sizes of pools, then settings."""
    return (*LIMITS, DELETE_LIMIT, *RETENTIONS, *POOL_SIZES, *map(_of_setting, dynamic_settings()))


@cache
def config_names() -> tuple[str, ...]:
    """Each config name once, without aliases."""
    return tuple(dict.fromkeys(config.name for config in all_configs()))


@cache
def accepted_names() -> tuple[str, ...]:
    """Each name under which a config may be set: the current ones, then their aliases."""
    aliases = (alias for config in all_configs() if config.setting is not None for alias in config.setting.aliases)
    return (*config_names(), *dict.fromkeys(aliases))


def configs_of(entity: ConfigEntity) -> tuple[DynamicConfig, ...]:
    """All configs that may be set on the entity."""
    return tuple(config for config in all_configs() if config.is_legal_on(entity))


def config_on(entity: ConfigEntity, name: str) -> DynamicConfig:
    """The config that `name`, or its alias, means on this entity.

    Raises:
        SettingError: the name is unknown (names the nearest), or not legal on this entity (names where it is).
    """
    called = [config for config in all_configs() if name in _names(config)]
    for config in called:
        if config.is_legal_on(entity):
            return config
    if called:
        places = "; ".join(config.places for config in called)
        raise SettingError(f"{name} cannot be set on {entity}: it belongs to {places}")
    hint = nearest(name, _legal_names(entity))
    raise SettingError(f"unknown config {printable(name[:_MOST_SHOWN])} on {entity}: {hint}")


def _legal_names(entity: ConfigEntity) -> list[str]:
    return [name for config in configs_of(entity) for name in _names(config)]


def _names(config: DynamicConfig) -> Collection[str]:
    return (config.name,) if config.setting is None else config.setting.names


def _limit(
    name: str,
    entity_type: EntityType,
    sentence: str,
    quota: tuple[QuotaKind, QuotaLevel] | None = None,
    *,
    on_default: bool = True,
    on_named: bool = True,
) -> DynamicConfig:
    accepts = f"integer, 1 to {UNLIMITED}"
    return DynamicConfig(
        name, entity_type, on_default, on_named, accepts, "bytes a second", "unlimited", sentence, quota
    )


def _retention(name: str, unit: str, sentence: str) -> DynamicConfig:
    accepts = f"integer, {KEPT_FOR_EVER} (for ever) to {UNLIMITED}"
    return DynamicConfig(
        name, EntityType.TOPICS, False, True, accepts, unit, "for ever", sentence, at_least=KEPT_FOR_EVER
    )


def _of_pool(pool: PoolSpec) -> DynamicConfig:
    return DynamicConfig(
        pool.config_name,
        EntityType.BROKERS,
        True,
        False,
        f"integer, 0 (a pause) to {UNLIMITED_SLOTS}",
        "slots",
        "Airflow's",
        f"{pool.sentence} Airflow's pool `{pool.name}`.",
        at_least=0,
        at_most=UNLIMITED_SLOTS,
        pool=pool.name,
    )


def _of_setting(setting: Setting) -> DynamicConfig:
    return DynamicConfig(
        setting.name,
        EntityType.BROKERS,
        True,
        False,
        setting.accepts,
        setting.unit,
        setting.default,
        setting.sentence,
        setting=setting,
    )


_QUOTAS: Final = (
    _limit(
        TOTAL_COPY_QUOTA,
        EntityType.BROKERS,
        "All copies of all brokers together.",
        (QuotaKind.COPY, QuotaLevel.TOTAL),
        on_named=False,
    ),
    _limit(
        TOTAL_FETCH_QUOTA,
        EntityType.BROKERS,
        "All remote reads of all brokers together.",
        (QuotaKind.FETCH, QuotaLevel.TOTAL),
        on_named=False,
    ),
    _limit(
        COPY_QUOTA,
        EntityType.BROKERS,
        "Copies from the log dirs of one broker; the default applies to each broker separately.",
        (QuotaKind.COPY, QuotaLevel.BROKER),
    ),
    _limit(
        FETCH_QUOTA,
        EntityType.BROKERS,
        "Remote reads of one broker's segments; the default applies to each broker separately.",
        (QuotaKind.FETCH, QuotaLevel.BROKER),
    ),
    _limit(
        NARROW_COPY_QUOTA,
        EntityType.TOPICS,
        "Copies of one topic; the default applies to each topic separately.",
        (QuotaKind.COPY, QuotaLevel.TOPIC),
    ),
    _limit(
        NARROW_FETCH_QUOTA,
        EntityType.TOPICS,
        "Remote reads of one topic; the default applies to each topic separately.",
        (QuotaKind.FETCH, QuotaLevel.TOPIC),
    ),
    _limit(
        NARROW_FETCH_QUOTA,
        EntityType.CLIENTS,
        "Remote reads of one client; the default applies to each client separately. Must be below every broker's.",
        (QuotaKind.FETCH, QuotaLevel.CLIENT),
    ),
)

_THRESHOLDS: Final = (
    _limit(
        TOTAL_THRESHOLD,
        EntityType.BROKERS,
        "Bytes-in rate of all topics of a broker together, above which topics over their own threshold are refused.",
    ),
    _limit(
        TOPIC_THRESHOLD,
        EntityType.TOPICS,
        "Bytes-in rate that a topic may keep on each broker when the total is exceeded. The sum of all must not exceed "
        "a total; topics without a threshold share the rest.",
        on_default=False,
    ),
)

DELETE_LIMIT: Final = DynamicConfig(
    DELETE_RATE,
    EntityType.BROKERS,
    True,
    False,
    f"integer, 0 (unlimited) to {MOST_DELETE_REQUESTS}",
    "requests a second",
    "unlimited",
    "All requests of expiration that delete objects, up to 999 each. They never wait for a copy quota.",
    (QuotaKind.DELETE, QuotaLevel.TOTAL),
    at_least=0,
    at_most=MOST_DELETE_REQUESTS,
)

LIMITS: Final = (*_QUOTAS, *_THRESHOLDS)
"""All in bytes a second."""

RETENTIONS: Final = (
    _retention(RETENTION_MS, "milliseconds", "A segment expires once its largest timestamp is older than this."),
    _retention(
        RETENTION_BYTES,
        "bytes",
        "The oldest segments of a partition expire while it keeps at least this much without them, counting remote "
        "bytes and those that are only local.",
    ),
)

POOL_SIZES: Final = tuple(map(_of_pool, POOLS))
"""Airflow stores the sizes; only their history is stored here."""
