"""One small Spark session for all tests of a process, and nothing of it afterwards."""

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession

from tests.doubles.spark_submit import fastest_start

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
