"""What the byte bound costs those who fetch: the same records with it on and off, in turns.

Records come from a file store in the page cache through the reader pool, in fetches of 1 MiB. Wall time says what a
reader sees; CPU seconds are the firm figure on a busy machine.
"""

import statistics
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from benchmarks.generated_log_dir import Shape
from benchmarks.served_archive import served_archive
from include.tiering.app import App
from include.tiering.quotas.byte_bounded_queue import NO_BYTE_BOUND
from include.tiering.reading.fetch import PartitionFetch, RecordReader
from include.tiering.reading.service import RecordReaders
from include.tiering.units import KIB, MIB
from tests.doubles.quotas import NoAdmission

SHAPE: Final = Shape(2, 8, 16 * MIB, 16 * KIB)
FETCH_BYTES: Final = MIB
MAX_REQUESTS: Final = 500
MAX_BYTES: Final = 32 * MIB


def fetch_with_and_without(rounds: int) -> dict[str, Any]:
    """MB/s and CPU seconds of both; `loss` is the median over the rounds, in per cent of no bound."""
    seconds: dict[int, list[float]] = {MAX_BYTES: [], NO_BYTE_BOUND: []}
    cpu_seconds: dict[int, list[float]] = {MAX_BYTES: [], NO_BYTE_BOUND: []}
    with tempfile.TemporaryDirectory(prefix="bench-fetch-") as directory, served_archive(Path(directory), SHAPE) as app:
        fetch_all(app, NO_BYTE_BOUND)
        for number in range(rounds):
            for max_bytes in (MAX_BYTES, NO_BYTE_BOUND) if number % 2 else (NO_BYTE_BOUND, MAX_BYTES):
                begun, cpu_before = time.monotonic(), time.process_time()
                fetch_all(app, max_bytes)
                seconds[max_bytes].append(time.monotonic() - begun)
                cpu_seconds[max_bytes].append(time.process_time() - cpu_before)
    return {
        "bytes": SHAPE.total_bytes,
        "bound_bytes": MAX_BYTES,
        **{name: compared(of, rounds) for name, of in (("wall", seconds), ("cpu", cpu_seconds))},
    }


def compared(of: dict[int, list[float]], rounds: int) -> dict[str, Any]:
    losses = [100 * (on / off - 1) for on, off in zip(of[MAX_BYTES], of[NO_BYTE_BOUND], strict=True)]
    quarter, _, three_quarters = statistics.quantiles(losses, n=4)
    return {
        "seconds_on": round(statistics.median(of[MAX_BYTES]), 3),
        "seconds_off": round(statistics.median(of[NO_BYTE_BOUND]), 3),
        "loss_percent": round(statistics.median(losses), 1),
        "loss_percent_quartiles": [round(quarter, 1), round(three_quarters, 1)],
        "rounds": rounds,
    }


def fetch_all(app: App, max_bytes: int) -> None:
    """Every offset of every partition once, a partition of each step in one request."""
    reader = RecordReader(app.adapters.stores.metadata, app.adapters.storage, app.adapters.quotas, NoAdmission())
    segments = [
        row.metadata
        for partition in app.adapters.stores.metadata.partitions()
        for row in app.adapters.stores.metadata.list_segments(partition)
    ]
    step = FETCH_BYTES // SHAPE.batch_bytes
    fetches = [
        PartitionFetch(segment.topic_id_partition, offset, FETCH_BYTES, leader_epoch=0)
        for segment in segments
        for offset in range(segment.start_offset, segment.end_offset + 1, step)
    ]
    with RecordReaders(
        reader, threads=10, max_requests=MAX_REQUESTS, max_bytes=max_bytes, on_throttled=lambda *_: None
    ) as readers:
        got_bytes = 0
        for answer in readers.fetch(fetches):
            if answer.error is not None:
                raise answer.error
            got_bytes += len(answer.records)
    if got_bytes != SHAPE.total_bytes:
        raise RuntimeError(f"{got_bytes} bytes were fetched instead of {SHAPE.total_bytes}")
