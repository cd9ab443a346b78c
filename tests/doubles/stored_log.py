"""A store with a marker and some complete copies, as a database that is gone has left it, and databases beside it."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from sqlalchemy import Engine, Table, select

from include.tiering.database.engine import open_engine
from include.tiering.database.schema import metadata as schema
from include.tiering.formats import checkpoints
from include.tiering.model.leader_epochs import LeaderEpochs
from include.tiering.model.ownership import StoreMarker
from include.tiering.model.segments import RemoteLogSegmentId, RemoteLogSegmentMetadata, TopicIdPartition
from include.tiering.quotas.contract import UnlimitedBytes
from include.tiering.remote_storage.file.store import FileObjectStore
from include.tiering.remote_storage.layouts.aiven import AivenLayout
from include.tiering.remote_storage.segment_storage import SegmentStorage
from tests.doubles.segments import CLUSTER_ID
from tests.doubles.storage_segments import some_segment, some_uuid

MARKER: Final = StoreMarker(CLUSTER_ID, "store-1", 1)
OFFSETS: Final = 25
"""Of each segment."""


@dataclass(frozen=True)
class StoredLog:
    """`storage` is a file store below `root`."""

    root: Path
    storage: SegmentStorage

    @classmethod
    def at(cls, root: Path) -> "StoredLog":
        storage = SegmentStorage(FileObjectStore(root), AivenLayout())
        storage.create_marker(MARKER)
        return cls(root, storage)

    def copy(
        self,
        number: int,
        *,
        topic: str = "orders",
        partition: int = 0,
        seed: str = "",
        start_offset: int | None = None,
        epochs: dict[int, int] | None = None,
        carried: dict[int, int] | None = None,
        began_ms: int | None = None,
        topic_id_of: str | None = None,
    ) -> RemoteLogSegmentMetadata:
        """The complete copy of segment `number` of a partition. A topic's id follows from its name, or from another.
        `carried`: leader epochs that its own object says, where they are not a fixed text."""
        start = OFFSETS * number if start_offset is None else start_offset
        name = f"{topic}-{partition}-{number}-{seed}"
        metadata, data = some_segment(500 + number, seed=name, start_offset=start, topic=topic, partition=partition)
        where = TopicIdPartition(some_uuid(topic_id_of or topic), partition, topic)
        metadata = replace(
            metadata,
            remote_log_segment_id=RemoteLogSegmentId(where, metadata.remote_log_segment_id.id),
            event_timestamp_ms=metadata.event_timestamp_ms + number if began_ms is None else began_ms,
            segment_leader_epochs=LeaderEpochs.of((epochs or {0: start}).items()),
            txn_index_empty=True,
        )
        if carried is not None:
            data = replace(data, leader_epoch=checkpoints.serialize_leader_epochs(LeaderEpochs.of(carried.items())))
        self.storage.copy_log_segment(metadata, data, limiter=UnlimitedBytes(), on_sent=lambda _: None)
        return metadata

    def object_path(self, metadata: RemoteLogSegmentMetadata, suffix: str) -> Path:
        (found,) = self.root.rglob(f"*{metadata.remote_log_segment_id.id}.{suffix}")
        return found

    def objects(self) -> dict[str, bytes]:
        """Everything that is stored, the marker included."""
        files = (path for path in self.root.rglob("*") if path.is_file())
        return {path.relative_to(self.root).as_posix(): path.read_bytes() for path in files}


@contextmanager
def new_database() -> Iterator[Engine]:
    """In memory, with all tables and no row; migrations make the same ones, slowly."""
    engine = open_engine("sqlite://")
    try:
        schema.create_all(engine)
        yield engine
    finally:
        engine.dispose()


def rows_of(engine: Engine, *tables: Table, but: frozenset[str] = frozenset()) -> dict[str, list[dict[str, Any]]]:
    """Rows by table in the order of their keys, without the columns `but` (as `table.column`)."""
    found = {}
    with engine.connect() as connection:
        for table in tables:
            columns = [column for column in table.columns if f"{table.name}.{column.name}" not in but]
            query = select(*columns).order_by(*table.primary_key.columns)
            found[table.name] = [dict(row._mapping) for row in connection.execute(query)]
    return found
