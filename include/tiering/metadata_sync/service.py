"""Ingestion: what brokers write to their metadata topic, read into the database. Publication: what the platform has
copied, told to the brokers through that topic, partition by partition; what stops one does not stop the others.
"""

import os
import secrets
import socket
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from include.tiering.errors import SendingStoppedError, SettingError, TieringError
from include.tiering.kafka.cluster.contract import Brokers, TopicMetadata, known_topic
from include.tiering.kafka.metadata_topic.contract import MetadataTopic, OffsetBounds, metadata_partition_of
from include.tiering.metadata_sync.ingest import Ingester, IngestReport, IngestStep
from include.tiering.metadata_sync.metrics import publish_ingest, show_publication
from include.tiering.metadata_sync.plan_publication import PublicationPlan
from include.tiering.metadata_sync.publication_contract import PublicationStore, PublicationTotal
from include.tiering.metadata_sync.publish import Publisher
from include.tiering.model.ownership import SegmentOrigin, TopicOwner
from include.tiering.model.segments import TopicIdPartition
from include.tiering.remote_storage.store_ownership import StoreOwnership
from include.tiering.runs.cluster_log_dirs import ClusterLogDirs
from include.tiering.segments.contract import RemoteLogMetadata, TopicRegistry
from include.tiering.segments.ingestion_contract import BrokerSize, MetadataIngestion
from include.tiering.settings import TieringSettings
from include.tiering.telemetry.metrics import ignore, process_recorder

INGEST_AUTHOR: Final = "ingest"


class IngestionService:
    """Reads the brokers' metadata topic, from where it was read to its ends of now.

    Args:
        topic: the metadata topic of the cluster; raises SettingError without bootstrap servers.
    """

    def __init__(
        self,
        *,
        topic: Callable[[], MetadataTopic],
        ingestion: MetadataIngestion,
        metadata: RemoteLogMetadata,
        log_dirs: ClusterLogDirs,
    ) -> None:
        self._topic = topic
        self._ingestion = ingestion
        self._metadata = metadata
        self._log_dirs = log_dirs

    def run(
        self,
        *,
        author: str = INGEST_AUTHOR,
        on_progress: Callable[[int, int, int], None] = ignore,
        observe: Callable[[IngestStep, int], None] = ignore,
    ) -> IngestReport:
        """Read the metadata topic from where it was read to the ends of now; see `Ingester`.

        Raises:
            ForeignClusterError: the brokers are of another cluster than the database.
            MetadataTopicReplacedError: another topic than was read so far.
        """
        self._log_dirs.require_cluster()
        ingester = Ingester(self._topic(), self._ingestion, author, observe=observe, on_progress=on_progress)
        try:
            return ingester.run()
        finally:
            publish_ingest(process_recorder(), self._ingestion.positions(), self._ingestion.outcomes())

    def topic_bounds(self) -> dict[int, OffsetBounds]:
        """What each partition of the metadata topic holds now."""
        topic = self._topic()
        return {number: topic.offsets(number) for number in range(topic.partition_count())}

    def read_again(self, *, author: str) -> None:
        """The next `run` begins at the beginning of the topic as it is now; see `MetadataIngestion.read_again`."""
        self._log_dirs.require_cluster()
        Ingester(self._topic(), self._ingestion, author).read_again()

    def read_of_brokers(self) -> Mapping[TopicIdPartition, int]:
        """Partitions with segments of which all was read that brokers wrote to the metadata topic, and when they were
        asked how much that is, by the database's clock.
        """
        topic = self._ingestion.topic()
        if topic is None:
            return {}
        bounds_read_at_ms = {
            position.metadata_partition: position.bounds_read_at_ms
            for position in self._ingestion.positions()
            if position.is_complete
        }
        numbers = {
            partition: metadata_partition_of(partition, topic.partition_count)
            for partition in self._metadata.partitions()
        }
        return {one: bounds_read_at_ms[number] for one, number in numbers.items() if number in bounds_read_at_ms}

    def broker_sizes(self) -> Sequence[BrokerSize]:
        """RemoteLogSizeBytes of every partition as brokers count it."""
        return self._ingestion.broker_sizes()


PartitionProgress = Callable[[TopicIdPartition, int, int], None]
"""Records sent about a partition, of records that its plan has."""


@dataclass(frozen=True, slots=True)
class PublishedPartition:
    """What became of one partition.

    Attributes:
        log_start_offset: the broker's.
        plan: what was to be sent; None where `error` came before there was a plan.
        records: so many were sent and read back.
        error: class name of what stopped it, None if nothing did; `message` says more.
        retriable: another try may succeed.
    """

    topic_id_partition: TopicIdPartition
    log_start_offset: int
    plan: PublicationPlan | None
    records: int = 0
    error: str | None = None
    message: str | None = None
    retriable: bool = False


def plan_partitions(publisher: Publisher, log_starts: Mapping[TopicIdPartition, int]) -> tuple[PublishedPartition, ...]:
    """What would be sent about each, by what was read back so far. Asks no broker and changes nothing."""
    return tuple(
        PublishedPartition(partition, offset, publisher.plan(partition, log_start_offset=offset))
        for partition, offset in log_starts.items()
    )


def publish_partitions(
    publisher: Publisher,
    log_starts: Mapping[TopicIdPartition, int],
    *,
    run_id: str,
    batch_id: str,
    on_progress: PartitionProgress,
) -> tuple[PublishedPartition, ...]:
    """Publish each, and read back all that was ever published of it. `log_starts` are the brokers'.

    Raises:
        SendingStoppedError: paused.
    """
    return tuple(
        _publish_one(publisher, partition, offset, run_id, batch_id, on_progress)
        for partition, offset in log_starts.items()
    )


def _publish_one(
    publisher: Publisher,
    partition: TopicIdPartition,
    log_start_offset: int,
    run_id: str,
    batch_id: str,
    on_progress: PartitionProgress,
) -> PublishedPartition:
    sent = 0

    def count(done: int, of: int) -> None:
        nonlocal sent
        sent = done
        on_progress(partition, done, of)

    try:
        published = publisher.publish(
            partition, log_start_offset=log_start_offset, run_id=run_id, batch_id=batch_id, on_progress=count
        )
        publisher.confirm(partition)
    except SendingStoppedError:
        raise
    except TieringError as error:
        return PublishedPartition(
            partition, log_start_offset, None, sent, type(error).__name__, str(error), error.retriable
        )
    return PublishedPartition(partition, log_start_offset, published.plan, sent)


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
        require_allowed: Callable[[TopicMetadata], None],
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
            PublicationRefusedError: the topic's handover has not looked at everything for the last time.
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
            [(partition.topic_id_partition.topic, partition.segments, partition.size_bytes) for partition in waiting],
        )

    def _log_starts(self, topic: str, partitions: Collection[int] | None) -> dict[TopicIdPartition, int]:
        self._log_dirs.require_cluster()
        topic_id = known_topic(self._brokers(), topic).topic_id
        ours = [partition for partition in self._metadata.partitions() if partition.topic_id == topic_id]
        wanted = [one for one in ours if partitions is None or one.partition in partitions]
        if not wanted:
            raise SettingError(f"topic {topic} ({topic_id}): no such partition has segments of the platform")
        offsets = self._brokers().partition_offsets(wanted)
        return {one: offsets.of(one).earliest for one in wanted}

    def require_free_broker_id(self) -> None:
        broker_id = self._settings.metadata_topic.broker_id
        if broker_id in {broker.broker_id for broker in self._brokers().describe().brokers}:
            raise SettingError(f"metadata_topic.broker_id: broker {broker_id} exists; it has to be nobody's")


@dataclass(frozen=True, slots=True)
class Unpublished:
    """FINISHED segments of ours that end above all that is published of their partition."""

    topic_id_partition: TopicIdPartition
    segments: int
    size_bytes: int


def unpublished_segments(
    metadata: RemoteLogMetadata, registry: TopicRegistry, totals: Iterable[PublicationTotal]
) -> tuple[Unpublished, ...]:
    """Of partitions that were begun to be published; none of a topic that is not being handed over (any more)."""
    return tuple(
        _unpublished(metadata, total)
        if registry.owner(total.topic_id_partition.topic_id) is TopicOwner.HANDING_OVER
        else Unpublished(total.topic_id_partition, 0, 0)
        for total in totals
    )


def _unpublished(metadata: RemoteLogMetadata, total: PublicationTotal) -> Unpublished:
    published_to = -1 if total.end_offset is None else total.end_offset
    sizes = [
        row.metadata.segment_size_bytes
        for row in metadata.list_segments(total.topic_id_partition)
        if row.metadata.is_finished and row.origin is SegmentOrigin.PLATFORM and row.metadata.end_offset > published_to
    ]
    return Unpublished(total.topic_id_partition, len(sizes), sum(sizes))
