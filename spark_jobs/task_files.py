"""Parquet files that tasks write themselves: each piece of work is one file, and the driver reads the files it is told.

A batch that a Python task returns to Spark becomes rows of the JVM, which cost more than reading the rows did. A task
writes its batches as columns instead, and returns the name of the file. Memory holds one row group, whatever a piece
of work holds. The directory must be the same one on the driver's host and on the executors'.

Names have the id of the job and of the attempt, and only the names that successful attempts return are read. So a task
that is repeated, or a lost executor that goes on writing, adds no row, also if it is one of an earlier job.
"""

import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession

from include.tiering.app import App
from include.tiering.cli.exit_codes import ExitCode
from spark_jobs.shared import Batches, ParentWatch, TaskStoppedError
from spark_jobs.task_errors import ERROR_COLUMNS, require_no_error, telling
from spark_jobs.task_settings import TaskSettings

WorkT = TypeVar("WorkT")

_WRITTEN: Final = "file string"
_WRITTEN_SCHEMA: Final = pa.schema([("file", pa.string())])
_GROUP_ROWS: Final = 200_000
_MOST_ROWS: Final = 1_000_000


def write_files(
    session: SparkSession,
    work: Sequence[WorkT],
    target: Path,
    schema: pa.Schema,
    read: Callable[[App, WorkT], Batches],
    *,
    settings: TaskSettings,
    tasks: int | None = None,
) -> list[Path]:
    """Replace the directory `target` by one Parquet file for each piece of `work` that has rows; return the files.

    Args:
        session: the session whose tasks read and write.
        work: what `read` is called with, once for each piece; can be pickled.
        target: the directory, which executors must see.
        schema: columns of the batches.
        read: yields batches; it must be picklable.
        settings: with which a task opens the library.
        tasks: number of tasks that share the work; None: one for each core.

    Raises:
        TaskStoppedError: a task stopped with an error of the library, or could not write its file.
        OSError: the directory cannot be replaced.
    """
    if target.exists():
        shutil.rmtree(target)
    target.mkdir(parents=True)
    job = session.sparkContext.applicationId

    def write(numbers: Batches) -> Batches:
        mine = [number for batch in numbers for number in batch.column("id").to_pylist()]
        if not mine:
            return
        with ParentWatch(), settings.open_app() as app:
            for number in mine:
                file = target / f"{number:05}-{job}-{_attempt()}.parquet"
                if _write(file, schema, read(app, work[number])):
                    yield pa.RecordBatch.from_pylist([{"file": file.name}], schema=_WRITTEN_SCHEMA)

    numbers = session.range(0, len(work), 1, numPartitions=tasks)
    found = numbers.mapInArrow(telling(write, _WRITTEN_SCHEMA), _WRITTEN + ERROR_COLUMNS).collect()
    require_no_error(found)
    return sorted(target / row.file for row in found)


def read_files(session: SparkSession, files: Sequence[Path], columns: str) -> DataFrame:
    """Return the rows of `files`, which have `columns`; none without a file."""
    if not files:
        return session.createDataFrame([], columns)
    return session.read.schema(columns).parquet(*map(str, files))


def _attempt() -> int:
    context = TaskContext.get()
    return 0 if context is None else context.taskAttemptId()


def _write(file: Path, schema: pa.Schema, batches: Batches) -> bool:
    """Write the batches in row groups; return whether there was a row. Without one there is no file."""
    writer: pq.ParquetWriter | None = None
    try:
        for group in _groups(batches):
            with _writing(file):
                # Files of a run are read by the same run: to unpack LZ4 takes half as long as Snappy.
                writer = writer or pq.ParquetWriter(file, schema, compression="lz4")
                writer.write_table(pa.Table.from_batches(group, schema), row_group_size=_MOST_ROWS)
    finally:
        if writer is not None:
            with _writing(file):
                writer.close()
    return writer is not None


@contextmanager
def _writing(file: Path) -> Iterator[None]:
    """Name the file in an error of the system. Raises TaskStoppedError."""
    try:
        yield
    except OSError as error:
        message = f"{file} cannot be written by a task of Spark: {error.strerror}"
        raise TaskStoppedError(message, ExitCode.USAGE) from error


def _groups(batches: Batches) -> Iterator[list[pa.RecordBatch]]:
    """Yield batches together that have at least `_GROUP_ROWS` rows; the last ones may have fewer, but never none."""
    held: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        held.append(batch)
        rows += batch.num_rows
        if rows >= _GROUP_ROWS:
            yield held
            held, rows = [], 0
    if rows:
        yield held
