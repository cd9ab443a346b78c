"""Segment rows, remote log sizes and overlaps: tasks read rows and add them up, Spark adds up those sums.

The rows are read from the database once. Each Spark task reads ranges of keys through the library, page by page, and
packs them (see `packed_rows`); a page of rows is converted to columns at once. All that a run computes comes from these
packed rows, so memory does not grow with the number of segments, nor with the segments of one partition.

The bytes of a segment count once for its partition and once for each of its leader epochs, so the partition total is
not the sum of its epochs. Most segments have one epoch, so a task first adds up segments with the same list of epochs;
Spark then explodes only these few sums by epoch, not every segment. Sums stay far below 2^63: a segment has
fewer than 2^31 bytes, and counts at most `MOST_OFFSETS` offsets.

Where each segment of a partition begins behind the end of another one, a sum of pseudorandom marks of all ends and
begins leaves only the marks of the first begin and the last end. So the sums also tell which partitions have a hole or
an overlap, and only their segments are sorted. Holes and overlaps of equal length do not cancel out.
"""

import re
from collections.abc import Callable, Collection, Sequence
from itertools import islice
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, SparkSession, Window, functions

from include.tiering.app import App
from include.tiering.errors import RemoteMetadataError
from include.tiering.model.segments import RemoteLogSegmentState
from include.tiering.segments.sizes_contract import KeyRange, SizeRow
from spark_jobs.packed_rows import batches_of, read_once
from spark_jobs.shared import Batches
from spark_jobs.task_settings import TaskSettings

PARTIAL_SIZES: Final = (
    "topic_id string, partition int, state int, leader_epochs string, size_bytes bigint, segments bigint,"
    " offsets bigint, marks bigint, first_offset bigint, last_offset bigint"
)
"""Sums over segments of one partition, one state and one list of leader epochs (ascending, separated by commas).

`marks` is the sum of the marks of the offsets behind the segments, less those of their first offsets.
"""

SIZES: Final = (
    "topic_id string, partition int, state string, leader_epoch int, size_bytes bigint, segments bigint,"
    " first_offset bigint, last_offset bigint, offsets decimal(38,0), marks bigint"
)
"""One row per partition, state and leader epoch; `leader_epoch` null is the whole partition. `marks` is added up, too.

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
        *((name, pa.int64()) for name in ("size_bytes", "segments", "offsets", "marks", "first_offset", "last_offset")),
    ]
)
_SUMS: Final = (("size_bytes", "sum"), ("segments", "sum"), ("offsets", "sum"), ("marks", "sum"))
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
            "marks": _marks(first, last),
            "first_offset": first,
            "last_offset": last,
        }
    )
    return _summed(measured)


def _marks(first: pa.Array | pa.ChunkedArray, last: pa.Array | pa.ChunkedArray) -> pa.Array:
    behind, begins = (column.to_numpy().view(np.uint64) for column in (last, first))
    # In this type the offset behind the last possible one is no overflow.
    return pa.array(_mark(behind + np.uint64(1)) - _mark(begins))


def _mark(offsets: npt.NDArray[np.uint64]) -> npt.NDArray[np.int64]:
    """Return pseudorandom numbers below 2^31, as a multiplication, a fold and a multiplication give them."""
    mixed = offsets * _FACTORS[0]
    mixed ^= mixed >> np.uint64(32)
    mixed *= _FACTORS[1]
    mixed >>= np.uint64(33)
    return mixed.view(np.int64)


_FACTORS: Final = (np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F))
"""Odd numbers of 64 bits without a pattern: those of the golden ratio, and a prime."""


def not_contiguous(sizes: DataFrame) -> DataFrame:
    """Return topic id and number of the partitions in `SIZES` whose FINISHED segments have a hole or an overlap.

    A partition that has one is missed in one of 2^31 cases. A partition with a damaged row, which ends before it
    begins, is returned.
    """

    def find(batches: Batches) -> Batches:
        for batch in batches:
            is_whole = pc.equal(
                _marks(batch.column("first_offset"), batch.column("last_offset")), batch.column("marks")
            )
            yield batch.filter(pc.invert(is_whole)).select(list(_PARTITION))

    whole = (functions.col("state") == RemoteLogSegmentState.COPY_SEGMENT_FINISHED.name) & functions.col(
        "leader_epoch"
    ).isNull()
    columns = (*_PARTITION, "first_offset", "last_offset", "marks")
    return sizes.where(whole).select(*columns).mapInArrow(find, "topic_id string, partition int")


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
            # As two numbers that cannot overflow: to add up decimals takes several times as long.
            functions.sum(functions.expr("offsets DIV 4294967296")).alias("high"),
            functions.sum(functions.expr("offsets % 4294967296")).alias("low"),
            functions.sum("marks").alias("marks"),
        )
        .withColumn("offsets", functions.expr("CAST(high AS decimal(20,0)) * 4294967296 + low").cast("decimal(38,0)"))
        .withColumn("state", _state_name())
        .select("topic_id", "partition", "state", "leader_epoch", *_MEASURES)
    )


STORED_SIZES: Final = pa.schema(
    [
        ("topic", pa.string()),
        ("topic_id", pa.string()),
        ("partition", pa.int32()),
        ("state", pa.string()),
        ("leader_epoch", pa.int32()),
        *((name, pa.int64()) for name in ("size_bytes", "segments", "first_offset", "last_offset")),
        ("offsets", pa.decimal128(38, 0)),
    ]
)
"""`SIZES` with the topic's name and without marks, as they are stored."""

_MEASURES: Final = ("size_bytes", "segments", "first_offset", "last_offset", "offsets", "marks")


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
_EPOCHS: Final = re.compile(r"[0-9]{1,10}(,[0-9]{1,10})*")
_TEXTS_THAT_REPEAT: Final = ("topic_id", "leader_epochs")
ROWS: Final = pa.schema(
    pa.field(field.name, pa.dictionary(pa.int32(), pa.string()) if field.name in _TEXTS_THAT_REPEAT else field.type)
    for field in _ROW.append(pa.field("leader_epochs", pa.string()))
)
"""The columns of `SEGMENTS` as they are packed."""
_APART: Final = ("epoch_starts", "segment_id")
_ADDED_UP_TOGETHER: Final = 5
"""Values whose sums are added up once more."""
_MOST_SUMS: Final = 200_000
"""A task gives Spark its sums when it has more of them, and at its end."""
_SUMMED: Final = (*_KEYS, "size_bytes", "start_offset", "end_offset")


def read_segments(session: SparkSession, app: App, *, ranges: int, settings: TaskSettings) -> DataFrame:
    """Read all segments that are not tombstones, once; return them packed, with the columns of `ROWS`.

    Raises:
        TaskStoppedError: a range could not be read.
    """

    def read(reader: App, key_range: KeyRange) -> Batches:
        return map(batch_of, reader.adapters.stores.remote_log_sizes.export(key_range))

    key_ranges = app.adapters.stores.remote_log_sizes.split(ranges)
    return read_once(session, key_ranges, ROWS, read, settings=settings, apart=_APART)


def batch_of(page: Sequence[SizeRow]) -> pa.RecordBatch:
    """Convert a page to the columns of `SEGMENTS`.

    Raises:
        RemoteMetadataError: the leader epochs of a segment are damaged.
    """
    # Column after column: to unpack 20,000 rows at once takes five times as long.
    columns = [pa.array([row[place] for row in page], field.type) for place, field in enumerate(_ROW)]
    starts = columns[_ROW.get_field_index("epoch_starts")]
    epochs = pc.replace_substring_regex(starts, _START_OF_EPOCH, "")
    # Nearly all segments have one of a few lists.
    for text in pc.unique(epochs).to_pylist():
        if not _EPOCHS.fullmatch(text):
            place = pc.index(epochs, text).as_py()
            message = (
                f"segment {page[place][-1]} has the leader epochs {starts[place].as_py()!r}, not epoch:offset pairs"
            )
            raise RemoteMetadataError(f"{message}: its row was changed outside of the platform")
    return pa.RecordBatch.from_arrays([*columns, epochs], names=ROWS.names)


def partial_sizes(packed: DataFrame) -> DataFrame:
    """Add up packed segments to `PARTIAL_SIZES`, in tasks."""

    def add_up(values: Batches) -> Batches:
        rows = batches_of(values, _SUMMED)
        total = _PARTIAL.empty_table()
        while sums := [added_up(pa.Table.from_batches([batch])) for batch in islice(rows, _ADDED_UP_TOGETHER)]:
            total = _summed(pa.concat_tables([total, *sums]))
            if total.num_rows > _MOST_SUMS:
                yield from total.to_batches()
                total = _PARTIAL.empty_table()
        yield from total.to_batches()

    # Few tasks give few sums: one for each core.
    cores = packed.sparkSession.sparkContext.defaultParallelism
    return packed.select("packed").coalesce(cores).mapInArrow(add_up, PARTIAL_SIZES)


_FINISHED: Final = int(RemoteLogSegmentState.COPY_SEGMENT_FINISHED)
_PARTITION: Final = ("topic_id", "partition")
FINISHED_SPANS: Final = (
    "topic_id string, partition int, state int, start_offset bigint, end_offset bigint, size_bytes bigint"
)
"""What `overlaps` needs of a segment."""


def finished_of(partitions: Collection[tuple[str, int]]) -> Callable[[pa.RecordBatch], pa.RecordBatch]:
    """Return a function that selects FINISHED segments of these partitions (topic id, number) from a packed batch."""
    numbers = {topic_id: number for number, topic_id in enumerate(sorted({topic_id for topic_id, _ in partitions}))}
    wanted = np.array([(numbers[topic_id] << 32) + partition for topic_id, partition in partitions], np.int64)

    def select(batch: pa.RecordBatch) -> pa.RecordBatch:
        topics = batch.column("topic_id")
        known = np.array([numbers.get(topic_id, -1) for topic_id in topics.dictionary.to_pylist()], np.int64)
        keys = (known[topics.indices.to_numpy()] << 32) + batch.column("partition").to_numpy()
        finished = batch.column("state").to_numpy() == _FINISHED
        # A damaged row that ends before it begins holds no offset.
        holds = batch.column("end_offset").to_numpy() >= batch.column("start_offset").to_numpy()
        return batch.filter(pa.array(np.isin(keys, wanted) & finished & holds))

    return select


def overlaps(finished: DataFrame) -> DataFrame:
    """Return the FINISHED `bytes` that are stored more than once, by topic id and partition; without them no row.

    If a segment begins at or below the end of an earlier one, the share of its offsets that earlier segments hold, too,
    is applied to its bytes, rounded down. Segments are in the order of their offsets, then of their bytes. The exact
    bytes could only be found by reading the records.

    Args:
        finished: FINISHED segments with the columns of `FINISHED_SPANS`; none ends before it begins.
    """
    earlier = (
        Window.partitionBy(*_PARTITION)
        .orderBy(*_OFFSETS, "size_bytes")
        .rowsBetween(Window.unboundedPreceding, Window.currentRow - 1)
    )
    return (
        finished.withColumn("covered_to", functions.max("end_offset").over(earlier))
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
