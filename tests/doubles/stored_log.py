"""Segments and logs in a store."""

import dataclasses
import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, Final

import google_crc32c
from sqlalchemy import Engine, Table, select

from include.tiering.broker_process.sample import PartitionSample, sample_of
from include.tiering.database.engine import open_engine
from include.tiering.database.schema import metadata as schema
from include.tiering.formats import checkpoints, indexes
from include.tiering.kafka.cluster.metadata_log import MetadataLog
from include.tiering.kafka.log_dirs.contract import Replica
from include.tiering.kafka.log_dirs.dirs import LogDirLocation
from include.tiering.kafka.log_dirs.source import LogDirSource
from include.tiering.model.leader_epochs import LeaderEpochs
from include.tiering.model.ownership import StoreMarker
from include.tiering.model.segments import (
    LogSegmentData,
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    TopicIdPartition,
    Uuid,
    Verdict,
)
from include.tiering.quotas.contract import Scope, UnlimitedBytes
from include.tiering.remote_storage.file.store import FileObjectStore
from include.tiering.remote_storage.layouts.aiven import AivenLayout
from include.tiering.remote_storage.layouts.aiven_form import AivenForm
from include.tiering.remote_storage.layouts.contract import SegmentLayout
from include.tiering.remote_storage.object_store import BytesSource, crc32c_of
from include.tiering.remote_storage.segment_storage import SegmentStorage
from include.tiering.segments.contract import SegmentRow
from include.tiering.units import MIB
from tests.doubles.broker_data import broker_data, expected
from tests.doubles.segments import CLUSTER_ID

# Stores that hold segments of a log.

# A store with a marker and some complete copies, as a database that is gone has left it, and databases beside it.

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


# Segments of a real broker, in a real file store: what the quality gate and the size job look at. Offsets, sizes
# and timestamps come from Kafka's own account of the partition, not from this project's readers.

PAYMENTS = "payments.v1-eu-0"


@dataclass(frozen=True)
class CopiedPartition:
    """Rows in FINISHED order. `root` is the store's directory, for a test that breaks what is in it."""

    rows: tuple[SegmentRow, ...]
    storage: SegmentStorage
    root: Path

    def object_path(self, row: SegmentRow, suffix: str) -> Path:
        (found,) = self.root.rglob(f"*{row.metadata.remote_log_segment_id.id}.{suffix}")
        return found


def copied_partition(
    root: Path, name: str = PAYMENTS, *, segments: int | None = None, layout: SegmentLayout | None = None
) -> CopiedPartition:
    """Copy the first rolled segments of one replica of the bundled `public` set into a file store below `root`."""
    storage = SegmentStorage(FileObjectStore(root), layout or AivenLayout(AivenForm(with_txn_index_empty=True)))
    rows = []
    for metadata, data in rolled_segments(name)[:segments]:
        storage.copy_log_segment(metadata, data, limiter=UnlimitedBytes(), on_sent=lambda _: None)
        finished = dataclasses.replace(metadata, state=RemoteLogSegmentState.COPY_SEGMENT_FINISHED)
        rows.append(SegmentRow(finished, Verdict.NONE, data.log_crc32c))
    return CopiedPartition(tuple(rows), storage, root)


def rolled_segments(name: str) -> list[tuple[RemoteLogSegmentMetadata, LogSegmentData]]:
    """Those of one replica of the bundled `public` set, in their order."""
    brokers = _stopped_brokers()
    broker = next(broker for broker, facts in brokers.items() if name in facts["partitions"])
    facts = brokers[broker]["partitions"][name]
    rolled = [segment for segment in facts["segments"] if not segment["active"]]
    return segments_of(broker_data("public") / "stopped" / broker / name, {**facts, "segments": rolled})


def segments_of(directory: Path, facts: Mapping[str, Any]) -> list[tuple[RemoteLogSegmentMetadata, LogSegmentData]]:
    """The segments of a replica of a broker that was stopped; the last one ends with the log."""
    topic, _, number = directory.name.rpartition("-")
    topic_id = Uuid.parse(facts["partition_metadata"].rpartition("topic_id: ")[2].strip())
    partition = TopicIdPartition(topic_id, int(number), topic)
    history = LeaderEpochs.of(tuple(entry) for entry in facts["leader_epochs"])
    return [_segment(directory, partition, history, each) for each in facts["segments"] if each["file_size"]]


@cache
def _stopped_brokers() -> dict[str, Any]:
    return dict(expected("public")["snapshots"]["stopped"])


def _segment(
    directory: Path, partition: TopicIdPartition, history: LeaderEpochs, facts: dict[str, int]
) -> tuple[RemoteLogSegmentMetadata, LogSegmentData]:
    base, end = facts["base_offset"], facts.get("end_offset", facts["last_offset"])
    stem = directory / f"{base:020d}"
    log = stem.with_suffix(".log").read_bytes()
    transactions = stem.with_suffix(".txnindex")
    data = LogSegmentData(
        log=BytesSource(log),
        log_crc32c=google_crc32c.value(log),
        offset_index=indexes.trim_offset_index(stem.with_suffix(".index").read_bytes()),
        time_index=indexes.trim_time_index(stem.with_suffix(".timeindex").read_bytes()),
        producer_snapshot=(directory / f"{end + 1:020d}.snapshot").read_bytes(),
        leader_epoch=checkpoints.serialize_leader_epochs(history.range(-1, end + 1)),
        transaction_index=transactions.read_bytes() if transactions.exists() else None,
    )
    metadata = RemoteLogSegmentMetadata(
        remote_log_segment_id=RemoteLogSegmentId(partition, some_uuid(f"{partition}:{base}")),
        start_offset=base,
        end_offset=end,
        max_timestamp_ms=facts["max_timestamp"],
        broker_id=1,
        event_timestamp_ms=1_700_000_000_000,
        segment_size_bytes=len(log),
        segment_leader_epochs=history.range(base, end + 1),
        txn_index_empty=not data.transaction_index,
    )
    return metadata, data


# Samples of partitions in the log directory of one real broker.

BROKER = "running/broker-1"
"""Of the data set `public`."""


def scanned(log_dir: Path, topic: str) -> list[Replica]:
    source = LogDirSource([LogDirLocation(None, log_dir)], MetadataLog([log_dir]), named_topics=[topic])
    return [one for one in source.scan(topics=[topic]).replicas if one.chosen]


def sampled(log_dir: Path, topic: str, max_bytes: int = MIB) -> PartitionSample:
    return sample_of(scanned(log_dir, topic)[0], max_bytes)


# Segments made of seeded bytes, for tests that only move them about.

TOPIC_ID = Uuid(bytes(range(1, 17)))
LEADER_EPOCH_CHECKPOINT = b"0\n1\n0 0\n"
EMPTY_PRODUCER_SNAPSHOT = bytes.fromhex("000148674bc700000000")


def some_bytes(size_bytes: int, seed: str = "") -> bytes:
    """Bytes without a pattern, the same for the same arguments."""
    return hashlib.shake_128(f"{seed}:{size_bytes}".encode()).digest(size_bytes)


def some_uuid(seed: str) -> Uuid:
    return Uuid(hashlib.sha256(seed.encode()).digest()[:16])


def some_metadata(
    size_bytes: int, *, seed: str = "a", start_offset: int = 0, topic: str = "orders", partition: int = 3
) -> RemoteLogSegmentMetadata:
    return RemoteLogSegmentMetadata(
        remote_log_segment_id=RemoteLogSegmentId(TopicIdPartition(TOPIC_ID, partition, topic), some_uuid(seed)),
        start_offset=start_offset,
        end_offset=start_offset + 24,
        max_timestamp_ms=1_700_000_000_123,
        broker_id=1,
        event_timestamp_ms=1_700_000_001_000,
        segment_size_bytes=size_bytes,
        segment_leader_epochs=LeaderEpochs.of([(0, start_offset)]),
    )


def some_segment(
    size_bytes: int = 100_000,
    *,
    seed: str = "a",
    start_offset: int = 0,
    with_transactions: bool = False,
    topic: str = "orders",
    partition: int = 3,
) -> tuple[RemoteLogSegmentMetadata, LogSegmentData]:
    log = some_bytes(size_bytes, seed)
    data = LogSegmentData(
        log=BytesSource(log),
        log_crc32c=crc32c_of(log),
        offset_index=some_bytes(16, f"offsets {seed}"),
        time_index=some_bytes(24, f"times {seed}"),
        producer_snapshot=EMPTY_PRODUCER_SNAPSHOT,
        leader_epoch=LEADER_EPOCH_CHECKPOINT,
        transaction_index=some_bytes(34, f"transactions {seed}") if with_transactions else None,
    )
    metadata = some_metadata(size_bytes, seed=seed, start_offset=start_offset, topic=topic, partition=partition)
    return metadata, data


@dataclass
class CountingLimiter:
    """A `ByteLimiter` that remembers what it granted, and runs dry after `allowance` bytes by raising `error`."""

    allowance: int | None = None
    error: Exception | None = None
    granted: list[int] = field(default_factory=list)
    waited_seconds: float = 0.0
    waits_for: Scope | None = None

    def take(self, wanted_bytes: int) -> int:
        if self.error is not None and self.allowance is not None and self.total_bytes + wanted_bytes > self.allowance:
            raise self.error
        self.granted.append(wanted_bytes)
        return wanted_bytes

    @property
    def total_bytes(self) -> int:
        return sum(self.granted)
