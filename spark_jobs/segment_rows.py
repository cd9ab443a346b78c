"""Segment rows as DataFrames: each Spark task reads ranges of keys through the library, page by page.

A page of rows becomes columns at once, without a Python value per row, and leaves for Spark before the next ones are
read: memory does not grow with the number of segments.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession

from include.tiering.app import App, open_app
from include.tiering.segments.contract import SizeRow
from include.tiering.settings import load_settings
from spark_jobs.parent_watch import ParentWatch
from spark_jobs.remote_log_sizes_transform import PARTIAL_SIZES, added_up

SEGMENTS: Final = (
    "topic_id string, partition int, state int, size_bytes bigint, start_offset bigint, end_offset bigint,"
    " epoch_starts string, segment_id string, leader_epochs string"
)
"""One row per segment that is not a tombstone. `state` as on Kafka's wire, offsets inclusive, `epoch_starts` as
`epoch:start,epoch:start`, `leader_epochs` as `epoch,epoch`."""

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
"""Pages that are added up at once: the more, the fewer rows come out of them."""

Batches = Iterator[pa.RecordBatch]


def read_segments(session: SparkSession, app: App, *, ranges: int, config: Path | None) -> DataFrame:
    """All segments of now that are not tombstones, as `SEGMENTS`."""
    return _read(session, app, ranges, config, SEGMENTS, lambda batches: batches)


def read_partial_sizes(session: SparkSession, app: App, *, ranges: int, config: Path | None) -> DataFrame:
    """What these segments add up to, as `PARTIAL_SIZES`."""
    return _read(session, app, ranges, config, PARTIAL_SIZES, partial_sizes)


def partial_sizes(batches: Batches) -> Batches:
    """`added_up`, several batches of `SEGMENTS` at a time."""
    while together := list(islice(batches, _BATCHES_TOGETHER)):
        yield from added_up(pa.Table.from_batches(together)).to_batches()


def batch_of(page: Sequence[SizeRow]) -> pa.RecordBatch:
    """Columns of `SEGMENTS`."""
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
    key_ranges = app.sizes.segment_ranges(ranges)

    def read(numbers: Batches) -> Batches:
        mine = [key_ranges[number] for batch in numbers for number in batch.column("id").to_pylist()]
        if not mine:
            return
        with ParentWatch(), open_app(load_settings(config)) as reader:
            pages = (page for key_range in mine for page in reader.sizes.export_segments(key_range))
            yield from transformed(map(batch_of, pages))

    # As many tasks as Spark has room for at once: each opens the library, which takes longer than many a range.
    return session.range(len(key_ranges)).mapInArrow(read, schema)
