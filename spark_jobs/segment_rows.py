"""Segment rows as a DataFrame: each Spark task reads ranges of keys through the library, page by page.

A page of rows becomes columns at once, without a Python value per row, and leaves for Spark before the next one is
read: memory does not grow with the number of segments.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession

from include.tiering.remote_metadata.sizes_contract import SizeRow
from include.tiering.settings import load_settings
from include.tiering.wiring import Tiering, open_tiering
from spark_jobs.parent_watch import ParentWatch
from spark_jobs.remote_log_sizes_transform import SEGMENTS

IDENTIFIED_SEGMENTS: Final = f"{SEGMENTS}, segment_id string, epoch_starts string"
"""`SEGMENTS` with what identifies one: `epoch_starts` as `epoch:start,epoch:start`."""

_COLUMNS: Final = pa.schema(
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


def read_segments(
    session: SparkSession, tiering: Tiering, *, ranges: int, config: Path | None, schema: str = SEGMENTS
) -> DataFrame:
    """All segments of now that are not tombstones, as `SEGMENTS` or `IDENTIFIED_SEGMENTS`."""
    key_ranges = tiering.segment_ranges(ranges)
    names = [column.split()[0] for column in schema.split(",")]

    def read(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with ParentWatch(), open_tiering(load_settings(config)) as reader:
            for number in (number for batch in numbers for number in batch.column("id").to_pylist()):
                for page in reader.export_segments(key_ranges[number]):
                    yield batch_of(page).select(names)

    numbers = session.range(0, len(key_ranges), 1, numPartitions=max(1, len(key_ranges)))
    return numbers.mapInArrow(read, schema)


def batch_of(page: Sequence[SizeRow]) -> pa.RecordBatch:
    """Columns of `IDENTIFIED_SEGMENTS`, by name."""
    columns = [pa.array(values, field.type) for values, field in zip(zip(*page, strict=True), _COLUMNS, strict=True)]
    batch = pa.RecordBatch.from_arrays(columns, schema=_COLUMNS)
    epochs = pc.replace_substring_regex(batch.column("epoch_starts"), _START_OF_EPOCH, "")
    return batch.append_column(pa.field("leader_epochs", pa.string()), epochs)
