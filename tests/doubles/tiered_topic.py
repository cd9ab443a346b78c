"""The metadata topic that a real broker wrote, record by record as it was on the wire, without a broker."""

from collections.abc import Mapping
from typing import Any

from include.tiering.metadata_sync.metadata_events import event_of
from include.tiering.model.broker_cache import BrokerCache
from include.tiering.model.segments import (
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemoteLogSegmentState,
    TopicIdPartition,
    Uuid,
)
from tests.doubles.broker_data import expected
from tests.doubles.memory_metadata_topic import MemoryMetadataTopic

METADATA_PARTITIONS = 3


def tiered_topic() -> MemoryMetadataTopic:
    """All 164 records of the set `kafka-tiered`, at their offsets."""
    topic = MemoryMetadataTopic(METADATA_PARTITIONS)
    for record in tiered_records():
        offset = topic.append(record["metadata_partition"], bytes.fromhex(record["value_hex"]))
        assert offset == record["offset"]
    return topic


def tiered_records() -> list[dict[str, Any]]:
    """As Kafka's own classes decoded them, by metadata partition and offset."""
    records: list[dict[str, Any]] = expected("tiered")["remote_log_metadata"]
    return sorted(records, key=lambda record: (record["metadata_partition"], record["offset"]))


def last_states() -> Mapping[RemoteLogSegmentId, RemoteLogSegmentState]:
    """The state of the last record about each segment, as Kafka's own classes decoded it."""
    return {
        RemoteLogSegmentId(
            TopicIdPartition(Uuid.parse(record["topic_id"]), record["partition"], record["topic"]),
            Uuid.parse(record["segment_id"]),
        ): RemoteLogSegmentState[record["state"]]
        for record in tiered_records()
    }


def replayed_caches(topic: MemoryMetadataTopic) -> Mapping[TopicIdPartition, BrokerCache]:
    """What a broker knows that read the topic from its beginning."""
    caches: dict[TopicIdPartition, BrokerCache] = {}
    for number in range(topic.partition_count()):
        begin, end = topic.offsets(number)
        for record in topic.read(number, begin, end_offset=end):
            event = event_of(record.value)
            if isinstance(event, RemoteLogSegmentMetadata):
                caches.setdefault(event.topic_id_partition, BrokerCache()).add(event)
            elif isinstance(event, RemoteLogSegmentMetadataUpdate):
                partition = event.remote_log_segment_id.topic_id_partition
                caches.setdefault(partition, BrokerCache()).update(event)
    return caches
