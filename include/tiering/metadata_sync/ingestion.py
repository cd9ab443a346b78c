"""Ingestion: what brokers write to their metadata topic, read into the database."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from include.tiering.kafka.metadata_topic.contract import MetadataTopic, OffsetBounds, metadata_partition_of
from include.tiering.metadata_sync.ingest import Ingester, IngestStep
from include.tiering.metadata_sync.ingest_report import IngestReport
from include.tiering.metadata_sync.metrics import publish_ingest
from include.tiering.model.ids import TopicIdPartition
from include.tiering.observers import ignore
from include.tiering.runs.cluster_log_dirs import ClusterLogDirs
from include.tiering.segments.contract import RemoteLogMetadata
from include.tiering.segments.ingestion_contract import BrokerSize, MetadataIngestion
from include.tiering.telemetry.metrics import process_recorder

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
        asked how much that is, by the database's clock."""
        topic = self._ingestion.topic()
        if topic is None:
            return {}
        looked_at_ms = {
            one.metadata_partition: one.looked_at_ms for one in self._ingestion.positions() if one.is_complete
        }
        numbers = {one: metadata_partition_of(one, topic.partition_count) for one in self._metadata.partitions()}
        return {one: looked_at_ms[number] for one, number in numbers.items() if number in looked_at_ms}

    def broker_sizes(self) -> Sequence[BrokerSize]:
        """RemoteLogSizeBytes of every partition as brokers count it."""
        return self._ingestion.broker_sizes()
