"""A cluster of brokers in memory: as much of one as `Brokers` shows, with faults on demand.

    brokers = ModelBrokers()
    orders = brokers.create_topic("orders", partitions=2)
    brokers.partition(orders, 0).high_watermark = 100
    brokers.fail("partition_offsets", BrokersUnavailableError("no answer"), times=2)

Times are the caller's; nothing here moves by itself. `after_call` is called after every answer, so that a test can
change the world between two questions.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from include.tiering.errors import BrokersError, BrokersForbiddenError, BrokersRefusedError, UnknownTopicError
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
from include.tiering.model.segments import TopicIdPartition, Uuid

CLUSTER_ID: Final = "bW9kZWwtYnJva2Vycy0wMA"
TOPIC_DEFAULTS: Final[Mapping[str, str]] = {
    "cleanup.policy": "delete",
    "local.retention.bytes": "-2",
    "local.retention.ms": "-2",
    "max.message.bytes": "1048588",
    "min.insync.replicas": "1",
    "remote.log.copy.disable": "false",
    "remote.log.delete.on.disable": "false",
    "remote.storage.enable": "false",
    "retention.bytes": "-1",
    "retention.ms": "604800000",
    "segment.bytes": "1073741824",
    "segment.ms": "604800000",
}
BROKER_DEFAULTS: Final[Mapping[str, str]] = {
    "log.retention.bytes": "-1",
    "remote.log.manager.copier.thread.pool.size": "10",
    "remote.log.manager.copy.max.bytes.per.second": str(2**63 - 1),
    "remote.log.manager.expiration.thread.pool.size": "10",
    "remote.log.manager.fetch.max.bytes.per.second": str(2**63 - 1),
    "remote.log.reader.threads": "10",
    "remote.log.storage.system.enable": "true",
}
_UNLIMITED: Final = -1
READ_ONLY: Final = frozenset({"remote.log.storage.system.enable"})


@dataclass
class ModelPartition:
    """Offsets as `PartitionOffsets` has them; change them as you like. `leader` -1: there is none just now."""

    leader: int = 1
    leader_epoch: int = 0
    replicas: tuple[int, ...] = (1,)
    isr: tuple[int, ...] = (1,)
    earliest: int = 0
    earliest_local: int | None = 0
    latest_tiered: int | None = None
    last_stable_offset: int | None = None
    high_watermark: int = 0
    earliest_epoch: int = 0
    open_transactions: list[OpenTransaction] = field(default_factory=list)
    log_bytes: int = 0
    follower_bytes: dict[int, int] = field(default_factory=dict)

    def offsets(self) -> PartitionOffsets:
        """Without a `last_stable_offset` of its own, the first open transaction holds it."""
        stable = min((one.start_offset for one in self.open_transactions), default=self.high_watermark)
        return PartitionOffsets(
            leader=self.leader,
            leader_epoch=self.leader_epoch,
            earliest=self.earliest,
            earliest_local=self.earliest_local,
            latest_tiered=self.latest_tiered,
            last_stable_offset=stable if self.last_stable_offset is None else self.last_stable_offset,
            high_watermark=self.high_watermark,
            earliest_epoch=self.earliest_epoch,
        )


@dataclass
class _Topic:
    topic_id: Uuid
    partitions: dict[int, ModelPartition]
    configs: dict[str, str] = field(default_factory=dict)


@dataclass
class _Fault:
    error: BrokersError
    left: int | None


class ModelBrokers:
    """`Brokers` in memory. `calls` holds the name of every method that was called, faults included.

    Args:
        brokers: ids; `nodes` may be replaced to have other versions.
        topic_defaults, broker_defaults: what a config is that nobody set; a name that is in neither is refused.
    """

    def __init__(
        self,
        cluster_id: str = CLUSTER_ID,
        *,
        brokers: Sequence[int] = (1,),
        topic_defaults: Mapping[str, str] = TOPIC_DEFAULTS,
        broker_defaults: Mapping[str, str] = BROKER_DEFAULTS,
    ) -> None:
        self.id = cluster_id
        self.nodes = {
            broker: BrokerNode(broker, "localhost", 9092 + broker, supported_features={"metadata.version": 29})
            for broker in brokers
        }
        self.finalized_features: dict[str, int] = {"metadata.version": 29}
        self.topic_defaults = dict(topic_defaults)
        self.broker_defaults = dict(broker_defaults)
        self.broker_configs_set: dict[int | None, dict[str, str]] = {None: {}}
        self.forbidden_topics: set[str] = set()
        self.disk_free_bytes: dict[int, int] = dict.fromkeys(brokers, 10**12)
        self.calls: list[str] = []
        self.after_call: Callable[[str], None] = lambda _name: None
        self._topics: dict[str, _Topic] = {}
        self._faults: dict[str, list[_Fault]] = {}
        self._partition_faults: dict[tuple[Uuid, int], BrokersError] = {}
        self._created = 0

    # The world, for tests to change.

    def create_topic(
        self,
        topic: str,
        *,
        partitions: int = 1,
        topic_id: Uuid | None = None,
        configs: Mapping[str, str] | None = None,
    ) -> Uuid:
        """Also re-creates one: the same name under another id."""
        self._created += 1
        topic_id = topic_id or Uuid(b"model-topic-" + self._created.to_bytes(4))
        model = {number: ModelPartition() for number in range(partitions)}
        self._topics[topic] = _Topic(topic_id, model, dict(configs or {}))
        return topic_id

    def delete_topic(self, topic: str) -> None:
        del self._topics[topic]

    def partition(self, topic_id: Uuid, partition: int) -> ModelPartition:
        return next(one for one in self._topics.values() if one.topic_id == topic_id).partitions[partition]

    def add_partition(self, topic_id: Uuid, partition: int) -> None:
        next(one for one in self._topics.values() if one.topic_id == topic_id).partitions[partition] = ModelPartition()

    def fail(self, method: str, error: BrokersError, *, times: int | None = 1) -> None:
        """The next `times` calls of a method raise `error`; None: all of them, until `heal`."""
        self._faults.setdefault(method, []).append(_Fault(error, times))

    def refuse_partition(self, topic_id: Uuid, partition: int, error: BrokersError) -> None:
        self._partition_faults[topic_id, partition] = error

    def heal(self) -> None:
        self._faults.clear()
        self._partition_faults.clear()

    # The contract.

    def cluster_id(self) -> str:
        with self._call("cluster_id"):
            return self.id

    def describe(self) -> ClusterDescription:
        with self._call("describe"):
            brokers = tuple(self.nodes[broker] for broker in sorted(self.nodes))
            return ClusterDescription(self.id, brokers, dict(self.finalized_features))

    def topic(self, topic_id: Uuid) -> TopicMetadata | None:
        with self._call("topic"):
            return next(
                (self._topic_metadata(name) for name, one in self._topics.items() if one.topic_id == topic_id), None
            )

    def topics(self, names: Collection[str] | None = None) -> Mapping[str, TopicMetadata]:
        with self._call("topics"):
            all_seen = [name for name in self._topics if name not in self.forbidden_topics]
            wanted = all_seen if names is None else [name for name in names if name in self._topics]
            return {name: self._topic_metadata(name) for name in wanted}

    def topic_names(self) -> Collection[str]:
        with self._call("topic_names"):
            return [name for name in self._topics if name not in self.forbidden_topics]

    def topic_leaders(self) -> Mapping[str, Collection[int]]:
        with self._call("topic_leaders"):
            seen = {name: one for name, one in self._topics.items() if name not in self.forbidden_topics}
            return {name: {model.leader for model in one.partitions.values()} for name, one in seen.items()}

    def partition_offsets(self, partitions: Collection[TopicIdPartition]) -> OffsetsAnswer:
        with self._call("partition_offsets"):
            offsets: dict[TopicIdPartition, PartitionOffsets] = {}
            refused: dict[TopicIdPartition, BrokersError] = {}
            for one in partitions:
                try:
                    offsets[one] = self._partition(one).offsets()
                except BrokersError as error:
                    refused[one] = error
            return OffsetsAnswer(offsets, refused)

    def log_sizes(self, leaders: Mapping[TopicIdPartition, int]) -> Mapping[TopicIdPartition, int]:
        with self._call("log_sizes"):
            found: dict[TopicIdPartition, int] = {}
            for one, broker in leaders.items():
                model = self._partition(one)
                if broker == model.leader:
                    found[one] = model.log_bytes
                elif broker in model.follower_bytes:
                    found[one] = model.follower_bytes[broker]
            return found

    def free_bytes(self, broker_id: int) -> int | None:
        with self._call("free_bytes"):
            self._node(broker_id)
            return self.disk_free_bytes.get(broker_id)

    def open_transactions(self, partition: TopicIdPartition) -> Sequence[OpenTransaction]:
        with self._call("open_transactions"):
            return sorted(self._partition(partition).open_transactions, key=lambda one: one.start_offset)

    def topic_configs(self, topic: str) -> Mapping[str, BrokerConfig]:
        with self._call("topic_configs"):
            own = self._topic(topic).configs
            return {
                **{
                    name: BrokerConfig(name, value, ConfigSource.DEFAULT) for name, value in self.topic_defaults.items()
                },
                **{name: BrokerConfig(name, value, ConfigSource.TOPIC) for name, value in own.items()},
            }

    def broker_configs(self, broker_id: int) -> Mapping[str, BrokerConfig]:
        with self._call("broker_configs"):
            self._node(broker_id)
            layers = (
                (ConfigSource.DEFAULT, self.broker_defaults),
                (ConfigSource.ALL_BROKERS, self.broker_configs_set[None]),
                (ConfigSource.BROKER, self.broker_configs_set.get(broker_id, {})),
            )
            return {
                name: BrokerConfig(name, value, source, read_only=name in READ_ONLY)
                for source, values in layers
                for name, value in values.items()
            }

    def alter_topic_configs(self, topic: str, changes: Mapping[str, str | None], *, dry_run: bool = False) -> None:
        with self._call("alter_topic_configs"):
            found = self._topic(topic)
            _check(changes, self.topic_defaults)
            _check_switch(found.configs, _changed(found.configs, changes), self.topic_defaults)
            if not dry_run:
                found.configs = _changed(found.configs, changes)

    def alter_broker_configs(
        self, broker_id: int | None, changes: Mapping[str, str | None], *, dry_run: bool = False
    ) -> None:
        with self._call("alter_broker_configs"):
            if broker_id is not None:
                self._node(broker_id)
            _check(changes, self.broker_defaults)
            if not dry_run:
                self.broker_configs_set[broker_id] = _changed(self.broker_configs_set.get(broker_id, {}), changes)

    @contextmanager
    def _call(self, method: str) -> Iterator[None]:
        """Its fault first, `after_call` last."""
        self.calls.append(method)
        for fault in self._faults.get(method, []):
            if fault.left != 0:
                fault.left = None if fault.left is None else fault.left - 1
                raise fault.error
        yield
        self.after_call(method)

    def _topic(self, topic: str) -> _Topic:
        if topic not in self._topics:
            raise UnknownTopicError(f"there is no topic {topic}")
        if topic in self.forbidden_topics:
            raise BrokersForbiddenError(f"topic {topic}: not authorised for this topic")
        return self._topics[topic]

    def _partition(self, partition: TopicIdPartition) -> ModelPartition:
        fault = self._partition_faults.get((partition.topic_id, partition.partition))
        if fault is not None:
            raise fault
        topic = self._topic(partition.topic)
        if topic.topic_id != partition.topic_id:
            raise UnknownTopicError(f"topic {partition.topic} has id {topic.topic_id} now, not {partition.topic_id}")
        if partition.partition not in topic.partitions:
            raise UnknownTopicError(f"topic {partition.topic} has no partition {partition.partition}")
        return topic.partitions[partition.partition]

    def _node(self, broker_id: int) -> BrokerNode:
        if broker_id not in self.nodes:
            raise BrokersRefusedError(f"there is no broker {broker_id}")
        return self.nodes[broker_id]

    def _topic_metadata(self, name: str) -> TopicMetadata:
        topic = self._topic(name)
        partitions = {
            number: PartitionMetadata(number, one.leader, one.leader_epoch, one.replicas, one.isr)
            for number, one in topic.partitions.items()
        }
        return TopicMetadata(name, topic.topic_id, {**self.topic_defaults, **topic.configs}, partitions)


def _check(changes: Mapping[str, str | None], known: Mapping[str, str]) -> None:
    for name, value in changes.items():
        if name not in known:
            raise BrokersRefusedError(f"unknown config {name}")
        if name in READ_ONLY:
            raise BrokersRefusedError(f"{name} cannot be changed while brokers run")
        if value is not None and known[name].lstrip("-").isdigit() and not value.lstrip("-").isdigit():
            raise BrokersRefusedError(f"{name} is {value}: not a number")


def _check_switch(before: Mapping[str, str], after: Mapping[str, str], defaults: Mapping[str, str]) -> None:
    """Remote storage goes off only with all that is remote, and local retention is within the total while it is on."""
    was_on = before.get("remote.storage.enable") == "true"
    is_deleting = after.get("remote.log.delete.on.disable") == "true"
    if was_on and after.get("remote.storage.enable") != "true" and not is_deleting:
        raise BrokersRefusedError("it is invalid to disable remote storage without deleting remote data")
    for unit in ("ms", "bytes") if after.get("remote.storage.enable") == "true" else ():
        configs = {**defaults, **after}
        local, total = int(configs[f"local.retention.{unit}"]), int(configs[f"retention.{unit}"])
        if total >= 0 and (local > total or local == _UNLIMITED):
            raise BrokersRefusedError(f"local.retention.{unit} is {local}, retention.{unit} is {total}")


def _changed(before: Mapping[str, str], changes: Mapping[str, str | None]) -> dict[str, str]:
    return {name: value for name, value in {**before, **changes}.items() if value is not None}
