"""The model brokers as `Brokers`: as much of it as publishing and handovers require."""

from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

from include.tiering.errors import BrokersError, BrokersRefusedError, BrokersUnavailableError, UnknownTopicError
from include.tiering.kafka.cluster.contract import (
    BrokerConfig,
    BrokerNode,
    ClusterDescription,
    ConfigSource,
    OffsetsAnswer,
    PartitionOffsets,
    TopicMetadata,
)
from include.tiering.kafka.metadata_topic.contract import METADATA_TOPIC
from include.tiering.model.segments import TopicIdPartition, Uuid
from tests.simulation.kernel.scheduler import Process
from tests.simulation.world.brokers import PartitionLog
from tests.simulation.world.metadata_topic import UNDER_WAY_MS
from tests.simulation.world.object_store import perform
from tests.simulation.world.records import size_of

TOPIC_DEFAULTS: Final[Mapping[str, str]] = {
    "cleanup.policy": "delete",
    "local.retention.bytes": "-2",
    "local.retention.ms": "-2",
    "remote.log.copy.disable": "false",
    "remote.log.delete.on.disable": "false",
    "remote.storage.enable": "false",
    "retention.bytes": "-1",
    "retention.ms": "604800000",
}
_BROKER_CONFIGS: Final[Mapping[str, str]] = {
    "log.retention.bytes": "-1",
    "log.retention.ms": "604800000",
    "log.local.retention.bytes": "-2",
    "log.local.retention.ms": "-2",
    "remote.log.storage.system.enable": "true",
    "remote.log.storage.manager.class.name": "io.aiven.kafka.tieredstorage.RemoteStorageManager",
}
_METADATA_CONFIGS: Final[Mapping[str, str]] = {
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    "retention.bytes": "-1",
}


class ModelAdmin:
    """Of one process."""

    def __init__(self, world: Any, process: Process) -> None:
        self._world = world
        self._process = process

    def cluster_id(self) -> str:
        return self._ask("cluster_id", "", lambda: str(self._world.cluster.cluster_id))

    def describe(self) -> ClusterDescription:
        def said() -> ClusterDescription:
            ids = sorted({broker for log in self._world.cluster.logs.values() for broker in log.brokers}) or [1]
            nodes = tuple(BrokerNode(broker, "localhost", 9092 + broker) for broker in ids)
            return ClusterDescription(self._world.cluster.cluster_id, nodes)

        return self._ask("describe", "", said)

    def broker_configs(self, broker_id: int) -> Mapping[str, BrokerConfig]:
        def said() -> Mapping[str, BrokerConfig]:
            return {
                name: BrokerConfig(name, value, ConfigSource.STATIC, read_only=True)
                for name, value in _BROKER_CONFIGS.items()
            }

        return self._ask("broker_configs", str(broker_id), said)

    def topics(self, names: Collection[str] | None = None) -> Mapping[str, TopicMetadata]:
        def said() -> Mapping[str, TopicMetadata]:
            found = {METADATA_TOPIC: TopicMetadata(METADATA_TOPIC, self._world.topic.id, dict(_METADATA_CONFIGS), {})}
            for topic_metadata in self._world.cluster.image().values():
                found[topic_metadata.topic] = TopicMetadata(
                    topic_metadata.topic,
                    topic_metadata.topic_id,
                    {**TOPIC_DEFAULTS, **topic_metadata.configs},
                    topic_metadata.partitions,
                )
            asked = {name: topic_metadata for name, topic_metadata in found.items() if names is None or name in names}
            self._world.watch.handing_over.topics_read(self._process, asked)
            return asked

        return self._ask("topics", "", said)

    def topic_names(self) -> Collection[str]:
        def said() -> Collection[str]:
            return [METADATA_TOPIC, *(topic_metadata.topic for topic_metadata in self._world.cluster.image().values())]

        return self._ask("topic_names", "", said)

    def topic_configs(self, topic: str) -> Mapping[str, BrokerConfig]:
        def said() -> Mapping[str, BrokerConfig]:
            own = self._configs(topic)
            self._world.watch.handing_over.configs_read(self._process, topic, own)
            return {
                **{name: BrokerConfig(name, value, ConfigSource.DEFAULT) for name, value in TOPIC_DEFAULTS.items()},
                **{name: BrokerConfig(name, value, ConfigSource.TOPIC) for name, value in own.items()},
            }

        return self._ask("topic_configs", topic, said)

    def partition_offsets(self, partitions: Collection[TopicIdPartition]) -> OffsetsAnswer:
        def said() -> OffsetsAnswer:
            if self._world.scheduler.quiet:
                self._world.managers.go_on()
                self._world.cluster.changed()
            offsets: dict[TopicIdPartition, PartitionOffsets] = {}
            refused: dict[TopicIdPartition, BrokersError] = {}
            for one in partitions:
                log = self._world.cluster.logs.get(one)
                if log is None or log.leading is None:
                    refused[one] = UnknownTopicError(f"{one}: there is no such topic")
                else:
                    offsets[one] = self._offsets(log)
                    self._world.watch.handing_over.offsets_read(self._process, one, log.leader_epoch)
            return OffsetsAnswer(offsets, refused)

        return self._ask("partition_offsets", "", said)

    def log_sizes(self, leaders: Mapping[TopicIdPartition, int]) -> Mapping[TopicIdPartition, int]:
        def said() -> Mapping[TopicIdPartition, int]:
            found = {}
            for one, broker in leaders.items():
                log = self._world.cluster.logs.get(one)
                if log is not None and (replica := log.replicas.get(broker)) is not None:
                    found[one] = sum(size_of(one, file.records) for file in replica.files)
            return found

        return self._ask("log_sizes", "", said)

    def free_bytes(self, broker_id: int) -> int | None:
        """No release of these brokers tells it."""
        return self._ask("free_bytes", str(broker_id), lambda: None)

    def alter_topic_configs(self, topic: str, changes: Mapping[str, str | None], *, dry_run: bool = False) -> None:
        def checked() -> None:
            require_valid(self._configs(topic), changes)

        asked_ms = self._world.scheduler.now_ms

        def altered() -> None:
            checked()
            if self._world.scheduler.now_ms - asked_ms > UNDER_WAY_MS:
                raise _no_answer("alter_topic_configs")
            alter(self._world, topic, changes, self._process)

        detail = ", ".join(f"{key}={'unset' if value is None else value}" for key, value in changes.items())
        if dry_run:
            self._ask("check_topic_configs", detail, checked)
        else:
            self._ask("alter_topic_configs", detail, altered, "brokers write")

    def _offsets(self, log: PartitionLog) -> PartitionOffsets:
        leader = log.leading
        assert leader is not None
        return PartitionOffsets(
            leader=log.leader,
            leader_epoch=log.leader_epoch,
            earliest=leader.log_start,
            earliest_local=max(leader.log_start, leader.files[0].base_offset),
            latest_tiered=self._world.managers.latest_tiered(log),
            last_stable_offset=log.last_stable_offset,
            high_watermark=log.high_watermark,
        )

    def _configs(self, topic: str) -> dict[str, str]:
        topic_id = topic_id_of(self._world, topic)
        if topic_id is None:
            raise UnknownTopicError(f"there is no topic {topic}")
        return dict(self._world.cluster.configs[topic_id])

    def _ask(self, what: str, detail: str, effect: Callable[[], Any], kind: str = "brokers read") -> Any:
        return perform(
            self._process.scheduler,
            self._process,
            self._world,
            f"brokers.{what}",
            detail,
            kind,
            effect,
            _no_answer,
        )


def topic_id_of(world: Any, topic: str) -> Uuid | None:
    """Of the topic that has this name now."""
    return next((topic_id for topic_id, name in world.cluster.names.items() if name == topic), None)


def alter(world: Any, topic: str, changes: Mapping[str, str | None], process: Process | None) -> None:
    """Change configs of a topic; `process` None: a person does, by hand.

    Raises:
        BrokersRefusedError: values that do not go together.
    """
    topic_id = topic_id_of(world, topic)
    assert topic_id is not None
    before = world.cluster.configs[topic_id]
    after = require_valid(before, changes)
    if after != before:
        world.watch.handing_over.altered(topic_id, topic, dict(before), after, process)
        world.cluster.configs[topic_id] = after
        world.cluster.changed()


def require_valid(before: Mapping[str, str], changes: Mapping[str, str | None]) -> dict[str, str]:
    """A topic's configs after these changes, if the controller takes them. Raises BrokersRefusedError."""
    after = {key: value for key, value in {**before, **changes}.items() if value is not None}
    configs = {**TOPIC_DEFAULTS, **after}
    was_on = before.get("remote.storage.enable") == "true"
    if was_on and configs["remote.storage.enable"] != "true" and configs["remote.log.delete.on.disable"] != "true":
        raise BrokersRefusedError("remote storage is not switched off without remote.log.delete.on.disable=true")
    for unit in ("bytes", "ms"):
        local, whole = int(configs[f"local.retention.{unit}"]), int(configs[f"retention.{unit}"])
        if whole >= 0 and (local == -1 or local > whole):
            raise BrokersRefusedError(f"local.retention.{unit}={local} exceeds retention.{unit}={whole}")
    return after


def _no_answer(label: str) -> Exception:
    return BrokersUnavailableError(f"{label}: no answer in time")
