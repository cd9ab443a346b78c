"""Whether the topics and brokers that a person types exist anywhere.

A name is known if it is in a log directory, in the cluster's metadata, in the archive, in the dynamic configs or in the
settings. A name that is in none of them is refused with the nearest known name if all of them could be read. If one of
them could not be read, the name may be there, so it is accepted with a warning that says what could not be read.

The places are read one after the other until every name is found; for a name without a mistake one is mostly enough.
"""

import difflib
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from typing import Final, Protocol

from include.tiering.configs.config_store import ConfigEntity, ConfigStore, EntityType
from include.tiering.errors import ClusterMetadataError, MetadataUnavailableError, SettingError, SourceError, printable
from include.tiering.kafka.cluster.contract import Brokers, ClusterMetadata
from include.tiering.kafka.log_dirs.contract import matches
from include.tiering.kafka.log_dirs.dirs import LogDirLocation, identify, live_partitions, open_root
from include.tiering.model.segments import is_legal_topic_name
from include.tiering.segments.contract import TopicRegistry
from include.tiering.segments.sizes_contract import RemoteLogSizes
from include.tiering.settings import TieringSettings

_WILDCARDS: Final = frozenset("*?[")
HOW_TO_ALLOW: Final = "if the name is to come later, accept it with --allow-unknown (in a form: Allow unknown)"


@dataclass(frozen=True, slots=True)
class Place:
    """A place where names are: those it has, or why it could not be read."""

    names: frozenset[str]
    unreadable: str | None = None


def unknown_names(kind: str, asked: Collection[str], places: Iterable[Place], how: str = "") -> tuple[str, ...]:
    """Return a warning for each pattern without a match, and each unknown name that an unreadable place may have.

    A pattern that matches nothing is no error, even if all places could be read, as it may be meant for later names.

    Args:
        kind: `topic` or `broker`, for the messages.
        asked: names, and shell-style patterns.
        places: read only as far as needed.
        how: for the error, how a person can have an unknown name accepted; empty if there is no way.

    Raises:
        SettingError: a name is in none of the places, and all of them could be read.
    """
    missing, known, unreadable = list(asked), set[str](), []
    remaining = iter(places)
    while missing and (place := next(remaining, None)) is not None:
        known |= place.names
        unreadable += [] if place.unreadable is None else [place.unreadable]
        found = place.names
        missing = [name for name in missing if not _is_in(name, found)]
    warnings = []
    for name in missing:
        if unreadable:
            where = "; ".join(unreadable)
            warnings.append(f"{kind} {printable(name)} is not known, and could not be looked up everywhere: {where}")
        elif _WILDCARDS & set(name):
            warnings.append(f"no {kind} matches {printable(name)}")
        else:
            near = difflib.get_close_matches(name, sorted(known), n=1, cutoff=0.6)
            hints = [f"did you mean {printable(near[0])}?"] if near else []
            hint = " ".join([*hints, *([how] if how else [])])
            raise SettingError(
                f"there is no {kind} {printable(name)}, in no log directory, nor in the cluster's metadata, the archive"
                f" or the configs{f': {hint}' if hint else ''}"
            )
    return tuple(warnings)


def _is_in(name: str, names: Collection[str]) -> bool:
    return name in names or (bool(_WILDCARDS & set(name)) and any(matches(known, (name,)) for known in names))


class NamedStores(Protocol):
    """The stores that have names of topics and brokers."""

    @property
    def registry(self) -> TopicRegistry:
        """Topics of the archive."""

    @property
    def configs(self) -> ConfigStore:
        """Dynamic configs."""

    @property
    def remote_log_sizes(self) -> RemoteLogSizes:
        """Topics that the archive has or ever had."""


class KnownNames:
    """Looks names up. Reads only; each place is opened when it is needed.

    Args:
        brokers: connects to the brokers; None if the settings have no bootstrap servers.
    """

    def __init__(
        self,
        *,
        settings: TieringSettings,
        stores: Callable[[], NamedStores],
        cluster_metadata: Callable[[], ClusterMetadata],
        brokers: Callable[[], Brokers] | None,
    ) -> None:
        self._settings = settings
        self._stores = stores
        self._cluster_metadata = cluster_metadata
        self._brokers = brokers

    def check_topics(
        self, names: Collection[str] | None, *, included: Collection[str] | None = None, how: str = ""
    ) -> tuple[str, ...]:
        """Return warnings about topics, see `unknown_names`; none if `names` is None or empty.

        `included` is `topics.include` as configured; pass it if the names to check stand in for it in the settings.

        Raises:
            SettingError: there is no such topic.
        """
        included = self._settings.topics.include if included is None else included
        return unknown_names("topic", names or (), self._topic_places(included), how)

    def check_past_topic(self, name: str) -> tuple[str, ...]:
        """Return warnings about the name of a topic that is, or once was, see `unknown_names`.

        Raises:
            SettingError: it is no name of a topic, or there is and was no such topic.
        """
        if not is_legal_topic_name(name):
            raise SettingError(f"{printable(name)!r} is no topic: 1 to 249 of letters, digits, '.', '_' and '-'")
        past = self._past_places(ConfigEntity(EntityType.TOPICS, name))
        return unknown_names("topic", (name,), chain(self._topic_places(self._settings.topics.include), past))

    def check_entity(self, entity: ConfigEntity, *, or_was_known: bool = False) -> tuple[str, ...]:
        """Return warnings about the topic or broker whose configs are set or described. Every client id is accepted.

        Args:
            entity: the topic or broker.
            or_was_known: also accept a deleted topic that the archive recorded, and a name whose configs were all
                removed. True to describe, which shows what is left; False to change, which would have no effect.

        Raises:
            SettingError: there is no such topic or broker.
        """
        if not entity.entity_name or entity.entity_type is EntityType.CLIENTS:
            return ()
        if entity.entity_type is EntityType.TOPICS:
            kind, places = "topic", self._topic_places(self._settings.topics.include)
        else:
            kind, places = "broker", self._broker_places()
        if or_was_known:
            places = chain(places, self._past_places(entity))
        return unknown_names(kind, (entity.entity_name,), places, HOW_TO_ALLOW)

    def _topic_places(self, included: Collection[str]) -> Iterator[Place]:
        yield Place(frozenset(included))
        for log_dir in self._settings.log_dirs:
            yield _in_log_dir(str(log_dir.path))
        yield self._stored(EntityType.TOPICS, lambda stores: stores.registry.names_in_use().values())
        yield self._cluster(lambda metadata: metadata.topic_names())

    def _broker_places(self) -> Iterator[Place]:
        yield Place(frozenset(str(log_dir.broker_id) for log_dir in self._settings.log_dirs))
        for log_dir in self._settings.log_dirs:
            with suppress(SourceError, ClusterMetadataError):
                yield Place(frozenset({str(identify(LogDirLocation(None, log_dir.path)).broker_id)}))
        if self._brokers is not None:
            brokers = self._brokers
            yield self._cluster(lambda _: [str(node.broker_id) for node in brokers().describe().brokers])
        yield self._cluster(_brokers_of_partitions)
        yield self._stored(EntityType.BROKERS, lambda _: ())

    def _past_places(self, entity: ConfigEntity) -> Iterator[Place]:
        """Yield the entity's name if it ever had a config; for a topic, also the names of all topics ever recorded."""
        try:
            stores = self._stores()
            if entity.entity_name is not None and stores.configs.history(entity, newest=1):
                yield Place(frozenset({entity.entity_name}))
            if entity.entity_type is EntityType.TOPICS:
                yield Place(frozenset(stores.remote_log_sizes.topic_names().values()))
        except MetadataUnavailableError as error:
            yield Place(frozenset(), str(error))

    def _cluster(self, read: Callable[[ClusterMetadata], Iterable[str]]) -> Place:
        try:
            metadata = self._cluster_metadata()
            metadata.refresh()
            if metadata.cluster_id() is None:
                return Place(frozenset(), "the cluster's metadata: no brokers and no metadata log are set")
            return Place(frozenset(read(metadata)))
        except ClusterMetadataError as error:
            return Place(frozenset(), str(error))

    def _stored(self, kind: EntityType, read: Callable[[NamedStores], Iterable[str]]) -> Place:
        try:
            stores = self._stores()
            values = stores.configs.snapshot().values
            configured = {entity.entity_name for entity in values if entity.entity_type is kind and entity.entity_name}
            return Place(frozenset(configured | set(read(stores))))
        except MetadataUnavailableError as error:
            return Place(frozenset(), str(error))


def _in_log_dir(path: str) -> Place:
    try:
        with open_root(path) as root:
            return Place(frozenset(topic for topic, _ in live_partitions(root, None)))
    except SourceError as error:
        return Place(frozenset(), str(error))


def _brokers_of_partitions(metadata: ClusterMetadata) -> set[str]:
    """Return the brokers that have a replica of any partition."""
    topics = (metadata.topic_named(name) for name in metadata.topic_names())
    return {
        str(broker_id)
        for topic in topics
        if topic is not None
        for partition in topic.partitions.values()
        for broker_id in partition.replicas
    }
