"""The one place where adapters are chosen and joined: from settings to a `Tiering` that has every verb."""

import os
import secrets
import socket
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

from sqlalchemy import Engine

from include.tiering.clock import Clock, SystemClock
from include.tiering.cluster.contract import ClusterFacts
from include.tiering.cluster.metadata_log import MetadataLog
from include.tiering.cluster.unknown_facts import UnknownFacts
from include.tiering.database.engine import open_engine
from include.tiering.database.migrations import HEAD, current_revision, upgrade
from include.tiering.database.store_identity import StoreIdentities, known_clusters
from include.tiering.errors import (
    ForeignStoreError,
    MetadataUnavailableError,
    SendingStoppedError,
    SettingError,
)
from include.tiering.log_source.contract import LogSource, ScanReport
from include.tiering.log_source.log_dir.dirs import LogDir, identify
from include.tiering.log_source.log_dir.source import LogDirSource
from include.tiering.model.ids import TopicIdPartition, Uuid
from include.tiering.quota.contract import ByteLimiter, UnlimitedBytes
from include.tiering.remote_metadata.contract import PartitionSize, RemoteLogMetadata, SegmentRow, TopicRegistry
from include.tiering.remote_metadata.sql import SqlRemoteLogMetadata
from include.tiering.remote_metadata.sql_export import KeyRange, export_segments, split_segments
from include.tiering.remote_metadata.sql_topics import SqlTopicRegistry
from include.tiering.remote_storage.contract import RemoteStorage, StoreMarker
from include.tiering.remote_storage.location import open_storage
from include.tiering.remote_storage.marker import GuardedStorage
from include.tiering.reports.copy import CopyRun
from include.tiering.settings import TieringSettings, load_settings
from include.tiering.tasks.batch_heartbeat import BatchHeartbeat
from include.tiering.tasks.copy_one_segment import CopiedSegment, SegmentCopier, StepObserver
from include.tiering.tasks.copy_segments import BatchLimits, BatchResult, CopyBatch
from include.tiering.tasks.fetch_partition import FetchedSegment, fetch_partition
from include.tiering.tasks.own_topics import register_owners
from include.tiering.tasks.plan_copy import CopyPlan, plan_copy
from include.tiering.tasks.readiness import Check, run_checks
from include.tiering.tasks.send_gate import SendGate
from include.tiering.tasks.verify_segments import VerifyReport, verify_segments
from include.tiering.work.contract import BatchProgress, WorkStore
from include.tiering.work.sql import SqlWorkStore


def _ignore(*_: object) -> None:
    """For callers that do not watch."""


class Tiering:
    """All parts of one deployment, made when they are first used. Close it, or use `open_tiering`."""

    def __init__(
        self,
        settings: TieringSettings,
        *,
        clock: Clock | None = None,
        random_bytes: Callable[[int], bytes] = secrets.token_bytes,
        limiter: ByteLimiter | None = None,
        observe: StepObserver = _ignore,
    ) -> None:
        self.settings = settings
        self._clock = clock or SystemClock()
        self._random_bytes = random_bytes
        self._limiter = limiter or UnlimitedBytes()
        self._observe = observe

    def close(self) -> None:
        if "_engine" in self.__dict__:
            self._engine.dispose()

    @cached_property
    def facts(self) -> ClusterFacts:
        paths = [log_dir.path for log_dir in self.settings.log_dirs]
        return MetadataLog(paths) if MetadataLog.is_in(paths) else UnknownFacts()

    @cached_property
    def source(self) -> LogSource:
        """Raises SettingError without log dirs."""
        return LogDirSource(self._log_dirs(), self.facts, named_topics=self.settings.topics.include)

    @cached_property
    def storage(self) -> RemoteStorage:
        """Refuses every change unless the store's marker is this database's."""
        return GuardedStorage(self._bare_storage, self._identity())

    @cached_property
    def metadata(self) -> RemoteLogMetadata:
        return SqlRemoteLogMetadata(self._engine, self.cluster_id)

    @cached_property
    def registry(self) -> TopicRegistry:
        return SqlTopicRegistry(self._engine, self.cluster_id)

    @cached_property
    def work(self) -> WorkStore:
        return SqlWorkStore(self._engine, self.cluster_id)

    @cached_property
    def cluster_id(self) -> str:
        """The cluster that the database was set up for.

        Raises:
            MetadataUnavailableError: it was not set up.
        """
        known = known_clusters(self._engine)
        if len(known) != 1:
            raise MetadataUnavailableError(
                f"the database serves {len(known)} clusters instead of one: set it up with ./tiering migrate"
            )
        return known[0]

    def migrate(self) -> StoreMarker:
        """Set-up, harmless when repeated: schema at head, identity of the store, its marker.

        Raises:
            ForeignStoreError: the store belongs to another database.
            SettingError: the log dirs belong to another cluster than the database.
        """
        upgrade(self._engine)
        known = known_clusters(self._engine)
        cluster_id = self._source_cluster_id() if self.settings.log_dirs else None
        if cluster_id is None and not known:
            raise SettingError("log_dirs is empty: it says which cluster this deployment serves")
        if cluster_id is not None and known and known[0] != cluster_id:
            raise SettingError(f"log_dirs belong to cluster {cluster_id}, the database serves cluster {known[0]}")
        store_id = Uuid.random(self._random_bytes)
        identity = StoreIdentities(self._engine, cluster_id or known[0]).create(store_id)
        found = self._bare_storage.create_marker(identity)
        if found != identity:
            raise ForeignStoreError(f"the store belongs to {found}, this database is {identity}")
        return identity

    def scan(self, *, topics: Collection[str] | None = None, deep: bool = False) -> ScanReport:
        self.facts.refresh()
        return self.source.scan(topics=topics, deep=deep)

    def plan_copy(
        self,
        run_id: str,
        *,
        topics: Collection[str] | None = None,
        limit_bytes: int | None = None,
        dry_run: bool = False,
    ) -> CopyPlan:
        """Plan and, unless `dry_run`, store it. Without `topics` those of `topics.include`: none by default."""
        report = self.scan(topics=tuple(topics or self.settings.topics.include))
        if not dry_run:
            register_owners(report, self.registry)
        plan = plan_copy(
            run_id,
            report,
            metadata=self.metadata,
            registry=self.registry,
            facts=self.facts,
            now_ms=self._clock.now_ms(),
            limit_bytes=limit_bytes,
        )
        if not dry_run:
            self.work.save_plan(run_id, plan.partitions)
        return plan

    def copy_batch(
        self,
        run_id: str,
        batch_id: str,
        *,
        pool: str | None = None,
        parent_alive: Callable[[], bool] = lambda: True,
        on_copied: Callable[[CopiedSegment], None] = _ignore,
    ) -> BatchResult:
        """Run one batch of a stored plan in this process."""
        copier = self.settings.copier
        gate = SendGate(self._limiter, self._clock)
        identity = BatchProgress(run_id, batch_id, pool, socket.gethostname(), os.getpid(), "", 0, 0, 0.0, False)
        heartbeat = BatchHeartbeat(
            self.work, gate, self._clock, identity=identity, lease_ms=copier.lease_ms, parent_alive=parent_alive
        )
        return CopyBatch(
            self._segment_copier(),
            self.work,
            gate,
            heartbeat,
            self._clock,
            run_id=run_id,
            batch_id=batch_id,
            limits=BatchLimits(float(copier.batch_max_seconds), copier.lease_ms, pool),
            on_copied=on_copied,
        ).run()

    def verify(self, run_id: str | None = None) -> VerifyReport:
        """Judge what a run copied; without a run, all that has not passed."""
        # Great Expectations takes seconds to import: only those who judge wait.
        from include.tiering.quality.great_expectations_judge import GreatExpectationsJudge

        return verify_segments(
            self.metadata,
            self.storage,
            GreatExpectationsJudge(),
            run_id=run_id,
            limiter=self._limiter,
            clock=self._clock,
        )

    def copy_run(self, run_id: str) -> CopyRun:
        """What a run has done so far."""
        batches = self.work.progress(run_id)
        began_ms = min((batch.started_at_ms for batch in batches), default=0)
        ended_ms = max((batch.updated_at_ms for batch in batches), default=0)
        return CopyRun(run_id, self.work.items(run_id), (ended_ms - began_ms) / 1000)

    def sizes(self) -> Sequence[PartitionSize]:
        return self.metadata.partition_sizes()

    def segment_ranges(self, ranges: int) -> Sequence[KeyRange]:
        """At most `ranges` ranges that together hold every segment of now once."""
        return split_segments(self._engine, self.cluster_id, ranges)

    def export_segments(self, key_range: KeyRange) -> Iterator[SegmentRow]:
        """Segments of one range, in pages: memory stays flat however many there are."""
        return export_segments(self._engine, self.cluster_id, key_range)

    def fetch_partition(self, partition: TopicIdPartition, output_dir: Path) -> Iterator[FetchedSegment]:
        return fetch_partition(
            partition, output_dir, metadata=self.metadata, storage=self.storage, limiter=self._limiter
        )

    def readiness(self, *, pool: str | None = None) -> tuple[Check, ...]:
        """Schema, store, log dirs and, if one is named, the pool."""
        probes: dict[str, Callable[[], str]] = {
            "schema": self._probe_schema,
            "storage": self._probe_storage,
            "log dirs": self._probe_log_dirs,
        }
        if pool is not None:
            probes["pool"] = lambda: self._probe_pool(pool)
        return run_checks(probes)

    def _segment_copier(self) -> SegmentCopier:
        return SegmentCopier(
            self.source, self.storage, self.metadata, self.registry, self._clock, self._random_bytes, self._observe
        )

    @cached_property
    def _engine(self) -> Engine:
        return open_engine(self.settings.metadata.url.get_secret_value(), clock=self._clock)

    @cached_property
    def _bare_storage(self) -> RemoteStorage:
        remote = self.settings.remote_storage
        return open_storage(
            remote.required_url(), endpoint_url=remote.endpoint_url, region=remote.region, layout=remote.layout
        )

    def _identity(self) -> StoreMarker:
        identity = StoreIdentities(self._engine, self.cluster_id).read()
        if identity is None:
            raise MetadataUnavailableError("the database has no store identity: set it up with ./tiering migrate")
        return identity

    def _log_dirs(self) -> list[LogDir]:
        if not self.settings.log_dirs:
            raise SettingError("log_dirs is empty: name the brokers' log directories ({broker_id, path})")
        return [LogDir(log_dir.broker_id, log_dir.path) for log_dir in self.settings.log_dirs]

    def _source_cluster_id(self) -> str:
        return identify(self._log_dirs()[0]).cluster_id

    def _probe_schema(self) -> str:
        revision = current_revision(self._engine)
        if revision != HEAD:
            raise MetadataUnavailableError(f"the schema is at {revision}, this version needs {HEAD}: ./tiering migrate")
        return f"at {HEAD}, cluster {self.cluster_id}"

    def _probe_storage(self) -> str:
        self.storage.check_writable()
        return f"{self.settings.remote_storage.required_url()} is writable and ours"

    def _probe_log_dirs(self) -> str:
        identities = [identify(log_dir) for log_dir in self._log_dirs()]
        for identity in identities:
            if identity.cluster_id != self.cluster_id:
                raise SettingError(f"{identity.path} belongs to cluster {identity.cluster_id}, not {self.cluster_id}")
        return f"{len(identities)} readable"

    def _probe_pool(self, pool: str) -> str:
        slots = self.work.pool_size(pool)
        if slots == 0:
            raise SendingStoppedError(f"pool {pool} has 0 slots: that is a pause; raise it in Airflow to go on")
        return f"{pool} has {'unknown' if slots is None else slots} slots"


@contextmanager
def open_tiering(settings: TieringSettings | None = None, **parts: Any) -> Iterator[Tiering]:
    """A `Tiering` that is closed when the context ends; `parts` as for `Tiering`."""
    tiering = Tiering(settings if settings is not None else load_settings(), **parts)
    try:
        yield tiering
    finally:
        tiering.close()
