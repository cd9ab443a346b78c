"""A `.log` of one kind of batches, as large as one likes, and what a process that reads it needs to say of itself."""

import os
from pathlib import Path
from typing import Final

from include.tiering.formats.record_batch import HEADER_SIZE
from include.tiering.units import KIB, MIB
from tests.doubles.record_batches import record, record_batch

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
