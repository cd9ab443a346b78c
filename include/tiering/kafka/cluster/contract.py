"""The contracts for metadata of a cluster and for its brokers.

`ClusterMetadata` returns ids, configs and leaders of topics. It never guesses: an unknown value is None or absent.

`Brokers` reads offsets, transactions and configs, and alters configs. Reads may be repeated. Every call ends in bounded
time, with a result or with a `BrokersError` that says whether to try again. A result is the brokers' answer to that
call. Nothing that the brokers left out is filled in, and no result is cached; only versions and feature levels in
`describe` may be from the time when the connection was opened. In a call for several partitions, an error of one
partition does not affect the others.

`ServedRecords` reads the records of an offset range as a consumer receives them.
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, Protocol

from include.tiering.errors import BrokersError, UnknownTopicError
from include.tiering.model.segments import SeenRecord, TopicIdPartition, Uuid


@dataclass(frozen=True, slots=True)
class PartitionMetadata:
    """Metadata of a partition.

    `leader` is -1 while there is none. `directories` has one directory id per replica, in the order of `replicas`; it
    is empty if the ids are unknown.
    """

    partition: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    directories: tuple[Uuid, ...] = ()


_RETENTION: Final = re.compile(r"-?[0-9]{1,19}\Z")


@dataclass(frozen=True, slots=True)
class TopicMetadata:
    """Metadata of a topic.

    Read from brokers, `configs` has every config in force whose value is neither null nor sensitive. Read from the
    metadata log, it has the topic's own configs, and the dynamic broker defaults for the other topic configs in
    `TOPIC_KEY_OF_BROKER_KEY`; a config that is absent may have a value nevertheless, which only the brokers know.
    """

    topic: str
    topic_id: Uuid
    configs: Mapping[str, str] = field(default_factory=dict)
    partitions: Mapping[int, PartitionMetadata] = field(default_factory=dict)

    @property
    def is_compacted(self) -> bool:
        """Whether cleanup.policy contains `compact`."""
        policies = self.configs.get("cleanup.policy", "delete").split(",")
        return "compact" in (policy.strip() for policy in policies)

    @property
    def segment_bytes(self) -> int | None:
        """The value of segment.bytes; None if unknown."""
        configured = self.configs.get("segment.bytes", "")
        return int(configured) if configured.isascii() and configured.isdigit() else None

    def retention(self, name: str) -> int | None:
        """Return the brokers' retention.ms or retention.bytes, -1 if it is unlimited; None if it is unknown."""
        configured = self.configs.get(name, "")
        return max(-1, int(configured)) if _RETENTION.match(configured) is not None else None

    @property
    def is_remote_storage_enabled(self) -> bool:
        """Whether remote.storage.enable is true."""
        return self.configs.get("remote.storage.enable", "false").lower() == "true"


class ClusterMetadata(Protocol):
    """A view of the cluster: what a call has returned stays the same until the next `refresh`.

    Methods may read the source when they are called; then they raise ClusterMetadataError as `refresh` does.
    """

    def refresh(self) -> None:
        """Replace the view by the current one. Cheap if nothing changed; may be repeated.

        Raises:
            ClusterMetadataError: the source of the metadata is missing or cannot be read.
        """
        ...

    def cluster_id(self) -> str | None:
        """Return the cluster's id; None if unknown."""
        ...

    def topic(self, topic_id: Uuid) -> TopicMetadata | None:
        """Return the topic of this id; None if the id is unknown or its topic was removed."""
        ...

    def topic_named(self, name: str) -> TopicMetadata | None:
        """Return the topic that has this name now, None without one; a re-created topic is another topic."""
        ...

    def topic_names(self) -> Collection[str]:
        """Return the names of all current topics that are visible. A missing name does not prove a removal."""
        ...

    def is_removed(self, topic_id: Uuid) -> bool:
        """Return True only if a record of the removal was read; an unknown id alone does not prove a removal."""
        ...

    def removal_evidence(self, topic_id: Uuid) -> str | None:
        """Describe the record that proves the deletion of this topic; None if none is found.

        The search covers more records than `is_removed`, and may take seconds.

        Raises:
            ClusterMetadataError: the metadata cannot be read.
        """
        ...


@dataclass(frozen=True, slots=True)
class BrokerNode:
    """One broker that is registered and not fenced.

    `api_versions` has the lowest and highest supported version (both inclusive) by API key, `supported_features` the
    highest level of each feature that its software supports. Neither reveals the patch release.
    """

    broker_id: int
    host: str
    port: int
    rack: str | None = None
    api_versions: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    supported_features: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    """The brokers of a cluster by ascending id, and the finalized level by feature name (`metadata.version` etc.)."""

    cluster_id: str
    brokers: tuple[BrokerNode, ...]
    finalized_features: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PartitionOffsets:
    """The offsets that the leader of a partition returned, requested one after the other in the order of the fields.

    `earliest` is the log start offset (remote segments included) and `earliest_local` the first offset on the leader's
    disk, both inclusive. `latest_tiered` is the highest remote offset, inclusive. `last_stable_offset` and
    `high_watermark` are exclusive ends. The last stable offset is never above the high watermark, and is requested
    before it.

    `earliest_local` and `latest_tiered` are None if the broker is too old to support the request, or has no such offset
    (for example, nothing is tiered). `leader_epoch` is -1 if unknown. `earliest_epoch` is the leader epoch that the
    leader's checkpoint has for the offset `earliest`, -1 if it has none: then brokers do not find the record at that
    offset in remote storage.
    """

    leader: int
    leader_epoch: int
    earliest: int
    earliest_local: int | None
    latest_tiered: int | None
    last_stable_offset: int
    high_watermark: int
    earliest_epoch: int = -1


@dataclass(frozen=True, slots=True)
class OffsetsAnswer:
    """The offsets of each requested partition, or the error with which it was refused."""

    offsets: Mapping[TopicIdPartition, PartitionOffsets]
    refused: Mapping[TopicIdPartition, BrokersError] = field(default_factory=dict)

    def of(self, partition: TopicIdPartition) -> PartitionOffsets:
        """Return the offsets of a requested partition. If the partition was refused, raise the error in `refused`."""
        if (error := self.refused.get(partition)) is not None:
            raise error
        return self.offsets[partition]


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """An open transaction, which limits the last stable offset of a partition.

    `start_offset` is its first offset in this partition, inclusive. `last_timestamp_ms` is the timestamp of its
    producer's newest batch there. `transactional_id`, `started_at_ms` (by the coordinator's clock)
    and `timeout_ms` are None if no coordinator has the transaction with a start time (then the transaction hangs), or
    if its coordinator did not answer.
    """

    producer_id: int
    producer_epoch: int
    start_offset: int
    last_timestamp_ms: int
    transactional_id: str | None = None
    started_at_ms: int | None = None
    timeout_ms: int | None = None

    @property
    def since_ms(self) -> int:
        """The start by the coordinator's clock in ms; if unknown, the timestamp of the producer's newest batch."""
        return self.last_timestamp_ms if self.started_at_ms is None else self.started_at_ms


class ConfigSource(StrEnum):
    """Where the value of a config comes from. The first source with a value applies, in this order.

    OTHER is any other source.
    """

    TOPIC = "topic"
    BROKER = "dynamic broker"
    ALL_BROKERS = "dynamic default of all brokers"
    STATIC = "static"
    DEFAULT = "default"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class BrokerConfig:
    """A config in force.

    `value` is None if it is null or sensitive. A `read_only` config of a broker changes only with a restart.
    """

    name: str
    value: str | None
    source: ConfigSource
    read_only: bool = False


class Brokers(Protocol):
    """The brokers of one cluster. Thread-safe.

    Every method may raise:
        BrokersUnavailableError: a broker does not answer in time, or answers that it cannot serve the request just now.
            Retriable.
        BrokersLoginError: TLS or SASL failed: user, password, certificate or protocol.
        BrokersForbiddenError: this user is not authorised for the request.
        BrokersRefusedError: the broker refused for another reason; the message has the broker's reason.
    """

    def describe(self) -> ClusterDescription:
        """Describe the cluster and each of its brokers."""
        ...

    def cluster_id(self) -> str:
        """Return the cluster's id from the first broker that answers."""
        ...

    def topic(self, topic_id: Uuid) -> TopicMetadata | None:
        """Return the topic of this id; None without one, which does not prove that it was deleted."""
        ...

    def topics(self, names: Collection[str] | None = None) -> Mapping[str, TopicMetadata]:
        """Return id, partitions and every config in force by topic name.

        A name without a topic is absent, which does not prove that the topic was deleted.

        Args:
            names: names of topics; None means all topics that this user may see.
        """
        ...

    def topic_names(self) -> Collection[str]:
        """Return the names of all topics that this user may see."""
        ...

    def topic_leaders(self) -> Mapping[str, Collection[int]]:
        """Return the brokers that lead partitions, by topic that this user may see; -1 for a partition without one."""
        ...

    def partition_offsets(self, partitions: Collection[TopicIdPartition]) -> OffsetsAnswer:
        """Request the offsets from the leader of each partition.

        A partition is refused with UnknownTopicError if its topic's name now belongs to another topic id or to no
        topic, or if the topic has no such partition.
        """
        ...

    def log_sizes(self, leaders: Mapping[TopicIdPartition, int]) -> Mapping[TopicIdPartition, int]:
        """Return the bytes of each partition's log on its leader. A size that a leader does not tell is absent.

        The user needs DESCRIBE on the cluster.

        Args:
            leaders: the leader of each partition.
        """
        ...

    def free_bytes(self, broker_id: int) -> int | None:
        """Return the fewest free bytes among the log directories of a broker; None if the broker does not tell them.

        The user needs DESCRIBE on the cluster.
        """
        ...

    def open_transactions(self, partition: TopicIdPartition) -> Sequence[OpenTransaction]:
        """Return the transactions that are open on the leader, ordered by start offset.

        Raises:
            UnknownTopicError: the topic's name now belongs to another topic id or to none, or the partition is missing.
        """
        ...

    def topic_configs(self, topic: str) -> Mapping[str, BrokerConfig]:
        """Return every config in force for a topic, by name.

        Raises:
            UnknownTopicError: there is no topic of this name.
        """
        ...

    def broker_configs(self, broker_id: int) -> Mapping[str, BrokerConfig]:
        """Return every config in force on one broker, by name, from that broker."""
        ...

    def alter_topic_configs(self, topic: str, changes: Mapping[str, str | None], *, dry_run: bool = False) -> None:
        """Change configs of a topic, all of them or none. Idempotent.

        Without `dry_run`, the controller has stored the changes when this returns; brokers apply them a moment later.
        After BrokersUnavailableError the changes may have been stored or not: read the configs, or repeat the call.

        Args:
            topic: the topic's name.
            changes: values by config name; None removes a config. Configs without an entry stay as they are.
            dry_run: only let the controller validate the changes.

        Raises:
            UnknownTopicError: there is no topic of this name.
            BrokersRefusedError: the brokers do not accept a name or a value.
        """
        ...

    def alter_broker_configs(
        self, broker_id: int | None, changes: Mapping[str, str | None], *, dry_run: bool = False
    ) -> None:
        """Change configs of one broker, or with `broker_id` None the default of all brokers.

        Otherwise like `alter_topic_configs`.
        """
        ...


def known_topic(brokers: Brokers, topic: str) -> TopicMetadata:
    """Return the topic of this name.

    Raises:
        UnknownTopicError: the cluster has no topic of this name.
        BrokersError: the request failed.
    """
    found = brokers.topics([topic]).get(topic)
    if found is None:
        raise UnknownTopicError(f"the cluster has no topic {topic}")
    return found


METADATA_VERSION: Final = "metadata.version"
_FIRST_LEVELS: Final = (
    (11, "3.5"),
    (12, "3.6"),
    (15, "3.7"),
    (20, "3.8"),
    (21, "3.9"),
    (22, "4.0"),
    (26, "4.1"),
    (28, "4.2"),
    (30, "4.3"),
    (31, "4.4"),
)
_LAST_KNOWN_LEVEL: Final = 33


def release_of(broker: BrokerNode) -> str:
    """Return the release, from the highest supported `metadata.version`.

    It is text: `Kafka 4.3`, `newer than Kafka 4.4`, `older than Kafka 3.5`, or `unknown` without that feature.
    """
    level = broker.supported_features.get(METADATA_VERSION)
    if level is None:
        return "unknown"
    if level > _LAST_KNOWN_LEVEL:
        return f"newer than Kafka {_FIRST_LEVELS[-1][1]}"
    older = [release for first, release in _FIRST_LEVELS if level >= first]
    return f"Kafka {older[-1]}" if older else f"older than Kafka {_FIRST_LEVELS[0][1]}"


class ServedRecords(Protocol):
    """Reads records as a consumer without a group. While brokers keep them, repeated calls return the same records."""

    def read(self, partition: TopicIdPartition, start_offset: int, end_offset: int) -> Iterator[SeenRecord]:
        """Read records in ascending offset order, including those of aborted transactions, without control records.

        Args:
            partition: the partition.
            start_offset: first offset, inclusive.
            end_offset: last offset, inclusive. The iterator ends when no further record up to this offset can arrive.

        Raises:
            BrokersUnavailableError: no answer arrived in time. Retriable.
            BrokersRefusedError: the brokers do not serve `start_offset`, or refuse the request.
        """
        ...
