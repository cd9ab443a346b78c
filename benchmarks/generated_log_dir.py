"""Log dirs and segments that a benchmark generates."""

import os
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import google_crc32c

from include.tiering.formats.record_batch import HEADER_SIZE
from include.tiering.model.segments import Uuid
from include.tiering.units import KIB, MIB
from tests.doubles.record_batches import record, record_batch

# A broker's log directory of any size, made in seconds: valid batches, indexes, snapshots and checkpoints. The
# payload is noise that does not compress; all batches of a segment share it and differ in their headers.

CLUSTER_ID: Final = "benchmarkclusterAAAAAA"
TOPIC: Final = "bench"
EMPTY_SNAPSHOT: Final = bytes.fromhex("000148674bc700000000")
_HEAD: Final = struct.Struct(">qiibI")
_BODY: Final = struct.Struct(">hiqqqhii")
_FIRST_TIMESTAMP_MS: Final = 1_700_000_000_000


@dataclass(frozen=True, slots=True)
class Shape:
    """What to make. Sizes in bytes; every batch holds one record."""

    partitions: int
    segments: int
    segment_bytes: int
    batch_bytes: int

    @property
    def batches(self) -> int:
        return self.segment_bytes // self.batch_bytes

    @property
    def total_bytes(self) -> int:
        return self.partitions * self.segments * self.batches * self.batch_bytes


def topic_id() -> Uuid:
    return Uuid(b"bench-topic-id-1")


def write_log_dir(root: Path, shape: Shape) -> None:
    """Broker 1's log directory with `shape.segments` rolled segments and an empty active one per partition."""
    root.mkdir(parents=True)
    (root / "meta.properties").write_text(
        f"version=1\ncluster.id={CLUSTER_ID}\nnode.id=1\ndirectory.id={Uuid(b'bench-directory1')}\n"
    )
    end = shape.segments * shape.batches
    for partition in range(shape.partitions):
        _write_partition(root / f"{TOPIC}-{partition}", shape)
    # Behind the partitions, as a broker does: a checkpoint that is older than a directory is not about it.
    for name in ("replication-offset-checkpoint", "recovery-point-offset-checkpoint"):
        lines = [f"{TOPIC} {partition} {end}" for partition in range(shape.partitions)]
        (root / name).write_text("\n".join(["0", str(len(lines)), *lines, ""]))


def _write_partition(directory: Path, shape: Shape) -> None:
    directory.mkdir()
    (directory / "partition.metadata").write_text(f"version: 0\ntopic_id: {topic_id()}")
    (directory / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")
    payload = _one_record(shape.batch_bytes - HEADER_SIZE)
    for number in range(shape.segments):
        _write_segment(directory, number * shape.batches, shape, payload)
    end = shape.segments * shape.batches
    for suffix in ("log", "index", "timeindex"):
        (directory / f"{end:020d}.{suffix}").touch()
    (directory / f"{end:020d}.snapshot").write_bytes(EMPTY_SNAPSHOT)


def _one_record(size_bytes: int) -> bytes:
    """A record of this size, whose value is noise."""
    # A length takes more bytes where it grows, so that no record without a key has some of the sizes.
    for key in (None, b"k"):
        for value_bytes in range(max(0, size_bytes - 20), size_bytes):
            if len(record(0, bytes(value_bytes), key)) == size_bytes:
                return record(0, os.urandom(value_bytes), key)
    raise ValueError(f"no record has {size_bytes} bytes")


def _write_segment(directory: Path, base: int, shape: Shape, payload: bytes) -> None:
    index = bytearray()
    last_timestamp = 0
    with (directory / f"{base:020d}.log").open("wb", buffering=1 << 20) as log:
        for number in range(shape.batches):
            offset = base + number
            last_timestamp = _FIRST_TIMESTAMP_MS + offset
            body = _BODY.pack(0, 0, last_timestamp, last_timestamp, -1, -1, -1, 1)
            crc = google_crc32c.extend(google_crc32c.value(body), payload)
            log.write(_HEAD.pack(offset, shape.batch_bytes - 12, 0, 2, crc))
            log.write(body)
            log.write(payload)
            if number:
                index += struct.pack(">ii", number, number * shape.batch_bytes)
    stem = directory / f"{base:020d}"
    stem.with_suffix(".index").write_bytes(index)
    stem.with_suffix(".timeindex").write_bytes(struct.pack(">qi", last_timestamp, shape.batches - 1))
    (directory / f"{base + shape.batches:020d}.snapshot").write_bytes(EMPTY_SNAPSHOT)


# A `.log` of one kind of batches, as large as one likes, and what a process that reads it needs to say of itself.

FIRST_TIMESTAMP_MS: Final = 1_700_000_000_000
_RECORD_OVERHEAD: Final = 10
"""Bytes of a record beside its value, at most: lengths, deltas, attributes, no key, no headers."""


class FileSource:
    """A `ByteSource` over a file descriptor."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("rb", buffering=0)
        self.size_bytes = path.stat().st_size

    def read_into(self, position: int, buffer: memoryview) -> int:
        return os.preadv(self._file.fileno(), [buffer], position)


def write_segment(path: Path, size_bytes: int, batch_bytes: int) -> int:
    """Batches of nearly `batch_bytes`: one record per KiB, at least 4, of noise; only the headers differ. Each batch is
    newer than the one before. Returns the log end offset."""
    count = max(batch_bytes // KIB, 4)
    value_bytes = (batch_bytes - HEADER_SIZE) // count - _RECORD_OVERHEAD
    records = b"".join(record(delta, os.urandom(value_bytes)) for delta in range(count))
    with path.open("wb", buffering=MIB) as log:
        offset = 0
        while log.tell() < size_bytes:
            log.write(record_batch(offset, count=count, records=records, timestamp_ms=FIRST_TIMESTAMP_MS + offset))
            offset += count
    return offset


def status_bytes(name: str) -> int:
    """A field of this process's /proc/self/status: `VmRSS`, `VmHWM`."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * KIB
    raise LookupError(f"/proc/self/status has no {name}")
