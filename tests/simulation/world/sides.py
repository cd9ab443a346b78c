"""A database with what a person asks and changes there: the platform's own, and at times a copy of it that goes on
beside it."""

from typing import Final

from include.tiering.configs.sql_configs import SqlConfigStore, SqlPoolMirror
from include.tiering.handover.store import SqlHandoverStore
from include.tiering.model.segments import Uuid
from include.tiering.runs.store import SqlWorkStore
from include.tiering.segments.sql import SqlRemoteLogMetadata
from include.tiering.segments.sql_topics import SqlTopicRegistry
from tests.simulation.kernel.scheduler import Scheduler
from tests.simulation.world.database import Database
from tests.simulation.world.memory import Memory

CLUSTER_ID: Final = "simulated-cluster"
_FINISHED_IDS: Final = "SELECT segment_id FROM segments WHERE state = 1"


class Side:
    """One database of a world."""

    def __init__(self, name: str, db: Database, scheduler: Scheduler) -> None:
        self.name = name
        self.db = db
        self.memory = Memory(db)
        with_clock = {"now_ms": lambda _connection: scheduler.database_ms}
        self.work = SqlWorkStore(db.engine, CLUSTER_ID, **with_clock)
        self.metadata = SqlRemoteLogMetadata(db.engine, CLUSTER_ID, **with_clock)
        self.registry = SqlTopicRegistry(db.engine, CLUSTER_ID, **with_clock)
        self.configs = SqlConfigStore(db.engine, CLUSTER_ID, **with_clock)
        self.pools = SqlPoolMirror(db.engine, CLUSTER_ID, **with_clock)
        self.handovers = SqlHandoverStore(db.engine, CLUSTER_ID, **with_clock)

    def finished_ids(self) -> set[Uuid]:
        """Of the segments that it knows to be in the store."""
        return {Uuid.parse(segment_id) for (segment_id,) in self.db.rows(_FINISHED_IDS)}

    def __str__(self) -> str:
        return self.name
