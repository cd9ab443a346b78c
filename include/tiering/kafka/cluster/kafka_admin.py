"""`Brokers` over Kafka's protocol.

librdkafka's admin API has neither leader epochs nor versions, refuses the offsets that tiered storage added, and knows
nothing of transactions: so all of it is asked over connections of our own (docs/adr/0041-cluster-access.md).

Offsets of partitions that one broker leads are five questions, each for all of them at once. Of the open transactions
of a partition its leader knows the producers, coordinators whose they are and since when.
"""

import logging
import threading
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from include.tiering.clock import Clock, SystemClock
from include.tiering.errors import BrokersError, BrokersRefusedError, BrokersUnavailableError, UnknownTopicError
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
    FoundConfig,
    IncrementalAlterConfigs,
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

# The last stable offset before the high watermark, which it never exceeds: both only grow.
_QUESTIONS: Final = (
    ("earliest", OffsetSpec.EARLIEST, False),
    ("earliest_local", OffsetSpec.EARLIEST_LOCAL, False),
    ("latest_tiered", OffsetSpec.LATEST_TIERED, False),
    ("last_stable_offset", OffsetSpec.LATEST, True),
    ("high_watermark", OffsetSpec.LATEST, False),
)
_OF_TIERED_STORAGE: Final = frozenset({OffsetSpec.EARLIEST_LOCAL, OffsetSpec.LATEST_TIERED})


@dataclass(frozen=True, slots=True)
class LeaderPartition:
    """A partition, and the leader that it has in `leader_epoch`."""

    partition: TopicIdPartition
    leader: int
    leader_epoch: int

    @property
    def on_wire(self) -> TopicPartition:
        return TopicPartition(self.partition.topic, self.partition.partition)


def offsets_of_leader(connections: ClusterConnections, leader: int, asked: Sequence[LeaderPartition]) -> OffsetsAnswer:
    """A partition whose leader or leader epoch changes in between is refused: all its offsets are of one leader.

    Raises:
        BrokersError: the broker cannot be asked.
    """
    refused: dict[TopicIdPartition, BrokersError] = {}
    found: dict[TopicIdPartition, dict[str, int]] = {one.partition: {} for one in asked}
    for name, spec, read_committed in _QUESTIONS:
        left = [one for one in asked if one.partition not in refused]
        request = ListOffsets(spec, {one.on_wire: one.leader_epoch for one in left}, read_committed)
        if spec in _OF_TIERED_STORAGE and not connections.knows(leader, request):
            for one in left:
                found[one.partition][name] = _NONE
            continue
        answer = connections.ask(leader, request) if left else {}
        for one in left:
            what = f"{name.replace('_', ' ')} of {one.partition} from broker {leader}"
            offset = answer.get(one.on_wire)
            if offset is None:
                refused[one.partition] = BrokersRefusedError(f"{what}: the answer leaves it out")
            elif offset.error:
                refused[one.partition] = refusal(offset.error, what)
            elif offset.offset == _NONE and spec not in _OF_TIERED_STORAGE:
                refused[one.partition] = BrokersRefusedError(f"{what}: there is none")
            else:
                found[one.partition][name] = offset.offset
    answered = {one.partition: _offsets(one, found[one.partition]) for one in asked if one.partition not in refused}
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
    """One question at a time, whichever thread asks. `close` it; it connects again when it is asked again.

    Args:
        config: of a librdkafka client: `bootstrap.servers`, `security.protocol`, `sasl.*`, `ssl.*` and
            `socket.timeout.ms`, which is the time for one answer; other names are left alone.

    Raises:
        SettingError: `bootstrap.servers` is missing or no list of host:port.
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
            for broker in sorted(metadata.brokers, key=lambda one: one.broker_id):
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
            for leader, asked in by_leader.items():
                try:
                    answer = offsets_of_leader(self._connections, leader, asked)
                    offsets |= answer.offsets
                    refused |= answer.refused
                except BrokersError as error:
                    refused |= {one.partition: error for one in asked}
        return OffsetsAnswer(offsets, refused)

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
            _require_altered(self._connections.ask_any(request), f"configs of topic {topic}")

    def alter_broker_configs(
        self, broker_id: int | None, changes: Mapping[str, str | None], *, dry_run: bool = False
    ) -> None:
        name = _ALL_BROKERS if broker_id is None else str(broker_id)
        request = IncrementalAlterConfigs(Resource(ResourceType.BROKER, name), changes, dry_run)
        with self._lock:
            if broker_id is None:
                _require_altered(self._connections.ask_any(request), "default configs of all brokers")
            else:
                _require_altered(self._connections.ask(broker_id, request), f"configs of broker {broker_id}")

    def _configs(self, broker_id: int | None, resource: Resource, what: str) -> dict[str, BrokerConfig]:
        request = DescribeConfigs([resource])
        with self._lock:
            if broker_id is None:
                answers = self._connections.ask_any(request)
            else:
                answers = self._connections.ask(broker_id, request)
        for answer in answers:
            if answer.error:
                raise refusal(answer.error, what, answer.message)
            return {config.name: _config(config) for config in answer.configs}
        raise BrokersRefusedError(f"{what}: the answer is empty")

    def _with_configs(self, metadata: MetadataAnswer) -> dict[str, TopicMetadata]:
        """Of the topics that are there. Raises the refusal of the first that may not be seen."""
        found: dict[str, MetadataResponseTopic] = {}
        for topic in metadata.topics:
            if topic.error and topic.error not in _ABSENT:
                raise refusal(topic.error, f"topic {topic.name or topic.topic_id}")
            if not topic.error and topic.name is not None:
                found[topic.name] = topic
        names = list(found)
        topic_metadata = {}
        for start in range(0, len(names), _TOPICS_AT_ONCE):
            asked = [Resource(ResourceType.TOPIC, name) for name in names[start : start + _TOPICS_AT_ONCE]]
            for answer in self._connections.ask_any(DescribeConfigs(asked)):
                if answer.error and answer.error not in _ABSENT:
                    raise refusal(answer.error, f"configs of topic {answer.name}", answer.message)
                if not answer.error and answer.name in found:
                    topic_metadata[answer.name] = _topic_metadata(answer.name, found[answer.name], answer.configs)
        return topic_metadata


def _cluster_id(metadata: MetadataAnswer) -> str:
    if metadata.cluster_id is None:
        raise BrokersRefusedError("the brokers tell no cluster id")
    return metadata.cluster_id


def _leader_of(partition: TopicIdPartition, topic: MetadataResponseTopic | None) -> LeaderPartition:
    """Raises BrokersError if the topic is another one by now, or its partition has no leader."""
    if topic is None or topic.error:
        code = UNKNOWN_TOPIC_OR_PARTITION if topic is None else topic.error
        raise refusal(code, f"topic {partition.topic}")
    if topic.topic_id != partition.topic_id:
        raise UnknownTopicError(
            f"topic {partition.topic} has id {topic.topic_id} by now, not {partition.topic_id}: it was re-created"
        )
    found = next((one for one in topic.partitions if one.partition == partition.partition), None)
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
        raise BrokersRefusedError(f"{what}: the answer is empty")
    for answer in answers:
        if answer.error:
            raise refusal(answer.error, what, answer.message)


_LOG = logging.getLogger(__name__)


def open_transactions(
    connections: ClusterConnections, partition: TopicIdPartition, leader: int, brokers: Sequence[int]
) -> list[OpenTransaction]:
    """Lowest start offset first.

    Raises:
        BrokersError: the leader does not say which producers there are. What coordinators do not say is left out.
    """
    what = f"producers of {partition} from broker {leader}"
    answers = connections.ask(leader, DescribeProducers(partition.topic, partition.partition))
    if not answers:
        raise BrokersRefusedError(f"{what}: the answer is empty")
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
    known = _by_producer(connections, [one.producer_id for one in found], brokers)
    return sorted(
        (_described(transaction, known.get(transaction.producer_id)) for transaction in found),
        key=lambda transaction: transaction.start_offset,
    )


def _by_producer(
    connections: ClusterConnections, producer_ids: Sequence[int], brokers: Sequence[int]
) -> Mapping[int, DescribedTransaction]:
    """Every broker coordinates some. One that does not answer may be the one that knows."""
    known: dict[int, DescribedTransaction] = {}
    for broker in brokers:
        try:
            listed = connections.ask(broker, ListTransactions(producer_ids))
            ids = [transaction.transactional_id for transaction in listed.transactions]
            described = connections.ask(broker, DescribeTransactions(ids)) if ids else ()
        except BrokersError as error:
            _LOG.info("transactions of broker %s are not known: %s", broker, error)
            continue
        known |= {one.producer_id: one for one in described if not one.error}
    return known


def _described(found: OpenTransaction, known: DescribedTransaction | None) -> OpenTransaction:
    """A coordinator that has no start for it has forgotten it: the transaction hangs."""
    if known is None or known.started_at_ms < 0:
        return found
    return replace(
        found,
        transactional_id=known.transactional_id,
        started_at_ms=known.started_at_ms,
        timeout_ms=known.timeout_ms,
    )
