"""Ingestion and publication of remote log metadata.

Ingestion reads the records of the brokers' metadata topic into the database. Publication sends records about the
platform's segments to that topic, partition by partition. An error while one partition is published does not stop the
others; a pause of the topic does. If the brokers do not report the log start of one partition, none is published.
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
from include.tiering.telemetry.metrics import MetricsRecorder, RunKind, ignore

INGEST_AUTHOR: Final = "ingest"


class IngestionService:
    """Read the brokers' metadata topic into the database.

    Args:
        topic: opens the metadata topic of the cluster; raises SettingError without bootstrap servers.
        ingestion: stores the positions and the content of the records.
        metadata: segment metadata.
        log_dirs: checks that the brokers belong to the cluster of the database.
        recorder: gets the metrics.
    """

    def __init__(
        self,
        *,
        topic: Callable[[], MetadataTopic],
        ingestion: MetadataIngestion,
        metadata: RemoteLogMetadata,
        log_dirs: ClusterLogDirs,
        recorder: MetricsRecorder,
    ) -> None:
        self._topic = topic
        self._ingestion = ingestion
        self._metadata = metadata
        self._log_dirs = log_dirs
        self._recorder = recorder

    def run(
        self,
        *,
        author: str = INGEST_AUTHOR,
        on_progress: Callable[[int, int, int], None] = ignore,
        observe: Callable[[IngestStep, int], None] = ignore,
    ) -> IngestReport:
        """Read the metadata topic from the stored positions to its present ends; see `Ingester`. Idempotent.

        Args:
            author: name in the events about changes of owners and of our segments.
            on_progress: called after each page with metadata partition, next offset and end offset (exclusive).
            observe: called after each step with the step and the metadata partition; the partition is -1 for a step of
                the whole topic.

        Raises:
            ForeignClusterError: the brokers belong to another cluster than the database.
            MetadataTopicReplacedError: the topic was created again, or got more partitions, since it was read.
            MetadataTopicUnavailableError, MetadataTopicRefusedError: as `Ingester.run`.
        """
        self._log_dirs.require_cluster()
        ingester = Ingester(self._topic(), self._ingestion, author, observe=observe, on_progress=on_progress)
        try:
            report = ingester.run()
        finally:
            publish_ingest(self._recorder, self._ingestion.positions(), self._ingestion.outcomes())
        self._recorder.ended(RunKind.INGEST)  # Not after an error: the alert is there for topics that cannot be read.
        return report

    def topic_bounds(self) -> dict[int, OffsetBounds]:
        """Return the first offset and the end (exclusive) of each partition of the metadata topic, read now."""
        topic = self._topic()
        return {number: topic.offsets(number) for number in range(topic.partition_count())}

    def read_again(self, *, author: str) -> None:
        """Reset all positions to the beginning of the present topic; see `MetadataIngestion.read_again`."""
        self._log_dirs.require_cluster()
        Ingester(self._topic(), self._ingestion, author).read_again()

    def read_of_brokers(self) -> Mapping[TopicIdPartition, int]:
        """Return the partitions that have segments and whose metadata partition is completely read.

        Returns:
            For each of these partitions, when the end of its metadata partition was last read from the brokers, in
            milliseconds by the database's clock. Empty if nothing was ever read.
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
        return {
            partition: bounds_read_at_ms[number] for partition, number in numbers.items() if number in bounds_read_at_ms
        }

    def broker_sizes(self) -> Sequence[BrokerSize]:
        """Return RemoteLogSizeBytes, as brokers count it, of each partition with segments in the brokers' caches."""
        return self._ingestion.broker_sizes()


PartitionProgress = Callable[[TopicIdPartition, int, int], None]
"""Called with a partition, the number of records that were sent about it, and the number in its plan."""


@dataclass(frozen=True, slots=True)
class PublishedPartition:
    """The result of publishing one partition.

    Attributes:
        log_start_offset: the broker's log start offset (inclusive).
        plan: the plan of the records to send; None if an error stopped the publication.
        records: how many records were sent and read back.
        error: class name of the error that stopped the publication; None without one. `message` is the error's text.
        retriable: whether another try may succeed; False without an error.
    """

    topic_id_partition: TopicIdPartition
    log_start_offset: int
    plan: PublicationPlan | None
    records: int = 0
    error: str | None = None
    message: str | None = None
    retriable: bool = False


def plan_partitions(publisher: Publisher, log_starts: Mapping[TopicIdPartition, int]) -> tuple[PublishedPartition, ...]:
    """Return which records would be sent about each partition, by the journals as they are now. Changes nothing."""
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
    """Publish each partition, and then check that the topic has everything that was ever published about it.

    Args:
        publisher: the publisher.
        log_starts: the brokers' log start offset of each partition.
        run_id: run of the leases.
        batch_id: batch of the leases.
        on_progress: called after each record.

    Raises:
        SendingStoppedError: a record is to be sent while the topic, or all topics, are paused.
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
    """Publish metadata records about the platform's segments. Needs the setting `cluster.bootstrap_servers`.

    Args:
        settings: the settings.
        publisher: opens the publisher.
        brokers: connects to the brokers.
        publications: journals of published records.
        require_allowed: raises PublicationRefusedError while an open handover of the topic is before its step
            `publish`.
        metadata: segment metadata.
        registry: topics and their owners.
        log_dirs: checks that the brokers belong to the cluster of the database.
        ownership: which database writes to the store.
        recorder: gets the metrics.
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
        recorder: MetricsRecorder,
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
        self._recorder = recorder

    def plan(self, topic: str, partitions: Collection[int] | None = None) -> tuple[PublishedPartition, ...]:
        """Return which records `publish` would send, about each partition of the topic that has segments."""
        return plan_partitions(self._publisher(), self._log_starts(topic, partitions))

    def publish(
        self, topic: str, partitions: Collection[int] | None = None, *, on_progress: PartitionProgress = ignore
    ) -> tuple[PublishedPartition, ...]:
        """Publish each partition of the topic that has segments; see `publish_partitions`. Idempotent.

        Args:
            topic: name of the topic.
            partitions: numbers of the partitions; None for all.
            on_progress: called after each record.

        Raises:
            BrokersError: the brokers do not report a log start offset.
            SettingError: a broker has the publisher's broker id, or no such partition has segments.
            PublicationRefusedError: an open handover of the topic is before its step `publish`.
            ForeignStoreError: the store belongs to another database.
            UnknownTopicError: the brokers have no topic of this name.
            SendingStoppedError: a record is to be sent while the topic, or all topics, are paused.
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
        """Set the metrics of published segments and of the segments that wait for publication."""
        totals = self._publications.totals()
        waiting = unpublished_segments(self._metadata, self._registry, totals)
        show_publication(
            self._recorder,
            totals,
            [(partition.topic_id_partition.topic, partition.segments, partition.size_bytes) for partition in waiting],
        )

    def _log_starts(self, topic: str, partitions: Collection[int] | None) -> dict[TopicIdPartition, int]:
        self._log_dirs.require_cluster()
        topic_id = known_topic(self._brokers(), topic).topic_id
        ours = [partition for partition in self._metadata.partitions() if partition.topic_id == topic_id]
        wanted = [partition for partition in ours if partitions is None or partition.partition in partitions]
        if not wanted:
            raise SettingError(f"topic {topic} ({topic_id}): no such partition has segments of the platform")
        offsets = self._brokers().partition_offsets(wanted)
        return {partition: offsets.of(partition).earliest for partition in wanted}

    def require_free_broker_id(self) -> None:
        """Require that no broker has the publisher's broker id.

        Raises:
            SettingError: a broker has it.
        """
        broker_id = self._settings.metadata_topic.broker_id
        if broker_id in {broker.broker_id for broker in self._brokers().describe().brokers}:
            raise SettingError(f"metadata_topic.broker_id: broker {broker_id} exists; no broker may have this id")


@dataclass(frozen=True, slots=True)
class Unpublished:
    """Number and bytes of a partition's FINISHED segments of the platform that end above its published segments."""

    topic_id_partition: TopicIdPartition
    segments: int
    size_bytes: int


def unpublished_segments(
    metadata: RemoteLogMetadata, registry: TopicRegistry, totals: Iterable[PublicationTotal]
) -> tuple[Unpublished, ...]:
    """Return how much waits for publication in each partition with a journal.

    No segment of a topic waits while the topic's owner is not HANDING_OVER.
    """
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
        for row in metadata.selected.finished_from(total.topic_id_partition, published_to + 1)
        if row.origin is SegmentOrigin.PLATFORM
    ]
    return Unpublished(total.topic_id_partition, len(sizes), sum(sizes))
