"""One generated segment in a file store, with the objects that a copy of it would have, and its deep measure."""

import json
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

import numpy as np

from benchmarks.generated_log_dir import FileSource, write_segment
from include.tiering.formats import checkpoints, indexes
from include.tiering.formats.record_batch import extend_crc32c, iter_headers
from include.tiering.model.leader_epochs import LeaderEpochs
from include.tiering.model.segments import (
    Depth,
    LogSegmentData,
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    TopicIdPartition,
    Verdict,
)
from include.tiering.quotas.contract import UnlimitedBytes
from include.tiering.remote_storage.contract import ObjectKind
from include.tiering.remote_storage.file.store import FileObjectStore
from include.tiering.remote_storage.layouts.aiven import AivenLayout
from include.tiering.remote_storage.segment_storage import SegmentStorage
from include.tiering.segments.contract import SegmentRow
from include.tiering.units import KIB, MIB
from include.tiering.verification.measure_segment import measure_segment
from include.tiering.verification.measures import SegmentMeasure
from tests.doubles.plain_evaluator import PlainEvaluator
from tests.doubles.stored_log import TOPIC_ID, CountingLimiter, some_uuid

_INDEX_INTERVAL_BYTES = 4 * KIB
_DESCRIPTION = "facts.json"
_PARTITION = TopicIdPartition(TOPIC_ID, 0, "generated")


@dataclass(frozen=True, slots=True)
class StoredLog:
    """`directory` holds the store; `plain_log` is the same file under the name that a broker gives it."""

    directory: Path
    metadata: RemoteLogSegmentMetadata
    log_crc32c: int

    @classmethod
    def of(cls, directory: Path) -> Self:
        """What `store_segment` left there."""
        described = json.loads((directory / _DESCRIPTION).read_text())
        metadata = _metadata(described["end_offset"], described["size_bytes"], described["max_timestamp_ms"])
        return cls(directory, metadata, described["log_crc32c"])

    @property
    def plain_log(self) -> Path:
        return self.directory / f"{0:020d}.log"

    @property
    def storage(self) -> SegmentStorage:
        return SegmentStorage(FileObjectStore(self.directory / "store"), AivenLayout())

    @property
    def objects_bytes(self) -> int:
        return sum(path.stat().st_size for path in (self.directory / "store").rglob("*-*.*") if path.is_file())


def store_segment(directory: Path, size_bytes: int, batch_bytes: int) -> StoredLog:
    """Generate a segment and store it below `directory`: the log is one file with two names."""
    log = directory / f"{0:020d}.log"
    end_offset = write_segment(log, size_bytes, batch_bytes) - 1
    metadata, data = segment_of_log(log, end_offset)
    stored, max_timestamp_ms = StoredLog(directory, metadata, data.log_crc32c), metadata.max_timestamp_ms
    store = FileObjectStore(directory / "store")
    for planned in AivenLayout().objects(stored.metadata, data):
        if planned.kind is ObjectKind.LOG:
            (directory / "store" / planned.key).parent.mkdir(parents=True)
            os.link(log, directory / "store" / planned.key)
        else:
            store.put(planned.key, planned.body, planned.crc32c, limiter=UnlimitedBytes(), on_sent=lambda _: None)
    described = {
        "end_offset": end_offset,
        "size_bytes": stored.metadata.segment_size_bytes,
        "max_timestamp_ms": max_timestamp_ms,
        "log_crc32c": stored.log_crc32c,
    }
    (directory / _DESCRIPTION).write_text(json.dumps(described))
    return stored


def segment_of_log(
    log: Path, end_offset: int, topic: str = _PARTITION.topic, start_offset: int = 0
) -> tuple[RemoteLogSegmentMetadata, LogSegmentData]:
    """What a copy would store of a log in which every batch is newer than the one before."""
    offsets, times, max_timestamp_ms = _indexes(log, start_offset)
    data = LogSegmentData(
        log=FileSource(log),
        log_crc32c=_crc32c(log),
        offset_index=offsets,
        time_index=times,
        producer_snapshot=indexes.EMPTY_SNAPSHOT,
        leader_epoch=checkpoints.serialize_leader_epochs(LeaderEpochs.of([(0, 0)])),
    )
    return _metadata(end_offset, log.stat().st_size, max_timestamp_ms, topic, start_offset), data


def measure_deep(stored: StoredLog) -> tuple[SegmentMeasure, int]:
    """The measure of a segment that breaks no rule, and the bytes that were charged for it."""
    finished = replace(stored.metadata, state=RemoteLogSegmentState.COPY_SEGMENT_FINISHED)
    row = SegmentRow(finished, Verdict.NONE, stored.log_crc32c)
    limiter = CountingLimiter()
    measure = measure_segment(row, previous=None, storage=stored.storage, limiter=limiter, depth=Depth.DEEP)
    if broken := PlainEvaluator().evaluate([measure]):
        raise RuntimeError(f"a sound segment breaks {[each.rule.rule_id for each in broken]}: {measure.remarks}")
    return measure, limiter.total_bytes


def _metadata(
    end_offset: int,
    size_bytes: int,
    max_timestamp_ms: int,
    topic: str = _PARTITION.topic,
    start_offset: int = 0,
) -> RemoteLogSegmentMetadata:
    partition = TopicIdPartition(some_uuid(topic), 0, topic) if topic != _PARTITION.topic else _PARTITION
    return RemoteLogSegmentMetadata(
        remote_log_segment_id=RemoteLogSegmentId(partition, some_uuid(f"segment of {topic} from {start_offset}")),
        start_offset=start_offset,
        end_offset=end_offset,
        max_timestamp_ms=max_timestamp_ms,
        broker_id=1,
        event_timestamp_ms=max_timestamp_ms,
        segment_size_bytes=size_bytes,
        segment_leader_epochs=LeaderEpochs.of([(0, start_offset)]),
        txn_index_empty=True,
    )


def _indexes(log: Path, start_offset: int) -> tuple[bytes, bytes, int]:
    """Offset and time index as a broker writes them, and the largest timestamp. Every batch is newer than the last."""
    offsets, times = [], []
    header, indexed_bytes = None, 0
    for position, header, _ in iter_headers(FileSource(log)):
        if indexed_bytes > _INDEX_INTERVAL_BYTES:
            offsets.append((header.last_offset - start_offset, position))
            times.append((header.max_timestamp, header.last_offset - start_offset))
            indexed_bytes = 0
        indexed_bytes += header.size_bytes
    if header is None:
        raise ValueError(f"{log} holds no batch")
    if not times or times[-1][0] < header.max_timestamp:
        times.append((header.max_timestamp, header.last_offset - start_offset))
    offset_index = np.array(offsets, dtype=np.dtype(">i4, >i4"))
    return offset_index.tobytes(), np.array(times, dtype=np.dtype(">i8, >i4")).tobytes(), header.max_timestamp


def _crc32c(log: Path) -> int:
    crc32c = 0
    with log.open("rb") as file:
        while block := file.read(MIB):
            crc32c = extend_crc32c(crc32c, block)
    return crc32c
