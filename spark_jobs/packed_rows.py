"""Rows that tasks read once: packed as columns, and kept by Spark where the tasks ran.

A batch that a Python task returns becomes rows of the JVM, which cost more than reading the rows did. So a task packs
many rows into one value, and Spark carries that value. Later steps unpack it in their tasks, and take what they need.

Spark keeps what tasks return on the disks of the executors, and sends it to the others (a local checkpoint). Nothing is
in a directory that driver and executors would have to share, and nothing is left behind: the directories are Spark's.
The rows are those of one moment: they are never read again. On a cluster each value is on two executors, if there are
two. If both are lost, the job fails, and has to begin again.
"""

import shutil
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession

from include.tiering.app import App
from spark_jobs.shared import Batches, ParentWatch
from spark_jobs.task_errors import ERROR_COLUMNS, require_no_error, telling
from spark_jobs.task_settings import TaskSettings

WorkT = TypeVar("WorkT")

PACKED: Final = "packed binary, apart binary, rows bigint"
"""Many rows: their columns as one or two values (Arrow's stream format), and their number."""

SESSION_CONF: Final[Mapping[str, str]] = {
    # Else the JVM holds the last hundred values that it wrote to a disk, or read from there.
    "spark.serializer.objectStreamReset": "1",
    # Values are compressed already.
    "spark.rdd.compress": "false",
    # A task gets a few values at once; by their number alone it would be ten thousand.
    "spark.sql.execution.arrow.maxBytesPerBatch": str(32 * 1024 * 1024),
    # A sum that overflows must fail, and not come out wrong, whatever spark-defaults.conf says.
    "spark.sql.ansi.enabled": "true",
}
"""What a session of a job needs so that memory does not grow with the number of values, and results do not depend on
the administrator's file."""

_VALUES: Final = ("packed", "apart")
_PACKED_SCHEMA: Final = pa.schema([*((name, pa.binary()) for name in _VALUES), ("rows", pa.int64())])
_GROUP_ROWS: Final = 200_000
_COMPRESSED: Final = pa.ipc.IpcWriteOptions(compression="lz4")


def read_once(
    session: SparkSession,
    work: Sequence[WorkT],
    schema: pa.Schema,
    read: Callable[[App, WorkT], Batches],
    *,
    settings: TaskSettings,
    apart: Collection[str] = (),
) -> DataFrame:
    """Read all pieces of `work` in tasks; return the rows as `PACKED`, which are kept until the session ends.

    Args:
        session: the session whose tasks read.
        work: what `read` is called with, in a task for each piece; can be pickled.
        schema: columns of the rows. A text that repeats should be a dictionary: it is grouped in half the time.
        read: yields batches, whose columns have these names; it must be picklable.
        settings: the settings with which a task opens the library.
        apart: columns in the second value: a step that does not need them selects `packed` alone.

    Raises:
        TaskStoppedError: a task stopped with an error of the library.
    """

    def pack(numbers: Batches) -> Batches:
        mine = [number for batch in numbers for number in batch.column("id").to_pylist()]
        if not mine:
            return
        with ParentWatch(), settings.open_app() as app:
            for number in mine:
                yield from packed_batches(read(app, work[number]), schema, apart)

    numbers = session.range(0, len(work), 1, numPartitions=max(1, len(work)))
    return kept_without_errors(numbers.mapInArrow(telling(pack, _PACKED_SCHEMA), PACKED + ERROR_COLUMNS))


def kept_without_errors(rows: DataFrame) -> DataFrame:
    """Compute `rows`, which have `ERROR_COLUMNS`, once; return them without these columns, kept.

    Raises:
        TaskStoppedError: a task returned an error.
    """
    once = _checkpoint(rows)
    # This first action computes every partition, and keeps it.
    require_no_error(once.where("error IS NOT NULL").select("error", "exit_code").collect())
    return once.drop("error", "exit_code")


def kept(rows: DataFrame) -> DataFrame:
    """Compute `rows` once; return what Spark keeps of them until the session ends."""
    once = _checkpoint(rows)
    once.count()
    return once


def _checkpoint(rows: DataFrame) -> DataFrame:
    master = rows.sparkSession.sparkContext.master or ""
    is_local = master == "local" or master.startswith("local[")
    level = StorageLevel.DISK_ONLY if is_local else StorageLevel.DISK_ONLY_2
    return rows.localCheckpoint(eager=False, storageLevel=level)


def unpacked(
    packed: DataFrame, columns: str, wanted: Callable[[pa.RecordBatch], pa.RecordBatch] | None = None
) -> DataFrame:
    """Return the rows of `packed` as rows of Spark.

    Args:
        packed: rows as `PACKED`, or its columns with the wanted ones.
        columns: names and types of Spark; all of them are columns of the packed rows.
        wanted: selects rows of a batch, in a task.
    """
    names = [column.split()[0] for column in columns.split(",")]

    def unpack(values: Batches) -> Batches:
        for batch in batches_of(values, names):
            chosen = batch if wanted is None else wanted(batch)
            plain = [
                column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
                for column in (chosen.column(name) for name in names)
            ]
            yield pa.RecordBatch.from_arrays(plain, names=names)

    return packed.mapInArrow(unpack, columns)


def batches_of(values: Batches, names: Sequence[str] | None = None) -> Batches:
    """Yield the rows of packed `values`, in a task or on the driver; only the columns `names`, in the packed order."""
    for value in values:
        held = [value.column(name).drop_null() for name in _VALUES if name in value.schema.names]
        for packed in zip(*(column for column in held if len(column)), strict=True):
            parts = [_part(pa.BufferReader(each.as_buffer()), names) for each in packed]
            columns = {name: part.column(name) for part in parts for name in part.schema.names}
            yield pa.RecordBatch.from_pydict(columns)


def _part(packed: pa.BufferReader, names: Sequence[str] | None) -> pa.RecordBatch:
    schema = pa.ipc.read_schema(packed)
    packed.seek(0)
    fields = [place for place, name in enumerate(schema.names) if names is None or name in names]
    # An empty list would stand for all columns.
    options = pa.ipc.IpcReadOptions(included_fields=fields or [0], use_threads=False)
    with pa.ipc.open_stream(packed, options=options) as stream:
        return stream.read_next_batch().select([schema.names[place] for place in fields])


def packed_batches(batches: Batches, schema: pa.Schema, apart: Collection[str] = ()) -> Batches:
    """Pack batches to `PACKED`, some 200,000 rows in each value; no value is without a row."""
    parts = [[field for field in schema if (field.name in apart) == is_apart] for is_apart in (False, True)]
    for group in _groups(batches):
        table = pa.Table.from_batches(group).combine_chunks()
        values = [pa.array([_packed(table, fields) if fields else None], pa.binary()) for fields in parts]
        yield pa.RecordBatch.from_arrays([*values, pa.array([table.num_rows], pa.int64())], schema=_PACKED_SCHEMA)


def _packed(table: pa.Table, fields: Sequence[pa.Field]) -> bytes:
    columns = [_column(table.column(field.name).combine_chunks(), field) for field in fields]
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, pa.schema(fields), options=_COMPRESSED) as stream:
        stream.write_batch(pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields)))
    packed: bytes = sink.getvalue().to_pybytes()
    return packed


def _column(column: pa.Array, field: pa.Field) -> pa.Array:
    return column.dictionary_encode() if pa.types.is_dictionary(field.type) else column.cast(field.type)


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


def store(rows: DataFrame, schema: pa.Schema, target: Path) -> None:
    """Write the columns of `schema` to one Parquet file in the directory `target`, in the order of `rows`.

    The driver writes: memory holds one partition of `rows`. The directory appears when it is complete, in place of the
    one of an earlier run.

    Raises:
        OSError: the directory cannot be written.
    """

    def pack(batches: Batches) -> Batches:
        return packed_batches(batches, schema)

    begun = target.with_name(f".{target.name}")
    _remove(begun)
    begun.mkdir(parents=True)
    with pq.ParquetWriter(begun / "rows.parquet", schema, compression="zstd") as writer:
        for row in rows.mapInArrow(pack, PACKED).toLocalIterator():
            for batch in batches_of(iter([pa.RecordBatch.from_pylist([row.asDict()], _PACKED_SCHEMA)])):
                writer.write_batch(batch)
    _remove(target)
    begun.rename(target)


def _remove(directory: Path) -> None:
    if directory.exists():
        shutil.rmtree(directory)
