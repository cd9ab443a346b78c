"""Remote log sizes: rows of segments added up by Arrow where they are read, sums added up by Spark.

A segment gives its bytes once to its partition and once to each leader epoch that it holds; so the partition total is
not the sum of its epochs. Few segments begin an epoch, so segments are first added up by the list of their epochs,
column by column and before they leave the process that read them; what Spark takes apart by epoch is a handful of rows
per partition, not every segment. Sums are exact: an overflow is an error.
"""

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, functions

from include.tiering.model.segment_metadata import RemoteLogSegmentState

PARTIAL_SIZES: Final = (
    "topic_id string, partition int, state int, leader_epochs string, size_bytes bigint, segments bigint,"
    " offsets bigint, first_offset bigint, last_offset bigint"
)
"""Some segments of one partition in one state that list the same leader epochs (ascending, with commas between)."""

SIZES: Final = (
    "topic_id string, partition int, state string, leader_epoch int, size_bytes bigint, segments bigint,"
    " first_offset bigint, last_offset bigint, offsets decimal(38,0)"
)
"""One row per partition, state and leader epoch; `leader_epoch` null is the whole partition.

`first_offset` to `last_offset` (inclusive) is what its segments reach over, `offsets` is how many they hold: with
neither holes nor overlaps it is last - first + 1. Of one segment at most `MOST_OFFSETS` count.
"""

MOST_OFFSETS: Final = 2**40
"""No Kafka segment spans as many; sums of less cannot overflow."""

_KEYS: Final = ("topic_id", "partition", "state", "leader_epochs")
_SUMS: Final = (("size_bytes", "sum"), ("segments", "sum"), ("offsets", "sum"))
_REACH: Final = (("first_offset", "min"), ("last_offset", "max"))


def added_up(segments: pa.Table) -> pa.Table:
    """`PARTIAL_SIZES` of rows with the columns of `segment_rows`: state as on Kafka's wire, offsets inclusive."""
    first, last = segments.column("start_offset"), segments.column("end_offset")
    offsets = pc.min_element_wise(pc.add(pc.subtract(last, first), 1), MOST_OFFSETS)
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
    """From `PARTIAL_SIZES` to `SIZES`."""
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
