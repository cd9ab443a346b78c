"""Segment rows as DataFrames, and remote log sizes: tasks add up the rows that they read, Spark adds up those sums.

Each Spark task reads ranges of keys through the library, page by page. A page of rows is converted to columns at once,
without a Python value per row, and passed to Spark before the next page is read: memory does not grow with the number
of segments.

The bytes of a segment count once for its partition and once for each of its leader epochs, so the partition total is
not the sum of its epochs. Most segments have one epoch, so a task first adds up segments with the same list of epochs;
Spark then explodes only these few sums by epoch, not every segment. Sums stay far below 2^63: a segment has
fewer than 2^31 bytes, and counts at most `MOST_OFFSETS` offsets.
"""

from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, SparkSession, functions

from include.tiering.app import App, open_app
from include.tiering.model.segments import RemoteLogSegmentState
from include.tiering.segments.contract import SizeRow
from include.tiering.settings import load_settings
from spark_jobs.shared import Batches, ParentWatch

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
_SUMS: Final = (("size_bytes", "sum"), ("segments", "sum"), ("offsets", "sum"))
_REACH: Final = (("first_offset", "min"), ("last_offset", "max"))


def added_up(segments: pa.Table) -> pa.Table:
    """Add up rows with the columns of `SEGMENTS` to `PARTIAL_SIZES`."""
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
    grouped = measured.group_by(list(_KEYS), use_threads=False).aggregate([*_SUMS, *_REACH])
    names = {f"{name}_{function}": name for name, function in (*_SUMS, *_REACH)}
    return grouped.rename_columns([names.get(name, name) for name in grouped.column_names]).select(
        measured.column_names
    )


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
_BATCHES_TOGETHER: Final = 10
"""Pages that are added up together: more pages give fewer rows to Spark."""


def read_segments(session: SparkSession, app: App, *, ranges: int, config: Path | None) -> DataFrame:
    """Read all segments that are not tombstones, as `SEGMENTS`."""
    return _read(session, app, ranges, config, SEGMENTS, lambda batches: batches)


def read_partial_sizes(session: SparkSession, app: App, *, ranges: int, config: Path | None) -> DataFrame:
    """Read the segments that `read_segments` reads, added up to `PARTIAL_SIZES`."""
    return _read(session, app, ranges, config, PARTIAL_SIZES, partial_sizes)


def partial_sizes(batches: Batches) -> Batches:
    """Apply `added_up` to several batches of `SEGMENTS` at a time."""
    while together := list(islice(batches, _BATCHES_TOGETHER)):
        yield from added_up(pa.Table.from_batches(together)).to_batches()


def batch_of(page: Sequence[SizeRow]) -> pa.RecordBatch:
    """Convert a page to the columns of `SEGMENTS`."""
    columns = [pa.array(values, field.type) for values, field in zip(zip(*page, strict=True), _ROW, strict=True)]
    batch = pa.RecordBatch.from_arrays(columns, schema=_ROW)
    epochs = pc.replace_substring_regex(batch.column("epoch_starts"), _START_OF_EPOCH, "")
    return batch.append_column(pa.field("leader_epochs", pa.string()), epochs)


def _read(
    session: SparkSession,
    app: App,
    ranges: int,
    config: Path | None,
    schema: str,
    transformed: Callable[[Batches], Batches],
) -> DataFrame:
    key_ranges = app.adapters.stores.remote_log_sizes.split(ranges)

    def read(numbers: Batches) -> Batches:
        mine = [key_ranges[number] for batch in numbers for number in batch.column("id").to_pylist()]
        if not mine:
            return
        with ParentWatch(), open_app(load_settings(config)) as reader:
            sizes = reader.adapters.stores.remote_log_sizes
            pages = (page for key_range in mine for page in sizes.export(key_range))
            yield from transformed(map(batch_of, pages))

    # Spark's default is one task per core. A task per range would open the library more often, which is slow.
    return session.range(len(key_ranges)).mapInArrow(read, schema)
