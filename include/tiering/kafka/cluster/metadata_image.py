"""The state of topics that results from a sequence of metadata records.

Rules: a partition record sets all fields of its partition; a change record sets the fields that it contains, raises the
leader epoch by 1 if it contains a leader, and removes the directory ids if it contains replicas without new ids; a
config record without a value removes the key; removing a topic removes its partitions and configs.

Source: Kafka's TopicsDelta and ConfigurationDelta; tests compare the result with brokers' answers.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Final

from include.tiering.errors import ClusterMetadataError
from include.tiering.formats.cluster_metadata import (
    ConfigRecord,
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    ResourceType,
    TopicRecord,
)
from include.tiering.kafka.cluster.contract import PartitionMetadata, TopicMetadata
from include.tiering.model.segments import Uuid

ALL_BROKERS: Final = ""

TOPIC_KEY_OF_BROKER_KEY: Final[Mapping[str, str]] = {
    "compression.type": "compression.type",
    "log.cleanup.policy": "cleanup.policy",
    "log.local.retention.bytes": "local.retention.bytes",
    "log.local.retention.ms": "local.retention.ms",
    "log.message.timestamp.type": "message.timestamp.type",
    "log.retention.bytes": "retention.bytes",
    "log.retention.ms": "retention.ms",
    "log.segment.bytes": "segment.bytes",
    "min.insync.replicas": "min.insync.replicas",
}
"""The broker configs that are kept, each with the topic config whose default it is.

All other broker configs are dropped, because some of them are credentials."""


class ClusterImage:
    """Collects records by `apply`, and returns frozen values."""

    def __init__(self) -> None:
        self._topics: dict[Uuid, str] = {}
        self._ids: dict[str, Uuid] = {}
        self._partitions: dict[Uuid, dict[int, PartitionMetadata]] = {}
        self._topic_configs: dict[str, dict[str, str]] = {}
        self._broker_configs: dict[str, dict[str, str]] = {}
        self._removed: set[Uuid] = set()

    def apply(self, record: MetadataRecord) -> None:
        """Apply a record. Raises ClusterMetadataError if it contradicts earlier records."""
        match record:
            case TopicRecord():
                self._topics[record.topic_id] = record.topic
                self._ids[record.topic] = record.topic_id
                self._partitions[record.topic_id] = {}
            case PartitionRecord():
                self._partitions_of(record.topic_id)[record.partition] = _partition_metadata(record)
            case PartitionChangeRecord():
                self._change(record)
            case ConfigRecord():
                self._configure(record)
            case RemoveTopicRecord():
                self._remove(record.topic_id)

    def topic(self, topic_id: Uuid) -> TopicMetadata | None:
        name = self._topics.get(topic_id)
        if name is None:
            return None
        partitions = dict(self._partitions[topic_id])
        brokers = {broker for partition_metadata in partitions.values() for broker in partition_metadata.replicas}
        return TopicMetadata(name, topic_id, self._defaults(brokers) | self._topic_configs.get(name, {}), partitions)

    def topic_named(self, name: str) -> TopicMetadata | None:
        topic_id = self._ids.get(name)
        return None if topic_id is None else self.topic(topic_id)

    def topic_names(self) -> Collection[str]:
        return tuple(self._ids)

    def is_removed(self, topic_id: Uuid) -> bool:
        return topic_id in self._removed

    def _partitions_of(self, topic_id: Uuid) -> dict[int, PartitionMetadata]:
        try:
            return self._partitions[topic_id]
        except KeyError:
            message = f"the metadata log has a record of topic id {topic_id} before its creation"
            raise ClusterMetadataError(message) from None

    def _change(self, change: PartitionChangeRecord) -> None:
        partitions = self._partitions_of(change.topic_id)
        partition_metadata = partitions.get(change.partition)
        if partition_metadata is None:
            raise ClusterMetadataError(
                f"the metadata log changes {change.topic_id}-{change.partition}, but has no record of its creation"
            )
        if change.isr is not None:
            partition_metadata = replace(partition_metadata, isr=change.isr)
        if change.leader is not None:
            partition_metadata = replace(
                partition_metadata, leader=change.leader, leader_epoch=partition_metadata.leader_epoch + 1
            )
        if change.replicas is not None:
            partition_metadata = replace(partition_metadata, replicas=change.replicas, directories=())
        if change.directories is not None:
            partition_metadata = replace(partition_metadata, directories=change.directories)
        partitions[change.partition] = partition_metadata

    def _configure(self, record: ConfigRecord) -> None:
        if record.resource_type == ResourceType.TOPIC:
            configs, key = self._topic_configs.setdefault(record.resource_name, {}), record.key
        elif record.resource_type == ResourceType.BROKER and record.key in TOPIC_KEY_OF_BROKER_KEY:
            configs = self._broker_configs.setdefault(record.resource_name, {})
            key = TOPIC_KEY_OF_BROKER_KEY[record.key]
        else:
            return
        if record.value is None:
            configs.pop(key, None)
        else:
            configs[key] = record.value

    def _remove(self, topic_id: Uuid) -> None:
        self._removed.add(topic_id)
        name = self._topics.pop(topic_id, None)
        self._partitions.pop(topic_id, None)
        if name is not None and self._ids.get(name) == topic_id:
            del self._ids[name]
            self._topic_configs.pop(name, None)

    def _defaults(self, brokers: Iterable[int]) -> dict[str, str]:
        """Return the dynamic defaults of the given brokers for topic configs.

        They are the defaults of all brokers, with two exceptions. If one of the given brokers has a cleanup.policy with
        compaction, that policy is the default. If some of them have a smaller min.insync.replicas than the default of
        all brokers, the smallest is the default.
        """
        for_all = self._broker_configs.get(ALL_BROKERS, {})
        defaults = dict(for_all)
        for broker in brokers:
            own = for_all | self._broker_configs.get(str(broker), {})
            if "compact" in own.get("cleanup.policy", ""):
                defaults["cleanup.policy"] = own["cleanup.policy"]
            if _count(own) < _count(defaults):
                defaults["min.insync.replicas"] = own["min.insync.replicas"]
        return defaults


def _count(configs: Mapping[str, str]) -> int:
    text = configs.get("min.insync.replicas", "")
    return int(text) if text.isascii() and text.isdigit() else 1


def _partition_metadata(record: PartitionRecord) -> PartitionMetadata:
    return PartitionMetadata(
        partition=record.partition,
        leader=record.leader,
        leader_epoch=record.leader_epoch,
        replicas=record.replicas,
        isr=record.isr,
        directories=record.directories,
    )
