"""`ClusterMetadata` from the brokers, or without any source of metadata.

- `AdminClusterMetadata`: from the brokers. Two things that their responses lack are read from `__cluster_metadata-0` if
  a log directory holds it: the proof that a topic was deleted (that brokers do not know an id is no proof), and the id
  of the log directory in which a broker has a replica.
- `UnknownClusterMetadata`: there is neither a connection nor a metadata log, so no topic is known. A topic is copied
  only if `topics.include` has its exact name.
- `LostClusterMetadata`: like `UnknownClusterMetadata`, but `refresh` fails if metadata of this cluster was read before.

`metadata_log` reads metadata from log directories alone.
"""

import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

from include.tiering.errors import ClusterMetadataError
from include.tiering.kafka.cluster.contract import Brokers, ClusterMetadata, PartitionMetadata, TopicMetadata
from include.tiering.model.segments import Uuid

_LOG = logging.getLogger(__name__)


class AdminClusterMetadata:
    """`ClusterMetadata` that requests each topic once after a `refresh`, when it is first needed.

    Methods raise BrokersError (a ClusterMetadataError) if a request fails; answers from before the last `refresh` are
    not reused.

    Args:
        brokers: the brokers.
        metadata_log: metadata from log directories, only for removals and directory ids. It is not used if it cannot
            be read or belongs to another cluster.
    """

    def __init__(self, brokers: Brokers, metadata_log: ClusterMetadata) -> None:
        self._brokers = brokers
        self._metadata_log = metadata_log
        self._cluster_id: str | None = None
        self._log_is_ours = False
        self._topics: dict[Uuid, TopicMetadata | None] = {}
        self._ids: dict[str, Uuid | None] = {}
        self._names: Collection[str] | None = None

    def refresh(self) -> None:
        self._cluster_id = None
        self._log_is_ours = False
        self._topics.clear()
        self._ids.clear()
        self._names = None
        self._cluster_id = self._brokers.cluster_id()
        try:
            self._metadata_log.refresh()
            self._log_is_ours = self._metadata_log.cluster_id() == self._cluster_id
        except ClusterMetadataError as error:
            _LOG.debug("the metadata log cannot be used: %s", error)

    def cluster_id(self) -> str | None:
        if self._cluster_id is None:
            self.refresh()
        return self._cluster_id

    def topic(self, topic_id: Uuid) -> TopicMetadata | None:
        if topic_id not in self._topics:
            self._store(topic_id, self._brokers.topic(topic_id))
        return self._topics[topic_id]

    def topic_named(self, name: str) -> TopicMetadata | None:
        if name not in self._ids:
            found = self._brokers.topics([name]).get(name)
            self._ids[name] = None if found is None else found.topic_id
            if found is not None:
                self._store(found.topic_id, found)
        topic_id = self._ids[name]
        return None if topic_id is None else self.topic(topic_id)

    def topic_names(self) -> Collection[str]:
        if self._names is None:
            self._names = self._brokers.topic_names()
        return self._names

    def is_removed(self, topic_id: Uuid) -> bool:
        return self.topic(topic_id) is None and self._log_is_ours and self._metadata_log.is_removed(topic_id)

    def removal_evidence(self, topic_id: Uuid) -> str | None:
        if self.topic(topic_id) is not None or not self._log_is_ours:
            return None
        return self._metadata_log.removal_evidence(topic_id)

    def _store(self, topic_id: Uuid, found: TopicMetadata | None) -> None:
        self._topics[topic_id] = None if found is None else replace(found, partitions=self._with_directories(found))
        if found is not None:
            self._ids[found.topic] = topic_id

    def _with_directories(self, found: TopicMetadata) -> Mapping[int, PartitionMetadata]:
        """Add directory ids of the metadata log to each partition of which it has the same replicas as the brokers."""
        logged = self._metadata_log.topic(found.topic_id) if self._log_is_ours else None
        if logged is None:
            return found.partitions
        return {
            number: replace(partition_metadata, directories=known.directories)
            if (known := logged.partitions.get(number)) is not None and known.replicas == partition_metadata.replicas
            else partition_metadata
            for number, partition_metadata in found.partitions.items()
        }


class UnknownClusterMetadata:
    """`ClusterMetadata` without brokers and without a metadata log: everything is unknown."""

    def refresh(self) -> None:
        """Do nothing."""

    def cluster_id(self) -> str | None:
        return None

    def topic(self, topic_id: Uuid) -> TopicMetadata | None:
        return None

    def topic_named(self, name: str) -> TopicMetadata | None:
        return None

    def topic_names(self) -> Collection[str]:
        return ()

    def is_removed(self, topic_id: Uuid) -> bool:
        return False

    def removal_evidence(self, topic_id: Uuid) -> str | None:
        return None


class LostClusterMetadata(UnknownClusterMetadata):
    """`ClusterMetadata` without a source: `refresh` raises if metadata of this cluster was read before.

    If none was read before, everything is unknown.

    Without this check, a missing mount could allow a copy of a deleted, compacted or broker-tiered topic that the user
    names. `were_known` returns whether metadata was read before; every `refresh` calls it.
    """

    def __init__(self, were_known: Callable[[], bool]) -> None:
        self._were_known = were_known

    def refresh(self) -> None:
        if self._were_known():
            raise ClusterMetadataError(
                "no directory of log_dirs shows __cluster_metadata-0, but metadata of this cluster was read before: "
                "mount the log directory that has it again, or add the log directory of a broker that has it"
            )
