"""A topic handed to its brokers by hand: our objects and our records, with none of the handover's steps around them.

What the brokers make of them is what these tests are about; `./tiering handover` has tests of its own.
"""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from confluent_kafka import Producer

from include.tiering.formats.remote_log_metadata import encode
from include.tiering.formats.remote_log_metadata_records import segment_record, update_record
from include.tiering.kafka.metadata_topic.contract import METADATA_TOPIC, metadata_partition_of
from include.tiering.model.segments import (
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemoteLogSegmentState,
)
from tests.doubles.broker_deployment import BrokerDeployment
from tests.doubles.kafka_lab.cluster import KafkaCluster, client_configuration, wait_until

_PRODUCE_SECONDS = 240


@dataclass(frozen=True, slots=True)
class Seeded:
    """One segment that the brokers were told of. Offsets are inclusive."""

    partition: int
    start_offset: int
    end_offset: int
    size_bytes: int
    txn_index_empty: bool
    segment_id: str


def seed(deployment: BrokerDeployment, topic: str, *, at_least: int = 0) -> list[Seeded]:
    """Copies, verifies and publishes every segment of `topic` that is eligible; by partition and offset.

    Waits for `at_least` so many: the brokers of a new topic may not have written down yet how far it is committed.
    """
    if at_least:
        wait_until(
            lambda: deployment.document("plan", "--topic", topic)["segments"] >= at_least,
            f"{at_least} segments can be copied",
        )
    deployment.copy_all(topic)
    with deployment.library() as app:
        partitions = sorted(
            (partition for partition in app.adapters.stores.metadata.partitions() if partition.topic == topic),
            key=lambda partition: partition.partition,
        )
        rows = [
            row.metadata for partition in partitions for row in app.adapters.stores.metadata.list_segments(partition)
        ]
    rows.sort(key=lambda row: (row.remote_log_segment_id.topic_id_partition.partition, row.start_offset))
    finished = [row for row in rows if row.is_finished]
    publish(deployment.cluster, finished)
    return [_seeded(row) for row in finished]


def publish(cluster: KafkaCluster, segments: Sequence[RemoteLogSegmentMetadata]) -> None:
    """STARTED, then FINISHED, of each in turn, as the brokers themselves write them."""
    count = len(cluster.admin.list_topics(METADATA_TOPIC, timeout=_PRODUCE_SECONDS).topics[METADATA_TOPIC].partitions)
    producer = Producer({**client_configuration(cluster.bootstrap), "enable.idempotence": True, "acks": "all"})
    for segment in segments:
        started = dataclasses.replace(segment, state=RemoteLogSegmentState.COPY_SEGMENT_STARTED)
        finished = RemoteLogSegmentMetadataUpdate(
            segment.remote_log_segment_id,
            RemoteLogSegmentState.COPY_SEGMENT_FINISHED,
            segment.event_timestamp_ms,
            segment.broker_id,
            segment.custom_metadata,
        )
        partition = metadata_partition_of(segment.remote_log_segment_id.topic_id_partition, count)
        for record in (segment_record(started), update_record(finished)):
            producer.produce(METADATA_TOPIC, encode(record), partition=partition)
    assert producer.flush(_PRODUCE_SECONDS) == 0


def switch_on(cluster: KafkaCluster, topic: str, partitions: Sequence[int], *, node_id: int = 1) -> None:
    """Tiered storage for the topic, and as little of it on disk as brokers do; until it leaves that of the leader."""
    cluster.alter_topic(topic, remote_storage_enable="true", local_retention_bytes="1")
    for partition in partitions:
        wait_until(
            partial(has_left_the_disk, cluster, topic, partition, node_id),
            f"the first segment of {topic}-{partition} left the disk",
        )


def has_left_the_disk(cluster: KafkaCluster, topic: str, partition: int, node_id: int = 1) -> bool:
    """Tell whether the first segment is remote alone."""
    return cluster.local_segments(topic, partition, node_id=node_id)[0] > 0


def _seeded(segment: RemoteLogSegmentMetadata) -> Seeded:
    id_ = segment.remote_log_segment_id
    return Seeded(
        id_.topic_id_partition.partition,
        segment.start_offset,
        segment.end_offset,
        segment.segment_size_bytes,
        segment.txn_index_empty,
        str(id_.id),
    )
