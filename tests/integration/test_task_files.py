"""Files that tasks write: what a task wrote that died, or an earlier run, adds no row; errors name what is wrong."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from include.tiering.app import App
from include.tiering.cli.exit_codes import ExitCode
from include.tiering.errors import MetadataUnavailableError
from spark_jobs.shared import Batches, TaskStoppedError
from spark_jobs.task_files import read_files, write_files
from spark_jobs.task_settings import TaskSettings
from tests.doubles.archive import planned_run
from tests.doubles.spark import NO_JAVA, ROOT, submit_environment

pytestmark = NO_JAVA

_SCHEMA: Final = pa.schema([("number", pa.int64())])
_COLUMNS: Final = "number bigint"


@pytest.fixture
def config(tmp_path: Path) -> Path:
    return planned_run(tmp_path)


def numbers_up_to() -> Callable[[App, int], Batches]:
    """A function inside a function, which goes to the tasks as it is: they cannot import this module."""
    schema = _SCHEMA

    def read(_: App, most: int) -> Batches:
        for number in range(most):
            yield pa.record_batch([pa.array([number])], schema=schema)

    return read


def test_each_piece_with_rows_is_a_file_and_an_earlier_run_is_gone(
    spark: SparkSession, tmp_path: Path, config: Path
) -> None:
    target = tmp_path / "numbers"
    target.mkdir()
    pq.write_table(pa.table({"number": [999]}), target / "00000-7.parquet")
    files = write_files(spark, [3, 0, 2], target, _SCHEMA, numbers_up_to(), settings=TaskSettings.of_driver(config))
    assert sorted(target.iterdir()) == files
    assert [file.name[:5] for file in files] == ["00000", "00002"]
    assert sorted(row.number for row in read_files(spark, files, _COLUMNS).collect()) == [0, 0, 1, 1, 2]


def test_without_work_there_is_no_file_and_no_row(spark: SparkSession, tmp_path: Path, config: Path) -> None:
    files = write_files(
        spark, [], tmp_path / "numbers", _SCHEMA, numbers_up_to(), settings=TaskSettings.of_driver(config)
    )
    assert files == []
    assert read_files(spark, files, _COLUMNS).count() == 0


def test_an_error_of_the_library_and_a_disk_that_refuses_end_the_job_with_their_names(
    spark: SparkSession, tmp_path: Path, config: Path
) -> None:
    def unreachable(_: App, __: int) -> Batches:
        raise MetadataUnavailableError("the database does not answer")

    target, batch = tmp_path / "numbers", numbers_up_to()

    def without_its_directory(app: App, most: int) -> Batches:
        shutil.rmtree(target)
        return batch(app, most)

    with pytest.raises(TaskStoppedError, match="the database does not answer") as stopped:
        write_files(spark, [1], tmp_path / "numbers", _SCHEMA, unreachable, settings=TaskSettings.of_driver(config))
    assert stopped.value.exit_code is ExitCode.RETRY
    with pytest.raises(TaskStoppedError, match=r"parquet cannot be written by a task of Spark: .*No such") as stopped:
        write_files(spark, [1], target, _SCHEMA, without_its_directory, settings=TaskSettings.of_driver(config))
    assert stopped.value.exit_code is ExitCode.USAGE


_DYING: Final = """
import json, os, sys
from pathlib import Path
import pyarrow as pa
from pyspark.sql import SparkSession
from spark_jobs.task_files import read_files, write_files
from spark_jobs.task_settings import TaskSettings

out, config = Path(sys.argv[1]), Path(sys.argv[2])
schema = pa.schema([("number", pa.int64())])

def read(app, most):
    for number in range(most):
        yield pa.record_batch([pa.array([number])], schema=schema)
    if not (out / f"died-{most}").exists():
        (out / f"died-{most}").touch()
        left = out / "numbers" / f"00000-9{most}.parquet"
        left.write_bytes(b"what a task left behind")
        os._exit(1)

session = SparkSession.builder.master("local[2,4]").config("spark.ui.enabled", "false").getOrCreate()
files = write_files(session, [2, 3], out / "numbers", schema, read, settings=TaskSettings.of_driver(config))
rows = read_files(session, files, "number bigint").collect()
print(json.dumps({"numbers": sorted(row.number for row in rows), "left": len(list((out / "numbers").iterdir()))}))
session.stop()
"""


def test_a_task_that_dies_and_is_repeated_adds_its_rows_once(tmp_path: Path, config: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _DYING, str(tmp_path), str(config)],
        env=submit_environment(tmp_path, PYTHONPATH=str(ROOT), SPARK_LOCAL_IP="127.0.0.1"),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["numbers"] == [0, 0, 1, 1, 2]
    assert found["left"] == 4
