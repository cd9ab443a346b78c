"""A deployment in this process: the stores of one cluster over one database, and batches as a job runs them."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from sqlalchemy import Engine

from include.tiering.app.sql_stores import Stores
from include.tiering.clock import Clock, SystemClock
from include.tiering.copying.copy_batch import BatchLimits, BatchResult, CopyBatch
from include.tiering.copying.copy_segment import CopiedSegment, CopyStep, SegmentCopier
from include.tiering.copying.plan import CopyPlan, record_divergences
from include.tiering.copying.plan_copy import plan_copy
from include.tiering.copying.plan_replacements import record_losses
from include.tiering.copying.run_scope import RunScope
from include.tiering.database.transactions import NowMs, database_now_ms
from include.tiering.errors import MetadataUnavailableError
from include.tiering.kafka.cluster.cluster_metadata import UnknownClusterMetadata
from include.tiering.kafka.log_dirs.contract import ReplicaId
from include.tiering.model.ownership import Fence, PartitionLease, TopicOwner
from include.tiering.model.segments import RemoteLogSegmentState, TopicIdPartition
from include.tiering.quotas.contract import ByteLimiter, Quotas, UnlimitedBytes
from include.tiering.quotas.topic_quotas import NO_TOPIC_QUOTAS, TopicQuotas
from include.tiering.remote_storage.contract import RemoteStorage
from include.tiering.remote_storage.location import open_storage
from include.tiering.runs.batch import BatchHeartbeat, BatchLoop, CancellationToken, StopConditions
from include.tiering.runs.contract import BatchProgress, SegmentOutcome
from include.tiering.runs.store import SqlWorkStore
from include.tiering.segments.failed_copies import by_partition
from include.tiering.segments.stored_copies import StoreWitness, WholeCopy, whole_or_unknown
from include.tiering.segments.topics import register_owners
from tests.doubles.databases import AdjustableNow, migrated_database
from tests.doubles.memory_source import MemorySource
from tests.doubles.quotas import SameLimiter
from tests.doubles.segments import CLUSTER_ID

# A deployment in this process: the stores of one cluster over one database, and batches as a job runs them.

LEASE_MS = 600_000


class Crash(BaseException):
    """Ends the process as far as the code under test can tell: it passes every handler, as a SIGKILL does."""


def crash() -> None:
    raise Crash


class Deployment(Stores):
    """Stores over `engine`, of which leases follow `now_ms`, by default the database's clock.

    `at` holds what happens, once, when a step is reached: by the step, for copies by (step, base offset).
    """

    def __init__(self, engine: Engine, *, clock: Clock | None = None, now_ms: NowMs = database_now_ms) -> None:
        super().__init__(engine, CLUSTER_ID)
        self.clock = clock or SystemClock()
        self.work = SqlWorkStore(engine, CLUSTER_ID, now_ms=now_ms)
        self.at: dict[Any, Callable[[], object]] = {}

    def own(self, partition: TopicIdPartition, owner: TopicOwner = TopicOwner.PLATFORM) -> None:
        before = self.registry.owner(partition.topic_id)
        self.registry.set_owner(partition.topic_id, partition.topic, owner, expected=before, author="test")

    def release(self, fence: Fence) -> None:
        self.work.release(PartitionLease(run_id="", batch_id="", fence=fence, expires_at_ms=0))

    def reached(self, step: object, *_: object) -> None:
        self.at.pop(step, lambda: None)()

    def loop(
        self,
        run_id: str,
        batch_id: str,
        *,
        pool: str | None = None,
        max_seconds: float = 600.0,
        lease_ms: int = LEASE_MS,
    ) -> BatchLoop:
        """Return what every batch is constructed with: its cancellation token, heartbeat and conditions to stop."""
        cancellation = CancellationToken(self.clock)
        identity = BatchProgress(run_id, batch_id, pool, "host", 1, "", 0, 0, 0.0, False)
        heartbeat = BatchHeartbeat(
            self.work, cancellation, self.clock, identity=identity, lease_ms=lease_ms, parent_alive=lambda: True
        )
        stop = StopConditions(
            self.work, cancellation, self.clock, batch_id=batch_id, pool=pool, max_seconds=max_seconds
        )
        return BatchLoop(self.work, cancellation, heartbeat, stop, self.clock)


# A deployment that copies in this process: a source in memory, a real file store, a real SQLite database.


class World(Deployment):
    """One deployment that copies. Its clock of leases stands still: however long a step takes, leases last."""

    def __init__(
        self, engine: Engine, directory: Path, *, clock: Clock | None = None, now_ms: NowMs | None = None
    ) -> None:
        super().__init__(engine, clock=clock, now_ms=now_ms or AdjustableNow())
        self.store = directory / "remote"
        self.store.mkdir()
        self.source = MemorySource()
        self.storage: RemoteStorage = open_storage(self.store.as_uri())
        self.limiter: ByteLimiter = UnlimitedBytes()
        self.copy_quotas: Quotas | None = None
        self.claim: Callable[[], object] = lambda: None
        self.topic_quotas: TopicQuotas = NO_TOPIC_QUOTAS
        self.copied: list[CopiedSegment] = []
        self.held_back_seconds: list[float] = []
        self.limits_now: dict[str, Any] = {}
        self.seed = 0

    def plan(self, run_id: str = "run") -> None:
        self.work.save_plan(run_id, self.planned(run_id).partitions)

    def urge(self, **urgencies: float) -> None:
        """Plan the run with an urgency by topic."""
        partitions = self.planned().partitions
        urgent = [replace(one, urgency=urgencies.get(one.replica_id.topic_id_partition.topic, 0)) for one in partitions]
        self.work.save_plan("run", urgent)

    def planned(self, run_id: str = "run") -> CopyPlan:
        report, failed, storage = self.source.scan(), by_partition(self.failed_copies.all()), self.storage
        register_owners(report, self.registry)
        known: dict[str, Any] = {
            "metadata": self.metadata,
            "registry": self.registry,
            "cluster_metadata": UnknownClusterMetadata(),
        }
        whole, witness = (
            WholeCopy(self.storage, SameLimiter(self.limiter)),
            StoreWitness(self.metadata, lambda: storage),
        )
        is_whole = whole_or_unknown(whole, witness)
        plan = plan_copy(run_id, report, scope=RunScope(), now_ms=0, failed=failed, is_whole=is_whole, **known)
        record_divergences(plan, self.metadata)
        record_losses(report, plan, failed, self.failed_copies)
        return plan

    def batch(self, run_id: str = "run", batch_id: str = "run/0", **limits: Any) -> BatchResult:
        """Run one batch. What `limits_now` holds is in force from then on, while the batch runs."""
        made = BatchLimits(**{"max_seconds": 600.0, "lease_ms": LEASE_MS, **limits})
        loop = self.loop(run_id, batch_id, pool=made.pool, lease_ms=made.lease_ms)
        copier = SegmentCopier(
            self.source, self.storage, self.metadata, self.registry, self.clock, self._random_bytes, self._reached
        )
        return CopyBatch(
            copier,
            self.work,
            self.copy_quotas or SameLimiter(self.limiter, self.held_back_seconds),
            loop.cancellation,
            loop.heartbeat,
            self.clock,
            run_id=run_id,
            batch_id=batch_id,
            limits_now=lambda: replace(made, **self.limits_now),
            on_copied=self.copied.append,
            topic_quotas=self.topic_quotas,
            claim=self.claim,
        ).run()

    def offsets(self, replica_id: ReplicaId) -> list[tuple[int, int]]:
        rows = self.metadata.list_segments(replica_id.topic_id_partition)
        return [(row.metadata.start_offset, row.metadata.end_offset) for row in rows if row.metadata.is_finished]

    def states(self, replica_id: ReplicaId) -> list[RemoteLogSegmentState]:
        return [row.metadata.state for row in self.metadata.list_segments(replica_id.topic_id_partition)]

    def objects(self) -> int:
        return sum(1 for _ in self.storage.list_objects())

    def outcomes(self, run_id: str = "run") -> list[tuple[int, SegmentOutcome]]:
        return [(item.segment.base_offset, item.outcome) for item in self.work.items(run_id)]

    def _reached(self, step: CopyStep, partition: object, base_offset: int) -> None:
        self.reached((step, base_offset))

    def _random_bytes(self, size: int) -> bytes:
        self.seed += 1
        return self.seed.to_bytes(4, "big") * (size // 4)


@contextmanager
def copy_world(directory: Path) -> Iterator[World]:
    with migrated_database(directory) as engine:
        yield World(engine, directory)


def lose_the_answer() -> None:
    raise MetadataUnavailableError("the connection was lost after the commit")
