"""Each benchmark runs in a small form: what it measures still exists and its result is a document with figures.

Exit code 1 means that a figure missed its bound, which a small form on a busy machine may do; it is no failure here.
"""

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import psutil
import pytest
from sqlalchemy import func, select

from benchmarks import bench_scan
from benchmarks.bench_fetch import MOST_MIB
from benchmarks.quota_stores import Cell, measured
from benchmarks.run_all import NAMES, last_json
from benchmarks.sizes_scene import CLUSTER_ID, build, partition_number
from include.tiering.database.engine import open_engine
from include.tiering.database.schema.segments import segments as segments_table
from include.tiering.segments.sql import SqlRemoteLogMetadata
from include.tiering.sizes.store import SqlRemoteLogSizes
from include.tiering.units import KIB
from tests.doubles.kafka_lab.requests import require_kafka
from tests.doubles.patience import eventually
from tests.doubles.s3_server import find_versitygw
from tests.doubles.spark import NO_JAVA

ROOT: Final = Path(__file__).resolve().parents[2]
SMALL: Final = {
    "records": ("--size-mib=1", "--rounds=1"),
    "segment_check": ("--size-mib=1", "--repeats=1", "--no-dump-log-segments"),
    "verify": ("--size-mib=1", "--repeats=1", "--no-dump-log-segments"),
    "plan": ("--segments=1000,2000", "--databases=sqlite", "--rounds=1"),
    "forms": ("--size-mib=2", "--rounds=1"),
    "upload": ("--quick", "--rounds=1"),
    "queue": ("--rounds=1", "--items=300"),
    "copy": ("--quick", "--rounds=1"),
}
SMALL_WITH_SERVER: Final = {
    "delete": ("--segments=20",),
    "generation": ("--times=2",),
    "far": ("--quick", "--rounds=1", "--delay-ms=1"),
    "records": ("--far", "--size-mib=4", "--rounds=1", "--delay-ms=1"),
}
SMALL_WITH_SPARK: Final = {
    "page": ("--segments=2000", "--partitions=20", "--days=2", "--rounds=2", "--viewers=3", "--seconds=3"),
    "start": ("--repeats=1", "--ways", "inline", "airflow"),
    "sizes": ("--only=recount", "--segments=3000", "--rounds=1", "--shape=skewed"),
}
SMALL_WITH_SERVER_AND_SPARK: Final = {"audit": ("--only=live", "--live-keys=600")}
SMALL_WITH_BROKER: Final = {
    "producers": ("--rounds=1", "--seconds=1", "--rate-mib=4"),
    "connector": ("--size-mib=1", "--rounds=1", "--kinds", "100-zstd"),
}
BY_TESTS_OF_THEIR_OWN: Final = {"fetch", "quota", "scan"}


def test_every_benchmark_has_a_small_form() -> None:
    small = (SMALL, SMALL_WITH_SERVER, SMALL_WITH_SPARK, SMALL_WITH_SERVER_AND_SPARK, SMALL_WITH_BROKER)
    assert {name for forms in small for name in forms} | BY_TESTS_OF_THEIR_OWN == set(NAMES)


def run_small(name: str, arguments: tuple[str, ...]) -> Any:
    command = [sys.executable, "-m", f"benchmarks.bench_{name}", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stderr
    measured = last_json(done.stdout)
    assert measured, done.stderr
    return measured


@pytest.mark.parametrize("name", SMALL)
def test_a_benchmark_without_servers(name: str) -> None:
    run_small(name, SMALL[name])


@pytest.mark.skipif(find_versitygw() is None, reason="versitygw is not built: make s3-server")
@pytest.mark.parametrize("name", SMALL_WITH_SERVER)
def test_a_benchmark_with_a_server(name: str) -> None:
    run_small(name, SMALL_WITH_SERVER[name])


@NO_JAVA
@pytest.mark.parametrize("name", SMALL_WITH_SPARK)
def test_a_benchmark_with_spark(name: str) -> None:
    run_small(name, SMALL_WITH_SPARK[name])


@NO_JAVA
@pytest.mark.skipif(find_versitygw() is None, reason="versitygw is not built: make s3-server")
@pytest.mark.parametrize("name", SMALL_WITH_SERVER_AND_SPARK)
def test_a_benchmark_with_a_server_and_spark(name: str) -> None:
    run_small(name, SMALL_WITH_SERVER_AND_SPARK[name])


def test_counters_of_the_size_benchmark() -> None:
    run_small("sizes", ("--only=counters", "--counted=200,400", "--rounds=1", "--work-seconds=0.2"))


@NO_JAVA
@pytest.mark.parametrize("name", SMALL_WITH_BROKER)
def test_a_benchmark_with_a_broker(name: str) -> None:
    require_kafka()
    run_small(name, SMALL_WITH_BROKER[name])


@NO_JAVA
def test_a_benchmark_that_is_terminated_leaves_no_broker_and_no_directory(tmp_path: Path) -> None:
    require_kafka()
    command = [sys.executable, "-m", "benchmarks.bench_connector", "--size-mib=64", "--directory", str(tmp_path)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        eventually(lambda: list(tmp_path.glob("bench-connector-*/kafka/**/00000000000000000000.log")), "a broker runs")
        process.terminate()
        process.communicate()
    assert process.returncode == 128 + signal.SIGTERM
    assert not list(tmp_path.iterdir())
    assert not [each.pid for each in psutil.process_iter(["cmdline"]) if str(tmp_path) in str(each.info["cmdline"])]


@NO_JAVA
@pytest.mark.skipif(find_versitygw() is None, reason="versitygw is not built: make s3-server")
def test_a_copy_from_leaders_and_its_memory() -> None:
    """The settings are the defaults, and the far store has as many transfers in flight as they allow."""
    require_kafka()
    measured = run_small("fetch", ("--rounds=1", "--size-mib=64", "--segment-mib=2"))
    for topic in measured["record_bytes"].values():
        peaks = [topic[part]["leaders"]["peak_resident_mib"] for part in ("clients", "far")]
        assert max(*peaks, topic["plan"]["peak_resident_mib"]) < MOST_MIB


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
