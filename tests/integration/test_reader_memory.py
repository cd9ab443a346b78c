"""What readers really hold: the pool `queued.max.bytes` and one read, a scan what it may read ahead."""

import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pyarrow as pa
import pytest

from benchmarks.generated_log_dir import Shape
from benchmarks.served_archive import environment_of, served_archive
from include.tiering.app import App
from include.tiering.formats.record_columns import RecordColumns
from include.tiering.reading import scan
from include.tiering.reading.fetch import PartitionFetch
from include.tiering.reading.plan_scan import PartitionScan, ScanRequest
from include.tiering.reading.scan import Scanner
from include.tiering.remote_storage import parallel_reads, segment_reader
from include.tiering.units import MIB
from tests.doubles.patience import eventually
from tests.doubles.quotas import NoQuotas

pytestmark = pytest.mark.integration

BOUND: Final = 1_000_000
REQUESTS: Final = 100
BESIDE_BYTES: Final = 2 * MIB
"""Objects of Python beside what is read: rows, sessions, threads."""


def most_held_bytes(app: App, batches: int) -> int:
    """Request one byte `REQUESTS` times, at offsets all over the log; return the most memory that was in use."""
    (partition,) = app.adapters.stores.metadata.partitions()
    fetches = [PartitionFetch(partition, number * 7919 % batches, 1) for number in range(REQUESTS)]
    list(app.reading.fetch_records(fetches[:20]))
    tracemalloc.start()
    try:
        with app.reading.record_readers() as readers:
            answers = readers.fetch(fetches)
            first = next(answers)
            stand_still()
            rest = list(map(len, (answer.records for answer in answers)))
        assert len(rest) == REQUESTS - 1
        assert min(rest) == max(rest) == len(first.records) > 0
        assert readers.held_bytes == 0
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def stand_still() -> None:
    """Return when the readers have read ahead what they may: the memory in use does not change for a while."""
    seen: list[int] = []

    def is_still() -> bool:
        seen.append(tracemalloc.get_traced_memory()[0] // MIB)
        return len(seen) > 10 and len(set(seen[-10:])) == 1

    eventually(is_still, "the readers stand still")


def test_requests_of_one_byte_for_large_batches_hold_no_more_than_the_bound(tmp_path: Path) -> None:
    """Without it all batches, of 35 MB together, are held at the same time."""
    shape = Shape(1, 1, 12 * MIB, 355_000)
    settings = {**environment_of(tmp_path), "TIERING_QUEUED__MAX__BYTES": str(BOUND)}
    with served_archive(tmp_path, shape, settings) as app:
        one_read_bytes = 3 * shape.batch_bytes
        assert most_held_bytes(app, shape.batches) < BOUND + one_read_bytes + BESIDE_BYTES


def test_a_scan_of_large_segments_holds_no_more_than_it_may_read_ahead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All in a sixteenth: ranges of 1 MiB, 4 MiB ahead, and segments of 24 MiB."""
    for module in (parallel_reads, scan, segment_reader):
        monkeypatch.setattr(module, "RANGE_BYTES", MIB)
    monkeypatch.setattr(scan, "_AHEAD_BYTES", 4 * MIB)
    with served_archive(tmp_path, Shape(1, 3, 24 * MIB, 16_000), environment_of(tmp_path)) as app:
        (partition,) = app.adapters.stores.metadata.partitions()
        plan = app.reading.plan_scan(ScanRequest((PartitionScan(partition),)))
        assert plan.size_bytes > 70 * MIB

        def held_bytes(at_once: int) -> tuple[int, int]:
            """Memory in use when the first batch is there and all is read ahead that may be, and the most of all."""

            def scanned() -> Iterator[pa.RecordBatch]:
                scanner = Scanner(app.adapters.storage, NoQuotas(), at_once=at_once)
                for task in plan.tasks:
                    yield from scanner.read(task, RecordColumns(partition.topic, 0, max_bytes=MIB))

            next(scanned())
            tracemalloc.start()
            try:
                batches = scanned()
                next(batches)
                stand_still()
                ahead_bytes = tracemalloc.get_traced_memory()[0]
                for _ in batches:
                    """Only what is held counts."""
                return ahead_bytes, tracemalloc.get_traced_memory()[1]
            finally:
                tracemalloc.stop()

        (alone_bytes, most_alone_bytes), (ahead_bytes, most_bytes) = held_bytes(1), held_bytes(8)
    assert ahead_bytes - alone_bytes > 2 * MIB
    assert most_bytes - most_alone_bytes < 4 * MIB + BESIDE_BYTES
