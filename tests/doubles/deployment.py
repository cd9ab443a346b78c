"""A deployment in this process: the stores of one cluster over one database, and batches as a job runs them."""

from collections.abc import Callable
from typing import Any

from sqlalchemy import Engine

from include.tiering.app.adapters import Stores
from include.tiering.clock import Clock, SystemClock
from include.tiering.database.transactions import NowMs, database_now_ms
from include.tiering.model.ownership import Fence, PartitionLease, TopicOwner
from include.tiering.model.segments import TopicIdPartition
from include.tiering.runs.batch import BatchHeartbeat, BatchLoop, CancellationToken, StopConditions
from include.tiering.runs.contract import BatchProgress
from include.tiering.runs.store import SqlWorkStore
from tests.doubles.segments import CLUSTER_ID

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
