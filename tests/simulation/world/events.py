"""What happens by itself: brokers crash, elect, truncate, delete and move; operators change their minds; runs begin."""

from collections.abc import Callable
from typing import Any

from include.tiering.errors import TieringError
from include.tiering.model.ids import TopicIdPartition
from include.tiering.model.topic_owner import TopicOwner
from include.tiering.quota.config_store import ConfigEntity, EntityType
from include.tiering.quota.topic_retention import TopicRetention
from include.tiering.remote_storage.marker import MARKER_KEY, marker_to_bytes
from tests.simulation.kernel.choices import Menu
from tests.simulation.kernel.scheduler import Process
from tests.simulation.world.brokers import PartitionLog, ReplicaLog
from tests.simulation.world.deployment import MARKER, SOMEBODY_ELSES
from tests.simulation.world.runs import Runs
from tests.simulation.world.world import World

_RETENTION_MS = Menu((None, 30), (60_000, 20), (20_000, 20), (300_000, 20), (0, 5))
_RETENTION_BYTES = Menu((None, 50), (150, 20), (60, 20), (400, 20), (0, 5))
_WEEKEND_MS = 49 * 60 * 60 * 1000
_QUOTAS = Menu((None, 50), (30, 20), (200, 30))


class Events:
    """Everything that may disturb the work of one world. Those that cannot happen now do nothing."""

    def __init__(self, world: World, runs: Runs) -> None:
        self._world = world
        self._runs = runs
        self._choices = world.choices
        self._backups: list[Any] = []
        tempers = world.tempers
        by_brokers, by_operators = tempers.brokers, tempers.operators
        self._menu = Menu(
            (self._runs.start_copy_run, 12),
            (self._runs.restart_a_batch, 18),
            (self._runs.start_expire_run, 22),
            (self._runs.approve, 18),
            (self._runs.delete_without_asking, 4),
            (self._a_weekend_passes, 2),
            (self._produce, 22),
            (self._checkpoint, 14),
            (self._elect, 3 * by_brokers),
            (self._elect_unclean, 4 * by_brokers),
            (self._lag, 2 * by_brokers),
            (self._local_retention, 3 * by_brokers),
            (self._delete_records_locally, 2 * by_brokers),
            (self._move, by_brokers),
            (self._roll, 2 * by_brokers),
            (self._transaction, 2 * by_brokers),
            (self._delete_topic, by_brokers),
            (self._broker_tiers, by_brokers),
            (self._corrupt, by_brokers),
            (self._facts_lag, 2 * by_brokers),
            (self._retention_changes, 5 * by_operators + 4),
            (self._quota_changes, 2 * by_operators),
            (self._pause, 4 * by_operators),
            (self._truncate, 3 * by_operators),
            (self._skip, 2 * by_operators),
            (self._forget_tombstones, by_operators),
            (self._deleted_topics_expire, by_operators),
            (self._bucket_changes_hands, by_operators),
            (self._owner_changes, 4 * by_operators + 4),
            (self._backup, by_operators),
            (self._restore, by_operators),
            (self._late_write, 10),
            (self._kill, 3 * tempers.kills),
            (self._stall, 3 * tempers.stalls),
        )

    def __call__(self) -> None:
        event: Any = self._choices.pick(self._menu)
        event()

    def begin(self) -> None:
        """Half of the schedules have a retention from the start, so that something expires early."""
        if self._choices.number(2) == 1:
            self._retention_changes()

    # Helpers.

    def _log(self) -> PartitionLog | None:
        logs = list(self._world.cluster.logs.values())
        return logs[self._choices.number(len(logs))] if logs else None

    def _replica(self, log: PartitionLog) -> ReplicaLog:
        replicas = list(log.replicas.values())
        return replicas[self._choices.number(len(replicas))]

    def _tell(self, what: str, about: object, detail: str = "") -> None:
        self._world.happened(what, f"{about} {detail}".strip())

    def _changed_facts(self) -> None:
        self._world.cluster.version += 1

    # Brokers.

    def _produce(self) -> None:
        log = self._log()
        if log is not None and log.leading is not None:
            log.produce(1 + self._choices.number(6))
            if self._choices.number(4) != 1:
                log.replicate()
            if self._choices.number(3) != 1:
                for replica in log.replicas.values():
                    log.checkpoint(replica)
            self._tell("records are produced", log.partition, f"up to {log.leading.end}")

    def _checkpoint(self) -> None:
        log = self._log()
        if log is not None:
            log.replicate()
            for replica in log.replicas.values():
                log.checkpoint(replica)
            self._tell("checkpoints are written", log.partition)

    def _elect(self) -> None:
        log = self._log()
        others = [] if log is None else [one for one in log.isr if one != log.leader]
        if log is not None and others:
            log.elect(others[self._choices.number(len(others))], clean=True)
            self._changed_facts()
            self._after_election(log, "a clean election")

    def _elect_unclean(self) -> None:
        log = self._log()
        others = [] if log is None else [one for one in log.brokers if one != log.leader]
        if log is not None and others:
            new = log.replicas[others[self._choices.number(len(others))]]
            log.truncate(new, max(new.log_start, new.end - self._choices.number(11)))
            log.elect(new.broker_id, clean=False)
            log.unclean = True
            log.produce(self._choices.number(4) * 5)
            if self._choices.number(2) == 1:
                log.checkpoint(new)
            self._changed_facts()
            self._after_election(log, "an unclean election")

    def _after_election(self, log: PartitionLog, what: str) -> None:
        """The old leader follows at once, or stays away."""
        if self._choices.number(2) == 0:
            for broker in log.brokers:
                if broker != log.leader:
                    log.follow(log.replicas[broker])
                    if broker not in log.isr:
                        log.isr.append(broker)
            log.advance_high_watermark()
        self._tell(what, log.partition, f"leader {log.leader}, epoch {log.leader_epoch}")

    def _lag(self) -> None:
        log = self._log()
        others = [] if log is None else [one for one in log.isr if one != log.leader]
        if log is not None and others:
            log.isr.remove(others[self._choices.number(len(others))])
            log.advance_high_watermark()
            self._changed_facts()
            self._tell("a follower falls behind", log.partition)

    def _local_retention(self) -> None:
        log = self._log()
        leader = None if log is None else log.leading
        if log is not None and leader is not None and len(leader.files) > 1:
            offset = leader.files[1 + self._choices.number(len(leader.files) - 1)].base_offset
            if offset <= log.high_watermark:
                for replica in log.replicas.values():
                    log.raise_log_start(replica, min(offset, replica.end))
                self._tell("the broker's retention deletes", log.partition, f"below {offset}")

    def _delete_records_locally(self) -> None:
        log = self._log()
        leader = None if log is None else log.leading
        if log is not None and leader is not None and log.high_watermark > leader.log_start:
            offset = leader.log_start + 1 + self._choices.number(log.high_watermark - leader.log_start)
            for replica in log.replicas.values():
                log.raise_log_start(replica, min(offset, replica.end))
            self._tell("kafka-delete-records", log.partition, f"below {offset}")

    def _move(self) -> None:
        log = self._log()
        if log is not None:
            replica = self._replica(log)
            replica.directory_id += "'"
            for place, file in enumerate(replica.files):
                copy = type(file)(self._world.cluster.next_inode(), file.base_offset, list(file.records))
                copy.modified = self._world.cluster.tick()
                replica.files[place] = copy
            self._tell("a replica is moved to another directory", log.partition, f"on {replica.broker_id}")

    def _roll(self) -> None:
        log = self._log()
        if log is not None:
            replica = self._replica(log)
            log.roll(replica)
            self._tell("a segment is rolled", log.partition, f"on {replica.broker_id}")

    def _transaction(self) -> None:
        log = self._log()
        if log is None or log.leading is None:
            return
        open_ones = [one for one in log.transactions if one[1] is None]
        log.produce(1)
        if open_ones:
            open_ones[0][1] = log.leading.end - 1
            self._tell("a transaction ends", log.partition)
        else:
            log.transactions.append([log.leading.end - 1, None])
            self._tell("a transaction begins", log.partition, f"at {log.leading.end - 1}")
        log.replicate()

    def _delete_topic(self) -> None:
        """Sometimes created again at once, under its name."""
        topics = list(self._world.cluster.names)
        if not topics or len(self._world.cluster.removed) > 2:
            return
        topic_id = topics[self._choices.number(len(topics))]
        name = self._world.cluster.names[topic_id]
        self._world.cluster.delete_topic(topic_id)
        self._tell("a topic is deleted", name)
        if self._choices.number(2) == 1:
            self._runs.create_topic(name)
            self._tell("a topic is created again", name)

    def _broker_tiers(self) -> None:
        topics = list(self._world.cluster.names)
        if topics:
            topic_id = topics[self._choices.number(len(topics))]
            configs = self._world.cluster.configs[topic_id]
            if configs.get("remote.storage.enable") != "true":
                configs["remote.storage.enable"] = "true"
                self._changed_facts()
                self._tell("remote.storage.enable is set", self._world.cluster.names[topic_id])

    def _corrupt(self) -> None:
        log = self._log()
        if log is not None:
            replica = self._replica(log)
            file = replica.files[self._choices.number(len(replica.files))]
            file.corrupt = True
            self._tell("a file is damaged", log.partition, f"{file.base_offset} on {replica.broker_id}")

    def _facts_lag(self) -> None:
        if self._world.facts.lags:
            self._world.facts.thaw()
            self._tell("the metadata log catches up", "")
        else:
            self._world.facts.freeze()
            self._tell("the metadata log lags", "")

    # Operators.

    def _topic(self) -> str:
        names = sorted({*self._world.cluster.names.values(), "orders"})
        return names[self._choices.number(len(names))]

    def _retention_changes(self) -> None:
        topic = self._topic()
        retention_ms: Any = self._choices.pick(_RETENTION_MS)
        retention_bytes: Any = self._choices.pick(_RETENTION_BYTES)
        entity = ConfigEntity(EntityType.TOPICS, topic)
        changes = {
            "retention.ms": None if retention_ms is None else str(retention_ms),
            "retention.bytes": None if retention_bytes is None else str(retention_bytes),
        }
        self._world.admin_configs.alter(entity, changes, author="operator")
        self._world.settings_history.append((self._world.scheduler.now_ms, topic, retention_ms, retention_bytes))
        self._tell("retention is changed", topic, f"retention.ms {retention_ms}, retention.bytes {retention_bytes}")

    def _quota_changes(self) -> None:
        rate: Any = self._choices.pick(_QUOTAS)
        self._world.bucket.set_rate(rate, self._world.scheduler.now_ms)
        self._tell("the copy quota is changed", "", f"to {rate} bytes a second")

    def _pause(self) -> None:
        if self._world.admin_work.paused_topics():
            for topic in sorted(self._world.admin_work.paused_topics()):
                self._world.admin_work.resume(None if topic == "*" else topic, author="operator")
            self._tell("work is resumed", "")
        else:
            topic = None if self._choices.number(2) else self._topic()
            self._world.admin_work.pause(topic, author="operator")
            self._tell("work is paused", topic or "all")

    def _truncate(self) -> None:
        partition = self._known_partition()
        if partition is None:
            return
        before = self._choices.number(20)

        def body(tiering: Any, process: Process) -> None:
            planned = tiering.truncation(partition, before)
            self._world.watch.truncation_decided(planned)
            tiering.delete_records(planned, author="operator")

        self._world.start("operator", lambda t, p: _typed(lambda: body(t, p)))
        self._tell("delete-records is asked for", partition, f"below {before}")

    def _skip(self) -> None:
        """What the source lost is not waited for."""
        log = self._log()
        if log is None:
            return
        partition = log.partition

        def body(tiering: Any, process: Process) -> None:
            planned = tiering.plan_skip(partition.topic, partition.partition, str(partition.topic_id))
            tiering.skip_offsets(planned, reason="lost", author="operator")

        self._world.start("operator", body)
        self._tell("skip is asked for", partition)

    def _forget_tombstones(self) -> None:
        self._world.start("operator", lambda tiering, _process: tiering.forget_tombstones())
        self._tell("old tombstones are forgotten", "")

    def _known_partition(self) -> TopicIdPartition | None:
        known = self._world.watch.partitions()
        return known[self._choices.number(len(known))] if known else None

    def _owner_changes(self) -> None:
        """Handing over, and back again."""
        partition = self._known_partition()
        if partition is None:
            return
        registry = self._world.admin_registry
        owner = registry.owner(partition.topic_id)
        swap = {TopicOwner.PLATFORM: TopicOwner.HANDING_OVER, TopicOwner.HANDING_OVER: TopicOwner.PLATFORM}
        if owner in swap:
            registry.set_owner(partition.topic_id, partition.topic, swap[owner], expected=owner, author="operator")
            self._tell("the owner is changed", partition.topic, f"to {swap[owner]}")

    def _deleted_topics_expire(self) -> None:
        entity = ConfigEntity(EntityType.BROKERS)
        value = ("keep", "expire:1d")[self._choices.number(2)]
        self._world.admin_configs.alter(entity, {"tiering.on.topic.delete": value}, author="operator")
        self._tell("tiering.on.topic.delete is changed", "", f"to {value}")

    def _bucket_changes_hands(self) -> None:
        """Somebody else's marker lies in the bucket, or ours again."""
        objects = self._world.store.objects
        ours = marker_to_bytes(MARKER)
        objects[MARKER_KEY] = marker_to_bytes(SOMEBODY_ELSES) if objects[MARKER_KEY] == ours else ours
        self._world.watch.bucket_changed_hands()
        self._tell("the bucket changes hands", "", "and is ours" if objects[MARKER_KEY] == ours else "and is not ours")

    def _backup(self) -> None:
        self._backups.append(self._world.db.copy())
        self._tell("the database is backed up", "")

    def _restore(self) -> None:
        if self._backups:
            self._world.db.restore(self._backups.pop())
            self._world.memory.forget("a restore")
            self._world.watch.restored()
            self._old_settings_hold()
            self._tell("the database is restored from a backup", "")

    def _old_settings_hold(self) -> None:
        values = self._world.admin_configs.snapshot().values
        for topic in sorted({name for _, name, _, _ in self._world.settings_history}):
            found = TopicRetention.of(values.get(ConfigEntity(EntityType.TOPICS, topic), {}))
            entry = (self._world.scheduler.now_ms, topic, found.retention_ms, found.retention_bytes)
            self._world.settings_history.append(entry)

    def _a_weekend_passes(self) -> None:
        """Hosts sleep."""
        self._world.scheduler.now_ms += _WEEKEND_MS
        self._tell("a weekend passes", "")

    # Faults that no call is under way for.

    def _late_write(self) -> None:
        if self._world.store.land_late(self._world):
            self._world.coverage["event: a late write arrives"] += 1

    def _kill(self) -> None:
        alive = self._world.alive()
        if alive:
            process = alive[self._choices.number(len(alive))]
            self._tell("a process is killed", process.name)
            self._world.scheduler.kill(process)

    def _stall(self) -> None:
        alive = self._world.alive()
        if alive:
            process = alive[self._choices.number(len(alive))]
            self._tell("a process stalls", process.name)
            self._world.scheduler.stall(process)


def _typed(body: Callable[[], None]) -> None:
    try:
        body()
    except TieringError:
        return
