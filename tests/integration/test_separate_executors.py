"""Sizes and audit on a cluster whose executors do not see the driver's directories, and the loss of an executor."""

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow.parquet as pq
import pytest

from include.tiering.app import open_app
from include.tiering.cli.exit_codes import ExitCode
from plugins.tiering_airflow.spark_files import packed_library
from spark_jobs.audit import read_findings
from tests.doubles.archive import RUN_ID, planned_run, settings_of
from tests.doubles.separate_hosts import SparkCluster, own_directory_or_skip, spark_cluster, submit_to_cluster
from tests.doubles.spark import NO_JAVA, ROOT, submit_environment

pytestmark = [pytest.mark.integration, NO_JAVA]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    with spark_cluster(tmp_path_factory.mktemp("cluster")) as started:
        yield started


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """Everything of its run is copied. Database and store stand for servers, which all hosts reach."""
    config = planned_run(tmp_path)
    with open_app(settings_of(config)) as app:
        app.copying.run_batch(RUN_ID, "inline")
    return config


def run_apart(cluster: SparkCluster, tmp_path: Path, job: str, arguments: Sequence[str]) -> tuple[dict[str, Any], Path]:
    """The summary, and a copy of what the driver wrote to the directory that it alone sees."""
    hidden, copied = tmp_path / "driver", tmp_path / "seen by the driver"
    hidden.mkdir()
    library = packed_library(ROOT, ("include", "spark_jobs"), tmp_path)
    command = submit_to_cluster(cluster, job, ["--output", str(hidden / "out"), *arguments], hidden, library)
    done = subprocess.run(
        own_directory_or_skip(command, hidden, copied),
        env=submit_environment(hidden, SPARK_LOCAL_IP="127.0.0.1"),
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.stdout, done.stderr
    assert not list(hidden.iterdir()), "an executor wrote to the driver's directory"
    return json.loads(done.stdout.splitlines()[-1]), copied / "out"


def test_sizes_and_the_store_are_compared(cluster: SparkCluster, tmp_path: Path, config: Path) -> None:
    log = min((tmp_path / "store").rglob("*.log"))
    log.with_suffix(".indexes").unlink()
    arguments = ["--config", str(config), "--from-storage", "manifests", "--ranges", "2"]
    summary, written = run_apart(cluster, tmp_path, "sizes.py", arguments)
    with open_app(settings_of(config)) as app:
        counted = app.sizes.partition_sizes()
    assert (summary["exit_code"], summary["differences"]) == (int(ExitCode.FINDINGS), [])
    assert summary["bytes"] == sum(size.size_bytes for size in counted) > 0
    kinds = {one["segment_id"]: one["kind"] for item in summary["stored"]["differences"] for one in item["segments"]}
    assert kinds == {log.stem[21:]: "missing"}
    rows = pq.read_table(written / "sizes").to_pylist()
    assert sum(row["size_bytes"] for row in rows if row["leader_epoch"] is None) == summary["bytes"]
    assert json.loads((written / "summary.json").read_text()) == summary


def test_an_audit_finds_and_records(cluster: SparkCluster, tmp_path: Path, config: Path) -> None:
    log = min((tmp_path / "store").rglob("*.log"))
    log.unlink()
    arguments = ["--config", str(config), "--record", "audit-1", "--parts", "2", "--ranges", "2"]
    summary, written = run_apart(cluster, tmp_path, "audit.py", arguments)
    assert summary["exit_code"] == int(ExitCode.FINDINGS)
    found = Counter(finding.kind.value for finding in read_findings(written))
    assert found == {kind: counted["findings"] for kind, counted in summary["findings"].items()}
    assert found["dangling-reference"] == 1
    assert summary["recorded"] == found.total()


_LOSING: Final = """
import json, os, signal, sys
from pathlib import Path
import pyarrow as pa
from pyspark.sql import SparkSession
from spark_jobs.task_settings import TaskSettings
from spark_jobs.packed_rows import SESSION_CONF, read_once, unpacked
from spark_jobs.shared import ancestors

config = Path(sys.argv[1])
session = SparkSession.builder.config(map=dict(SESSION_CONF)).getOrCreate()

def read(app, number):
    # The second generation above a task is the JVM of its executor.
    yield pa.record_batch({"number": [number], "executor": [ancestors()[1]]})

schema = pa.schema([("number", pa.int64()), ("executor", pa.int64())])
packed = read_once(session, list(range(8)), schema, read, settings=TaskSettings.of_driver(config))
before = unpacked(packed, "number bigint, executor bigint").collect()
config.unlink()
executors = sorted({row.executor for row in before})
os.kill(executors[0], signal.SIGKILL)
after = unpacked(packed, "number bigint, executor bigint").collect()
print(json.dumps({"executors": len(executors), "before": sorted(before), "after": sorted(after)}))
session.stop()
"""


def test_rows_that_were_read_outlive_an_executor(cluster: SparkCluster, tmp_path: Path, config: Path) -> None:
    """They are not read again, for which the settings are gone."""
    script = tmp_path / "losing.py"
    script.write_text(_LOSING)
    configuration = {**cluster.configuration(tmp_path), "spark.task.maxFailures": "4"}
    done = subprocess.run(
        [
            str(Path(sys.executable).parent / "spark-submit"),
            *("--master", cluster.master, "--driver-memory", "512m"),
            *("--py-files", str(packed_library(ROOT, ("include", "spark_jobs"), tmp_path))),
            *(part for key, value in configuration.items() for part in ("--conf", f"{key}={value}")),
            *(str(script), str(config)),
        ],
        env=submit_environment(tmp_path, SPARK_LOCAL_IP="127.0.0.1"),
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["executors"] == 2
    assert [number for number, _ in found["after"]] == list(range(8))
    assert found["after"] == found["before"]
