"""Publication: what the platform has copied, told to the brokers through their metadata topic."""

import os
import secrets
import socket
from collections.abc import Callable, Collection

from include.tiering.errors import SettingError
from include.tiering.kafka.cluster.contract import Brokers, TopicFacts, known_topic
from include.tiering.metadata_sync.metrics import show_publication
from include.tiering.metadata_sync.publication_contract import PublicationStore
from include.tiering.metadata_sync.publish import Publisher
from include.tiering.metadata_sync.publish_partitions import (
    PartitionProgress,
    PublishedPartition,
    plan_partitions,
    publish_partitions,
)
from include.tiering.metadata_sync.unpublished import unpublished_segments
from include.tiering.model.ids import TopicIdPartition
from include.tiering.observers import ignore
from include.tiering.remote_storage.store_ownership import StoreOwnership
from include.tiering.runs.cluster_log_dirs import ClusterLogDirs
from include.tiering.segments.contract import RemoteLogMetadata, TopicRegistry
from include.tiering.settings import TieringSettings
from include.tiering.telemetry.metrics import process_recorder


class PublicationService:
    """Publishes metadata records. Needs `cluster.bootstrap_servers`.

    Args:
        require_allowed: raises PublicationRefusedError while nothing of the topic may be published yet.
    """

    def __init__(
        self,
        *,
        settings: TieringSettings,
        publisher: Callable[[], Publisher],
        brokers: Callable[[], Brokers],
        publications: PublicationStore,
        require_allowed: Callable[[TopicFacts], None],
        metadata: RemoteLogMetadata,
        registry: TopicRegistry,
        log_dirs: ClusterLogDirs,
        ownership: StoreOwnership,
    ) -> None:
        self._settings = settings
        self._publisher = publisher
        self._brokers = brokers
        self._publications = publications
        self._require_allowed = require_allowed
        self._metadata = metadata
        self._registry = registry
        self._log_dirs = log_dirs
        self._ownership = ownership

    def plan(self, topic: str, partitions: Collection[int] | None = None) -> tuple[PublishedPartition, ...]:
        """What `publish` would send about each partition of the topic that has segments of ours."""
        return plan_partitions(self._publisher(), self._log_starts(topic, partitions))

    def publish(
        self, topic: str, partitions: Collection[int] | None = None, *, on_progress: PartitionProgress = ignore
    ) -> tuple[PublishedPartition, ...]:
        """Publish each partition of the topic that has segments of ours; see `publish_partitions`.

        Raises:
            BrokersError: a log start offset cannot be had.
            SettingError: a broker has the publisher's broker id.
            PublicationRefusedError: the topic's hand-over has not looked at everything for the last time.
            ForeignStoreError: the store is not this database's.
            UnknownTopicError, SendingStoppedError
        """
        self.require_free_broker_id()
        self._require_allowed(known_topic(self._brokers(), topic))
        log_starts = self._log_starts(topic, partitions)
        self._ownership.claim()
        this_process = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"
        try:
            return publish_partitions(
                self._publisher(), log_starts, run_id="publish", batch_id=this_process, on_progress=on_progress
            )
        finally:
            self.show()

    def show(self) -> None:
        """Set the gauges of what is published, and of what waits to be."""
        totals = self._publications.totals()
        waiting = unpublished_segments(self._metadata, self._registry, totals)
        show_publication(
            process_recorder(),
            totals,
            [(one.topic_id_partition.topic, one.segments, one.size_bytes) for one in waiting],
        )

    def _log_starts(self, topic: str, partitions: Collection[int] | None) -> dict[TopicIdPartition, int]:
        self._log_dirs.require_cluster()
        topic_id = known_topic(self._brokers(), topic).topic_id
        ours = [one for one in self._metadata.partitions() if one.topic_id == topic_id]
        wanted = [one for one in ours if partitions is None or one.partition in partitions]
        if not wanted:
            raise SettingError(f"topic {topic} ({topic_id}): no such partition has segments of the platform")
        offsets = self._brokers().partition_offsets(wanted)
        return {one: offsets.of(one).earliest for one in wanted}

    def require_free_broker_id(self) -> None:
        broker_id = self._settings.metadata_topic.broker_id
        if broker_id in {broker.broker_id for broker in self._brokers().describe().brokers}:
            raise SettingError(f"metadata_topic.broker_id: broker {broker_id} exists; it has to be nobody's")
