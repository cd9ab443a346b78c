"""A deployment that copies in this process: a source in memory, a real file store, a real SQLite database."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from include.tiering.clock import SystemClock
from include.tiering.configs.sql_configs import SqlPoolMirror
from include.tiering.copying.check_ahead import CheckAhead
from include.tiering.copying.copy_batch import BatchLimits, BatchResult, CopyBatch
from include.tiering.copying.copy_segment import CopyStep, SegmentCopier
from include.tiering.copying.plan import CopyPlan, record_divergences
from include.tiering.copying.plan_copy import plan_copy
from include.tiering.copying.plan_replacements import record_losses
from include.tiering.database.engine import open_engine
from include.tiering.database.migrations import upgrade
from include.tiering.errors import MetadataUnavailableError
from include.tiering.kafka.cluster.cluster_metadata import UnknownClusterMetadata
from include.tiering.kafka.log_dirs.contract import ReplicaId
from include.tiering.model.segments import RemoteLogSegmentState
from include.tiering.quotas.contract import ByteLimiter, UnlimitedBytes
from include.tiering.remote_storage.contract import RemoteStorage
from include.tiering.remote_storage.location import open_storage
from include.tiering.runs.batch import BatchHeartbeat, SendGate
from include.tiering.runs.contract import BatchProgress, SegmentOutcome
from include.tiering.runs.store import SqlWorkStore
from include.tiering.segments.failed_copies import by_partition
from include.tiering.segments.sql import SqlRemoteLogMetadata
from include.tiering.segments.sql_failed_copies import SqlFailedCopies
from include.tiering.segments.sql_topics import SqlTopicRegistry
from include.tiering.segments.stored_copies import WholeCopy
from include.tiering.segments.topics import register_owners
from tests.doubles.databases import AdjustableNow
from tests.doubles.memory_source import MemorySource
from tests.doubles.quotas import SameLimiter

CLUSTER = "cluster"


class Crash(BaseException):
    """Ends the process as far as the code under test can tell."""


@dataclass
class World:
    """One deployment. `at` holds what is to happen when a step is reached, by (step, base offset)."""

    source: MemorySource
    storage: RemoteStorage
    metadata: SqlRemoteLogMetadata
    failed_copies: SqlFailedCopies
    registry: SqlTopicRegistry
    work: SqlWorkStore
    pools: SqlPoolMirror
    at: dict[tuple[CopyStep, int], Callable[[], None]]
    limiter: ByteLimiter
    store: Path
    claim: Callable[[], object] = lambda: None
    seed: int = 0

    def plan(self, run_id: str = "run") -> None:
        self.work.save_plan(run_id, self.planned(run_id).partitions)

    def planned(self, run_id: str = "run") -> CopyPlan:
        report, failed = self.source.scan(), by_partition(self.failed_copies.all())
        register_owners(report, self.registry)
        known: dict[str, Any] = {
            "metadata": self.metadata,
            "registry": self.registry,
            "cluster_metadata": UnknownClusterMetadata(),
        }
        is_whole = WholeCopy(self.storage, SameLimiter(self.limiter)).is_there
        plan = plan_copy(run_id, report, now_ms=0, failed=failed, is_whole=is_whole, **known)
        record_divergences(plan, self.metadata)
        record_losses(report, plan, failed, self.failed_copies)
        return plan

    def batch(self, run_id: str = "run", batch_id: str = "run/0", **limits: Any) -> BatchResult:
        clock = SystemClock()
        gate = SendGate(clock)
        identity = BatchProgress(run_id, batch_id, limits.get("pool"), "host", 1, "", 0, 0, 0.0, False)
        heartbeat = BatchHeartbeat(
            self.work, gate, clock, identity=identity, lease_ms=600_000, parent_alive=lambda: True
        )
        copier = SegmentCopier(
            self.source, self.storage, self.metadata, self.registry, clock, self._random_bytes, self._reached
        )
        made = BatchLimits(**{"max_seconds": 600.0, "lease_ms": 600_000, **limits})
        return CopyBatch(
            copier,
            self.work,
            SameLimiter(self.limiter),
            gate,
            heartbeat,
            clock,
            run_id=run_id,
            batch_id=batch_id,
            limits=made,
            on_copied=lambda copied: None,
            ahead=CheckAhead(self.source, clock),
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
        self.at.pop((step, base_offset), lambda: None)()

    def _random_bytes(self, size: int) -> bytes:
        self.seed += 1
        return self.seed.to_bytes(4, "big") * (size // 4)


@contextmanager
def copy_world(directory: Path) -> Iterator[World]:
    engine = open_engine(f"sqlite:///{directory}/metadata.sqlite")
    upgrade(engine)
    (directory / "remote").mkdir()
    yield World(
        MemorySource(),
        open_storage(f"file://{directory}/remote"),
        SqlRemoteLogMetadata(engine, CLUSTER),
        SqlFailedCopies(engine, CLUSTER),
        SqlTopicRegistry(engine, CLUSTER),
        # Its clock stands still: however long a step takes, leases last and batches are alive.
        SqlWorkStore(engine, CLUSTER, now_ms=AdjustableNow()),
        SqlPoolMirror(engine, CLUSTER),
        {},
        UnlimitedBytes(),
        directory / "remote",
    )
    engine.dispose()


def crash() -> None:
    raise Crash


def lose_the_answer() -> None:
    raise MetadataUnavailableError("the connection was lost after the commit")
