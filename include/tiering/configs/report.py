"""Documents and tables of dynamic configs: values in force with their sources, changes, and the workers' versions."""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypedDict

from include.tiering.configs.config_catalogue import COPY_LAGS, DynamicConfig, all_configs, config_on, configs_of
from include.tiering.configs.config_store import (
    ALL_BROKERS,
    RETENTION_BYTES,
    RETENTION_MS,
    ConfigChange,
    ConfigEntity,
    ConfigStore,
    ConfigValues,
    EntityType,
    topic_quota_configs,
)
from include.tiering.configs.pools import UNLIMITED_SLOTS, PoolsStatus, PoolStatus
from include.tiering.configs.service import AlteredConfigs
from include.tiering.configs.usage_report import slots_words, source_of
from include.tiering.errors import SettingError
from include.tiering.presentation import Presentation, Table, count
from include.tiering.quotas.contract import QuotaWorker
from include.tiering.remote_storage.store_ownership import unclaimed_words
from include.tiering.settings import TieringSettings
from include.tiering.settings.catalogue import all_settings
from include.tiering.units import format_utc

LATEST_CHANGES: Final = 100
"""How many changes are shown unless all of them are asked for."""

_DEFAULT_SOURCE: Final = "default"
_DYNAMIC_DEFAULT: Final = "dynamic default"
_RETENTION: Final = frozenset({RETENTION_MS, RETENTION_BYTES})


@dataclass(frozen=True, slots=True)
class Synonym:
    """A value that is in force, or would be if those before it were not set, and its `source` as text."""

    name: str
    value: str
    source: str


class EntityMembers(TypedDict):
    """What a config is set on; `entity_name` is null for the default of all entities of the type."""

    entity_type: str
    entity_name: str | None


class SynonymDocument(TypedDict):
    """A value that could be in force, and where it comes from."""

    name: str
    value: Any
    source: str


class ConfigDocument(EntityMembers):
    """The value in force, and where it comes from; `synonyms` begin with it, then come those that it hides."""

    name: str
    value: Any
    unit: str | None
    source: str
    synonyms: list[SynonymDocument]


class ConfigChangeDocument(EntityMembers):
    """A recorded change; null is no value, or no unit."""

    name: str
    unit: str | None
    old_value: Any
    new_value: Any
    author: str
    changed_at_ms: int


class ConfigsDocument(TypedDict):
    """Configs, and their changes, the oldest first; `notes` name values that have no effect, and why."""

    configs: list[ConfigDocument]
    history: list[ConfigChangeDocument]
    notes: list[str]


class WorkerDocument(TypedDict):
    """A process that works under quotas, and the version of the configs that it uses."""

    worker_id: str
    version: int


class AlterationDocument(EntityMembers):
    """A change of configs, and the workers that use it.

    `read_at_start` names configs that running work keeps; `not_claimed` says why the store could not be claimed.
    """

    version: int
    changed: list[ConfigChangeDocument]
    taken_by: list[WorkerDocument]
    not_taken_by: list[WorkerDocument]
    notes: list[str]
    read_at_start: list[str]
    not_claimed: str | None


@dataclass(frozen=True, slots=True)
class DescribedConfig:
    """A config of an entity: the `value` in force there, and its `source` as text.

    `synonyms` are the value in force and those that it hides, as in Kafka; `json_value` is the value in JSON.
    """

    entity: ConfigEntity
    name: str
    value: str
    source: str
    unit: str | None = None
    synonyms: tuple[Synonym, ...] = ()
    json_value: Callable[[str], Any] = str


def entities_with_configs(values: ConfigValues, entity_type: EntityType | None = None) -> tuple[ConfigEntity, ...]:
    """Return, for one type or (None) each type, its default and then its named entities with values of their own."""
    types = tuple(EntityType) if entity_type is None else (entity_type,)
    named = sorted((value for value in values if not value.is_default), key=lambda entity: entity.entity_name)
    return tuple(
        entity
        for kind in types
        for entity in (ConfigEntity(kind), *(owner for owner in named if owner.entity_type is kind))
    )


def describe(
    entity: ConfigEntity, values: ConfigValues, settings: TieringSettings, pools: PoolsStatus | None = None
) -> tuple[DescribedConfig, ...]:
    """Return all configs that may be set on the entity, then what else is set on it.

    The latter are keys of Spark's configuration and configs that this version does not know. Sizes of pools come from
    `pools`, and are left out if `pools` is None.
    """
    configs = configs_of(entity)
    unknown = sorted(set(values.get(entity, {})) - {config.name for config in configs})
    return (
        *(_described(entity, config, values, settings) for config in configs if config.pool is None),
        *(_pool_size(entity, config, pool) for config in configs for pool in _pools_of(config, pools)),
        *(DescribedConfig(entity, name, values[entity][name], _source_of_unlisted(entity, name)) for name in unknown),
    )


def _source_of_unlisted(entity: ConfigEntity, name: str) -> str:
    """Return the source of a value that `configs_of` lacks: a key of Spark's, or a config unknown to this version."""
    try:
        config_on(entity, name)
    except SettingError:
        return "dynamic, unknown here"
    return _DYNAMIC_DEFAULT


def describe_static(settings: TieringSettings) -> tuple[DescribedConfig, ...]:
    """Return the settings that cannot be changed while jobs run, with secrets masked."""
    return tuple(
        DescribedConfig(
            ALL_BROKERS,
            setting.name,
            "unset" if (shown := setting.shown(settings)) is None else _static_text(shown),
            settings.origin(setting.name),
            setting.unit,
            json_value=_constant(shown),
        )
        for setting in all_settings()
        if not setting.dynamic
    )


def _constant(shown: Any) -> Callable[[str], Any]:
    return lambda _: shown


def _static_text(shown: Any) -> str:
    return shown if isinstance(shown, str) else json.dumps(shown)


@dataclass(frozen=True, slots=True)
class Description:
    """Configs of some entities, the changes of these entities, oldest first, and which values have no effect."""

    configs: tuple[DescribedConfig, ...]
    history: tuple[ConfigChange, ...]
    without_effect: str | None = None


def describe_now(
    store: ConfigStore,
    settings: TieringSettings,
    pools: Callable[[], PoolsStatus],
    *,
    entity: ConfigEntity | None = None,
    entity_type: EntityType | None = None,
    changes: int | None = LATEST_CHANGES,
) -> Description:
    """Return the configs of one entity, or (None) of each default and each named entity with values of its own.

    Args:
        store: the dynamic configs.
        settings: the settings without dynamic configs.
        pools: returns the pools; called only if sizes of pools are among the configs.
        entity: whose configs; None for all.
        entity_type: only of this type, if no entity is named.
        changes: how many changes are read, the newest; None: all.

    Raises:
        MetadataUnavailableError: the database cannot be read.
    """
    values = store.snapshot().values
    entities = (entity,) if entity is not None else entities_with_configs(values, entity_type)
    known = pools() if ALL_BROKERS in entities else None
    history = store.history(entity, entity_type=entity_type, newest=changes)
    return Description(
        tuple(config for owner in entities for config in describe(owner, values, settings, known)),
        tuple(history),
        topic_quota_configs(values, enabled=settings.topic_quotas.enable).without_effect,
    )


class MeaningDocument(TypedDict):
    """What a config means, and which values it accepts; `on_default` and `on_named` say where it may be set."""

    entity_type: str
    name: str
    sentence: str
    accepts: str
    unit: str | None
    on_default: bool
    on_named: bool
    pool: str | None


def meanings() -> list[MeaningDocument]:
    """Return the meaning of each config that can be changed while jobs run."""
    return [
        {
            "entity_type": str(config.entity_type),
            "name": config.name,
            "sentence": config.sentence,
            "accepts": config.accepts,
            "unit": config.unit,
            "on_default": config.on_default,
            "on_named": config.on_named,
            "pool": config.pool,
        }
        for config in all_configs()
    ]


def present_configs(
    described: Sequence[DescribedConfig], history: Sequence[ConfigChange], without_effect: str | None = None
) -> Presentation:
    """Present configs, and the changes in `history`, in the given order, and which values have no effect."""
    dynamic = sum(config.source.startswith("dynamic") for config in described)
    notes = [] if without_effect is None else [without_effect]
    return Presentation(
        lambda: ConfigsDocument(
            configs=list(map(_config_document, described)),
            history=list(map(_change_document, history)),
            notes=notes,
        ),
        lambda: tuple(_description_tables(described, history)),
        "; ".join([f"{count(len(described), 'config')}, {dynamic} dynamic; {count(len(history), 'change')}", *notes]),
    )


def present_alteration(altered: AlteredConfigs) -> Presentation:
    """Present a change. The result is not `ok` if a running worker does not use the change yet."""
    return Presentation(
        lambda: _alteration_document(altered),
        lambda: (_changes_table(altered.changes),) if altered.changes else (),
        alteration_words(altered),
        ok=not altered.not_taken_by,
    )


def _alteration_document(altered: AlteredConfigs) -> AlterationDocument:
    return {
        **_entity_document(altered.entity),
        "version": altered.version,
        "changed": list(map(_change_document, altered.changes)),
        "taken_by": list(map(_worker_document, altered.taken_by)),
        "not_taken_by": list(map(_worker_document, altered.not_taken_by)),
        "notes": [*altered.notes, *([] if altered.without_effect is None else [altered.without_effect])],
        "read_at_start": list(altered.read_at_start),
        "not_claimed": altered.not_claimed,
    }


def alteration_words(altered: AlteredConfigs) -> str:
    """Return a line: the change, its effect on workers or pools, and a warning if the store was not claimed."""
    words = [_taken_words(altered)]
    if any(change.name in _RETENTION and change.new_value is not None for change in altered.changes):
        words.append("./tiering expire --dry-run shows what expires by it now")
    words += [] if altered.without_effect is None else [altered.without_effect]
    words += [] if altered.not_claimed is None else [unclaimed_words(altered.not_claimed)]
    return "; ".join(words)


def _taken_words(altered: AlteredConfigs) -> str:
    changed = count(len(altered.changes), "config") + " changed" if altered.changes else "nothing to change"
    words = f"{altered.entity}: {changed}, version {altered.version}; "
    if altered.notes:
        return words + "; ".join(altered.notes)
    if altered.read_at_start:
        verb = "is" if len(altered.read_at_start) == 1 else "are"
        words += f"{', '.join(altered.read_at_start)} {verb} read when a plan, batch or command starts, "
        words += "and running ones keep the old value" + ("; " if altered.has_quota else "")
    if not altered.has_quota:
        return words if altered.read_at_start else words + "read again within half a second"
    workers = len(altered.taken_by) + len(altered.not_taken_by)
    if not workers:
        return words + "no worker runs"
    if not altered.not_taken_by:
        return words + f"taken by {count(workers, 'worker')}"
    late = ", ".join(worker.worker_id for worker in altered.not_taken_by)
    return words + f"not taken by {len(altered.not_taken_by)} of {count(workers, 'worker')}: {late}"


def _described(
    entity: ConfigEntity, config: DynamicConfig, values: ConfigValues, settings: TieringSettings
) -> DescribedConfig:
    synonyms = tuple(_synonyms(entity, config, values, settings))
    first = synonyms[0]
    return DescribedConfig(
        entity, config.name, first.value, first.source, config.unit, synonyms, json_value=config.json_value
    )


def _synonyms(
    entity: ConfigEntity, config: DynamicConfig, values: ConfigValues, settings: TieringSettings
) -> Iterator[Synonym]:
    """Yield the value in force of a config on an entity, then those that it hides, up to the default."""
    own, default = values.get(entity, {}).get(config.name), values.get(entity.default, {}).get(config.name)
    if own is not None:
        yield Synonym(config.name, own, _DYNAMIC_DEFAULT if entity.is_default else f"dynamic {entity}")
    if default is not None and config.on_default and not entity.is_default:
        yield Synonym(config.name, default, _DYNAMIC_DEFAULT)
    if config.default in (fallback.name for fallback in COPY_LAGS):
        yield from _synonyms(ALL_BROKERS, config_on(ALL_BROKERS, config.default), values, settings)
        return
    if config.setting is not None and (origin := settings.origin(config.name)) != _DEFAULT_SOURCE:
        yield Synonym(config.name, config.setting.text(settings), origin)
    yield Synonym(config.name, config.default, _DEFAULT_SOURCE)


def _pools_of(config: DynamicConfig, status: PoolsStatus | None) -> Iterator[PoolStatus]:
    if status is not None:
        yield from (pool for pool in status.pools if pool.spec.name == config.pool)


def _pool_size(entity: ConfigEntity, config: DynamicConfig, pool: PoolStatus) -> DescribedConfig:
    slots, source = slots_words(pool.slots), source_of(pool)
    shown = -1 if pool.slots == UNLIMITED_SLOTS else pool.slots
    synonyms = (Synonym(config.name, slots, source),)
    return DescribedConfig(entity, config.name, slots, source, config.unit, synonyms, json_value=_constant(shown))


def _description_tables(described: Sequence[DescribedConfig], history: Sequence[ConfigChange]) -> Iterator[Table]:
    rows = tuple(
        (str(config.entity), config.name, config.value, config.unit or "", config.source, _hidden_words(config))
        for config in described
    )
    yield Table("configs", ("entity", "name", "value>", "unit", "from", "instead of"), rows)
    if history:
        yield _changes_table(history)


def _hidden_words(config: DescribedConfig) -> str:
    return ", ".join(f"{hidden.value} ({hidden.source})" for hidden in config.synonyms[1:])


def _changes_table(changes: Sequence[ConfigChange]) -> Table:
    rows = tuple(
        (format_utc(change.changed_at_ms), change.author, str(change.entity), change.name, *_old_and_new(change))
        for change in changes
    )
    return Table("changes", ("when", "who", "entity", "name", "old>", "new>"), rows)


def change_words(change: ConfigChange) -> str:
    """Return the line about one change for a log."""
    old, new = (text or "not set" for text in _old_and_new(change))
    return f"{change.entity}: {change.name}: {old} -> {new}"


def _old_and_new(change: ConfigChange) -> tuple[str, str]:
    return ("" if change.old_value is None else change.old_value, "" if change.new_value is None else change.new_value)


def _config_document(config: DescribedConfig) -> ConfigDocument:
    return {
        **_entity_document(config.entity),
        "name": config.name,
        "value": config.json_value(config.value),
        "unit": config.unit,
        "source": config.source,
        "synonyms": [
            {"name": synonym.name, "value": config.json_value(synonym.value), "source": synonym.source}
            for synonym in config.synonyms
        ],
    }


def _change_document(change: ConfigChange) -> ConfigChangeDocument:
    known = [config for config in configs_of(change.entity) if config.name == change.name]

    def value(text: str | None) -> Any:
        return known[0].json_value(text) if known and text is not None else text

    return {
        **_entity_document(change.entity),
        "name": change.name,
        "unit": known[0].unit if known else None,
        "old_value": value(change.old_value),
        "new_value": value(change.new_value),
        "author": change.author,
        "changed_at_ms": change.changed_at_ms,
    }


def _worker_document(worker: QuotaWorker) -> WorkerDocument:
    return {"worker_id": worker.worker_id, "version": worker.version}


def _entity_document(entity: ConfigEntity) -> EntityMembers:
    return {"entity_type": str(entity.entity_type), "entity_name": entity.entity_name or None}
