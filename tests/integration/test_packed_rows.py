"""Rows that tasks read once: repeated and lost tasks add no row twice, errors keep their kind, the driver writes."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

from include.tiering.app import App
from include.tiering.cli.exit_codes import ExitCode
from include.tiering.errors import MetadataUnavailableError
from spark_jobs.packed_rows import batches_of, packed_batches, read_once, store, unpacked
from spark_jobs.shared import Batches, TaskStoppedError
from spark_jobs.task_settings import TaskSettings
from tests.doubles.archive import planned_run
from tests.doubles.spark import NO_JAVA, ROOT, submit_environment

pytestmark = NO_JAVA

_SCHEMA: Final = pa.schema([("number", pa.int64()), ("text", pa.dictionary(pa.int32(), pa.string()))])
_COLUMNS: Final = "number bigint, text string"


@pytest.fixture
def config(tmp_path: Path) -> Path:
    return planned_run(tmp_path)


def numbers_up_to() -> Callable[[App, int], Batches]:
    """A function inside a function, which goes to the tasks as it is: they cannot import this module."""

    def read(_: App, most: int) -> Batches:
        for number in range(most):
            texts = pa.array([None if number == 1 else f"t{number % 2}"], pa.string())
            yield pa.record_batch({"number": pa.array([number]), "text": texts})

    return read


def sorted_rows(packed: DataFrame) -> list[tuple[int, str | None]]:
    return sorted((row.number, row.text) for row in unpacked(packed, _COLUMNS).collect())


def test_rows_are_read_once_and_unpacked_as_often_as_wanted(spark: SparkSession, tmp_path: Path, config: Path) -> None:
    """Once they are read, no task finds the settings any more."""
    packed = read_once(spark, [3, 0, 2], _SCHEMA, numbers_up_to(), settings=TaskSettings.of_driver(config))
    config.unlink()
    expected = [(0, "t0"), (0, "t0"), (1, None), (1, None), (2, "t0")]
    assert sorted_rows(packed) == sorted_rows(packed) == expected
    assert packed.agg({"rows": "sum"}).collect()[0][0] == len(expected)
    only = unpacked(packed.select("packed"), "text string", lambda batch: batch.slice(0, 1)).collect()
    assert [row.text for row in only] == ["t0", "t0"]


def test_without_work_there_is_no_row(spark: SparkSession, tmp_path: Path, config: Path) -> None:
    for work in ([], [0, 0]):
        packed = read_once(spark, work, _SCHEMA, numbers_up_to(), settings=TaskSettings.of_driver(config))
        assert (packed.count(), sorted_rows(packed)) == (0, [])
        store(unpacked(packed, _COLUMNS), _SCHEMA, tmp_path / "numbers")
        assert pq.read_table(tmp_path / "numbers").num_rows == 0


@pytest.mark.parametrize("apart", [(), ("text",), ("number",)])
@pytest.mark.parametrize("names", [None, ["number"], ["text"], ["text", "number"]])
def test_columns_come_back_as_they_were_packed(names: list[str] | None, apart: tuple[str, ...]) -> None:
    texts = [pa.array([text], pa.string()) for text in ("a", None, "a")]
    batches = [pa.record_batch({"other": pa.array([b"x"]), "text": text, "number": pa.array([7])}) for text in texts]
    values = packed_batches(iter(batches), _SCHEMA, apart)
    (found,) = batches_of(values, names)
    assert set(found.schema.names) == {name for name in _SCHEMA.names if names is None or name in names}
    assert found.num_rows == len(texts)
    if "text" in found.schema.names:
        assert found.column("text").to_pylist() == ["a", None, "a"]
        assert found.column("text").dictionary.to_pylist() == ["a"]


def test_many_rows_are_several_values() -> None:
    batches = (
        pa.record_batch({"number": range(n, n + 60_000), "text": ["t"] * 60_000}) for n in range(0, 480_000, 60_000)
    )
    values = list(packed_batches(batches, _SCHEMA))
    assert [value.column("rows").to_pylist() for value in values] == [[240_000], [240_000]]
    read = batches_of(iter(values), ["number"])
    assert [number for batch in read for number in batch.column("number").to_pylist()] == list(range(480_000))


def test_an_error_of_the_library_keeps_its_kind_and_its_exit_code(spark: SparkSession, config: Path) -> None:
    batch = numbers_up_to()

    def stopping(app: App, most: int) -> Batches:
        yield from batch(app, most)
        if most == 2:
            raise MetadataUnavailableError("the database does not answer")

    with pytest.raises(TaskStoppedError, match="MetadataUnavailableError: the database does not answer") as stopped:
        read_once(spark, [1, 2, 3], _SCHEMA, stopping, settings=TaskSettings.of_driver(config))
    assert stopped.value.exit_code is ExitCode.RETRY


def test_the_driver_writes_rows_in_their_order_in_place_of_an_earlier_run(spark: SparkSession, tmp_path: Path) -> None:
    target = tmp_path / "out" / "numbers"
    for begun in (target, target.with_name(".numbers")):
        begun.mkdir(parents=True)
        (begun / "part-00000.parquet").write_bytes(b"not Parquet, of an earlier run")
    rows = spark.createDataFrame([(n, f"t{n % 3}") for n in range(1000)], _COLUMNS).orderBy("number", ascending=False)
    store(rows, _SCHEMA, target)
    table = pq.read_table(target)
    assert table.column("number").to_pylist() == list(reversed(range(1000)))
    assert list(target.parent.iterdir()) == [target]


def test_a_result_that_cannot_be_written_leaves_the_earlier_one(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "numbers"
    rows = spark.createDataFrame([(1, "t")], _COLUMNS)
    store(rows, _SCHEMA, target)

    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device", str(target))

    monkeypatch.setattr(pq.ParquetWriter, "write_batch", full)
    with pytest.raises(OSError, match="No space left"):
        store(spark.createDataFrame([(2, "t")], _COLUMNS), _SCHEMA, target)
    assert pq.read_table(target).column("number").to_pylist() == [1]


_DYING: Final = """
import json, os, sys
from pathlib import Path
import pyarrow as pa
from pyspark.sql import SparkSession
from spark_jobs.task_settings import TaskSettings
from spark_jobs.packed_rows import SESSION_CONF, read_once, unpacked

out, config = Path(sys.argv[1]), Path(sys.argv[2])

def read(app, most):
    for number in range(most):
        yield pa.record_batch({"number": [number]})
    if not (out / f"died-{most}").exists():
        (out / f"died-{most}").touch()
        os._exit(1)

builder = SparkSession.builder.master("local[2,4]").config("spark.ui.enabled", "false").config(map=dict(SESSION_CONF))
session = builder.getOrCreate()
packed = read_once(session, [2, 3], pa.schema([("number", pa.int64())]), read, settings=TaskSettings.of_driver(config))
rows = unpacked(packed, "number bigint").collect()
print(json.dumps(sorted(row.number for row in rows)))
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
    assert json.loads(done.stdout.splitlines()[-1]) == [0, 0, 1, 1, 2]
    assert (tmp_path / "died-2").exists()
