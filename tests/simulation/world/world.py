"""One schedule's world: brokers, store, database, workers, and what is watched.

The scheduler asks it what may go wrong with a call and when to do something by itself; proxies tell it what was called;
it tells the invariants what changed.
"""

from collections import Counter
from collections.abc import Callable
from typing import Any

from include.tiering.app import App
from include.tiering.configs.config_store import ConfigEntity, EntityType, TopicRetention
from include.tiering.configs.pools import COPIER_POOL
from include.tiering.configs.sql_configs import SqlConfigStore, SqlPoolMirror
from include.tiering.errors import TieringError
from include.tiering.handover.store import SqlHandoverStore
from include.tiering.model.segments import TopicIdPartition, Uuid
from include.tiering.remote_storage.store_ownership import MARKER_KEY, marker_to_bytes
from include.tiering.runs.store import SqlWorkStore
from include.tiering.segments.sql import SqlRemoteLogMetadata
from include.tiering.segments.sql_topics import SqlTopicRegistry
from tests.simulation.invariants.watch import UNTYPED, Watch
from tests.simulation.kernel.choices import Choices, Menu
from tests.simulation.kernel.scheduler import Process, Scheduler, Task
from tests.simulation.world.brokers import Cluster
from tests.simulation.world.database import Database
from tests.simulation.world.deployment import FOREIGN_MARKER, deploy
from tests.simulation.world.log_source import ClusterMetadataFeed, ModelOpenSegment
from tests.simulation.world.metadata_topic import TopicState
from tests.simulation.world.object_store import StoreState, Upload
from tests.simulation.world.places import Places
from tests.simulation.world.quotas import Bucket
from tests.simulation.world.remote_managers import RemoteManagers
from tests.simulation.world.sides import CLUSTER_ID, Side, Tempers

_SKEWS: Menu = Menu((0, 60), (-4_000, 10), (4_000, 10), (90_000, 10), (-90_000, 10))
_DRIFTS: Menu = Menu((0.0, 70), (0.01, 15), (-0.01, 15))


class World:
    """Made anew for each schedule."""

    def __init__(self, choices: Choices, db: Database, *, tracing: bool, current: list[Scheduler]) -> None:
        """`current` gets its scheduler."""
        self.choices = choices
        self.tracing = tracing
        self.trace: list[tuple[int, int, str, str, str, str]] = []
        self._our_marker: bytes | None = None
        """While another one lies in the bucket."""
        self.coverage: Counter[str] = Counter()
        self.scheduler = Scheduler(choices, self)
        current.append(self.scheduler)
        self.tempers = Tempers.drawn(choices)
        self.scheduler.slow_point = self.tempers.slow_point
        self.scheduler.most_held_steps = self.tempers.focus.most_held_steps
        self.coverage[f"about: {self.tempers.focus.name}"] += 1
        self._menus = self.tempers.menus()
        self.cluster = Cluster(CLUSTER_ID, lambda: self.scheduler.now_ms)
        self.cluster_metadata = ClusterMetadataFeed(self.cluster)
        self.cluster_metadata.forgets_removals = self.tempers.forgets_removals
        self.store = StoreState(choices, confirms=self.tempers.store_confirms, lists_lag=self.tempers.lists_lag)
        self.store.damages = self.tempers.store_damages
        self.store.refuses_keys = self.tempers.store_refuses
        self.places = Places(choices, self.store, is_directory=self.tempers.store_is_directory)
        self.bucket = Bucket()
        self.topic = TopicState(self)
        self.managers = RemoteManagers(self)
        self.processes: list[Process] = []
        self.opened: dict[tuple[Process, TopicIdPartition, int], ModelOpenSegment] = {}
        self.settings_history: list[tuple[int, str, int | None, int | None]] = []
        db.reset()
        db.power_fails = self.tempers.loses_power
        self.side = Side("the database", db, self.scheduler)
        """The rightful one."""
        self.other: Side | None = None
        """A copy of it that goes on beside it, or the one that such a copy took the place of."""
        self._sides_since = 0
        """The step from which on this one is the rightful one."""
        self.watch = Watch(self)
        self.disturbances: Callable[[], None] = lambda: None
        self.at_call: Callable[[Process, str], None] = lambda *_: None
        """What an event has the world do before some call, or in the midst of an upload."""
        self._starts = 0
        deploy(self, Process(self.scheduler, "set-up", side=self.side)).set_up.migrate()

    # The rightful database, and what a person asks and changes there.

    @property
    def db(self) -> Database:
        return self.side.db

    @property
    def admin_work(self) -> SqlWorkStore:
        return self.side.work

    @property
    def admin_metadata(self) -> SqlRemoteLogMetadata:
        return self.side.metadata

    @property
    def admin_registry(self) -> SqlTopicRegistry:
        return self.side.registry

    @property
    def admin_configs(self) -> SqlConfigStore:
        return self.side.configs

    @property
    def admin_pools(self) -> SqlPoolMirror:
        return self.side.pools

    @property
    def admin_handovers(self) -> SqlHandoverStore:
        return self.side.handovers

    def change_sides(self) -> None:
        """The other database is the rightful one now."""
        assert self.other is not None
        self.side, self.other = self.other, self.side
        self._sides_since = self.scheduler.steps + 1
        self.watch.restored()
        self.watch.leases.of_another_database()
        self.old_settings_hold()
        self.happened("another database goes on with the store", str(self.side))

    def old_settings_hold(self) -> None:
        """What the rightful database has of retention."""
        values = self.admin_configs.snapshot().values
        for topic in sorted({"orders", *self.cluster.all_names.values()}):
            found = TopicRetention.of(values.get(ConfigEntity(EntityType.TOPICS, topic), {}))
            self.settings_history.append((self.scheduler.now_ms, topic, found.retention_ms, found.retention_bytes))

    def bucket_changes_hands(self) -> bool:
        """Another marker lies there, or ours again; whether it is ours."""
        objects = self.store.objects
        if self._our_marker is None:
            self._our_marker, objects[MARKER_KEY] = objects[MARKER_KEY], marker_to_bytes(FOREIGN_MARKER)
        else:
            objects[MARKER_KEY], self._our_marker = self._our_marker, None
        self.watch.sending.bucket_changed_hands(is_ours=self.is_bucket_ours)
        return self.is_bucket_ours

    @property
    def is_bucket_ours(self) -> bool:
        return self._our_marker is None

    def is_watched(self, process: Process | None) -> bool:
        """Whether it works with the rightful database, and began when that was the rightful one already."""
        if process is None or process.side is None:
            return True
        return process.side is self.side and process.began_step >= self._sides_since

    # Processes.

    def start(self, name: str, body: Callable[[App, Process], object], side: Side | None = None) -> Process:
        """A process of its own, with clocks of its own."""
        self._starts += 1
        skew: Any = self.choices.pick(_SKEWS)
        drift: Any = self.choices.pick(_DRIFTS)
        process = Process(self.scheduler, f"{name}#{self._starts}", skew_ms=skew, drift=drift, side=side or self.side)
        self.processes.append(process)

        def run() -> None:
            app = deploy(self, process)
            try:
                body(app, process)
            except TieringError as error:
                self.note(process.name, "ends", type(error).__name__, "")
                if self.tracing:
                    self.note(process.name, "because", str(error), "")

        self.scheduler.spawn(process, name, run)
        return process

    def alive(self, prefix: str = "", side: Side | None = None) -> list[Process]:
        """Of all databases, or of one."""
        return [
            one
            for one in self.processes
            if not one.dead and not one.finished and one.name.startswith(prefix) and (side is None or one.side is side)
        ]

    # What the scheduler asks.

    def verdicts(self, kind: str) -> Menu:
        return self._menus[kind]

    def disturb(self) -> None:
        self.disturbances()
        self.watch.after_event()

    def after_kill(self, process: Process) -> None:
        self.coverage[f"killed after: {process.last_step or 'nothing'}"] += 1
        if process.stage:
            self.coverage[f"killed during: {process.stage}"] += 1
        self.places.forget(process)

    def after_error(self, task: Task) -> None:
        self.watch.broken(UNTYPED, f"{task.process.name}: {task.error!r}", task.error)

    # What calls tell.

    def note(self, actor: str, what: str, detail: str, outcome: str) -> None:
        if self.tracing:
            self.trace.append((self.scheduler.steps, self.scheduler.now_ms, actor, what, detail, outcome))
        if outcome:
            self.coverage[f"{what}: {outcome}"] += 1

    def happened(self, what: str, detail: str = "") -> None:
        """An event of the world."""
        self.coverage[f"event: {what}"] += 1
        if self.tracing:
            self.trace.append((self.scheduler.steps, self.scheduler.now_ms, "world", what, detail, ""))
        for process in self.processes:
            if process.last_step and not process.dead and not process.finished:
                self.coverage[f"pair: {what} after {process.last_step}"] += 1
            if process.stage and not process.dead and not process.finished:
                self.coverage[f"pair: {what} during {process.stage}"] += 1

    def shown(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
        named = [f"{key}={_short(value)}" for key, value in kwargs.items() if key not in ("now_ms",)]
        return ", ".join([_short(value) for value in args] + named)

    def before_call(self, process: Process, label: str) -> None:
        if not self.scheduler.quiet:
            self.at_call(process, label)
        if self.is_watched(process):
            self.watch.before_call(process, label)

    def after_call(
        self, process: Process, label: str, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any
    ) -> None:
        self.watch.ownership.called(process, label, args)
        if not self.is_watched(process):
            if process.side is self.side:
                self.watch.rows_changed(None, label)
            return
        if label == "source.open_segment":
            partition = result.fingerprint and result._replica.topic_id_partition
            self.opened[process, partition, result.segment.base_offset] = result
        self.watch.after_call(process, label, args, kwargs, result)

    def after_fault(self, process: Process, label: str) -> None:
        if process.side is self.side:
            self.watch.rows_changed(process if self.is_watched(process) else None, label)

    def step_reached(self, process: Process, step: Any, partition: TopicIdPartition, offset: int) -> None:
        self.coverage[f"step: {step}"] += 1

    def object_created(self, key: str, content: bytes, process: Process | None, state: StoreState) -> None:
        if key == MARKER_KEY:
            self.watch.ownership.marker_written(process, state)
        elif state is self.store:
            self.watch.ownership.object_changes(key, process, "stores")
            if self.is_watched(process):
                self.watch.sending.object_created(key, content, process)

    def object_goes(self, key: str, process: Process, state: StoreState) -> None:
        if state is self.store:
            self.watch.ownership.object_changes(key, process, "deletes")
            self.watch.only_copy.object_goes(key, process)
            if self.is_watched(process):
                self.watch.sending.object_goes(key, process)

    def bytes_sent(self, process: Process, size_bytes: int) -> None:
        if self.is_watched(process):
            self.watch.sending.bytes_sent(process, size_bytes)

    def marker_read(self, process: Process) -> None:
        self.watch.sending.marker_read(process)
        self.watch.ownership.marker_read(process)

    def upload_begun(self, key: str, state: StoreState) -> None:
        if state is not self.store or key == MARKER_KEY:
            return
        process = self.scheduler.current_process()
        if self.is_watched(process):
            self.watch.sending.upload_begun(key)
        if not self.scheduler.quiet:
            self.at_call(process, "store.upload")

    def upload_hidden(self, key: str) -> None:
        self.watch.sending.hidden_uploads.add(key)

    def upload_aborted(self, upload: Upload) -> None:
        self.watch.sending.upload_aborted(upload)

    def bytes_granted(self, process: Process, topic: str, size_bytes: int) -> None:
        if self.is_watched(process):
            self.watch.sending.bytes_granted(process, topic, size_bytes)

    def request_granted(self, process: Process, topic: str) -> None:
        if self.is_watched(process):
            self.watch.sending.request_granted(process, topic)
            self.watch.only_copy.goes_on(process)

    def resize_pool(self, slots: int) -> None:
        """As whoever may ask Airflow sees it."""
        seen = self.admin_pools.seen().get(COPIER_POOL)
        self.admin_pools.record(COPIER_POOL, slots, seen=None if seen is None else seen.slots, author="operator")

    def topic_id(self) -> Uuid:
        return Uuid.random(self.choices.random_bytes)


def _short(value: Any) -> str:
    if isinstance(value, (list, tuple, set, frozenset)):
        shown = [_short(one) for one in value]
        inner = ", ".join(sorted(shown) if isinstance(value, (set, frozenset)) else shown)
        return f"[{inner}]" if len(inner) < 120 else f"[{len(value)}]"
    for attribute in ("remote_log_segment_id", "fence"):
        found = getattr(value, attribute, None)
        if found is not None:
            value = found
            break
    name = type(value).__name__
    if name == "RemoteLogSegmentId":
        return f"{value.topic_id_partition}:{str(value.id)[:6]}"
    if name == "Fence":
        return f"{value.topic_id_partition} {value.role} token {value.token}"
    if name == "BatchProgress":
        return "progress"
    if isinstance(value, (int, float, str, type(None), TopicIdPartition)):
        return str(value)
    planned = getattr(value, "planned", None) or getattr(value, "segment", None)
    if planned is not None:
        offset = getattr(planned, "base_offset", getattr(planned, "start_offset", ""))
        return f"{offset}: {getattr(value, 'outcome', '')}"
    return name
