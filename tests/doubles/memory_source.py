"""Log dirs and bytes in memory."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import google_crc32c

from include.tiering.errors import CompactedSegmentError, CorruptFileError, SourceChangedError, SourceVanishedError
from include.tiering.kafka.log_dirs.contract import (
    BoundsQuality,
    CheckedSegment,
    IneligibleReason,
    LogSegment,
    Replica,
    ReplicaId,
    ScanError,
    ScanReport,
    SourceFingerprint,
    UnfinishedTransaction,
    go_on_always,
)
from include.tiering.model.leader_epochs import LeaderEpochs
from include.tiering.model.segments import ByteSource, LogSegmentData, TopicIdPartition, Uuid
from tests.doubles.segments import whole_replica

# A log source in memory: partitions of made-up bytes that a test can change under the reader.

EPOCHS = LeaderEpochs.of([(0, 0)])
EMPTY_SNAPSHOT = bytes.fromhex("000148674bc700000000")


class MemoryBytes:
    def __init__(self, data: bytes) -> None:
        self._data = data

    @property
    def size_bytes(self) -> int:
        return len(self._data)

    def read_into(self, position: int, buffer: memoryview) -> int:
        piece = self._data[position : position + len(buffer)]
        buffer[: len(piece)] = piece
        return len(piece)


class MemoryOpenSegment:
    def __init__(self, source: "MemorySource", replica: Replica, segment: LogSegment) -> None:
        self.segment = segment
        self._source = source
        self._replica = replica
        self._found_corrupt = False
        self.fingerprint = SourceFingerprint(
            replica.replica_id.broker_id,
            replica.replica_id.directory_id,
            replica.topic_id_partition.topic_id,
            replica.leader_epoch,
            replica.leader_epochs,
            ((str(segment.base_offset), 0, self._source.generation, segment.size_bytes, 0),),
        )

    def check(self) -> CheckedSegment:
        if (self._replica.topic_id_partition, self.segment.base_offset) in self._source.corrupt:
            self._found_corrupt = True
            raise CorruptFileError(f"{self._replica.replica_id}/{self.segment.base_offset}.log", "bad CRC-32C", 61)
        if self.segment.reason is IneligibleReason.COMPACTED_SEGMENT:
            raise CompactedSegmentError(f"{self._replica.replica_id}/{self.segment.base_offset}.log", "lacks offsets")
        data = self._source.log_bytes(self._replica.topic_id_partition, self.segment.base_offset)
        return CheckedSegment(
            data=LogSegmentData(
                log=MemoryBytes(data),
                log_crc32c=google_crc32c.value(data),
                offset_index=b"",
                time_index=b"",
                producer_snapshot=EMPTY_SNAPSHOT,
                leader_epoch=b"0\n1\n0 0\n",
            ),
            first_offset=self.segment.base_offset,
            last_offset=self.segment.end_offset,
            max_timestamp_ms=self.segment.max_timestamp_ms,
            batch_count=1,
            aborted_transactions=0,
        )

    def recheck(self) -> None:
        if self._found_corrupt:
            raise SourceChangedError(str(self._replica.replica_id), "found corrupt")
        now = self._source.replicas.get(self._replica.replica_id)
        if now is not None and now.segment_at(self.segment.base_offset) is None:
            raise SourceVanishedError(str(self._replica.replica_id), "no such file or directory (any more)")
        if now is None or now != self._replica or self.fingerprint.files[0][2] != self._source.generation:
            raise SourceChangedError(str(self._replica.replica_id), "changed while it was copied")


class MemorySource:
    """`replicas` may be changed by a test at any time; raise `generation` to replace every file under the reader."""

    def __init__(self) -> None:
        self.replicas: dict[ReplicaId, Replica] = {}
        self.corrupt: set[tuple[TopicIdPartition, int]] = set()
        self.generation = 1
        self.unfinished: dict[ReplicaId, list[UnfinishedTransaction]] = {}

    def add(self, topic: str, partition: int = 0, *, segments: int = 3, size_bytes: int = 1000) -> ReplicaId:
        """A partition with `segments` eligible segments of ten offsets each."""
        tp = TopicIdPartition(Uuid(topic.encode().ljust(15, b"\1") + bytes([partition])), partition, topic)
        replica_id = ReplicaId(tp, 1, "memory")
        rolled = tuple(
            LogSegment(base, base + 9, size_bytes, 1_600_000_000_000 + base, EPOCHS, active=False, reason=None)
            for base in range(0, segments * 10, 10)
        )
        end = segments * 10
        self.replicas[replica_id] = whole_replica(
            replica_id, rolled, end, leader_epochs=EPOCHS, bounds=BoundsQuality.EXACT, leader_epoch=0
        )
        return replica_id

    def change(self, replica_id: ReplicaId, **changes: Any) -> None:
        self.replicas[replica_id] = replace(self.replicas[replica_id], **changes)

    def log_bytes(self, partition: TopicIdPartition, base_offset: int) -> bytes:
        size = next(
            segment.size_bytes
            for replica in self.replicas.values()
            if replica.topic_id_partition == partition
            for segment in replica.segments
            if segment.base_offset == base_offset
        )
        seed = f"{partition}:{base_offset}:{self.generation};".encode()
        return (seed * (size // len(seed) + 1))[:size]

    def scan(self, *, topics: Collection[str] | None = None, deep: bool = False) -> ScanReport:
        return ScanReport("memory-cluster", tuple(self.replicas.values()), ())

    def find_segments(self, **_: Any) -> Sequence[ScanError]:
        return ()

    def replica(self, replica_id: ReplicaId) -> Replica:
        try:
            return self.replicas[replica_id]
        except KeyError:
            raise SourceVanishedError(str(replica_id), "no such replica") from None

    def leader_epochs(self, replica: Replica) -> LeaderEpochs:
        return replica.leader_epochs

    def leading_compacted(self, replica_id: ReplicaId, segments: Sequence[LogSegment]) -> Sequence[LogSegment]:
        return ()

    def size_doubts(self, replica_id: ReplicaId, segments: Sequence[LogSegment]) -> Mapping[int, str]:
        self.replica(replica_id)
        return {}

    def unfinished_transactions(self, replica_id: ReplicaId) -> list[UnfinishedTransaction]:
        return self.unfinished.get(self.replica(replica_id).replica_id, [])

    @contextmanager
    def open_segment(
        self, replica_id: ReplicaId, base_offset: int, *, go_on: Callable[[], object] = go_on_always
    ) -> Iterator[MemoryOpenSegment]:
        replica = self.replica(replica_id)
        segment = replica.segment_at(base_offset)
        if segment is None:
            raise SourceVanishedError(str(replica_id), f"no segment {base_offset}")
        yield MemoryOpenSegment(self, replica, segment)


# Byte sources in memory, and decorators that watch or disturb another source.


class BytesSource:
    """A `ByteSource` over bytes."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    @classmethod
    def of_file(cls, path: Path) -> "BytesSource":
        return cls(path.read_bytes())

    @property
    def size_bytes(self) -> int:
        return len(self._data)

    def read_into(self, position: int, buffer: memoryview) -> int:
        part = self._data[position : position + len(buffer)]
        buffer[: len(part)] = part
        return len(part)


class RecordingSource:
    """Remembers every read as (position, bytes asked for)."""

    def __init__(self, inner: ByteSource) -> None:
        self._inner = inner
        self.reads: list[tuple[int, int]] = []

    @property
    def size_bytes(self) -> int:
        return self._inner.size_bytes

    def read_into(self, position: int, buffer: memoryview) -> int:
        self.reads.append((position, len(buffer)))
        return self._inner.read_into(position, buffer)


class ShrinkingSource:
    """Was cut to `shrunk_bytes` after it was opened: reads beyond raise, as the contract says."""

    def __init__(self, inner: ByteSource, shrunk_bytes: int, path: str = "shrinking.log") -> None:
        self._inner = inner
        self._shrunk_bytes = shrunk_bytes
        self._path = path

    @property
    def size_bytes(self) -> int:
        return self._inner.size_bytes

    def read_into(self, position: int, buffer: memoryview) -> int:
        wanted = min(position + len(buffer), self.size_bytes)
        if wanted > self._shrunk_bytes:
            raise SourceChangedError(self._path, f"shrank from {self.size_bytes} to {self._shrunk_bytes} bytes")
        return self._inner.read_into(position, buffer)
