"""All configs that can be changed while jobs run: where each may be set, what it accepts, and what it means.

Quotas, thresholds, other limits, copy lags, retention and sizes of pools are declared here, dynamic settings in
`settings/`, and the keys of Spark's configuration that may be set in `spark_conf.py`. The values are rows of one table,
except sizes of pools, which Airflow stores. Dynamic settings and sizes of pools apply to the whole cluster, so both are
set on the default of the brokers.
"""

import re
from collections.abc import Collection
from dataclasses import dataclass
from functools import cache
from typing import Final

from include.tiering.configs.config_store import (
    COPY_LAG_BYTES,
    COPY_LAG_MS,
    DEFAULT_COPY_LAG_BYTES,
    DEFAULT_COPY_LAG_MS,
    KEPT_FOR_EVER,
    RETENTION_BYTES,
    RETENTION_MS,
    ConfigEntity,
    EntityType,
)
from include.tiering.configs.pools import POOLS, UNLIMITED_SLOTS, PoolSpec
from include.tiering.configs.spark_conf import SPARK_CONF_PREFIX, SparkConf, checked_value, parse_name
from include.tiering.errors import SettingError, printable
from include.tiering.quotas.contract import UNLIMITED, QuotaKind, QuotaLevel, Scope
from include.tiering.quotas.topic_quotas import GIVES_WAY, TOPIC_THRESHOLD, TOTAL_THRESHOLD
from include.tiering.settings.catalogue import Setting, canonical_value, dynamic_settings, nearest
from include.tiering.settings.fields import Loosens
from include.tiering.units import accepted_suffixes, without_suffix

COPY_QUOTA: Final = "remote.log.manager.copy.max.bytes.per.second"
FETCH_QUOTA: Final = "remote.log.manager.fetch.max.bytes.per.second"
TOTAL_COPY_QUOTA: Final = "tiering.copy.total.max.bytes.per.second"
TOTAL_FETCH_QUOTA: Final = "tiering.fetch.total.max.bytes.per.second"
NARROW_COPY_QUOTA: Final = "tiering.copy.max.bytes.per.second"
NARROW_FETCH_QUOTA: Final = "tiering.fetch.max.bytes.per.second"
"""`NARROW_COPY_QUOTA` and `NARROW_FETCH_QUOTA` name the quotas of a topic.

`NARROW_FETCH_QUOTA` also names the fetch quota of a client."""

DELETE_RATE: Final = "tiering.delete.max.requests.per.second"
MOST_DELETE_REQUESTS: Final = 1_000_000

_INTEGER: Final = re.compile(r"-?[0-9]{1,19}\Z")
_DECIMAL: Final = re.compile(r"[0-9]+\.[0-9]+(e-?[0-9]+)?\Z")
_MOST_SHOWN: Final = 100


@dataclass(frozen=True, slots=True)
class DynamicConfig:
    """A config of one entity type.

    The value is an integer from `at_least` to `at_most`, unless the config has `setting` or `spark`.

    Attributes:
        on_default: whether the config may be set on the default of the entity type.
        on_named: whether the config may be set on named entities.
        default: what holds while the config is not set: a value, the name of another config, or a word.
        quota: the kind and the level that a quota limits; None if the config is no quota.
        setting: the declaration of a dynamic setting; None if the config is none.
        at_least: the lowest possible value, inclusive.
        at_most: the highest possible value, inclusive.
        pool: the name of the pool whose size the config is; None if it is no size of a pool.
        unset: the number that the word in `default` means, such as 0 for `unlimited`; None without such a number.
        spark: the key of Spark's configuration that the config sets, and for which DAG; None if it sets none.
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
    unset: int | None = None
    spark: SparkConf | None = None

    def is_legal_on(self, entity: ConfigEntity) -> bool:
        return entity.entity_type == self.entity_type and (self.on_default if entity.is_default else self.on_named)

    def scope(self, entity: ConfigEntity) -> Scope | None:
        """Return the scope that the config's value on this entity limits; None if the config is no quota."""
        return None if self.quota is None else Scope(*self.quota, entity.entity_name)

    def canonical(self, text: str) -> str:
        """Return the value as it is stored. Raises SettingError, with the accepted values, if `text` is not legal."""
        if self.setting is not None:
            return canonical_value(self.setting, text)
        if self.spark is not None:
            return checked_value(self.spark, text)
        digits = without_suffix(text, self.unit).strip()
        if _INTEGER.match(digits) is None or not self.at_least <= int(digits) <= self.at_most:
            raise SettingError(
                f"{self.name} is {printable(text[:_MOST_SHOWN])!r}: accepted: {self.accepts} ({self.unit})"
                f"{accepted_suffixes(self.unit)}"
            )
        return str(int(digits))

    def json_value(self, text: str) -> int | float | bool | str:
        """Return a value as a JSON document has it: numbers and switches as such, other values as text."""
        if text == self.default and self.unset is not None:
            return self.unset
        if self.spark is not None:
            return text
        if _INTEGER.match(text):
            return int(text)
        if self.setting is not None and text in ("true", "false"):
            return text == "true"
        return float(text) if _DECIMAL.match(text) else text

    @property
    def loosens(self) -> Loosens | None:
        """The direction of a change that permits more deletions without an approval, or earlier deletions.

        None if this dynamic setting has no such direction. None for every config that is no dynamic setting, such as
        `DELETE_LIMIT`.
        """
        return None if self.setting is None else self.setting.loosens

    @property
    def places(self) -> str:
        """Where the config may be set, as text."""
        where = {(True, True): "default and named", (True, False): "default", (False, True): "named"}
        return f"{self.entity_type}: {where[self.on_default, self.on_named]}"


@cache
def all_configs() -> tuple[DynamicConfig, ...]:
    """Return all configs except those for keys of Spark's configuration, which are made when they are named.

    The order is: quotas, thresholds, the limit of delete requests, copy lags, retention, sizes of pools, settings.
    """
    return (*LIMITS, DELETE_LIMIT, *COPY_LAGS, *RETENTIONS, *POOL_SIZES, *map(_of_setting, dynamic_settings()))


@cache
def config_names() -> tuple[str, ...]:
    """Return each name of `all_configs` once, without aliases."""
    return tuple(dict.fromkeys(config.name for config in all_configs()))


@cache
def accepted_names() -> tuple[str, ...]:
    """Return each name under which one of `all_configs` may be set: first the current names, then the aliases."""
    aliases = (alias for config in all_configs() if config.setting is not None for alias in config.setting.aliases)
    return (*config_names(), *dict.fromkeys(aliases))


def configs_of(entity: ConfigEntity) -> tuple[DynamicConfig, ...]:
    """Return those of `all_configs` that may be set on the entity."""
    return tuple(config for config in all_configs() if config.is_legal_on(entity))


def config_on(entity: ConfigEntity, name: str) -> DynamicConfig:
    """Return the config that has this name, or this alias, on this entity.

    Raises:
        SettingError: the name is unknown: the message contains the most similar name that may be set on this entity, or
            all of them if none is similar. Or the config may not be set on this entity: the message contains where it
            may be set. Or the name begins with `SPARK_CONF_PREFIX`, and `parse_name` refuses it.
    """
    if name.startswith(SPARK_CONF_PREFIX):
        called = [_of_spark(name)]
    else:
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
    at_least: int = 1,
) -> DynamicConfig:
    accepts = f"integer, {at_least} to {UNLIMITED}"
    return DynamicConfig(
        name,
        entity_type,
        on_default,
        on_named,
        accepts,
        "bytes a second",
        "unlimited",
        sentence,
        quota,
        at_least=at_least,
        unset=UNLIMITED,
    )


def _retention(name: str, unit: str, sentence: str) -> DynamicConfig:
    accepts = f"integer, {KEPT_FOR_EVER} (for ever) to {UNLIMITED}"
    return DynamicConfig(
        name,
        EntityType.TOPICS,
        False,
        True,
        accepts,
        unit,
        "for ever",
        sentence,
        at_least=KEPT_FOR_EVER,
        unset=KEPT_FOR_EVER,
    )


def _copy_lag(name: str, entity_type: EntityType, unit: str, default: str, sentence: str) -> DynamicConfig:
    on_default = entity_type is EntityType.BROKERS
    accepts = f"integer, -1 to {UNLIMITED}"
    return DynamicConfig(name, entity_type, on_default, not on_default, accepts, unit, default, sentence, at_least=-1)


def _of_pool(pool: PoolSpec) -> DynamicConfig:
    return DynamicConfig(
        pool.config_name,
        EntityType.BROKERS,
        True,
        False,
        f"integer, 0 (a pause) to {UNLIMITED_SLOTS}",
        "slots",
        "Airflow's",
        f"{pool.sentence} This is the size of Airflow's pool `{pool.name}`.",
        at_least=0,
        at_most=UNLIMITED_SLOTS,
        pool=pool.name,
    )


def _of_spark(name: str) -> DynamicConfig:
    """Return the config of a key of Spark's configuration. Raises SettingError if the key cannot be set."""
    spark = parse_name(name)
    whose = "every DAG" if spark.dag_id is None else f"the DAG {spark.dag_id}"
    return DynamicConfig(
        name,
        EntityType.BROKERS,
        True,
        False,
        "a value of Spark's configuration",
        None,
        "Spark's",
        f"`{spark.key}` of the Spark jobs of {whose}.",
        spark=spark,
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
        "Limits all copies of segments from all brokers together.",
        (QuotaKind.COPY, QuotaLevel.TOTAL),
        on_named=False,
    ),
    _limit(
        TOTAL_FETCH_QUOTA,
        EntityType.BROKERS,
        "Limits all remote reads of the segments of all brokers together, except small objects and proofs.",
        (QuotaKind.FETCH, QuotaLevel.TOTAL),
        on_named=False,
    ),
    _limit(
        COPY_QUOTA,
        EntityType.BROKERS,
        "Limits copies of segments from one broker; the default applies to each broker separately.",
        (QuotaKind.COPY, QuotaLevel.BROKER),
    ),
    _limit(
        FETCH_QUOTA,
        EntityType.BROKERS,
        "Limits remote reads of one broker's segments; the default applies to each broker separately.",
        (QuotaKind.FETCH, QuotaLevel.BROKER),
    ),
    _limit(
        NARROW_COPY_QUOTA,
        EntityType.TOPICS,
        "Limits copies of one topic; the default applies to each topic separately.",
        (QuotaKind.COPY, QuotaLevel.TOPIC),
    ),
    _limit(
        NARROW_FETCH_QUOTA,
        EntityType.TOPICS,
        "Limits remote reads of one topic; the default applies to each topic separately.",
        (QuotaKind.FETCH, QuotaLevel.TOPIC),
    ),
    _limit(
        NARROW_FETCH_QUOTA,
        EntityType.CLIENTS,
        "Limits remote reads of one client; the default applies to each client separately. The quota of a client must "
        "be lower than the fetch quota of every broker and than the total.",
        (QuotaKind.FETCH, QuotaLevel.CLIENT),
    ),
)

_THRESHOLDS: Final = (
    _limit(
        TOTAL_THRESHOLD,
        EntityType.BROKERS,
        "Bytes-in rate of all topics of a broker together. While it is exceeded, segments of topics that exceed their "
        "own threshold are refused.",
    ),
    _limit(
        TOPIC_THRESHOLD,
        EntityType.TOPICS,
        "Bytes-in rate that a topic may keep on each broker while the broker's total is exceeded. The sum of these "
        "thresholds must not exceed the total of any broker; topics without a threshold share the rest equally. With "
        "a threshold of 0 a topic gives way always: it is refused whenever the total is exceeded.",
        on_default=False,
        at_least=GIVES_WAY,
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
    "Limits the groups of up to 333 segments that expiration and orphan removal delete; a group usually needs one "
    "request. Deletions never wait for a copy quota.",
    (QuotaKind.DELETE, QuotaLevel.TOTAL),
    at_least=0,
    at_most=MOST_DELETE_REQUESTS,
    unset=0,
)

LIMITS: Final = (*_QUOTAS, *_THRESHOLDS)
"""Configs whose values are bytes a second."""

COPY_LAGS: Final = (
    _copy_lag(
        COPY_LAG_MS,
        EntityType.TOPICS,
        "milliseconds",
        DEFAULT_COPY_LAG_MS,
        "A rolled segment is copied once its largest timestamp is this old.",
    ),
    _copy_lag(
        COPY_LAG_BYTES,
        EntityType.TOPICS,
        "bytes",
        DEFAULT_COPY_LAG_BYTES,
        "A rolled segment is copied once this many bytes of the log follow it.",
    ),
    _copy_lag(DEFAULT_COPY_LAG_MS, EntityType.BROKERS, "milliseconds", "0", f"The default of `{COPY_LAG_MS}`."),
    _copy_lag(DEFAULT_COPY_LAG_BYTES, EntityType.BROKERS, "bytes", "-1", f"The default of `{COPY_LAG_BYTES}`."),
)

RETENTIONS: Final = (
    _retention(RETENTION_MS, "milliseconds", "Oldest segments expire if their largest timestamp is older than this."),
    _retention(
        RETENTION_BYTES,
        "bytes",
        "The oldest segments of a partition expire as long as it has at least this many bytes without them, counting "
        "remote bytes and bytes that are only local.",
    ),
)

POOL_SIZES: Final = tuple(map(_of_pool, POOLS))
"""Airflow stores the sizes; this platform stores only the last known sizes (`PoolMirror`) and their history."""
