"""What kinds of events have in common: whom they are about, and that they are told."""

from include.tiering.configs.config_store import ConfigEntity, EntityType
from tests.simulation.world.brokers import PartitionLog, ReplicaLog
from tests.simulation.world.runs import Runs
from tests.simulation.world.world import World


class EventSource:
    """Events of one world. Those that cannot happen now do nothing."""

    def __init__(self, world: World, runs: Runs) -> None:
        self._world = world
        self._runs = runs
        self._choices = world.choices

    def _log(self) -> PartitionLog | None:
        logs = list(self._world.cluster.logs.values())
        return logs[self._choices.number(len(logs))] if logs else None

    def _replica(self, log: PartitionLog) -> ReplicaLog:
        replicas = list(log.replicas.values())
        return replicas[self._choices.number(len(replicas))]

    def _set_retention(self, topic: str, retention_ms: int | None, retention_bytes: int | None) -> None:
        limits = {"retention.ms": retention_ms, "retention.bytes": retention_bytes}
        changes = {name: None if value is None else str(value) for name, value in limits.items()}
        self._world.admin_configs.alter(ConfigEntity(EntityType.TOPICS, topic), changes, author="operator")
        self._world.settings_history.append((self._world.scheduler.now_ms, topic, retention_ms, retention_bytes))
        self._tell("retention is changed", topic, f"retention.ms {retention_ms}, retention.bytes {retention_bytes}")

    def _tell(self, what: str, about: object, detail: str = "") -> None:
        self._world.happened(what, f"{about} {detail}".strip())
