"""Each benchmark runs in a small form: what it measures still exists and its result is a document with figures.

Exit code 1 means that a figure missed its bound, which a small form on a busy machine may do; it is no failure here.
"""

import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest
from sqlalchemy import func, select

from benchmarks import bench_scan
from benchmarks.quota_stores import Cell, measured
from benchmarks.run_all import last_json
from benchmarks.sizes_scene import CLUSTER_ID, build, partition_number
from include.tiering.database.engine import open_engine
from include.tiering.database.schema.segments import segments as segments_table
from include.tiering.segments.sql import SqlRemoteLogMetadata
from include.tiering.sizes.store import SqlRemoteLogSizes
from include.tiering.units import KIB
from tests.doubles.s3_server import find_versitygw
from tests.doubles.spark import NO_JAVA

ROOT: Final = Path(__file__).resolve().parents[2]
SMALL: Final = {
    "segment_check": ("--size-mib=1", "--repeats=1", "--no-dump-log-segments"),
    "verify": ("--size-mib=1", "--repeats=1", "--no-dump-log-segments"),
    "plan": ("--segments=1000,2000", "--databases=sqlite", "--rounds=1"),
    "forms": ("--size-mib=2", "--rounds=1"),
    "upload": ("--quick", "--rounds=1"),
}
SMALL_WITH_SERVER: Final = {
    "delete": ("--segments=20",),
    "generation": ("--times=2",),
    "far": ("--quick", "--rounds=1", "--delay-ms=1"),
}


def run_small(name: str, arguments: tuple[str, ...]) -> None:
    command = [sys.executable, "-m", f"benchmarks.bench_{name}", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stderr
    assert last_json(done.stdout), done.stderr


@pytest.mark.parametrize("name", SMALL)
def test_a_benchmark_without_servers(name: str) -> None:
    run_small(name, SMALL[name])


@pytest.mark.skipif(find_versitygw() is None, reason="versitygw is not built: make s3-server")
@pytest.mark.parametrize("name", SMALL_WITH_SERVER)
def test_a_benchmark_with_a_server(name: str) -> None:
    run_small(name, SMALL_WITH_SERVER[name])


@NO_JAVA
def test_the_start() -> None:
    run_small("start", ("--repeats=1", "--ways", "inline", "airflow"))


@pytest.mark.skipif(find_versitygw() is None, reason="versitygw is not built: make s3-server")
@pytest.mark.parametrize("delay_ms", [0, 5])
def test_quotas_of_copies_to_a_server_at_a_distance(delay_ms: int) -> None:
    binary = find_versitygw()
    assert binary is not None
    cell = Cell(delay_ms, segment_bytes=128 * KIB, batches=2, quota=1_000_000)
    outcome = measured(cell, binary, seconds=2.0)
    assert 0 < outcome.trace.total_bytes <= 4 * cell.quota
    assert [check.name for check in outcome.checks] == ["average, lowest", "average, highest", "worst second"]


def test_the_scan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for constant, number in (("TOPICS", 2), ("PARTITIONS_PER_TOPIC", 2), ("SEGMENTS", 3)):
        monkeypatch.setattr(bench_scan, constant, number)
    bench_scan.generate(tmp_path / "data")
    measured = bench_scan.measure(tmp_path / "data")
    assert (measured["partitions"], measured["segments"], measured["eligible_segments"]) == (4, 12, 8)


@pytest.mark.parametrize("for_scans", [False, True])
def test_the_rows_of_the_size_benchmark_are_those_that_the_counters_say(tmp_path: Path, for_scans: bool) -> None:
    url = f"sqlite:///{tmp_path / 'sizes.sqlite'}"
    build(url, 2_000, 20, for_scans=for_scans)
    engine = open_engine(url)
    with engine.connect() as connection:
        assert connection.scalar(select(func.count()).select_from(segments_table)) == 2_000
    assert SqlRemoteLogMetadata(engine, CLUSTER_ID).partition_sizes(partition_number(7)) is not None
    sizes = SqlRemoteLogSizes(engine, CLUSTER_ID)
    deleted = 2_000 // 100
    assert sum(len(page) for key_range in sizes.split(3) for page in sizes.export(key_range)) == 2_000 - deleted
    engine.dispose()
