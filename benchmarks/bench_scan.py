"""A cheap scan of 2,000 partitions with 50 segments each: seconds and memory. Promised: 15 s and 300 MiB.

The rolled `.log` files are sparse: a cheap scan needs their sizes and names. Active segments hold real batches behind
preallocated indexes, as on a running broker, and the metadata log has every topic and partition. The scan runs in a
process of its own, so that the memory is its own.
"""

import json
import os
import resource
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from include.tiering.kafka.cluster.metadata_log import MetadataLog
from include.tiering.kafka.log_dirs.contract import ScanReport
from include.tiering.kafka.log_dirs.dirs import LogDirLocation
from include.tiering.kafka.log_dirs.source import LogDirSource
from include.tiering.model.segments import Uuid
from include.tiering.units import MIB
from tests.doubles.log_dirs import BrokerLogDir, index_entries
from tests.doubles.record_batches import record_batch
from tests.doubles.tiered_topic import partition_record, topic_record

TOPICS: Final = 100
PARTITIONS_PER_TOPIC: Final = 20
SEGMENTS: Final = 50
SEGMENT_BYTES: Final = 1024 * MIB
RECORDS_PER_SEGMENT: Final = 1000
INDEX_BYTES: Final = 10 * MIB
ACTIVE_BATCHES: Final = 100
EMPTY_SNAPSHOT: Final = bytes.fromhex("000148674bc700000000")
FIRST_TIMESTAMP_MS: Final = 1_700_000_000_000


def main() -> None:
    if len(sys.argv) > 1:
        print(json.dumps(measure(Path(sys.argv[1]))))
        return
    with tempfile.TemporaryDirectory(prefix="bench-scan-") as directory:
        log_dir = Path(directory, "data")
        begun = time.monotonic()
        generate(log_dir)
        print(f"generated in {time.monotonic() - begun:.1f} s", file=sys.stderr, flush=True)
        command = [sys.executable, "-m", "benchmarks.bench_scan", str(log_dir)]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    print(done.stdout, end="")


def measure(log_dir: Path) -> dict[str, float | int]:
    """Scans twice: as it is found after generating, and again."""
    source = LogDirSource([LogDirLocation(1, log_dir)], MetadataLog([log_dir]))
    before_bytes = _peak_bytes()
    before_cpu_seconds = time.process_time()
    first_seconds, report = _timed_scan(source)
    cpu_seconds = time.process_time() - before_cpu_seconds
    peak_bytes = _peak_bytes()
    del report
    second_seconds, report = _timed_scan(source)
    segments = sum(len(replica.segments) for replica in report.replicas)
    if report.errors or segments != TOPICS * PARTITIONS_PER_TOPIC * SEGMENTS:
        raise SystemExit(f"{segments} segments, {len(report.errors)} errors: {report.errors[:3]}")
    return {
        "partitions": len(report.replicas),
        "segments": segments,
        "eligible_segments": sum(segment.eligible for replica in report.replicas for segment in replica.segments),
        "seconds": round(first_seconds, 2),
        "cpu_seconds": round(cpu_seconds, 2),
        "seconds_again": round(second_seconds, 2),
        "promised_seconds": 15,
        "imports_mib": round(before_bytes / MIB, 1),
        "peak_mib": round(peak_bytes / MIB, 1),
        "promised_mib": 300,
    }


def generate(path: Path) -> None:
    """Hard links stand for files that a cheap scan never opens."""
    log_dir = BrokerLogDir(path)
    end = (SEGMENTS - 1) * RECORDS_PER_SEGMENT + ACTIVE_BATCHES
    offsets = {}
    for topic in range(TOPICS):
        topic_id = Uuid(struct.pack(">qq", 1 << 40, topic))
        name = f"bench-{topic:03d}"
        log_dir.append_metadata(
            topic_record(name, topic_id),
            *(partition_record(topic_id, partition) for partition in range(PARTITIONS_PER_TOPIC)),
        )
        for partition in range(PARTITIONS_PER_TOPIC):
            _write_partition(log_dir, f"{name}-{partition}", topic_id)
            offsets[f"{name}-{partition}"] = end
    log_dir.all_current(offsets)


def _write_partition(log_dir: BrokerLogDir, name: str, topic_id: Uuid) -> None:
    partition = log_dir.partition(name, topic_id)
    index = partition.path / "first.index.tmp"
    index.write_bytes(struct.pack(">ii", 1, 1) * 8)
    snapshot = partition.path / "first.snapshot.tmp"
    snapshot.write_bytes(EMPTY_SNAPSHOT)
    for number in range(SEGMENTS - 1):
        base = number * RECORDS_PER_SEGMENT
        with partition.file(base, "log").open("wb") as log:
            log.truncate(SEGMENT_BYTES)
        last_ms = FIRST_TIMESTAMP_MS + base + RECORDS_PER_SEGMENT - 1
        partition.file(base, "timeindex").write_bytes(struct.pack(">qi", last_ms, RECORDS_PER_SEGMENT - 1))
        os.link(index, partition.file(base, "index"))
        os.link(snapshot, partition.file(base + RECORDS_PER_SEGMENT, "snapshot"))
    active = (SEGMENTS - 1) * RECORDS_PER_SEGMENT
    batches = [
        record_batch(active + number, value_bytes=900, timestamp_ms=FIRST_TIMESTAMP_MS + active + number)
        for number in range(ACTIVE_BATCHES)
    ]
    offsets, times = index_entries(active, batches[: ACTIVE_BATCHES - 10])
    partition.file(active, "log").write_bytes(b"".join(batches))
    for kind, entries in (("index", offsets), ("timeindex", times)):
        with partition.file(active, kind).open("wb") as file:
            file.write(entries)
            file.truncate(INDEX_BYTES - INDEX_BYTES % (8 if kind == "index" else 12))


def _timed_scan(source: LogDirSource) -> tuple[float, ScanReport]:
    begun = time.monotonic()
    report = source.scan()
    return time.monotonic() - begun, report


def _peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


if __name__ == "__main__":
    main()
