"""Kafka's own configs of tiered storage: read from brokers, changed on them, and reported.

| step | what a crash after it leaves | who repairs it |
|---|---|---|
| read the configs of every broker | nothing | |
| check names, dynamic update modes, then the values by the brokers' own validation | nothing | |
| alter: one request, of which the controller stores all names or none | altered; brokers apply it | no repair needed |
| read again until every broker shows it, or the wait ends | the same: this step only reads | |

Brokers accept a config name that they do not have, without effect. So a name is refused unless every broker that the
change is about lists it. Reports say that these are configs of Kafka, not of this platform.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypedDict

from include.tiering.clock import Clock
from include.tiering.configs.config_store import ConfigEntity, EntityType
from include.tiering.errors import BrokersError, ConfigRefusedError, SettingError, printable
from include.tiering.kafka.cluster.contract import BrokerConfig, BrokerNode, Brokers, ConfigSource, release_of
from include.tiering.presentation import Presentation, Table, count
from include.tiering.runs.cluster_log_dirs import ClusterLogDirs
from include.tiering.settings.catalogue import nearest

WAIT_SECONDS: Final = 10.0
POLL_SECONDS: Final = 0.2
_OF_TIERED_STORAGE: Final = re.compile(r"(follower\.fetch\.last\.tiered|log\.local\.retention|log\.remote|remote)\.")


@dataclass(frozen=True, slots=True)
class BrokerConfigChange:
    """One config on one broker, before and after the change.

    `taken`: the broker shows the change, or `hidden` is set. `error`: why the new value could not be read, or empty.
    `hidden`: the default of all brokers was changed, but this broker has a value of its own that stays in
    force.
    """

    broker_id: int
    name: str
    old: BrokerConfig
    new: BrokerConfig
    taken: bool
    error: str = ""
    hidden: bool = False


@dataclass(frozen=True, slots=True)
class AlteredBrokerConfigs:
    """The changes on every broker that the request is about. In a dry run `new` is equal to `old`."""

    entity: ConfigEntity
    requested: Mapping[str, str | None]
    dry_run: bool
    changes: tuple[BrokerConfigChange, ...]

    @property
    def not_taken(self) -> tuple[BrokerConfigChange, ...]:
        return () if self.dry_run else tuple(change for change in self.changes if not change.taken)


def is_of_tiered_storage(name: str) -> bool:
    """Return whether this is a broker config that this platform may change."""
    return _OF_TIERED_STORAGE.match(name) is not None


def alter_broker_configs(
    entity: ConfigEntity,
    requested: Mapping[str, str | None],
    *,
    brokers: Brokers,
    clock: Clock,
    dry_run: bool = False,
    wait_seconds: float = WAIT_SECONDS,
) -> AlteredBrokerConfigs:
    """Set, or with None remove, all `requested` configs on one broker or on the default of all. Idempotent.

    Raises:
        SettingError: the entity is not a broker, or a config does not belong to tiered storage.
        ConfigRefusedError: there is no such broker, a broker does not list a name, or it takes the config only from
            server.properties.
        BrokersRefusedError: the brokers refuse a value. Nothing was changed.
        BrokersError: the brokers do not answer, or refuse access. If this happened during the change itself, the
            change may have been made: repeat the call.
    """
    before = check_broker_configs(entity, requested, brokers=brokers)
    broker_id = None if entity.is_default else int(entity.entity_name)
    brokers.alter_broker_configs(broker_id, requested, dry_run=True)
    if dry_run:
        return AlteredBrokerConfigs(entity, requested, True, tuple(_unchanged(before, requested)))
    brokers.alter_broker_configs(broker_id, requested)
    return AlteredBrokerConfigs(
        entity, requested, False, tuple(_seen(before, entity, requested, brokers, clock, wait_seconds))
    )


def check_broker_configs(
    entity: ConfigEntity, requested: Mapping[str, str | None], *, brokers: Brokers
) -> Mapping[int, Mapping[str, BrokerConfig]]:
    """Check a change; return the present configs of each broker that it is about, by id. Nothing is changed.

    Raises as `alter_broker_configs`. The values are not validated.
    """
    if entity.entity_type is not EntityType.BROKERS:
        raise SettingError(f"configs of {entity} exist only on this platform: --target brokers is for brokers")
    for name in requested:
        if not is_of_tiered_storage(name):
            raise SettingError(
                f"{printable(name)} is no config of tiered storage; other broker configs are not changed from here"
            )
    before = {broker_id: brokers.broker_configs(broker_id) for broker_id in _concerned(entity, brokers)}
    for name in requested:
        without = [broker_id for broker_id, configs in before.items() if name not in configs]
        if without:
            hint = nearest(name, [known for known in before[without[0]] if is_of_tiered_storage(known)])
            raise ConfigRefusedError(f"{_words(without)} no config {printable(name)}: {hint}; nothing was changed")
        fixed = [broker_id for broker_id, configs in before.items() if configs[name].read_only]
        if fixed:
            raise ConfigRefusedError(f"{_words(fixed)} {name} read-only: set it in server.properties; not changed")
    return before


def _concerned(entity: ConfigEntity, brokers: Brokers) -> Sequence[int]:
    known = [broker.broker_id for broker in brokers.describe().brokers]
    if entity.is_default:
        return known
    broker_id = int(entity.entity_name)
    if broker_id not in known:
        raise ConfigRefusedError(f"there is no broker {broker_id}: the cluster has {', '.join(map(str, known))}")
    return [broker_id]


def _unchanged(
    before: Mapping[int, Mapping[str, BrokerConfig]], requested: Mapping[str, str | None]
) -> Sequence[BrokerConfigChange]:
    return [
        BrokerConfigChange(broker_id, name, configs[name], configs[name], False)
        for broker_id, configs in before.items()
        for name in requested
    ]


def _seen(
    before: Mapping[int, Mapping[str, BrokerConfig]],
    entity: ConfigEntity,
    requested: Mapping[str, str | None],
    brokers: Brokers,
    clock: Clock,
    wait_seconds: float,
) -> list[BrokerConfigChange]:
    """Read the configs of every broker once, then until it shows the change or `wait_seconds` in all are over."""
    deadline = clock.monotonic() + wait_seconds
    changes: list[BrokerConfigChange] = []
    for broker_id, old in before.items():
        while True:
            latest = _ask(broker_id, old, entity, requested, brokers)
            if all(change.taken for change in latest) or clock.monotonic() >= deadline:
                changes += latest
                break
            clock.sleep(POLL_SECONDS)
    return changes


def _ask(
    broker_id: int,
    old: Mapping[str, BrokerConfig],
    entity: ConfigEntity,
    requested: Mapping[str, str | None],
    brokers: Brokers,
) -> list[BrokerConfigChange]:
    try:
        new = brokers.broker_configs(broker_id)
    except BrokersError as error:
        return [BrokerConfigChange(broker_id, name, old[name], old[name], False, str(error)) for name in requested]
    return [_seen_once(broker_id, name, old[name], new[name], entity, value) for name, value in requested.items()]


def _seen_once(
    broker_id: int, name: str, old: BrokerConfig, new: BrokerConfig, entity: ConfigEntity, value: str | None
) -> BrokerConfigChange:
    own = ConfigSource.ALL_BROKERS if entity.is_default else ConfigSource.BROKER
    hidden = entity.is_default and new.source is ConfigSource.BROKER
    if value is None:
        taken = new.source is not own
    else:
        taken = new.source is own and new.value is not None and _canonical(new.value) == _canonical(value)
    return BrokerConfigChange(broker_id, name, old, new, taken or hidden, hidden=hidden)


def _canonical(value: str) -> str:
    """Return a number as brokers show it, without leading zeros; of any value, remove spaces at both ends."""
    text = value.strip()
    return str(int(text)) if text.isascii() and text.removeprefix("-").isdecimal() else text


def _words(broker_ids: Sequence[int]) -> str:
    return f"broker {broker_ids[0]} has" if len(broker_ids) == 1 else f"brokers {', '.join(map(str, broker_ids))} have"


_TITLE: Final = "Kafka's own configs, on its brokers"
_NO_VALUE: Final = "(none, or secret)"


@dataclass(frozen=True, slots=True)
class BrokerListing:
    """The configs of tiered storage in force on one broker, by name."""

    broker: BrokerNode
    configs: Mapping[str, BrokerConfig]


class BrokerConfigDocument(TypedDict):
    """A config of Kafka's own. The value of a secret is null."""

    name: str
    value: str | None
    source: str
    read_only: bool


class BrokerListingDocument(TypedDict):
    """The configs of one broker."""

    broker_id: int
    release: str
    configs: list[BrokerConfigDocument]


class BrokerConfigsDocument(TypedDict):
    """Kafka's own configs, by broker."""

    brokers: list[BrokerListingDocument]


class BrokerConfigChangeDocument(TypedDict):
    """A change on one broker. `taken`: the broker shows it; `hidden`: a value of its own stays in force."""

    broker_id: int
    name: str
    requested: str | None
    old_value: str | None
    old_source: str
    new_value: str | None
    new_source: str
    taken: bool
    hidden: bool
    error: str | None


class BrokerAlterationDocument(TypedDict):
    """A change of Kafka's own configs; `entity_name` is null for the default of all brokers."""

    entity_type: str
    entity_name: str | None
    dry_run: bool
    brokers: list[BrokerConfigChangeDocument]


class TogetherDocument(TypedDict):
    """The documents about this platform's configs and about Kafka's, with `--target both`."""

    platform: dict[str, Any]
    brokers: dict[str, Any]


def present_broker_configs(listings: Sequence[BrokerListing]) -> Presentation:
    rows = tuple(
        (str(listing.broker.broker_id), release_of(listing.broker), name, _value(config), _source(config))
        for listing in listings
        for name, config in listing.configs.items()
    )
    return Presentation(
        lambda: BrokerConfigsDocument(brokers=list(map(_listing_document, listings))),
        lambda: (Table(_TITLE, ("broker>", "release", "name", "value>", "from"), rows),),
        f"{count(len(rows), 'config')} of Kafka's own on {count(len(listings), 'broker')}",
    )


def present_broker_alteration(altered: AlteredBrokerConfigs) -> Presentation:
    """Present a change. The result is not `ok` if a change was not `taken`, except in a dry run."""
    return Presentation(
        lambda: BrokerAlterationDocument(
            entity_type=str(altered.entity.entity_type),
            entity_name=altered.entity.entity_name or None,
            dry_run=altered.dry_run,
            brokers=[_change_document(change, altered) for change in altered.changes],
        ),
        lambda: (_table(altered),),
        broker_alteration_words(altered),
        ok=not altered.not_taken,
    )


def together(platform: Presentation, brokers: Presentation) -> Presentation:
    """Combine the report about this platform's configs with that about Kafka's."""
    return Presentation(
        lambda: TogetherDocument(platform=dict(platform.document()), brokers=dict(brokers.document())),
        lambda: (*platform.tables(), *brokers.tables()),
        f"this platform: {platform.summary}; {brokers.summary}",
        ok=platform.ok and brokers.ok,
    )


def broker_alteration_words(altered: AlteredBrokerConfigs) -> str:
    """Return in one line what was changed where, and on which brokers it is not in force."""
    names = ", ".join(altered.requested)
    where = "the default of all brokers" if altered.entity.is_default else str(altered.entity)
    if altered.dry_run:
        return f"Kafka's own {names} would be changed on {where}: the brokers accept it; nothing was changed"
    words = f"Kafka's own {names} changed on {where}: "
    if not altered.not_taken:
        in_force = count(len({change.broker_id for change in altered.changes if not change.hidden}), "broker")
        keep = [
            f"broker {change.broker_id} keeps its own {_value(change.new)}"
            for change in altered.changes
            if change.hidden
        ]
        return words + "; ".join((f"in force on {in_force}", *keep))
    missing = "; ".join(f"broker {change.broker_id}: {change.error or _still(change)}" for change in altered.not_taken)
    return words + f"not all brokers show it: {missing}"


def _still(change: BrokerConfigChange) -> str:
    return f"{change.name} is still {_value(change.new)} ({_source(change.new)})"


def _table(altered: AlteredBrokerConfigs) -> Table:
    if altered.dry_run:
        columns: tuple[str, ...] = ("broker>", "name", "is>", "from", "would be>")
        rows = tuple(
            (
                str(change.broker_id),
                change.name,
                _value(change.old),
                _source(change.old),
                _wanted(altered.requested[change.name]),
            )
            for change in altered.changes
        )
        return Table(_TITLE, columns, rows)
    columns = ("broker>", "name", "was>", "from", "is>", "from", "taken")
    return Table(
        _TITLE,
        columns,
        tuple(
            (
                str(change.broker_id),
                change.name,
                _value(change.old),
                _source(change.old),
                _value(change.new),
                _source(change.new),
                _taken(change),
            )
            for change in altered.changes
        ),
    )


def _taken(change: BrokerConfigChange) -> str:
    if change.hidden:
        return "keeps its own"
    return "yes" if change.taken else change.error or "no"


def _wanted(value: str | None) -> str:
    return "the inherited value" if value is None else value


def _value(config: BrokerConfig) -> str:
    return _NO_VALUE if config.value is None else config.value


def _source(config: BrokerConfig) -> str:
    return str(config.source)


def _listing_document(listing: BrokerListing) -> BrokerListingDocument:
    return {
        "broker_id": listing.broker.broker_id,
        "release": release_of(listing.broker),
        "configs": [
            {"name": name, "value": config.value, "source": str(config.source), "read_only": config.read_only}
            for name, config in listing.configs.items()
        ],
    }


def _change_document(change: BrokerConfigChange, altered: AlteredBrokerConfigs) -> BrokerConfigChangeDocument:
    return {
        "broker_id": change.broker_id,
        "name": change.name,
        "requested": altered.requested[change.name],
        "old_value": change.old.value,
        "old_source": str(change.old.source),
        "new_value": change.new.value,
        "new_source": str(change.new.source),
        "taken": change.taken,
        "hidden": change.hidden,
        "error": change.error or None,
    }


class BrokerConfigService:
    """Read and change Kafka's own configs of tiered storage. Every method may raise BrokersError."""

    def __init__(
        self,
        *,
        brokers: Brokers,
        log_dirs: ClusterLogDirs,
        clock: Clock,
    ) -> None:
        self._brokers = brokers
        self._log_dirs = log_dirs
        self._clock = clock

    def alter(
        self, entity: ConfigEntity, changes: Mapping[str, str | None], *, dry_run: bool = False
    ) -> AlteredBrokerConfigs:
        """Change Kafka's own configs; see `alter_broker_configs`. Refused if the brokers belong to another cluster."""
        self._log_dirs.require_cluster()
        return alter_broker_configs(entity, changes, brokers=self._brokers, clock=self._clock, dry_run=dry_run)

    def describe(self, entity: ConfigEntity | None = None) -> tuple[BrokerListing, ...]:
        """Return Kafka's own configs of tiered storage, of one broker or of all."""
        if entity is not None:
            check_broker_configs(entity, {}, brokers=self._brokers)
        listings = []
        for broker in self._brokers.describe().brokers:
            if entity is None or entity.is_default or entity.entity_name == str(broker.broker_id):
                configs = self._brokers.broker_configs(broker.broker_id)
                chosen = {name: configs[name] for name in sorted(configs) if is_of_tiered_storage(name)}
                listings.append(BrokerListing(broker, chosen))
        return tuple(listings)
