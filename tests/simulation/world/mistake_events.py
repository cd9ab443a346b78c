"""Mistakes that people make: a disk that is not mounted, `migrate` at that moment, settings of another place, a copy of
the database that goes on beside it, a topic made again under its name, a clock that is wrong, a retention that is
mended while work is paused."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

from include.tiering.configs.config_store import ConfigEntity, EntityType
from include.tiering.model.segments import RemoteLogSegmentId, Uuid, Verdict
from include.tiering.remote_storage.store_ownership import MARKER_KEY, marker_from_bytes, marker_to_bytes
from tests.simulation.invariants.rows import DELETING, FINISHED
from tests.simulation.kernel.choices import Menu
from tests.simulation.kernel.scheduler import Process
from tests.simulation.world.database import another_database, database
from tests.simulation.world.deployment import MIN_BYTES
from tests.simulation.world.event_source import EventSource
from tests.simulation.world.operator_events import take_over
from tests.simulation.world.places import StoreSettings
from tests.simulation.world.runs import Runs
from tests.simulation.world.sides import Side
from tests.simulation.world.world import World

_HOUR_MS: Final = 60 * 60 * 1000
_OFF_MS: Final = Menu(
    (400 * 24 * _HOUR_MS, 35), (50 * _HOUR_MS, 20), (4 * _HOUR_MS, 15), (-50 * _HOUR_MS, 15), (-400 * 24 * _HOUR_MS, 15)
)
_SHORT_MS: Final = Menu((0, 50), (5_000, 50))
_MENDED_MS: Final = Menu((None, 60), (400 * 24 * _HOUR_MS, 40))
_MONTH_MS: Final = 30 * 24 * _HOUR_MS
_FAR_AHEAD_MS: Final = 400 * 24 * _HOUR_MS
_OLD_IS_DUE_MS: Final = 50 * _HOUR_MS
"""What failed and was copied again is held no longer than this."""
_RECORDS: Final = 8
_HIDDEN_STEPS: Final = 60
_HUGE_BYTES: Final = 1 << 40
_ABOUT_TO_DELETE: Final = ("quota.take request", "clock.sleep", "wait")


class MistakeEvents(EventSource):
    """Of one world."""

    def __init__(self, world: World, runs: Runs) -> None:
        super().__init__(world, runs)
        first = marker_from_bytes(world.store.objects[MARKER_KEY])
        self._old_marker = marker_to_bytes(replace(first, token=str(Uuid(b"of another time!"))))
        """Of this store, and of a time that no database is of."""
        self._mending: list[Callable[[], None]] = []
        self._is_held = False

    def events(self) -> tuple[Callable[[], None], ...]:
        """All of them."""
        return (
            self.store_goes_away,
            self.store_comes_back,
            self.store_hides,
            self.failure_and_store_hides,
            self.new_copy_is_lost,
            self.failed_copy_is_replaced_and_lost,
            self.migrates,
            self.settings_go_wrong,
            self.settings_are_mended,
            self.database_is_copied,
            self.copy_copies,
            self.copy_expires,
            self.copy_is_told_to_expire,
            self.copy_is_switched_off,
            self.takes_over,
            self.topic_is_made_again,
            self.metadata_goes_away,
            self.clock_goes_wrong,
            self.clock_is_mended,
            self.retention_is_mended_in_a_pause,
            self.deletion_is_paused,
            self.file_is_extended,
            self.clock_jumps_before_a_run,
            self.copiers_die_under_a_clock_that_is_ahead,
            self.all_retentions_are_shortened,
            self.store_goes_away_from_a_copy,
        )

    # Where the store is.

    def store_goes_away(self) -> None:
        """Its disk is not mounted, its name leads elsewhere. What is there instead is empty, or has an old marker."""
        places = self._world.places
        if places.instead is None and self._world.watch.rows.known:
            is_old = self._choices.number(4) == 3
            places.goes_away(self._old_marker if is_old else None)
            self._tell("the store goes away", "", "with an old marker in its place" if is_old else "nothing is there")

    def store_goes_away_from_a_copy(self) -> None:
        """Once a copier has begun to send the next segment, and has read the marker."""
        world = self._world

        def comes(process: Process, label: str) -> None:
            if label == "store.upload" and process.name.startswith("copier"):
                world.at_call = lambda *_: None
                self.store_goes_away()

        world.at_call = comes
        self._runs.start_copy_run()

    def store_comes_back(self) -> None:
        places = self._world.places
        if places.instead is not None and places.may_come_back():
            places.comes_back()
            self._tell("the store comes back", "")

    def store_hides(self) -> None:
        """Answers deny for a while what is there: all of it, or one segment."""
        store = self._world.store
        since = store.hides_all_since
        if since is not None and self._world.scheduler.steps < since + _HIDDEN_STEPS:
            return
        if store.hidden:
            store.show_all(self._world.scheduler.steps)
            self._tell("what was hidden is seen again", "")
            return
        keys = [key for key in store.objects if key != MARKER_KEY]
        if not keys:
            return
        is_one = self._choices.number(3) == 2
        store.hides_all_since = None if is_one else self._world.scheduler.steps
        one = keys[self._choices.number(len(keys))].rpartition(".")[0] if is_one else ""
        store.hidden = frozenset(key for key in keys if key.startswith(one))
        self._tell("one segment is hidden" if is_one else "the store hides all it has", "", one)

    def failure_and_store_hides(self) -> None:
        """The evaluation of one segment is wrong, and all are hidden when it is to be copied again."""
        world = self._world
        there = [
            row
            for row in world.watch.rows.known.values()
            if row.state == FINISHED and row.verdict != "failed" and world.watch.rows.is_right(row)
        ]
        if len(there) > 1:
            failed = there.pop(self._choices.number(len(there)))
            world.watch.rotten.add(failed.segment_id)
            for row, verdict in ((failed, Verdict.FAILED), *((one, Verdict.PASSED) for one in there)):
                segment_id = RemoteLogSegmentId(row.topic_id_partition, Uuid.parse(row.segment_id))
                world.admin_metadata.record_verdict(segment_id, verdict, detail="seen by a verification")
            world.store.hidden = frozenset(key for key in world.store.objects if key != MARKER_KEY)
            world.store.hides_all_since = world.scheduler.steps
            self._tell("a segment fails, and the store hides all it has", failed.topic_id_partition)
            self._runs.start_copy_run()

    def new_copy_is_lost(self) -> None:
        """Of a segment that failed, while the old one is held; or just when the old one is due."""
        world = self._world
        rows = world.watch.rows.known
        held = [row.superseded_by for row in rows.values() if row.superseded_by and row.state == DELETING]
        there = [one for one in held if one in rows and rows[one].state == FINISHED]
        if there:
            row = rows[there[self._choices.number(len(there))]]
            world.watch.rotten.add(row.segment_id)
            world.store.objects.pop(row.key("log"), None)
            self._tell("a new copy is lost", row.topic_id_partition, f"{row.start_offset}..{row.end_offset}")
            if self._choices.number(2) == 1:
                world.scheduler.now_ms += _OLD_IS_DUE_MS
                self._runs.start_expire_run()

    def failed_copy_is_replaced_and_lost(self) -> None:
        """The evaluation of one segment is wrong, it is copied again, and that copy is lost as soon as it is there."""
        world = self._world
        there = [
            row for row in world.watch.rows.known.values() if row.state == FINISHED and row.verdict != Verdict.FAILED
        ]
        if not there:
            return
        failed = there[self._choices.number(len(there))]
        world.watch.rotten.add(failed.segment_id)
        segment_id = RemoteLogSegmentId(failed.topic_id_partition, Uuid.parse(failed.segment_id))
        world.admin_metadata.record_verdict(segment_id, Verdict.FAILED, detail="seen by a verification")
        self._tell("a segment fails", failed.topic_id_partition, f"{failed.start_offset}..{failed.end_offset}")

        def comes(_process: Process, _label: str) -> None:
            row = world.watch.rows.known.get(failed.segment_id)
            if row is not None and row.superseded_by:
                world.at_call = lambda *_: None
                self.new_copy_is_lost()

        world.at_call = comes
        self._runs.start_copy_run()

    def migrates(self) -> None:
        """As after each update, with whatever settings there are. As long as there is no segment it may set up
        anywhere: that is no mistake."""
        if not self._world.alive("migrator") and self._world.watch.rows.known:
            self._world.start("migrator", lambda app, _process: app.set_up.migrate())
            self._tell("migrate is run", "")

    def settings_go_wrong(self) -> None:
        """Another URL, key prefix or layout, for all that starts from now on."""
        places = self._world.places
        if places.settings != places.right:
            return
        url = places.right.url
        wrong = [StoreSettings(f"{url}-of-another"), StoreSettings(url, key_prefix="tiered-")]
        if places.is_directory:
            wrong.append(StoreSettings(url, layout="local_tiered_storage"))
        places.settings = wrong[self._choices.number(len(wrong))]
        self._tell("settings name another place", "", str(places.settings))

    def settings_are_mended(self) -> None:
        places = self._world.places
        if places.settings != places.right:
            places.settings = places.right
            self._tell("settings name the store again", "")

    # A database beside the original.

    def database_is_copied(self) -> None:
        """A backup is restored elsewhere, with the same settings."""
        world = self._world
        if world.other is None:
            copied = next(one for one in (database(), another_database()) if one is not world.db)
            copied.reset()
            copied.restore(world.db.copy())
            world.other = Side("a copy of the database", copied, world.scheduler)
            world.watch.ownership.split()
            self._tell("a copy of the database is put beside it", "")

    def copy_copies(self) -> None:
        if self._world.other is not None:
            self._runs.start_copy_run(self._world.other)

    def copy_expires(self) -> None:
        if self._world.other is not None:
            self._runs.start_expire_run(self._world.other)

    def copy_is_told_to_expire(self) -> None:
        """It is for tests, thinks whoever does it."""
        other = self._world.other
        if other is not None:
            entity = ConfigEntity(EntityType.TOPICS, "orders")
            other.configs.alter(entity, {"retention.ms": "0", "retention.bytes": None}, author="operator")
            self._tell("retention is changed in the copy of the database", "orders", "to 0")

    def copy_is_switched_off(self) -> None:
        world, other = self._world, self._world.other
        if other is not None:
            for process in world.alive(side=other):
                world.scheduler.kill(process)
            world.other = None
            self._runs.forget(other)
            world.watch.ownership.joined()
            self._tell("the other database is switched off", str(other))

    def takes_over(self) -> None:
        """A person lets the rightful database, or the other one, go on with the store."""
        world = self._world
        side = world.side if world.watch.ownership.is_behind(world.side) or world.other is None else world.other
        if not world.alive("taker") and world.is_bucket_ours and world.watch.ownership.is_behind(side):
            self.take_over(side)

    def take_over(self, side: Side) -> None:
        """After its own audit, and yes to its question."""
        self._world.start("taker", take_over, side)
        self._tell("a person takes the store over", str(side))

    # Names, the clock, retention.

    def topic_is_made_again(self) -> None:
        """Deleted, and created under its name, with records of its own."""
        cluster = self._world.cluster
        topics = list(cluster.names)
        if not topics or len(cluster.removed) > 2:
            return
        topic_id = topics[self._choices.number(len(topics))]
        name = cluster.names[topic_id]
        cluster.delete_topic(topic_id)
        self._runs.create_topic(name)
        for log in [one for partition, one in cluster.logs.items() if partition.topic == name]:
            log.produce(_RECORDS)
            log.replicate()
            for replica in log.replicas.values():
                log.checkpoint(replica)
        cluster.changed()
        self._tell("a topic is made again", name)

    def metadata_goes_away(self) -> None:
        """Log directories are not mounted, brokers do not answer; or again they are, and do."""
        cluster_metadata = self._world.cluster_metadata
        cluster_metadata.is_away = not cluster_metadata.is_away
        self._world.cluster.changed()
        self._tell("nobody tells about topics" if cluster_metadata.is_away else "topics can be asked about again", "")

    def clock_goes_wrong(self) -> None:
        """That of the database's host, for a while."""
        scheduler = self._world.scheduler
        if not scheduler.database_ahead_ms:
            self._put_the_clock_off(self._choices.pick(_OFF_MS))

    def clock_jumps_before_a_run(self) -> None:
        """Topics keep a month, by which nothing is old; a host comes up with a clock that is a year ahead, and the next
        run of expiration begins."""
        scheduler = self._world.scheduler
        if not scheduler.database_ahead_ms:
            self._set(self._topics(), _MONTH_MS)
            self._put_the_clock_off(_FAR_AHEAD_MS)
            self._runs.start_expire_run()

    def copiers_die_under_a_clock_that_is_ahead(self) -> None:
        """At first a copy run begins with the clock far ahead. The next time its batches are killed and the clock is
        set right, so that their leases end further in the future than a lease may last."""
        world = self._world
        if not world.scheduler.database_ahead_ms:
            self._put_the_clock_off(_FAR_AHEAD_MS)
            self._runs.start_copy_run()
            return
        copiers = world.alive("copier")
        for process in copiers:
            self._tell("a process is killed", process.name)
            world.scheduler.kill(process)
        if copiers:
            self.clock_is_mended()

    def _put_the_clock_off(self, off_ms: Any) -> None:
        self._world.scheduler.database_ahead_ms = off_ms
        self._tell("the database's clock goes wrong", "", f"by {off_ms // _HOUR_MS} hours")

    def clock_is_mended(self) -> None:
        """And what it dated while it was ahead is told about, as the refusals say."""
        scheduler = self._world.scheduler
        if scheduler.database_ahead_ms:
            scheduler.furthest_ms = max(scheduler.furthest_ms, scheduler.database_ms)
            scheduler.database_ahead_ms = 0
            self._tell("the database's clock is right again", "")
        if scheduler.furthest_ms > scheduler.now_ms:
            until = {"tiering.clock.ignored.until.ms": str(scheduler.furthest_ms)}
            self._world.admin_configs.alter(ConfigEntity(EntityType.BROKERS), until, author="operator")

    def retention_is_mended_in_a_pause(self) -> None:
        """A retention that is too short, a pause, the right retention, and on it goes: one of these at a time."""
        if not self._mending:
            names = self._topics()
            topic = names[self._choices.number(len(names))]
            topics = names if self._choices.number(3) == 2 else [topic]
            self._mending = [
                lambda: self._set(topics, self._choices.pick(_SHORT_MS)),
                lambda: self._pause_and_set(topics, self._choices.pick(_MENDED_MS)),
                self._resume,
            ]
        self._mending.pop(0)()

    def all_retentions_are_shortened(self) -> None:
        """So that each topic loses its first few segments: too little of one for a question."""
        watch = self._world.watch
        for topic in self._topics():
            partitions = [one for one in self._world.cluster.logs if one.topic == topic]
            there = max(partitions, key=watch.bytes_there, default=None)
            if there is None:
                continue
            goes = 0
            for row in sorted(watch.live_rows(there), key=lambda one: one.start_offset):
                if row.state == FINISHED and goes + row.size_bytes <= MIN_BYTES:
                    goes += row.size_bytes
            self._set([topic], None, watch.bytes_there(there) - goes)
        self._runs.start_expire_run()

    def deletion_is_paused(self) -> None:
        """Somebody sees a batch delete, pauses it and mends the retention; then it may go on."""
        if self._is_held:
            self._is_held = False
            self._resume()
        elif any(task.label.startswith(_ABOUT_TO_DELETE) for one in self._world.alive("deleter") for task in one.tasks):
            self._is_held = True
            self._pause_and_set(self._topics(), None)

    def file_is_extended(self) -> None:
        """A local file has the size that a damaged file system gives it."""
        log = self._log()
        if log is not None:
            replica = self._replica(log)
            file = replica.files[-1]
            file.claimed_bytes = _HUGE_BYTES
            self._world.cluster.changed()
            self._tell("a local file is longer than what it holds", log.partition, f"on {replica.broker_id}")

    def _topics(self) -> list[str]:
        return sorted({*self._world.cluster.names.values(), "orders"})

    def _set(self, topics: Sequence[str], retention_ms: Any, retention_bytes: int | None = None) -> None:
        for topic in topics:
            self._set_retention(topic, retention_ms, retention_bytes)

    def _pause_and_set(self, topics: Sequence[str], retention_ms: Any) -> None:
        self._world.admin_work.pause(None, author="operator")
        self._tell("work is paused", "all")
        self._set(topics, retention_ms)

    def _resume(self) -> None:
        for topic in sorted(self._world.admin_work.paused_topics()):
            self._world.admin_work.resume(None if topic == "*" else topic, author="operator")
        self._tell("work is resumed", "")
