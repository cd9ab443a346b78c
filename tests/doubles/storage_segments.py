"""Segments made of seeded bytes, for tests that only move them about."""

import hashlib
from dataclasses import dataclass, field

from include.tiering.model.leader_epochs import LeaderEpochs
from include.tiering.model.segments import (
    LogSegmentData,
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    TopicIdPartition,
    Uuid,
)
from include.tiering.remote_storage.object_store import BytesSource, crc32c_of

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

    def take(self, wanted_bytes: int) -> int:
        if self.error is not None and self.allowance is not None and self.total_bytes + wanted_bytes > self.allowance:
            raise self.error
        self.granted.append(wanted_bytes)
        return wanted_bytes

    @property
    def total_bytes(self) -> int:
        return sum(self.granted)
