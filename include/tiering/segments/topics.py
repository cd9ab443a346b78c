"""Topics with remote segments: deleted or created again, which of them a name means now, and who owns them.

What the cluster says now of a topic: there, deleted, tiered by the broker, name taken. An archive outlives its topic. A
deletion is believed from a positive answer alone, never from absence: what nobody mentions may be on a disk that is not
mounted. It is recorded when it is first seen, with who said so and when, because the metadata log forgets it with its
next snapshot. What follows is a setting: nothing, or all remote segments go after so many days, with an approval. Until
they go, an answer that the topic is there takes the record back; without any answer they stay.

A name is a label: what is set on it is about the topic that has it now. Where two topics of our own metadata share one,
it is *taken* for each of which the cluster does not say now that it has it, whatever keeps the answer away.

An owner, as far as a scan can tell, is taken over when the topic is asked for, and left alone once a broker tiers it.

Nothing here touches a segment.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from include.tiering.configs.config_store import TopicRetention
from include.tiering.errors import ClusterMetadataError
from include.tiering.kafka.cluster.contract import ClusterMetadata, TopicMetadata
from include.tiering.kafka.log_dirs.contract import Replica, ScanReport
from include.tiering.model.ownership import TopicOwner
from include.tiering.model.segments import TopicIdPartition, Uuid
from include.tiering.segments.contract import RemoteLogMetadata, TopicRegistry
from include.tiering.telemetry import get_logger
from include.tiering.units import format_utc


@dataclass(frozen=True, slots=True)
class TopicDeletion:
    """`seen_at_ms` is a time of the database: when the deletion was first recorded, not when it happened.

    `evidence` says in words what showed it.
    """

    topic: str
    seen_at_ms: int
    evidence: str


class TopicDeletions(Protocol):
    """Deletions of one cluster's topics, by topic id: a topic of the same name is another one."""

    def all(self) -> Mapping[Uuid, TopicDeletion]:
        """Every one that holds."""
        ...

    def record(self, topic_id: Uuid, topic: str, *, evidence: str, author: str) -> TopicDeletion:
        """Record a deletion, with an event. The first record stays: repeating it is harmless."""
        ...

    def withdraw(self, topic_id: Uuid, *, evidence: str, author: str) -> None:
        """Forget a deletion that turned out wrong, with an event. Harmless if none is recorded."""
        ...


_log: Final = get_logger(__name__)
_DAY_MS: Final = 24 * 60 * 60 * 1000


@dataclass(frozen=True, slots=True)
class TopicLifecycleState:
    """One topic id, as far as anybody can say.

    Attributes:
        is_broker_tiered: `remote.storage.enable` is seen true: its broker copies and expires it.
        name_taken_because: why what is set on its name is not about this one: another topic has the name now, or
            several of ours have had it and the cluster does not say now that it is this one's. Empty if it is.
        deletion_due: it was deleted, and its remote segments go.
        kept_because: it was deleted, and its remote segments stay for now; empty if neither.
    """

    is_broker_tiered: bool = False
    name_taken_because: str = ""
    deletion_due: bool = False
    kept_because: str = ""

    @property
    def is_name_taken(self) -> bool:
        return bool(self.name_taken_because)


UNKNOWN_LIFECYCLE_STATE: Final = TopicLifecycleState()


@dataclass(frozen=True, slots=True)
class TopicWatch:
    """Asks about topics of one cluster. Metadata of another cluster, or none, says nothing."""

    cluster_id: str
    cluster_metadata: ClusterMetadata
    deletions: TopicDeletions

    def record(self, partitions: Iterable[TopicIdPartition], *, author: str) -> None:
        """Record deletions that were positively seen; take back those of topics that are there."""
        if not self._can_answer():
            return
        recorded = self.deletions.all()
        for topic_id, topic in _names(partitions).items():
            answered, topic_metadata, _ = self._metadata_of(topic_id, topic)
            is_there = topic_metadata is not None
            if not answered:
                continue
            if is_there and topic_id in recorded:
                _log.warning("topic %s (%s) was recorded as deleted, and is there", topic, topic_id)
                self.deletions.withdraw(topic_id, evidence="the cluster's metadata has the topic", author=author)
            elif not is_there and topic_id not in recorded:
                evidence = self.cluster_metadata.removal_evidence(topic_id)
                if evidence is not None:
                    self.deletions.record(topic_id, topic, evidence=evidence, author=author)

    def lifecycle_states(
        self,
        partitions: Iterable[TopicIdPartition],
        *,
        names_in_use: Mapping[Uuid, str],
        expire_after_days: int | None,
        now_ms: int,
        needs_answer: bool = True,
    ) -> Mapping[Uuid, TopicLifecycleState]:
        """What holds of the topics of `partitions`, by topic id. Changes nothing.

        Args:
            names_in_use: names of all topics of the database that may have one, `TopicRegistry.names_in_use`, whatever
                is asked about: a topic is not alone with its name because the other one is not in this plan.
            expire_after_days: None keeps what was archived of deleted topics.
            now_ms: the database's clock.
            needs_answer: whether a deletion is due only if the cluster can be asked about it now.
        """
        can_answer, recorded = self._can_answer(), self.deletions.all()
        names = _names(partitions)
        holders = _by_name({**names_in_use, **names})
        lifecycle_states = {}
        for topic_id, topic in names.items():
            answered, topic_metadata, named = self._metadata_of(topic_id, topic) if can_answer else (False, None, None)
            deletion = recorded.get(topic_id)
            kept_because = ""
            if deletion is not None and expire_after_days is not None:
                due_ms = deletion.seen_at_ms + expire_after_days * _DAY_MS
                can_say = answered or not needs_answer
                kept_because = _kept_because(
                    deletion, due_ms, now_ms, can_answer=can_say, is_there=bool(topic_metadata)
                )
            lifecycle_states[topic_id] = TopicLifecycleState(
                is_broker_tiered=topic_metadata is not None and topic_metadata.is_remote_storage_enabled,
                name_taken_because=_name_taken_because(topic_id, named, holders[topic]),
                deletion_due=deletion is not None and expire_after_days is not None and not kept_because,
                kept_because=kept_because,
            )
        return lifecycle_states

    def doubtful_names(self, names_in_use: Mapping[Uuid, str]) -> frozenset[str]:
        """Names of more than one topic of which the cluster does not say now which of them has it."""
        shared = {name: holders for name, holders in _by_name(names_in_use).items() if len(holders) > 1}
        if not shared:
            return frozenset()
        can_answer = self._can_answer()
        return frozenset(
            name for name, holders in shared.items() if not can_answer or not self._is_known(name, holders)
        )

    def _is_known(self, name: str, holders: Sequence[Uuid]) -> bool:
        return self._metadata_of(holders[0], name)[2] is not None

    def _metadata_of(self, topic_id: Uuid, topic: str) -> tuple[bool, TopicMetadata | None, TopicMetadata | None]:
        """Whether there is an answer about one topic; what has its id, and what has its name now."""
        try:
            return True, self.cluster_metadata.topic(topic_id), self.cluster_metadata.topic_named(topic)
        except ClusterMetadataError as error:
            _log.info("topic %s cannot be asked about: %s", topic, error)
            return False, None, None

    def _can_answer(self) -> bool:
        try:
            self.cluster_metadata.refresh()
            return self.cluster_metadata.cluster_id() == self.cluster_id
        except ClusterMetadataError as error:
            _log.info("cluster metadata cannot be asked: %s", error)
            return False


def _kept_because(deletion: TopicDeletion, due_ms: int, now_ms: int, *, can_answer: bool, is_there: bool) -> str:
    if is_there:
        return "the cluster's metadata has the topic again"
    if now_ms < due_ms:
        return f"seen {format_utc(deletion.seen_at_ms)}; its segments go after {format_utc(due_ms)}, with an approval"
    return "" if can_answer else "no metadata of the cluster can be asked whether that still holds"


def _names(partitions: Iterable[TopicIdPartition]) -> dict[Uuid, str]:
    return {partition.topic_id: partition.topic for partition in partitions}


def _by_name(names: Mapping[Uuid, str]) -> dict[str, list[Uuid]]:
    """Topic ids by the name that they have, or had, in order."""
    holders: dict[str, list[Uuid]] = defaultdict(list)
    for topic_id in sorted(names):
        holders[names[topic_id]].append(topic_id)
    return holders


def _name_taken_because(topic_id: Uuid, named: TopicMetadata | None, holders: Sequence[Uuid]) -> str:
    """Empty if the name is this topic's: the cluster says so now, or says nothing and no other topic ever had it."""
    if named is not None:
        return "" if named.topic_id == topic_id else f"the cluster gives the name to topic id {named.topic_id} now"
    others = ", ".join(str(holder) for holder in holders if holder != topic_id)
    if not others:
        return ""
    return f"topic id {others} has had the name as well, and the cluster does not say now whose it is"


_DELETION_AUTHOR: Final = "expiration"


class TopicLifecycle:
    """Asks the cluster and the database about topics and their names.

    Args:
        cluster_metadata: what the cluster says of topics; opened by the call that asks it.
        expire_after_days: of `tiering.on.topic.delete` as it holds now; None keeps what was archived of deleted topics.
        now_ms: the database's clock.
    """

    def __init__(
        self,
        *,
        cluster_id: str,
        cluster_metadata: Callable[[], ClusterMetadata],
        metadata: RemoteLogMetadata,
        registry: TopicRegistry,
        deletions: TopicDeletions,
        topic_retentions: Callable[[], Mapping[str, TopicRetention]],
        expire_after_days: Callable[[], int | None],
        now_ms: Callable[[], int],
    ) -> None:
        self._cluster_id = cluster_id
        self._cluster_metadata = cluster_metadata
        self._deletions = deletions
        self._metadata = metadata
        self._registry = registry
        self._topic_retentions = topic_retentions
        self._expire_after_days = expire_after_days
        self._now_ms = now_ms

    @property
    def _watch(self) -> TopicWatch:
        return TopicWatch(self._cluster_id, self._cluster_metadata(), self._deletions)

    def note_deletions(self) -> None:
        """Record which topics with remote segments the cluster has deleted, as far as that can be seen now."""
        self._watch.record(self._metadata.partitions(), author=_DELETION_AUTHOR)

    def lifecycle_states(
        self, partitions: Iterable[TopicIdPartition], now_ms: int, *, needs_answer: bool = True
    ) -> Mapping[Uuid, TopicLifecycleState]:
        """What holds of the topics of `partitions` now, by topic id; arguments as `TopicWatch.lifecycle_states`."""
        return self._watch.lifecycle_states(
            partitions,
            names_in_use=self._registry.names_in_use(),
            expire_after_days=self._expire_after_days(),
            now_ms=now_ms,
            needs_answer=needs_answer,
        )

    def name_taken_because(self, partition: TopicIdPartition) -> str:
        """Why the topic's name does not mean this topic now, or may not; empty if it does. See
        `TopicLifecycleState`.
        """
        return self.lifecycle_states([partition], self._now_ms())[partition.topic_id].name_taken_because

    def retentions_of_copies(self, report: ScanReport) -> dict[str, TopicRetention]:
        """What is set on topics, by name, as far as it may keep a first copy from beginning at the log start: without
        names of several topics while the cluster does not say which of them has it now.
        """
        retentions = self._topic_retentions()
        if not retentions:
            return {}
        seen = {replica.topic_id_partition.topic_id: replica.topic_id_partition.topic for replica in report.replicas}
        doubtful = self._watch.doubtful_names({**self._registry.names_in_use(), **seen})
        return {name: retention for name, retention in retentions.items() if name not in doubtful}

    def shared_names(self) -> frozenset[str]:
        """Names that more than one topic of the database has, or had."""
        counted = Counter(self._registry.names_in_use().values())
        return frozenset(name for name, topics in counted.items() if topics > 1)


_OWNER_AUTHOR: Final = "plan"


class Owners(Protocol):
    """The part of `TopicRegistry` that tells whose a topic is."""

    def owner(self, topic_id: Uuid) -> TopicOwner: ...


@dataclass(frozen=True, slots=True)
class SeenOwners:
    """What the registry says, but for topics of which the cluster says now that brokers tier them: those are theirs,
    though no plan has looked since and recorded it. Metadata of another cluster, or none, says nothing.

    For whoever removes what the registry alone would call ours.
    """

    registry: Owners
    cluster_metadata: ClusterMetadata
    cluster_id: str

    def owner(self, topic_id: Uuid) -> TopicOwner:
        owner = self.registry.owner(topic_id)
        if owner in (TopicOwner.NONE, TopicOwner.PLATFORM) and self._is_broker_tiered(topic_id):
            return TopicOwner.BROKER
        return owner

    def _is_broker_tiered(self, topic_id: Uuid) -> bool:
        try:
            self.cluster_metadata.refresh()
        except ClusterMetadataError:
            return False
        topic = self.cluster_metadata.topic(topic_id) if self.cluster_metadata.cluster_id() == self.cluster_id else None
        return topic is not None and topic.is_remote_storage_enabled


def owner_seen(replica: Replica, owner: TopicOwner) -> TopicOwner:
    """The owner that follows from `owner` and from what the replica shows.

    `remote.storage.enable` seen true outside of a handover makes the broker the owner; a topic without an owner and
    with something eligible becomes ours, because the caller scans the topics that were asked for and no others.
    """
    if replica.owner_is_broker and owner in (TopicOwner.NONE, TopicOwner.PLATFORM):
        return TopicOwner.BROKER
    if owner is TopicOwner.NONE and any(segment.eligible for segment in replica.segments):
        return TopicOwner.PLATFORM
    return owner


def register_owners(report: ScanReport, registry: TopicRegistry) -> None:
    """Record the owner of every scanned topic whose owner changes by what the scan shows."""
    for replica in report.replicas:
        if not replica.chosen:
            continue
        partition = replica.topic_id_partition
        owner = registry.owner(partition.topic_id)
        seen = owner_seen(replica, owner)
        if seen is not owner:
            registry.set_owner(partition.topic_id, partition.topic, seen, expected=owner, author=_OWNER_AUTHOR)
