"""The verbs of publishing: what is ours, told to the brokers."""

import os
import secrets
import socket
from collections.abc import Collection
from functools import cached_property

from include.tiering.errors import PublicationRefusedError, SettingError
from include.tiering.metadata_topic.contract import MetadataTopic
from include.tiering.model.handover import HandoverStep, is_before
from include.tiering.model.ids import TopicIdPartition
from include.tiering.observability.metrics import process_recorder
from include.tiering.observability.publication_metrics import show_publication
from include.tiering.remote_metadata.publication_contract import PublicationStore
from include.tiering.remote_metadata.sql_publication import SqlPublicationStore
from include.tiering.tasks.publish import Publisher
from include.tiering.tasks.publish_partitions import (
    PartitionProgress,
    PublishedPartition,
    plan_partitions,
    publish_partitions,
)
from include.tiering.tasks.unpublished import unpublished_segments
from include.tiering.wiring.parts import Parts
from include.tiering.wiring.unwatched import ignore
from include.tiering.work.sql_handovers import SqlHandoverStore


class PublicationVerbs(Parts):
    """Part of `Tiering`. Needs `cluster.bootstrap_servers`."""

    @cached_property
    def publications(self) -> PublicationStore:
        return SqlPublicationStore(self.engine, self.cluster_id)

    @cached_property
    def metadata_topic_writer(self) -> MetadataTopic:
        """With the publisher's own principal. Nothing is connected to before it is asked."""
        # librdkafka is loaded by those alone who talk to brokers.
        from include.tiering.metadata_topic.kafka import KafkaMetadataTopic

        return KafkaMetadataTopic(self.publisher_config(), clock=self.clock)

    @cached_property
    def publisher(self) -> Publisher:
        """Raises SettingError without bootstrap servers."""
        topic = self.settings.metadata_topic
        return Publisher(
            self.metadata_topic_writer,
            self.publications,
            self.metadata,
            self.registry,
            self.work,
            self.clock,
            ignore,
            broker_id=topic.broker_id,
            settle_ms=topic.settle_ms,
        )

    def plan_publication(self, topic: str, partitions: Collection[int] | None = None) -> tuple[PublishedPartition, ...]:
        """What `publish` would send about each partition of the topic that has segments of ours."""
        return plan_partitions(self.publisher, self._log_starts(topic, partitions))

    def publish(
        self, topic: str, partitions: Collection[int] | None = None, *, on_progress: PartitionProgress = ignore
    ) -> tuple[PublishedPartition, ...]:
        """Publish each partition of the topic that has segments of ours; see the task.

        Raises:
            BrokersError: a log start offset cannot be had.
            SettingError: a broker has the publisher's broker id.
            PublicationRefusedError: the topic's hand-over has not looked at everything for the last time.
            ForeignStoreError: the store is not this database's.
            UnknownTopicError, SendingStoppedError
        """
        self._require_free_broker_id()
        self._require_looked_at(topic)
        log_starts = self._log_starts(topic, partitions)
        self.claim_store()
        this_process = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"
        try:
            return publish_partitions(
                self.publisher, log_starts, run_id="publish", batch_id=this_process, on_progress=on_progress
            )
        finally:
            self.show_publication()

    def show_publication(self) -> None:
        """Set the gauges of what is published, and of what waits to be."""
        totals = self.publications.totals()
        waiting = unpublished_segments(self.metadata, self.registry, totals)
        show_publication(
            process_recorder(),
            totals,
            [(one.topic_id_partition.topic, one.segments, one.size_bytes) for one in waiting],
        )

    def _log_starts(self, topic: str, partitions: Collection[int] | None) -> dict[TopicIdPartition, int]:
        self.require_cluster(self.cluster_id)
        topic_id = self.known_topic(topic).topic_id
        ours = [one for one in self.metadata.partitions() if one.topic_id == topic_id]
        wanted = [one for one in ours if partitions is None or one.partition in partitions]
        if not wanted:
            raise SettingError(f"topic {topic} ({topic_id}): no such partition has segments of the platform")
        offsets = self.brokers.partition_offsets(wanted)
        return {one: offsets.of(one).earliest for one in wanted}

    def _require_looked_at(self, topic: str) -> None:
        """What is published stays: nothing is before epochs, guards and bounds were looked at once more."""
        handover = SqlHandoverStore(self.engine, self.cluster_id).latest(self.known_topic(topic).topic_id)
        if handover is None or handover.state.has_ended or not is_before(handover.step, HandoverStep.PUBLISH):
            return
        raise PublicationRefusedError(
            f"the hand-over of {topic} is at {handover.step} ({handover.state}), and publishes behind"
            f" {HandoverStep.RECHECK}: ./tiering handover {topic} --resume"
        )

    def _require_free_broker_id(self) -> None:
        broker_id = self.settings.metadata_topic.broker_id
        if broker_id in {broker.broker_id for broker in self.brokers.describe().brokers}:
            raise SettingError(f"metadata_topic.broker_id: broker {broker_id} exists; it has to be nobody's")
