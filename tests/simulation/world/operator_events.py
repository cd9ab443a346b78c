"""What operators do at bad moments: retention, quota, pause, truncation, ownership, holes, backups, restores."""

from collections.abc import Callable
from typing import Any

from include.tiering.audit.finding import FindingKind
from include.tiering.configs.config_store import ConfigEntity, EntityType
from include.tiering.errors import TieringError
from include.tiering.model.ownership import TopicOwner
from include.tiering.model.segments import TopicIdPartition
from tests.simulation.kernel.choices import Menu
from tests.simulation.kernel.scheduler import Process
from tests.simulation.world.event_source import EventSource
from tests.simulation.world.runs import Runs
from tests.simulation.world.sides import Side
from tests.simulation.world.world import World

_RETENTION_MS = Menu((None, 30), (60_000, 20), (20_000, 20), (300_000, 20), (0, 5))
_RETENTION_BYTES = Menu((None, 50), (150, 20), (60, 20), (400, 20), (0, 5))
_CLOSE = "close"
_FEW_BYTES = Menu((60, 10), (40, 10), (100, 10), (150, 15), (_CLOSE, 55))
_MOST_EXCESS_BYTES = 80
_SLOTS = Menu((5, 30), (1, 30), (2, 20), (0, 20))
_WEEKEND_MS = 49 * 60 * 60 * 1000
_QUOTAS = Menu((None, 50), (30, 20), (200, 30))


class OperatorEvents(EventSource):
    """Of all who administer one world."""

    def __init__(self, world: World, runs: Runs) -> None:
        super().__init__(world, runs)
        self._backups: list[tuple[Side, Any, int]] = []

    def _topic(self) -> str:
        names = sorted({*self._world.cluster.names.values(), "orders"})
        return names[self._choices.number(len(names))]

    def retention_changes(self) -> None:
        topic = self._topic()
        by_size = self._world.tempers.by_size
        retention_ms: Any = None if by_size else self._choices.pick(_RETENTION_MS)
        retention_bytes: Any = self._choices.pick(_FEW_BYTES if by_size else _RETENTION_BYTES)
        if retention_bytes == _CLOSE:
            retention_bytes = self._close_to_what_is_there(topic)
        self._set_retention(topic, retention_ms, retention_bytes)

    def log_start_rises_into_a_local_segment(self) -> None:
        """Records of a segment that is not remote are deleted, all but its first ones stay in its file, and an
        expiration begins by a limit that is close to what is there without that file."""
        log = self._log()
        leader, copied = (None, 0) if log is None else (log.leading, self._world.watch.highest_copied(log.partition))
        if log is None or leader is None or self._world.cluster_metadata.lags:
            return
        cut = [file.base_offset + 1 for file in leader.files if copied < file.base_offset < log.high_watermark]
        if cut:
            offset = cut[self._choices.number(len(cut))]
            for replica in log.replicas.values():
                log.raise_log_start(replica, min(offset, replica.end))
                log.checkpoint(replica)
            self._world.watch.promises.released(log)
            self._world.cluster.changed()
            self._tell("kafka-delete-records", log.partition, f"below {offset}")
            self._expire_close_to(log.partition.topic)

    def old_leader_leads_in_stale_metadata(self) -> None:
        """The old leader has more than the new one, and the metadata say that it leads when an expiration begins, by a
        limit that is close to what is there."""
        log = self._log()
        leader = None if log is None else log.leading
        others = [] if log is None else [one for one in log.brokers if one != log.leader]
        if log is None or leader is None or not others:
            return
        self._world.cluster_metadata.freeze()
        new = log.replicas[others[self._choices.number(len(others))]]
        log.truncate(new, max(new.log_start, new.files[0].base_offset, new.end - self._choices.number(11)))
        log.elect(new.broker_id, clean=False)
        log.unclean = True
        log.produce(1)
        for replica in log.replicas.values():
            log.checkpoint(replica)
        self._world.cluster.changed()
        self._tell("a leader that the metadata do not name", log.partition, f"epoch {log.leader_epoch}")
        self._expire_close_to(log.partition.topic)

    def _expire_close_to(self, topic: str) -> None:
        self._set_retention(topic, None, self._close_to_what_is_there(topic))
        self._runs.start_expire_run()

    def _close_to_what_is_there(self, topic: str) -> int:
        """A limit at which one segment more or less decides whether something goes."""
        there = [self._world.watch.bytes_there(one) for one in self._world.watch.partitions() if one.topic == topic]
        there_bytes = there[self._choices.number(len(there))] if there else 0
        return max(0, there_bytes - self._choices.number(_MOST_EXCESS_BYTES))

    def quota_changes(self) -> None:
        rate: Any = self._choices.pick(_QUOTAS)
        self._world.bucket.set_rate(rate, self._world.scheduler.now_ms)
        self._tell("the copy quota is changed", "", f"to {rate} bytes a second")

    def pause(self) -> None:
        if self._world.admin_work.paused_topics():
            for topic in sorted(self._world.admin_work.paused_topics()):
                self._world.admin_work.resume(None if topic == "*" else topic, author="operator")
            self._tell("work is resumed", "")
        else:
            drawn = None if self._choices.number(2) else self._topic()
            self._world.admin_work.pause(drawn, author="operator")
            self._tell("work is paused", drawn or "all")

    def resize_pool(self) -> None:
        """0 slots are a pause."""
        slots: Any = self._choices.pick(_SLOTS)
        self._world.resize_pool(slots)
        self._tell("the copier pool is resized", "", f"to {slots} slots")

    def truncate(self) -> None:
        partition = self._known_partition()
        if partition is None:
            return
        before = self._choices.number(20)

        def body(app: Any, process: Process) -> None:
            planned = app.expiration.plan_truncation(partition, before)
            self._world.watch.truncation_decided(planned)
            app.expiration.delete_records(planned, author="operator")

        self._world.start("operator", lambda t, p: _typed(lambda: body(t, p)))
        self._tell("delete-records is asked for", partition, f"below {before}")

    def skip(self) -> None:
        """What the source lost is not waited for."""
        log = self._log()
        if log is None:
            return
        partition = log.partition

        def body(app: Any, process: Process) -> None:
            planned = app.copying.plan_skip(partition.topic, partition.partition, str(partition.topic_id))
            app.copying.skip_offsets(planned, reason="lost", author="operator")

        self._world.start("operator", body)
        self._tell("skip is asked for", partition)

    def forget_tombstones(self) -> None:
        self._world.start("operator", lambda app, _process: app.expiration.forget_tombstones())
        self._tell("old tombstones are forgotten", "")

    def _known_partition(self) -> TopicIdPartition | None:
        known = self._world.watch.partitions()
        return known[self._choices.number(len(known))] if known else None

    def owner_changes(self) -> None:
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

    def deleted_topics_expire(self) -> None:
        entity = ConfigEntity(EntityType.BROKERS)
        value = ("keep", "expire:1d")[self._choices.number(2)]
        self._world.admin_configs.alter(entity, {"tiering.on.topic.delete": value}, author="operator")
        self._tell("tiering.on.topic.delete is changed", "", f"to {value}")

    def bucket_changes_hands(self) -> None:
        """Somebody else's marker lies in the bucket, or ours again."""
        is_ours = self._world.bucket_changes_hands()
        self._tell("the bucket changes hands", "", "and is ours" if is_ours else "and is not ours")

    def backup(self) -> None:
        self._world.watch.ownership.backed_up()
        self._backups.append((self._world.side, self._world.db.copy(), self._world.watch.ownership.last_use))
        self._tell("the database is backed up", "")

    def restore(self) -> None:
        if self._backups:
            _, backup, last_use = self._backups.pop()
            self._world.db.restore(backup)
            self._world.watch.restored()
            self._world.watch.ownership.restored(last_use)
            self._world.old_settings_hold()
            self._tell("the database is restored from a backup", "")
            if not self._world.tempers.mistakes:
                self._world.start("taker", take_over)

    def power_fails(self) -> None:
        """At the database's host, where every worker may run, too."""
        db = self._world.db
        if db.not_on_disk:
            if self._choices.number(2) == 1:
                for process in self._world.alive():
                    self._world.scheduler.kill(process)
            db.lose_power(self._choices.number(db.not_on_disk))
            self._world.watch.power_failed()
            self._tell("the power fails", "")

    def a_weekend_passes(self) -> None:
        """Hosts sleep."""
        self._world.scheduler.now_ms += _WEEKEND_MS
        self._tell("a weekend passes", "")


def take_over(app: Any, process: Process) -> None:
    """A person lets this database go on with the store, after its own audit. Who reads there that nothing is left of
    what the database knows looks where the store is first. Each try is an audit of its own."""
    wanted = app.store_owner.plan_take_over(f"take-over-{process.name}")
    missing = {one.finding.segment_id for one in wanted.findings if one.finding.kind is FindingKind.DANGLING_REFERENCE}
    known = process.side.finished_ids()
    world: Any = process.scheduler.world
    if known and known <= missing and not world.places.is_right:
        return
    app.store_owner.take_over(wanted.found, author="operator")


def _typed(body: Callable[[], None]) -> None:
    try:
        body()
    except TieringError:
        return
