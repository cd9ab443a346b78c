"""`Brokers` over Kafka's protocol.

librdkafka's admin API offers neither leader epochs nor versions, refuses the offsets that tiered storage added, and
does not describe transactions. So all requests use separate connections (docs/adr/0041-cluster-access.md).

The offsets of all partitions that one broker leads take at most five requests, one for each kind of offset. For the
open transactions of a partition, the leader returns the producers, and the coordinators return transactional ids, start
times and timeouts.
"""

import logging
import threading
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from include.tiering.clock import Clock, SystemClock
from include.tiering.errors import (
    BrokersError,
    BrokersRefusedError,
    BrokersUnavailableError,
    UnknownTopicError,
    printable,
)
from include.tiering.formats.cluster_metadata import ResourceType
from include.tiering.kafka.cluster.contract import (
    BrokerConfig,
    BrokerNode,
    ClusterDescription,
    ConfigSource,
    OffsetsAnswer,
    OpenTransaction,
    PartitionMetadata,
    PartitionOffsets,
    TopicMetadata,
)
from include.tiering.kafka.protocol.cluster_requests import (
    AlterAnswer,
    DescribeConfigs,
    DescribeLogDirs,
    FoundConfig,
    IncrementalAlterConfigs,
    LogDirsAnswer,
    Metadata,
    MetadataAnswer,
    MetadataResponseTopic,
    Resource,
)
from include.tiering.kafka.protocol.connections import ClusterConnections
from include.tiering.kafka.protocol.login import BrokerLogin
from include.tiering.kafka.protocol.messages import UNKNOWN_TOPIC_ID, UNKNOWN_TOPIC_OR_PARTITION, refusal
from include.tiering.kafka.protocol.partition_requests import (
    DescribedTransaction,
    DescribeProducers,
    DescribeTransactions,
    ListOffsets,
    ListTransactions,
    OffsetSpec,
    TopicPartition,
)
from include.tiering.model.segments import TopicIdPartition, Uuid

_NONE: Final = -1

# The last stable offset is requested before the high watermark and so never exceeds it, because both only grow.
_OFFSET_REQUESTS: Final = (
    ("earliest", OffsetSpec.EARLIEST, False),
    ("earliest_local", OffsetSpec.EARLIEST_LOCAL, False),
    ("latest_tiered", OffsetSpec.LATEST_TIERED, False),
    ("last_stable_offset", OffsetSpec.LATEST, True),
    ("high_watermark", OffsetSpec.LATEST, False),
)
_OF_TIERED_STORAGE: Final = frozenset({OffsetSpec.EARLIEST_LOCAL, OffsetSpec.LATEST_TIERED})


@dataclass(frozen=True, slots=True)
class LeaderPartition:
    """A partition with its leader and the leader epoch."""

    partition: TopicIdPartition
    leader: int
    leader_epoch: int

    @property
    def on_wire(self) -> TopicPartition:
        return TopicPartition(self.partition.topic, self.partition.partition)


def offsets_of_leader(
    connections: ClusterConnections, leader: int, partitions: Sequence[LeaderPartition]
) -> OffsetsAnswer:
    """Request the offsets of partitions from their leader.

    A partition whose leader or (known) leader epoch changes between the requests is refused, so all of its offsets come
    from one leader.

    Raises:
        BrokersError: a request to the broker failed.
    """
    refused: dict[TopicIdPartition, BrokersError] = {}
    found: dict[TopicIdPartition, dict[str, int]] = {requested.partition: {} for requested in partitions}
    for name, spec, read_committed in _OFFSET_REQUESTS:
        left = [requested for requested in partitions if requested.partition not in refused]
        request = ListOffsets(spec, {requested.on_wire: requested.leader_epoch for requested in left}, read_committed)
        if spec in _OF_TIERED_STORAGE and not connections.supports(leader, request):
            for requested in left:
                found[requested.partition][name] = _NONE
            continue
        answer = connections.send(leader, request) if left else {}
        for requested in left:
            partition = requested.partition
            what = f"{name.replace('_', ' ')} of {partition} from broker {leader}"
            offset = answer.get(requested.on_wire)
            if offset is None:
                refused[partition] = BrokersRefusedError(f"{what}: the response does not contain it")
            elif offset.error:
                refused[partition] = refusal(offset.error, what)
            elif offset.offset == _NONE and spec not in _OF_TIERED_STORAGE:
                refused[partition] = BrokersRefusedError(f"{what}: there is none")
            else:
                found[partition][name] = offset.offset
                if spec is OffsetSpec.EARLIEST:
                    found[partition]["earliest_epoch"] = offset.leader_epoch
    answered = {
        requested.partition: _offsets(requested, found[requested.partition])
        for requested in partitions
        if requested.partition not in refused
    }
    return OffsetsAnswer(answered, refused)


def _offsets(leader_partition: LeaderPartition, found: dict[str, int]) -> PartitionOffsets:
    return PartitionOffsets(
        leader=leader_partition.leader,
        leader_epoch=leader_partition.leader_epoch,
        earliest=found["earliest"],
        earliest_local=_or_none(found["earliest_local"]),
        latest_tiered=_or_none(found["latest_tiered"]),
        last_stable_offset=found["last_stable_offset"],
        high_watermark=found["high_watermark"],
        earliest_epoch=found["earliest_epoch"],
    )


def _or_none(offset: int) -> int | None:
    return None if offset == _NONE else offset


_ABSENT: Final = frozenset({UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID})
_TOPICS_AT_ONCE: Final = 200
_ALL_BROKERS: Final = ""
_SOURCES: Final[Mapping[int, ConfigSource]] = {
    1: ConfigSource.TOPIC,
    2: ConfigSource.BROKER,
    3: ConfigSource.ALL_BROKERS,
    4: ConfigSource.STATIC,
    5: ConfigSource.DEFAULT,
}


class KafkaBrokers:
    """`Brokers` that sends one request at a time, for any number of threads.

    `close` closes the connections; a later call connects again.

    Args:
        config: configuration of a librdkafka client; only the names that `BrokerLogin.from_config` reads are used.
            `socket.timeout.ms` is the longest time for one response.
        clock: the clock for timeouts.

    Raises:
        SettingError: `bootstrap.servers` is missing, or is not a list of host:port.
    """

    def __init__(self, config: Mapping[str, str | int], clock: Clock | None = None) -> None:
        self._connections = ClusterConnections(BrokerLogin.from_config(config), clock or SystemClock())
        self._lock = threading.RLock()

    def close(self) -> None:
        with self._lock:
            self._connections.close()

    def cluster_id(self) -> str:
        with self._lock:
            return _cluster_id(self._connections.metadata(Metadata()))

    def describe(self) -> ClusterDescription:
        with self._lock:
            metadata = self._connections.metadata(Metadata())
            brokers = []
            finalized: Mapping[str, int] = {}
            for broker in sorted(metadata.brokers, key=lambda broker: broker.broker_id):
                versions = self._connections.versions(broker.broker_id)
                finalized = versions.finalized_features or finalized
                brokers.append(
                    BrokerNode(
                        broker.broker_id,
                        broker.host,
                        broker.port,
                        broker.rack,
                        api_versions=versions.apis,
                        supported_features=versions.supported_features,
                    )
                )
            return ClusterDescription(_cluster_id(metadata), tuple(brokers), finalized)

    def topic(self, topic_id: Uuid) -> TopicMetadata | None:
        with self._lock:
            metadata = self._connections.metadata(Metadata(topic_ids=[topic_id]))
            return next(iter(self._with_configs(metadata).values()), None)

    def topics(self, names: Collection[str] | None = None) -> Mapping[str, TopicMetadata]:
        if names is not None and not names:
            return {}
        with self._lock:
            request = Metadata(every_topic=True) if names is None else Metadata(names=sorted(set(names)))
            return self._with_configs(self._connections.metadata(request))

    def topic_names(self) -> Collection[str]:
        with self._lock:
            topics = self._connections.metadata(Metadata(every_topic=True)).topics
            return [topic.name for topic in topics if topic.name is not None and not topic.error]

    def topic_leaders(self) -> Mapping[str, Collection[int]]:
        with self._lock:
            topics = self._connections.metadata(Metadata(every_topic=True)).topics
            seen = {topic.name: topic.partitions for topic in topics if topic.name is not None and not topic.error}
            return {name: {found.leader for found in partitions} for name, partitions in seen.items()}

    def partition_offsets(self, partitions: Collection[TopicIdPartition]) -> OffsetsAnswer:
        refused: dict[TopicIdPartition, BrokersError] = {}
        by_leader: dict[int, list[LeaderPartition]] = {}
        offsets: dict[TopicIdPartition, PartitionOffsets] = {}
        if not partitions:
            return OffsetsAnswer(offsets)
        with self._lock:
            names = sorted({partition.topic for partition in partitions})
            topics = {topic.name: topic for topic in self._connections.metadata(Metadata(names=names)).topics}
            for partition in partitions:
                try:
                    found = _leader_of(partition, topics.get(partition.topic))
                    by_leader.setdefault(found.leader, []).append(found)
                except BrokersError as error:
                    refused[partition] = error
            for leader, led in by_leader.items():
                try:
                    answer = offsets_of_leader(self._connections, leader, led)
                    offsets |= answer.offsets
                    refused |= answer.refused
                except BrokersError as error:
                    refused |= {requested.partition: error for requested in led}
        return OffsetsAnswer(offsets, refused)

    def log_sizes(self, leaders: Mapping[TopicIdPartition, int]) -> Mapping[TopicIdPartition, int]:
        by_leader: dict[int, dict[str, list[int]]] = {}
        for partition, leader in leaders.items():
            by_leader.setdefault(leader, {}).setdefault(partition.topic, []).append(partition.partition)
        found: dict[tuple[str, int, int], int] = {}
        with self._lock:
            for leader, partitions in by_leader.items():
                answer = self._log_dirs(leader, partitions)
                found |= {(size.topic, size.partition, leader): size.size_bytes for size in answer.sizes}
        sizes = {p: found.get((p.topic, p.partition, leader)) for p, leader in leaders.items()}
        return {partition: size_bytes for partition, size_bytes in sizes.items() if size_bytes is not None}

    def free_bytes(self, broker_id: int) -> int | None:
        with self._lock:
            return min(self._log_dirs(broker_id, {}).free_bytes, default=None)

    def _log_dirs(self, broker_id: int, partitions: Mapping[str, Sequence[int]]) -> LogDirsAnswer:
        """Ask a broker. One directory that is offline does not hide what it tells of the others."""
        answer = self._connections.send(broker_id, DescribeLogDirs(partitions))
        if answer.error and not answer.sizes and not answer.free_bytes:
            raise refusal(answer.error, f"log directories of broker {broker_id}")
        return answer

    def open_transactions(self, partition: TopicIdPartition) -> Sequence[OpenTransaction]:
        with self._lock:
            metadata = self._connections.metadata(Metadata(names=[partition.topic]))
            leader = _leader_of(partition, next(iter(metadata.topics), None)).leader
            brokers = [broker.broker_id for broker in metadata.brokers]
            return open_transactions(self._connections, partition, leader, brokers)

    def topic_configs(self, topic: str) -> Mapping[str, BrokerConfig]:
        return self._configs(None, Resource(ResourceType.TOPIC, topic), f"configs of topic {topic}")

    def broker_configs(self, broker_id: int) -> Mapping[str, BrokerConfig]:
        return self._configs(broker_id, Resource(ResourceType.BROKER, str(broker_id)), f"configs of broker {broker_id}")

    def alter_topic_configs(self, topic: str, changes: Mapping[str, str | None], *, dry_run: bool = False) -> None:
        request = IncrementalAlterConfigs(Resource(ResourceType.TOPIC, topic), changes, dry_run)
        with self._lock:
            _require_altered(self._connections.send_to_any(request), f"configs of topic {topic}")

    def alter_broker_configs(
        self, broker_id: int | None, changes: Mapping[str, str | None], *, dry_run: bool = False
    ) -> None:
        name = _ALL_BROKERS if broker_id is None else str(broker_id)
        request = IncrementalAlterConfigs(Resource(ResourceType.BROKER, name), changes, dry_run)
        with self._lock:
            if broker_id is None:
                _require_altered(self._connections.send_to_any(request), "default configs of all brokers")
            else:
                _require_altered(self._connections.send(broker_id, request), f"configs of broker {broker_id}")

    def _configs(self, broker_id: int | None, resource: Resource, what: str) -> dict[str, BrokerConfig]:
        request = DescribeConfigs([resource])
        with self._lock:
            if broker_id is None:
                answers = self._connections.send_to_any(request)
            else:
                answers = self._connections.send(broker_id, request)
        for answer in answers:
            if answer.error:
                raise refusal(answer.error, what, answer.message)
            return {config.name: _config(config) for config in answer.configs}
        raise BrokersRefusedError(f"{what}: the response is empty")

    def _with_configs(self, metadata: MetadataAnswer) -> dict[str, TopicMetadata]:
        """Return the topics that exist, with their configs. Raises the first refusal of a topic or its configs."""
        found: dict[str, MetadataResponseTopic] = {}
        for topic in metadata.topics:
            if topic.error and topic.error not in _ABSENT:
                raise refusal(topic.error, f"topic {topic.name or topic.topic_id}")
            if not topic.error and topic.name is not None:
                found[topic.name] = topic
        names = list(found)
        topic_metadata = {}
        for start in range(0, len(names), _TOPICS_AT_ONCE):
            resources = [Resource(ResourceType.TOPIC, name) for name in names[start : start + _TOPICS_AT_ONCE]]
            for answer in self._connections.send_to_any(DescribeConfigs(resources)):
                if answer.error and answer.error not in _ABSENT:
                    raise refusal(answer.error, f"configs of topic {answer.name}", answer.message)
                if not answer.error and answer.name in found:
                    topic_metadata[answer.name] = _topic_metadata(answer.name, found[answer.name], answer.configs)
        return topic_metadata


def _cluster_id(metadata: MetadataAnswer) -> str:
    if metadata.cluster_id is None:
        raise BrokersRefusedError("the brokers return no cluster id")
    return metadata.cluster_id


def _leader_of(partition: TopicIdPartition, topic: MetadataResponseTopic | None) -> LeaderPartition:
    """Return the partition's leader.

    Raises:
        UnknownTopicError: the topic or the partition does not exist, or the topic was re-created.
        BrokersUnavailableError: the partition has no leader.
        BrokersError: the topic was refused with another error.
    """
    if topic is None or topic.error:
        code = UNKNOWN_TOPIC_OR_PARTITION if topic is None else topic.error
        raise refusal(code, f"topic {partition.topic}")
    if topic.topic_id != partition.topic_id:
        raise UnknownTopicError(
            f"topic {partition.topic} now has id {topic.topic_id}, not {partition.topic_id}: it was re-created"
        )
    found = next((candidate for candidate in topic.partitions if candidate.partition == partition.partition), None)
    if found is None:
        raise UnknownTopicError(f"topic {partition.topic} has no partition {partition.partition}")
    if found.leader < 0:
        raise BrokersUnavailableError(f"partition {partition} has no leader just now")
    return LeaderPartition(partition, found.leader, found.leader_epoch)


def _topic_metadata(name: str, topic: MetadataResponseTopic, configs: Sequence[FoundConfig]) -> TopicMetadata:
    return TopicMetadata(
        name,
        topic.topic_id,
        {config.name: config.value for config in configs if config.value is not None},
        {
            partition.partition: PartitionMetadata(
                partition.partition, partition.leader, partition.leader_epoch, partition.replicas, partition.isr
            )
            for partition in topic.partitions
        },
    )


def _config(config: FoundConfig) -> BrokerConfig:
    return BrokerConfig(
        config.name, config.value, _SOURCES.get(config.source, ConfigSource.OTHER), read_only=config.read_only
    )


def _require_altered(answers: Sequence[AlterAnswer], what: str) -> None:
    if not answers:
        raise BrokersRefusedError(f"{what}: the response is empty")
    for answer in answers:
        if answer.error:
            raise refusal(answer.error, what, answer.message)


_LOG = logging.getLogger(__name__)


def open_transactions(
    connections: ClusterConnections, partition: TopicIdPartition, leader: int, brokers: Sequence[int]
) -> list[OpenTransaction]:
    """Return the open transactions of a partition, ordered by start offset.

    Details that the coordinators do not return are None.

    Raises:
        BrokersError: the leader does not return the producers.
    """
    what = f"producers of {partition} from broker {leader}"
    answers = connections.send(leader, DescribeProducers(partition.topic, partition.partition))
    if not answers:
        raise BrokersRefusedError(f"{what}: the response is empty")
    if answers[0].error:
        raise refusal(answers[0].error, what, answers[0].message)
    found = [
        OpenTransaction(
            producer.producer_id, producer.producer_epoch, producer.transaction_start_offset, producer.last_timestamp_ms
        )
        for producer in answers[0].producers
        if producer.transaction_start_offset >= 0
    ]
    if not found:
        return []
    known = _by_producer(connections, [transaction.producer_id for transaction in found], brokers)
    return sorted(
        (_described(transaction, known.get(transaction.producer_id)) for transaction in found),
        key=lambda transaction: transaction.start_offset,
    )


def _by_producer(
    connections: ClusterConnections, producer_ids: Sequence[int], brokers: Sequence[int]
) -> Mapping[int, DescribedTransaction]:
    """Return the transactions of these producers by producer id, requested from every broker that may coordinate them.

    Brokers that do not answer, or answer with an error, are logged and skipped. So are transactions whose description
    is an error: a coordinator that is still loading answers with an error, which does not prove that nothing
    coordinates the transaction.
    """
    known: dict[int, DescribedTransaction] = {}
    for broker in brokers:
        try:
            listed = connections.send(broker, ListTransactions(producer_ids))
            if listed.error:
                raise refusal(listed.error, f"transactions of broker {broker}")
            ids = [transaction.transactional_id for transaction in listed.transactions]
            described = connections.send(broker, DescribeTransactions(ids)) if ids else ()
        except BrokersError as error:
            _LOG.info("transactions that broker %s coordinates are unknown: %s", broker, error)
            continue
        for transaction in described:
            if transaction.error:
                why = refusal(transaction.error, f"transaction {printable(transaction.transactional_id)}")
                _LOG.info("details from its coordinator, broker %s, are unknown: %s", broker, why)
            else:
                known[transaction.producer_id] = transaction
    return known


def _described(found: OpenTransaction, known: DescribedTransaction | None) -> OpenTransaction:
    """Add the coordinator's details, if it has the transaction and a start time for it.

    A transaction that is open on the leader, but not on its coordinator, hangs.
    """
    if known is None or known.started_at_ms < 0:
        return found
    return replace(
        found,
        transactional_id=known.transactional_id,
        started_at_ms=known.started_at_ms,
        timeout_ms=known.timeout_ms,
    )
