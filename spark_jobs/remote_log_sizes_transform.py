"""Remote log sizes as one grouping: DataFrame in, DataFrame out.

A segment gives its bytes once to its partition and once to each leader epoch that it holds; so the partition total is
not the sum of its epochs. Only FINISHED segments count. Sums are exact 64-bit integers: an overflow is an error.
"""

from typing import Final

from pyspark.sql import DataFrame, functions

FINISHED: Final = "COPY_SEGMENT_FINISHED"

SEGMENTS: Final = (
    "topic string, topic_id string, partition int, state string, size_bytes bigint, leader_epochs array<int>"
)
"""One row per segment that is not a tombstone."""

SIZES: Final = "topic string, topic_id string, partition int, leader_epoch int, size_bytes bigint, segments bigint"
"""One row per partition and leader epoch; `leader_epoch` null is the whole partition."""


def remote_log_sizes(segments: DataFrame) -> DataFrame:
    """From `SEGMENTS` to `SIZES`."""
    whole_partition = functions.array(functions.lit(None).cast("int"))
    return (
        segments.select("topic", "topic_id", "partition", "state", "size_bytes", "leader_epochs")
        .where(functions.col("state") == FINISHED)
        .withColumn("leader_epoch", functions.explode(functions.concat(whole_partition, "leader_epochs")))
        .groupBy("topic_id", "partition", "leader_epoch")
        .agg(
            functions.max("topic").alias("topic"),
            functions.sum("size_bytes").alias("size_bytes"),
            functions.count(functions.lit(1)).alias("segments"),
        )
        .select("topic", "topic_id", "partition", "leader_epoch", "size_bytes", "segments")
    )
