"""The product, put together as `wiring` does, with every contract behind a scheduling point.

SQL adapters, layout, marker check, services and tasks are the product's. Model adapters take the place of log
directories, cluster metadata, the object store and the quota ledger.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache, partial
from types import SimpleNamespace
from typing import Any, Final
from unittest.mock import patch

from include.tiering.app import App
from include.tiering.audit.sql_removals import SqlRemovalStore
from include.tiering.audit.store import SqlAuditedMetadata, SqlAuditStore
from include.tiering.configs.sql_configs import SqlConfigStore
from include.tiering.database.store_identity import StoreIdentities
from include.tiering.errors import (
    ClusterMetadataError,
    MetadataUnavailableError,
    QuotaExceededError,
    SourceUnreadableError,
)
from include.tiering.expiration.store import SqlDeletionStore
from include.tiering.model.ownership import RaisedBy, StoreMarker
from include.tiering.model.segments import TopicIdPartition
from include.tiering.operations import set_up
from include.tiering.quotas.topic_quotas import Admission
from include.tiering.remote_storage.layouts.aiven import AivenLayout
from include.tiering.remote_storage.layouts.contract import SegmentLayout
from include.tiering.remote_storage.layouts.local_tiered_storage import LocalTieredStorageLayout
from include.tiering.remote_storage.location import form_of
from include.tiering.remote_storage.orphan_objects import StoredOrphans
from include.tiering.remote_storage.segment_storage import SegmentStorage
from include.tiering.runs.store import SqlWorkStore
from include.tiering.segments.sql import SqlRemoteLogMetadata
from include.tiering.segments.sql_failed_copies import SqlFailedCopies
from include.tiering.segments.sql_topics import SqlTopicDeletions, SqlTopicRegistry
from include.tiering.settings import TieringSettings, load_settings
from include.tiering.telemetry.metrics import ignore
from tests.doubles.fake_app import put
from tests.doubles.partial import Partial
from tests.doubles.plain_evaluator import PlainEvaluator
from tests.simulation.kernel.scheduler import Process, Verdict
from tests.simulation.world.contracts import (
    AUDITS,
    DELETIONS,
    FAILED_COPIES,
    GENERATIONS,
    METADATA,
    OPENED,
    READ,
    REGISTRY,
    REMOVALS,
    SEGMENT_FACTS,
    SELECTED,
    WORK,
    WRITE,
)
from tests.simulation.world.database import Database
from tests.simulation.world.handover_parts import handover_parts
from tests.simulation.world.listing import ModelListing
from tests.simulation.world.log_source import ClusterMetadataView, ModelSource
from tests.simulation.world.object_store import ModelStore, perform
from tests.simulation.world.places import Held, StoreSettings
from tests.simulation.world.quotas import ModelQuotas
from tests.simulation.world.records import Cached, Memory
from tests.simulation.world.sides import CLUSTER_ID

MIN_BYTES: Final = 60
TOTAL_MAX_BYTES: Final = 70
MOST_MISSING: Final = 1
"""So many segments of a partition are believed to be lost singly."""
FOREIGN_MARKER: Final = StoreMarker(CLUSTER_ID, "another-store", 1)


class Proxy:
    """A contract whose calls are scheduling points. Methods that `kinds` does not name are passed on as they are."""

    def __init__(self, call: "CallMaker", name: str, target: object, kinds: Mapping[str, str], **parts: object) -> None:
        """`parts` are attributes of the contract that have calls of their own."""
        self.__dict__.update(parts)
        self._call = call
        self._name = name
        self._target = target
        self._kinds = kinds

    def __getattr__(self, method: str) -> Any:
        found = getattr(self._target, method)
        kind = self._kinds.get(method)
        if kind is not None:
            found = self._call(f"{self._name}.{method}", kind, found)
        self.__dict__[method] = found
        return found


CallMaker = Callable[[str, str, Callable[..., Any]], Callable[..., Any]]


class _OpenContext:
    """`open_segment`: opening it is one point, checks of what is open are others."""

    def __init__(self, calls: CallMaker, context: Any) -> None:
        self._calls = calls
        self._context = context

    def __enter__(self) -> Proxy:
        opened = self._calls("source.open_segment", "source", self._context.__enter__)()
        return Proxy(self._calls, "opened", opened, OPENED)

    def __exit__(self, *error: Any) -> Any:
        return self._context.__exit__(*error)


class _Source:
    def __init__(self, calls: CallMaker, source: ModelSource) -> None:
        self._calls = calls
        self._source = source
        self.scan = calls("source.scan", "source", source.scan)
        self.replica = calls("source.replica", "source", source.replica)
        self.size_doubts = source.size_doubts
        self.leading_compacted = source.leading_compacted
        self.find_segments = source.find_segments
        self.leader_epochs = source.leader_epochs

    def open_segment(self, *where: Any, go_on: Callable[[], object]) -> _OpenContext:
        return _OpenContext(self._calls, self._source.open_segment(*where))


class _TopicQuotas:
    """Refuses now and then."""

    def __init__(self, world: Any, process: Process) -> None:
        self._world = world
        self._process = process

    def admit(self, broker_id: int, topic: str, *, size_bytes: int, records: int) -> Admission:
        if self._process.scheduler.point(self._process, "topic_quotas.admit", "admit") is not Verdict.OK:
            self._world.note(self._process.name, "topic_quotas.admit", topic, "refused")
            raise QuotaExceededError(broker_id, topic, topic_rate=2, topic_threshold=1, total_rate=2, total_threshold=1)
        return Admission(broker_id, topic, size_bytes, records, metered=False)

    def accepted(self, admission: Admission) -> None: ...

    def failed(self, admission: Admission) -> None: ...


def _not_kept(_progress: object) -> None:
    """Outside of a pool nobody decides by progress, and it is the dearest statement of all."""


def error_of(label: str) -> Exception:
    """What an adapter would say that met this fault."""
    if label.startswith(("source.", "opened.")):
        return SourceUnreadableError(label, "input/output error")
    if label.startswith("cluster_metadata."):
        return ClusterMetadataError(f"{label}: cannot be read")
    return MetadataUnavailableError(f"{label}: database is locked")


class _MigratedMetadata(SqlRemoteLogMetadata):
    """Over a database that always has the newest schema."""

    def is_ready(self, partition: TopicIdPartition) -> bool:
        return True


def deploy(world: Any, process: Process) -> App:
    """An `App` in this process of the world."""
    db: Database = process.side.db
    scheduler = process.scheduler

    memory: Memory = process.side.memory

    def calls(label: str, kind: str, target: Callable[..., Any]) -> Callable[..., Any]:
        is_sql = kind == WRITE
        target = memory.over(label, target)
        if label == "work.report_progress" and not (world.tempers.keeps_progress or world.tempers.has_pools):
            return _not_kept

        def read(*args: Any, **kwargs: Any) -> Any:
            result = target(*args, **kwargs)
            world.after_call(process, label, args, kwargs, result)
            return result

        if kind == READ and not world.tempers.reads_are_points:
            return read

        def call(*args: Any, **kwargs: Any) -> Any:
            world.before_call(process, label)

            def effect() -> Any:
                result = target(*args, **kwargs)
                world.after_call(process, label, args, kwargs, result)
                return result

            def half() -> None:
                if is_sql:
                    db.fuse = world.choices.number(6)
                    try:
                        effect()
                    finally:
                        db.fuse = None
                        world.after_fault(process, label)

            detail = world.shown(args, kwargs) if world.tracing else ""
            return perform(scheduler, process, world, label, detail, kind, effect, error_of, half)

        return call

    def now_ms(_connection: object) -> int:
        return scheduler.database_ms

    cluster_metadata = ClusterMetadataView(world.cluster, world.cluster_metadata)
    where: StoreSettings = world.places.settings
    settings = _settings(where)
    model_store = ModelStore(Held(world.places, process, where.url), scheduler, process, world, url=where.url)
    layout = _layout(settings)
    store = SegmentStorage(model_store, layout, random_bytes=world.choices.random_bytes)

    def observe(step: Any, partition: Any, offset: int) -> None:
        process.last_step = str(step)
        world.step_reached(process, step, partition, offset)
        perform(scheduler, process, world, f"step {step}", f"{partition} {offset}", "step", lambda: None, error_of)

    orphans = StoredOrphans(model_store, layout, lambda: app.ownership.require())
    migrated = _MigratedMetadata(db.engine, CLUSTER_ID, now_ms=now_ms)
    metadata, selected = Cached(memory, "metadata", migrated), Cached(memory, "selected", migrated.selected)
    app = App(settings, clock=process, random_bytes=world.choices.random_bytes, observe=observe)
    put(
        app,
        engine=db.engine,
        cluster_id=CLUSTER_ID,
        cluster_metadata=cluster_metadata,
        seen_cluster_metadata=SimpleNamespace(record=lambda: None),
        source=_Source(calls, ModelSource(world.cluster, cluster_metadata, world.cluster_metadata)),
        unguarded_storage=store,
        generations=Proxy(calls, "generations", StoreIdentities(db.engine, CLUSTER_ID, now_ms=now_ms), GENERATIONS),
        raised_by=lambda: RaisedBy(process.name, str(process.side), scheduler.now_ms),
        object_listing=ModelListing(model_store),
        orphans=orphans,
        metadata=Proxy(calls, "metadata", metadata, METADATA, selected=Proxy(calls, "selected", selected, SELECTED)),
        registry=Proxy(calls, "registry", SqlTopicRegistry(db.engine, CLUSTER_ID, now_ms=now_ms), REGISTRY),
        failed_copies=Proxy(
            calls, "failed_copies", SqlFailedCopies(db.engine, CLUSTER_ID, now_ms=now_ms), FAILED_COPIES
        ),
        work=Proxy(calls, "work", SqlWorkStore(db.engine, CLUSTER_ID, now_ms=now_ms), WORK),
        deletions=Proxy(calls, "deletions", SqlDeletionStore(db.engine, CLUSTER_ID, now_ms=now_ms), DELETIONS),
        audits=Proxy(calls, "audits", SqlAuditStore(db.engine, CLUSTER_ID, now_ms=now_ms), AUDITS),
        removals=Proxy(calls, "removals", SqlRemovalStore(db.engine, CLUSTER_ID, now_ms=now_ms), REMOVALS),
        audited_metadata=Proxy(
            calls, "audited_metadata", SqlAuditedMetadata(db.engine, CLUSTER_ID, now_ms=now_ms), SEGMENT_FACTS
        ),
        segment_evaluator=lambda _results_dir=None: PlainEvaluator(),
        configs=Cached(memory, "configs", SqlConfigStore(db.engine, CLUSTER_ID, now_ms=now_ms)),
        topic_deletions=Cached(memory, "topic_deletions", SqlTopicDeletions(db.engine, CLUSTER_ID, now_ms=now_ms)),
        quotas=ModelQuotas(world, process),
        topic_quotas=_TopicQuotas(world, process),
        metrics_writer=SimpleNamespace(recorder=_NoMetrics(), close=ignore),
    )
    if world.tempers.publishes:
        put(app, **handover_parts(world, process, app, partial(Proxy, calls), observe))
    return app


@contextmanager
def set_up_in_memory() -> Iterator[None]:
    """The database has the newest schema, and log dirs are a model."""
    with (
        patch.object(set_up, "upgrade", lambda _engine: None),
        patch.object(set_up, "identify", lambda _log_dir: SimpleNamespace(cluster_id=CLUSTER_ID)),
    ):
        yield


class _NoMetrics(Partial):
    """Records nothing, and asks no clock: metrics decide nothing."""

    def __getattr__(self, _name: str) -> Callable[..., None]:
        return ignore


def _layout(settings: TieringSettings) -> SegmentLayout:
    if settings.remote_storage.layout == LocalTieredStorageLayout.name:
        return LocalTieredStorageLayout()
    return AivenLayout(form_of(settings.remote_storage))


@cache
def _settings(where: StoreSettings) -> TieringSettings:
    """With a log dir, as services ask whether there is one; nobody opens it."""
    return load_settings(
        overrides={
            "topics.include": ["*"],
            "log_dirs": [{"broker_id": 1, "path": "/nowhere"}],
            "remote_storage.url": where.url,
            "remote_storage.key_prefix": where.key_prefix,
            "remote_storage.layout": where.layout,
            "tiering.expiration.min.bytes": MIN_BYTES,
            "tiering.expiration.total.max.bytes": TOTAL_MAX_BYTES,
            "tiering.verify.max.missing.segments": MOST_MISSING,
            "tiering.tombstone.ms": 172_800_000,
            "tiering.copier.max.transfers": 3,
            # Measures change nothing, and their results are recorded in order, by the thread that asked for them.
            "tiering.read.max.segments": 1,
        },
        environ={},
    )
