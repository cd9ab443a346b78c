"""The verbs of observing: what brokers write to their metadata topic, read into ours."""

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Final

from include.tiering.metadata_topic.contract import MetadataTopic, OffsetBounds
from include.tiering.metadata_topic.partitioner import metadata_partition_of
from include.tiering.model.ids import TopicIdPartition
from include.tiering.observability.ingest_metrics import publish_ingest
from include.tiering.observability.metrics import process_recorder
from include.tiering.remote_metadata.ingestion_contract import BrokerSize, MetadataIngestion
from include.tiering.remote_metadata.sql_ingestion import SqlMetadataIngestion
from include.tiering.tasks.ingest import Ingester, IngestStep
from include.tiering.tasks.ingest_report import IngestReport
from include.tiering.wiring.parts import Parts
from include.tiering.wiring.unwatched import ignore

INGEST_AUTHOR: Final = "ingest"


class IngestionVerbs(Parts):
    """Part of `Tiering`."""

    @cached_property
    def ingestion(self) -> MetadataIngestion:
        return SqlMetadataIngestion(self.engine, self.cluster_id)

    @cached_property
    def metadata_topic_reader(self) -> MetadataTopic:
        """With the principal that reads. Nothing is connected to before it is asked; raises SettingError without
        bootstrap servers."""
        # librdkafka is loaded by those alone who talk to brokers.
        from include.tiering.metadata_topic.kafka import KafkaMetadataTopic

        return KafkaMetadataTopic(self.client_config(), clock=self.clock)

    def ingest(
        self,
        *,
        author: str = INGEST_AUTHOR,
        on_progress: Callable[[int, int, int], None] = ignore,
        observe: Callable[[IngestStep, int], None] = ignore,
    ) -> IngestReport:
        """Read the metadata topic from where it was read to the ends of now; see the task.

        Raises:
            ForeignClusterError: the brokers are of another cluster than the database.
            MetadataTopicReplacedError: another topic than was read so far.
        """
        self.require_cluster(self.cluster_id)
        ingester = Ingester(
            self.metadata_topic_reader, self.ingestion, author, observe=observe, on_progress=on_progress
        )
        try:
            return ingester.run()
        finally:
            publish_ingest(process_recorder(), self.ingestion.positions(), self.ingestion.outcomes())

    def metadata_topic_bounds(self) -> dict[int, OffsetBounds]:
        """What each partition of the metadata topic holds now."""
        topic = self.metadata_topic_reader
        return {number: topic.offsets(number) for number in range(topic.partition_count())}

    def read_metadata_topic_again(self, *, author: str) -> None:
        """The next `ingest` begins at the beginning of the topic as it is now; see `MetadataIngestion.read_again`."""
        self.require_cluster(self.cluster_id)
        Ingester(self.metadata_topic_reader, self.ingestion, author).read_again()

    def read_of_brokers(self) -> Mapping[TopicIdPartition, int]:
        """Partitions with segments of which all was read that brokers wrote to the metadata topic, and when they were
        asked how much that is, by the database's clock."""
        topic = self.ingestion.topic()
        if topic is None:
            return {}
        looked_at_ms = {
            one.metadata_partition: one.looked_at_ms for one in self.ingestion.positions() if one.is_complete
        }
        numbers = {one: metadata_partition_of(one, topic.partition_count) for one in self.metadata.partitions()}
        return {one: looked_at_ms[number] for one, number in numbers.items() if number in looked_at_ms}

    def broker_sizes(self) -> Sequence[BrokerSize]:
        """RemoteLogSizeBytes of every partition as brokers count it."""
        return self.ingestion.broker_sizes()
