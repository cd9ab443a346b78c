"""What a store holds that metadata could be rebuilt from: its marker, and partitions by the keys of their objects."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from include.tiering.errors import ForeignStoreError, StateConflictError, printable
from include.tiering.model.ids import TopicIdPartition, Uuid
from include.tiering.model.ownership import StoreMarker, StorePlace, elsewhere
from include.tiering.remote_storage.contract import ObjectKind, RemoteStorage
from include.tiering.remote_storage.marker import MARKER_KEY

_TOLD_EACH: Final = 1_000


@dataclass(frozen=True, slots=True)
class ListedPartition:
    """What a listing shows of one partition: complete attempts and begun ones are not told apart yet."""

    topic_id_partition: TopicIdPartition
    attempts: int
    log_bytes: int


@dataclass(frozen=True, slots=True)
class OtherName:
    """Objects of a topic id under another name than most of its objects have: a topic is never renamed."""

    topic_id: Uuid
    name: str
    objects: int


@dataclass(frozen=True, slots=True)
class RebuildPlan:
    """What there is to rebuild. `found` is the store's marker, `begun` that of a rebuild that is gone on with."""

    found: StoreMarker
    begun: StoreMarker | None
    partitions: tuple[ListedPartition, ...]
    other_names: tuple[OtherName, ...]

    @property
    def attempts(self) -> int:
        return sum(one.attempts for one in self.partitions)

    @property
    def log_bytes(self) -> int:
        return sum(one.log_bytes for one in self.partitions)


def plan_rebuild(
    storage: RemoteStorage,
    begun: Callable[[StoreMarker], StoreMarker | None],
    cluster_id: str | None,
    *,
    place: StorePlace | None = None,
    on_listed: Callable[[int], None] = lambda _: None,
) -> RebuildPlan:
    """Look at the marker and list the store. Changes nothing.

    Args:
        begun: as `MetadataRecovery.begun`; None for a database that has no tables yet, and is therefore empty.
        cluster_id: what the brokers' directories say, None if there are none to ask.
        place: where the settings say that keys lie; None: nothing is compared with it.
        on_listed: gets the number of objects that were listed since the last call, now and then.

    Raises:
        ForeignStoreError: no marker, that of another cluster, or of keys in another place than the settings name.
        StateConflictError: the database is not empty, or the layout writes no manifests.
    """
    if ObjectKind.MANIFEST not in storage.required_kinds:
        raise StateConflictError(
            "this store's layout writes no manifests, so nothing in it says what its objects are: restore a backup of"
            " the database, or ingest the brokers' metadata topic"
        )
    found = storage.read_marker()
    if found is None:
        raise ForeignStoreError(
            f"the store has no {MARKER_KEY}, so nothing says whose it is: is its disk mounted and its URL right?"
            " A store of another writer is set up by ./tiering migrate, and taken in by ./tiering adopt"
        )
    if cluster_id is not None and found.cluster_id != cluster_id:
        raise ForeignStoreError(f"the store belongs to {found}, the log_dirs to cluster {cluster_id}")
    if place is not None and found.place not in (None, place):
        raise ForeignStoreError(elsewhere(found.place, place))
    begun_before = begun(found)
    if begun_before is not None:
        require_ours(found, begun_before)
    partitions, other_names = _listed(storage, on_listed)
    if not partitions and found.place is None:
        _require_empty(storage)
    return RebuildPlan(found, begun_before, partitions, other_names)


def _require_empty(storage: RemoteStorage) -> None:
    """Where nothing says where keys lie, objects of which none has a key of the settings' layout and prefix are those
    of other settings."""
    strange = next((key for key, _ in storage.list_objects() if key != MARKER_KEY), None)
    if strange is not None:
        raise ForeignStoreError(
            f"the store holds objects, such as {printable(strange)}, and none of them has a key that"
            " remote_storage.layout and remote_storage.key_prefix lead to: set both right"
        )


def require_ours(found: StoreMarker, begun: StoreMarker) -> None:
    """Raises ForeignStoreError if somebody else took the store over since this rebuild was begun."""
    before = found.cluster_id == begun.cluster_id and found.generation == begun.generation - 1
    if found != begun and not before:
        raise ForeignStoreError(
            f"the store belongs to {found}, this database was begun as {begun}: drop it and begin with another one"
        )


def by_name(partition: TopicIdPartition) -> tuple[str, Uuid, int]:
    """The order in which partitions are shown."""
    return partition.topic, partition.topic_id, partition.partition


@dataclass(slots=True)
class _Count:
    names: Counter[str] = field(default_factory=Counter)
    attempts: Counter[tuple[str, int]] = field(default_factory=Counter)
    log_bytes: Counter[tuple[str, int]] = field(default_factory=Counter)


def _listed(
    storage: RemoteStorage, on_listed: Callable[[int], None]
) -> tuple[tuple[ListedPartition, ...], tuple[OtherName, ...]]:
    """Partitions by the name that most objects of their topic id have, and the other names."""
    topics: dict[Uuid, _Count] = {}
    for number, found in enumerate(storage.list_segment_objects(), start=1):
        if not number % _TOLD_EACH:
            on_listed(_TOLD_EACH)
        partition = found.segment_id.topic_id_partition
        count = topics.setdefault(partition.topic_id, _Count())
        count.names[partition.topic] += 1
        at = (partition.topic, partition.partition)
        count.attempts[at] += found.kind is ObjectKind.MANIFEST
        count.log_bytes[at] += found.size_bytes if found.kind is ObjectKind.LOG else 0
    partitions, others = [], []
    for topic_id, count in topics.items():
        name, *other_names = (name for name, _ in sorted(count.names.items(), key=_most_first))
        others += [OtherName(topic_id, one, count.names[one]) for one in other_names]
        partitions += [
            ListedPartition(TopicIdPartition(topic_id, number, name), attempts, count.log_bytes[name, number])
            for (named, number), attempts in count.attempts.items()
            if named == name
        ]
    partitions.sort(key=lambda one: by_name(one.topic_id_partition))
    return tuple(partitions), tuple(others)


def _most_first(counted: tuple[str, int]) -> tuple[int, str]:
    return -counted[1], counted[0]
