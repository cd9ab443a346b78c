"""Remote log sizes as two groupings: DataFrame in, DataFrame out.

A segment gives its bytes once to its partition and once to each leader epoch that it holds; so the partition total is
not the sum of its epochs. Few segments begin an epoch, so segments are first added up by the list of their epochs: what
is then taken apart by epoch is a handful of rows per partition, not every segment. Sums are exact 64-bit integers: an
overflow is an error.
"""

from typing import Final

from pyspark.sql import Column, DataFrame, functions

from include.tiering.model.segment_state import RemoteLogSegmentState

SEGMENTS: Final = (
    "topic_id string, partition int, state int, size_bytes bigint, start_offset bigint, end_offset bigint,"
    " leader_epochs string"
)
"""One row per segment that is not a tombstone. `state` as on Kafka's wire, offsets inclusive, `leader_epochs` ascending
with commas between them."""

SIZES: Final = (
    "topic_id string, partition int, state string, leader_epoch int, size_bytes bigint, segments bigint,"
    " first_offset bigint, last_offset bigint, offsets decimal(38,0)"
)
"""One row per partition, state and leader epoch; `leader_epoch` null is the whole partition.

`first_offset` to `last_offset` (inclusive) is what its segments reach over, `offsets` is how many they hold: with
neither holes nor overlaps it is last - first + 1.
"""

_ADDED_UP: Final = ("size_bytes", "segments", "offsets")


def remote_log_sizes(segments: DataFrame) -> DataFrame:
    """From `SEGMENTS` to `SIZES`."""
    offsets = functions.col("end_offset") - functions.col("start_offset") + 1
    by_epochs = segments.groupBy("topic_id", "partition", "state", "leader_epochs").agg(
        functions.sum("size_bytes").alias("size_bytes"),
        functions.count(functions.lit(1)).alias("segments"),
        functions.sum(offsets).cast("decimal(38,0)").alias("offsets"),
        functions.min("start_offset").alias("first_offset"),
        functions.max("end_offset").alias("last_offset"),
    )
    whole_partition = functions.array(functions.lit(None).cast("int"))
    epochs = functions.split("leader_epochs", ",").cast("array<int>")
    return (
        by_epochs.withColumn("leader_epoch", functions.explode(functions.concat(whole_partition, epochs)))
        .groupBy("topic_id", "partition", "state", "leader_epoch")
        .agg(
            *(functions.sum(name).alias(name) for name in _ADDED_UP),
            functions.min("first_offset").alias("first_offset"),
            functions.max("last_offset").alias("last_offset"),
        )
        .select(
            "topic_id",
            "partition",
            _state_name().alias("state"),
            "leader_epoch",
            "size_bytes",
            "segments",
            "first_offset",
            "last_offset",
            functions.col("offsets").cast("decimal(38,0)").alias("offsets"),
        )
    )


def _state_name() -> Column:
    names = functions.array(*(functions.lit(state.name) for state in RemoteLogSegmentState))
    return functions.element_at(names, functions.col("state") + 1)
