"""Topics with remote segments: whether they were deleted or created again, which topic a name means, and their owners.

**Deletions.** An archive may outlive its topic. Only positive evidence counts as a deletion, never absence: a topic
that no metadata mentions may be on a disk that is not mounted. A deletion is recorded when it is first seen, with the
evidence and the time, because the metadata log loses the evidence with its next snapshot. The setting
`tiering.on.topic.delete` decides what follows: nothing, or all remote segments are deleted after a number of days, with
an approval. If the cluster has the topic again, the record is withdrawn. While the cluster cannot be read, no new plan
deletes segments for this reason.

**Names.** A name is only a label: the configuration of a name applies to the topic that has the name now. For a topic
id, its name is *taken* if the cluster gives the name to another topic id. If several topics that may still exist by
the platform's metadata share the name, it is also taken for a topic while the cluster does not confirm, for whatever
reason, that this topic has it.

**Owners.** A topic without an owner becomes the platform's when it is requested and a scan finds eligible segments; it
is left to the broker once the broker tiers it.

Nothing in this module changes a segment.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from include.tiering.configs.config_store import TopicRetention
from include.tiering.errors import ClusterMetadataError
from include.tiering.kafka.cluster.contract import ClusterMetadata, TopicMetadata
from include.tiering.kafka.log_dirs.contract import IneligibleReason, Replica, ScanReport
from include.tiering.model.ownership import TopicOwner
from include.tiering.model.segments import TopicIdPartition, Uuid
from include.tiering.segments.contract import RemoteLogMetadata, TopicRegistry
from include.tiering.telemetry import get_logger
from include.tiering.units import format_utc


@dataclass(frozen=True, slots=True)
class TopicDeletion:
    """A recorded deletion. `seen_at_ms` is when it was first recorded, by the database's clock, not when it happened.

    `evidence` describes the record that proves the deletion.
    """

    topic: str
    seen_at_ms: int
    evidence: str


class TopicDeletions(Protocol):
    """Deletions of one cluster's topics, by topic id: a newer topic of the same name is a different topic."""

    def all(self) -> Mapping[Uuid, TopicDeletion]:
        """Return every recorded deletion that was not withdrawn."""
        ...

    def record(self, topic_id: Uuid, topic: str, *, evidence: str, author: str) -> TopicDeletion:
        """Record a deletion, with an event. Idempotent: the first record stays."""
        ...

    def withdraw(self, topic_id: Uuid, *, evidence: str, author: str) -> None:
        """Remove a recorded deletion that was wrong, with an event. Without a record, do nothing."""
        ...


def gone_topics(registry: TopicRegistry, deletions: TopicDeletions) -> frozenset[str]:
    """Return the names whose topic was deleted in the cluster, and which no other topic that may still exist has."""
    recorded = deletions.all()
    if not recorded:
        return frozenset()
    existing = {name for topic_id, name in registry.names_in_use().items() if topic_id not in recorded}
    return frozenset(deletion.topic for deletion in recorded.values()) - existing


_log: Final = get_logger(__name__)
_DAY_MS: Final = 24 * 60 * 60 * 1000


@dataclass(frozen=True, slots=True)
class TopicLifecycleState:
    """The current state of one topic id.

    Attributes:
        is_broker_tiered: whether the cluster's metadata has `remote.storage.enable` true for the topic: then the
            brokers copy and expire it. False if the metadata cannot be read.
        name_taken_because: why the configuration of its name does not apply to this topic: another topic has the name
            now, or several topics in use have had it and the cluster does not confirm that this one has it.
            Empty if it applies.
        deletion_due: whether the topic was deleted and its remote segments are to be deleted now.
        kept_because: why the remote segments of a deleted topic stay for now. Empty if they are to be deleted now, if
            the setting keeps them for ever, or if no deletion is recorded.
        is_deleted: whether a deletion of the topic is recorded.
    """

    is_broker_tiered: bool = False
    name_taken_because: str = ""
    deletion_due: bool = False
    kept_because: str = ""
    is_deleted: bool = False

    @property
    def is_name_taken(self) -> bool:
        return bool(self.name_taken_because)


UNKNOWN_LIFECYCLE_STATE: Final = TopicLifecycleState()


@dataclass(frozen=True, slots=True)
class TopicWatch:
    """Reads the states of one cluster's topics. Metadata of another cluster, or unreadable metadata, proves nothing."""

    cluster_id: str
    cluster_metadata: ClusterMetadata
    deletions: TopicDeletions

    def record(self, partitions: Iterable[TopicIdPartition], *, author: str) -> None:
        """Record deletions with positive evidence; withdraw those of topics that exist.

        Nothing is changed if the metadata cannot be read or is of another cluster.
        """
        if not self._can_answer():
            return
        recorded = self.deletions.all()
        for topic_id, topic in _names(partitions).items():
            answered, topic_metadata, _ = self._metadata_of(topic_id, topic)
            is_there = topic_metadata is not None
            if not answered:
                continue
            if is_there and topic_id in recorded:
                _log.warning("topic %s (%s) was recorded as deleted, but exists", topic, topic_id)
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
        """Return the states of the topics of `partitions`, by topic id. Changes nothing.

        Args:
            partitions: partitions of the topics whose states are returned.
            names_in_use: `TopicRegistry.names_in_use`: another topic of the same name counts even if it is not among
                `partitions`.
            expire_after_days: how many days after the record of a topic's deletion its segments are due; None keeps
                them.
            now_ms: the present time by the database's clock.
            needs_answer: whether a deletion is due only if the cluster's metadata can be read now.
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
                is_deleted=deletion is not None,
            )
        return lifecycle_states

    def doubtful_names(self, names_in_use: Mapping[Uuid, str]) -> frozenset[str]:
        """Return names that several topics share, if the cluster does not currently show which topic has the name."""
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
        """Return whether the metadata could be read, the topic with this id, and the topic with this name.

        Each topic is None if there is none, or if the metadata could not be read.
        """
        try:
            return True, self.cluster_metadata.topic(topic_id), self.cluster_metadata.topic_named(topic)
        except ClusterMetadataError as error:
            _log.info("metadata of topic %s cannot be read: %s", topic, error)
            return False, None, None

    def _can_answer(self) -> bool:
        try:
            self.cluster_metadata.refresh()
            return self.cluster_metadata.cluster_id() == self.cluster_id
        except ClusterMetadataError as error:
            _log.info("cluster metadata cannot be read: %s", error)
            return False


def _kept_because(deletion: TopicDeletion, due_ms: int, now_ms: int, *, can_answer: bool, is_there: bool) -> str:
    if is_there:
        return "the cluster's metadata has the topic again"
    if now_ms < due_ms:
        return f"seen {format_utc(deletion.seen_at_ms)}; segments expire after {format_utc(due_ms)}, with an approval"
    return "" if can_answer else "the cluster's metadata cannot be read, so the deletion is not confirmed"


def _names(partitions: Iterable[TopicIdPartition]) -> dict[Uuid, str]:
    return {partition.topic_id: partition.topic for partition in partitions}


def _by_name(names: Mapping[Uuid, str]) -> dict[str, list[Uuid]]:
    """Return topic ids, ascending, by the name that they have or had."""
    holders: dict[str, list[Uuid]] = defaultdict(list)
    for topic_id in sorted(names):
        holders[names[topic_id]].append(topic_id)
    return holders


def _name_taken_because(topic_id: Uuid, named: TopicMetadata | None, holders: Sequence[Uuid]) -> str:
    """Return why another topic may have the name.

    Empty if the cluster shows that this topic has it. Also empty if the cluster shows no topic of this name, and
    `holders` has no other topic.
    """
    if named is not None:
        return "" if named.topic_id == topic_id else f"the cluster gives the name to topic id {named.topic_id} now"
    others = ", ".join(str(holder) for holder in holders if holder != topic_id)
    if not others:
        return ""
    return f"topic id {others} has had the name as well, and the cluster does not say now whose it is"


_DELETION_AUTHOR: Final = "expiration"


class TopicLifecycle:
    """Reads topics and their names from the cluster and the database.

    Args:
        cluster_metadata: opens the cluster's metadata; called when it is needed.
        expire_after_days: returns the days of `tiering.on.topic.delete`; None keeps segments of deleted topics.
        now_ms: reads the database's clock.
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
        """Record deletions of topics with remote segments, and withdraw records; see `TopicWatch.record`."""
        self._watch.record(self._metadata.partitions(), author=_DELETION_AUTHOR)

    def lifecycle_states(
        self, partitions: Iterable[TopicIdPartition], now_ms: int, *, needs_answer: bool = True
    ) -> Mapping[Uuid, TopicLifecycleState]:
        """Return the current states of the topics of `partitions`, by topic id; see `TopicWatch.lifecycle_states`."""
        return self._watch.lifecycle_states(
            partitions,
            names_in_use=self._registry.names_in_use(),
            expire_after_days=self._expire_after_days(),
            now_ms=now_ms,
            needs_answer=needs_answer,
        )

    def name_taken_because(self, partition: TopicIdPartition) -> str:
        """Return why another topic has, or may have, the topic's name; see `TopicLifecycleState`."""
        return self.lifecycle_states([partition], self._now_ms())[partition.topic_id].name_taken_because

    def retentions_of_copies(self, report: ScanReport) -> dict[str, TopicRetention]:
        """Return configured retentions by topic name. They may make the first copy begin above the log start.

        Names that several topics share are left out while the cluster does not show which topic has the name.
        """
        retentions = self._topic_retentions()
        if not retentions:
            return {}
        seen = {replica.topic_id_partition.topic_id: replica.topic_id_partition.topic for replica in report.replicas}
        doubtful = self._watch.doubtful_names({**self._registry.names_in_use(), **seen})
        return {name: retention for name, retention in retentions.items() if name not in doubtful}

    def shared_names(self) -> frozenset[str]:
        """Return names that more than one topic of `TopicRegistry.names_in_use` has or had."""
        counted = Counter(self._registry.names_in_use().values())
        return frozenset(name for name, topics in counted.items() if topics > 1)


_OWNER_AUTHOR: Final = "plan"
_COPIED: Final = (None, IneligibleReason.COPY_DELAYED)


class Owners(Protocol):
    """The part of `TopicRegistry` that returns owners."""

    def owner(self, topic_id: Uuid) -> TopicOwner: ...


@dataclass(frozen=True, slots=True)
class SeenOwners:
    """Owners of the registry, corrected by the cluster's current metadata.

    A topic that brokers tier now has the owner BROKER, even if no plan has recorded that yet, unless it is being handed
    over. Metadata of another cluster, or metadata that cannot be refreshed, corrects nothing; an error when the topic
    is read is raised.
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
    """Return the owner that follows from the recorded `owner` and from the replica.

    If `remote.storage.enable` is true outside a handover, the broker becomes the owner. A topic without an owner that
    has a segment that is eligible, or will be after its copy lag, becomes the platform's, because the caller scans
    requested topics only.
    """
    if replica.owner_is_broker and owner in (TopicOwner.NONE, TopicOwner.PLATFORM):
        return TopicOwner.BROKER
    if owner is TopicOwner.NONE and any(segment.reason in _COPIED for segment in replica.segments):
        return TopicOwner.PLATFORM
    return owner


def register_owners(report: ScanReport, registry: TopicRegistry) -> None:
    """Record the owner of every topic with a chosen replica whose owner changes by the scan (`owner_seen`)."""
    for replica in report.replicas:
        if not replica.chosen:
            continue
        partition = replica.topic_id_partition
        owner = registry.owner(partition.topic_id)
        seen = owner_seen(replica, owner)
        if seen is not owner:
            registry.set_owner(partition.topic_id, partition.topic, seen, expected=owner, author=_OWNER_AUTHOR)
