"""Segment rows as files, remote log sizes and overlaps: tasks add up the rows of files, Spark adds up those sums.

The rows are read from the database once. Each Spark task reads ranges of keys through the library, page by page, and
writes them to Parquet files (see `task_files`); a page of rows is converted to columns at once. All that a run computes
comes from these files, so memory does not grow with the number of segments, nor with the segments of one partition.

The bytes of a segment count once for its partition and once for each of its leader epochs, so the partition total is
not the sum of its epochs. Most segments have one epoch, so a task first adds up segments with the same list of epochs;
Spark then explodes only these few sums by epoch, not every segment. Sums stay far below 2^63: a segment has
fewer than 2^31 bytes, and counts at most `MOST_OFFSETS` offsets.
"""

from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame, SparkSession, Window, functions

from include.tiering.app import App
from include.tiering.model.segments import RemoteLogSegmentState
from include.tiering.segments.sizes_contract import KeyRange, SizeRow
from spark_jobs.shared import Batches, ParentWatch
from spark_jobs.task_files import write_files
from spark_jobs.task_settings import TaskSettings

PARTIAL_SIZES: Final = (
    "topic_id string, partition int, state int, leader_epochs string, size_bytes bigint, segments bigint,"
    " offsets bigint, first_offset bigint, last_offset bigint"
)
"""Sums over segments of one partition, one state and one list of leader epochs (ascending, separated by commas)."""

SIZES: Final = (
    "topic_id string, partition int, state string, leader_epoch int, size_bytes bigint, segments bigint,"
    " first_offset bigint, last_offset bigint, offsets decimal(38,0)"
)
"""One row per partition, state and leader epoch; `leader_epoch` null is the whole partition.

The segments of a row span `first_offset` to `last_offset` (inclusive), and hold `offsets` offsets: without holes and
overlaps these are `last_offset` - `first_offset` + 1. A segment counts at most `MOST_OFFSETS` offsets.
"""

MOST_OFFSETS: Final = 2**40
"""More offsets than a Kafka segment can have, and few enough that sums of such numbers do not overflow."""

_KEYS: Final = ("topic_id", "partition", "state", "leader_epochs")
_PARTIAL: Final = pa.schema(
    [
        ("topic_id", pa.string()),
        ("partition", pa.int32()),
        ("state", pa.int32()),
        ("leader_epochs", pa.string()),
        *((name, pa.int64()) for name in ("size_bytes", "segments", "offsets", "first_offset", "last_offset")),
    ]
)
_SUMS: Final = (("size_bytes", "sum"), ("segments", "sum"), ("offsets", "sum"))
_REACH: Final = (("first_offset", "min"), ("last_offset", "max"))


def added_up(segments: pa.Table) -> pa.Table:
    """Add up rows with the columns of `SEGMENTS`, whose texts may be dictionaries, to `PARTIAL_SIZES`."""
    first, last = segments.column("start_offset"), segments.column("end_offset")
    # The smaller number first: the offsets of a damaged row may span all of int64, to which 1 cannot be added.
    offsets = pc.add(pc.min_element_wise(pc.subtract(last, first), MOST_OFFSETS - 1), 1)
    measured = pa.table(
        {
            **{name: segments.column(name) for name in (*_KEYS, "size_bytes")},
            "segments": pa.repeat(pa.scalar(1, pa.int64()), segments.num_rows),
            "offsets": offsets,
            "first_offset": first,
            "last_offset": last,
        }
    )
    return _summed(measured)


def _summed(measured: pa.Table) -> pa.Table:
    grouped = measured.group_by(list(_KEYS), use_threads=False).aggregate([*_SUMS, *_REACH])
    names = {f"{name}_{function}": name for name, function in (*_SUMS, *_REACH)}
    summed = grouped.rename_columns([names.get(name, name) for name in grouped.column_names])
    return summed.select(measured.column_names).cast(_PARTIAL)


def remote_log_sizes(partial_sizes: DataFrame) -> DataFrame:
    """Add up `PARTIAL_SIZES` to `SIZES`."""
    whole_partition = functions.array(functions.lit(None).cast("int"))
    epochs = functions.split("leader_epochs", ",").cast("array<int>")
    return (
        partial_sizes.withColumn("leader_epoch", functions.explode(functions.concat(whole_partition, epochs)))
        .groupBy("topic_id", "partition", "state", "leader_epoch")
        .agg(
            functions.sum("size_bytes").alias("size_bytes"),
            functions.sum("segments").alias("segments"),
            functions.min("first_offset").alias("first_offset"),
            functions.max("last_offset").alias("last_offset"),
            functions.sum(functions.col("offsets").cast("decimal(28,0)")).alias("offsets"),
        )
        .withColumn("state", _state_name())
        .select("topic_id", "partition", "state", "leader_epoch", *_MEASURES)
    )


_MEASURES: Final = ("size_bytes", "segments", "first_offset", "last_offset", "offsets")


def _state_name() -> Column:
    names = functions.array(*(functions.lit(state.name) for state in RemoteLogSegmentState))
    return functions.element_at(names, functions.col("state") + 1)


SEGMENTS: Final = (
    "topic_id string, partition int, state int, size_bytes bigint, start_offset bigint, end_offset bigint,"
    " epoch_starts string, segment_id string, leader_epochs string"
)
"""One row per segment that is not a tombstone.

`state` is Kafka's id of the state, offsets are inclusive, `epoch_starts` is `epoch:start,epoch:start`, `leader_epochs`
is `epoch,epoch`.
"""

_ROW: Final = pa.schema(
    [
        ("topic_id", pa.string()),
        ("partition", pa.int32()),
        ("state", pa.int32()),
        ("size_bytes", pa.int64()),
        ("start_offset", pa.int64()),
        ("end_offset", pa.int64()),
        ("epoch_starts", pa.string()),
        ("segment_id", pa.string()),
    ]
)
_START_OF_EPOCH: Final = ":[0-9]+"
_ROWS: Final = _ROW.append(pa.field("leader_epochs", pa.string()))
_BATCH_ROWS: Final = 200_000
_BATCHES_TOGETHER: Final = 5
"""Rows that are added up together, and batches whose sums are: more of them give fewer sums to Spark."""
_SUMMED: Final = (*_KEYS, "size_bytes", "start_offset", "end_offset")
_REPEATED: Final = ("topic_id", "leader_epochs")


def write_segments(session: SparkSession, app: App, target: Path, *, ranges: int, settings: TaskSettings) -> list[Path]:
    """Write all segments that are not tombstones to files with the columns of `SEGMENTS`; return the files.

    Raises:
        TaskStoppedError: a range could not be read.
        OSError: the directory `target` cannot be replaced.
    """

    def read(reader: App, key_range: KeyRange) -> Batches:
        return map(batch_of, reader.adapters.stores.remote_log_sizes.export(key_range))

    key_ranges = app.adapters.stores.remote_log_sizes.split(ranges)
    return write_files(session, key_ranges, target, _ROWS, read, settings=settings)


def batch_of(page: Sequence[SizeRow]) -> pa.RecordBatch:
    """Convert a page to the columns of `SEGMENTS`."""
    # Column after column: to unpack 20,000 rows at once takes five times as long.
    columns = [pa.array([row[place] for row in page], field.type) for place, field in enumerate(_ROW)]
    epochs = pc.replace_substring_regex(columns[_ROW.get_field_index("epoch_starts")], _START_OF_EPOCH, "")
    return pa.RecordBatch.from_arrays([*columns, epochs], schema=_ROWS)


def partial_sizes(session: SparkSession, files: Sequence[Path]) -> DataFrame:
    """Add up the segments of `files` to `PARTIAL_SIZES`; each file is read by one task."""

    def add_up(numbers: Batches) -> Batches:
        with ParentWatch():
            for batch in numbers:
                for number in batch.column("id").to_pylist():
                    yield from _sums_of(files[number])

    return session.range(len(files)).mapInArrow(add_up, PARTIAL_SIZES)


def _sums_of(file: Path) -> Batches:
    # Texts that repeat stay numbers of a dictionary, which are read and grouped in half the time.
    with pq.ParquetFile(file, read_dictionary=_REPEATED) as stored:
        batches = iter(stored.iter_batches(_BATCH_ROWS, columns=_SUMMED, use_threads=False))
        while sums := [added_up(pa.Table.from_batches([rows])) for rows in islice(batches, _BATCHES_TOGETHER)]:
            yield from _summed(pa.concat_tables(sums)).to_batches()


_FINISHED: Final = int(RemoteLogSegmentState.COPY_SEGMENT_FINISHED)
_PARTITION: Final = ("topic_id", "partition")


def overlaps(segments: DataFrame) -> DataFrame:
    """Return the FINISHED `bytes` that are stored more than once, by topic id and partition; without them no row.

    If a segment begins at or below the end of an earlier one, the share of its offsets that earlier segments hold, too,
    is applied to its bytes, rounded down. Segments are in the order of their offsets, then of their bytes. The exact
    bytes could only be found by reading the records.
    """
    # A damaged row that ends before it begins holds no offset.
    held = (functions.col("state") == _FINISHED) & (functions.col("end_offset") >= functions.col("start_offset"))
    finished = segments.where(held).select(*_PARTITION, *_OFFSETS, "size_bytes")
    suspected = finished.join(functions.broadcast(_not_contiguous(finished)), on=list(_PARTITION), how="left_semi")
    earlier = (
        Window.partitionBy(*_PARTITION)
        .orderBy(*_OFFSETS, "size_bytes")
        .rowsBetween(Window.unboundedPreceding, Window.currentRow - 1)
    )
    return (
        suspected.withColumn("covered_to", functions.max("end_offset").over(earlier))
        .where(functions.col("covered_to") >= functions.col("start_offset"))
        .withColumn("bytes", functions.expr(_SHARE))
        .groupBy(*_PARTITION)
        .agg(functions.sum("bytes").alias("bytes"))
        .where(functions.col("bytes") > 0)
    )


_OFFSETS: Final = ("start_offset", "end_offset")
_START: Final = "CAST(start_offset AS decimal(19,0))"
_SHARE: Final = (
    f"CAST(size_bytes AS decimal(18,0)) * (least(covered_to, end_offset) - {_START} + 1)"
    f" DIV (end_offset - {_START} + 1)"
)
"""As decimals: the offsets of a damaged row may span all of int64."""


def _not_contiguous(finished: DataFrame) -> DataFrame:
    """Return the partitions whose segments have a hole or an overlap.

    Where each segment begins behind the end of another one, the sum of the marks of all ends equals that of all begins,
    but for the outermost two. Marks are pseudorandom, so holes and overlaps of equal length do not cancel out.
    """

    def mark(offset: Column) -> Column:
        return functions.pmod(functions.xxhash64(offset), functions.lit(2**31))

    start, end = (functions.col(name) for name in _OFFSETS)
    behind = functions.try_add(end, functions.lit(1))
    first, last = functions.min(start), functions.max(behind)
    return (
        finished.groupBy(*_PARTITION)
        .agg(functions.sum(mark(behind) - mark(start)).alias("marks"), (mark(last) - mark(first)).alias("outermost"))
        .where(functions.col("marks") != functions.col("outermost"))
        .select(*_PARTITION)
    )
