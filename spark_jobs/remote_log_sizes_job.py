"""Recount remote log sizes from the segment rows, and compare them with the counters.

    spark-submit spark_jobs/remote_log_sizes_job.py --output DIR [--ranges N] [--config F]

    DIR/sizes          Parquet: one row per partition and leader epoch, a null epoch is the whole partition
    DIR/summary.json   what was counted, and every difference

Each task reads one range of segments through the library, page by page: memory does not grow with their number.
Writing again into the same directory replaces what is there. Exit codes: 0 equal, 1 differences, 2 a setting, 3 another
try can help.
"""

import argparse
import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, islice
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame, Row, SparkSession

from include.tiering.cli.exit_codes import ExitCode, code_of
from include.tiering.errors import TieringError
from include.tiering.model.ids import TopicIdPartition, Uuid
from include.tiering.model.sizes import EpochSize, PartitionSize
from include.tiering.remote_metadata.contract import SegmentRow
from include.tiering.settings import load_settings
from include.tiering.tasks.recompute_sizes import SizeComparison, compare_sizes
from include.tiering.wiring import Tiering, open_tiering
from spark_jobs.lost_task import is_lost_task
from spark_jobs.parent_watch import ParentWatch
from spark_jobs.remote_log_sizes_transform import SEGMENTS, remote_log_sizes

READ_RANGES: Final = 8
_PAGE_ROWS: Final = 2_000
ROW: Final = pa.schema(
    [
        ("topic", pa.string()),
        ("topic_id", pa.string()),
        ("partition", pa.int32()),
        ("state", pa.string()),
        ("size_bytes", pa.int64()),
        ("leader_epochs", pa.list_(pa.int32())),
    ]
)


def parse_arguments(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="remote_log_sizes_job", description="Recount remote log sizes.")
    parser.add_argument("--output", required=True, type=Path, help="directory of the results")
    parser.add_argument("--ranges", type=_at_least_one, default=READ_RANGES, help="key ranges, one Spark task each")
    parser.add_argument("--config", type=Path, help="settings file (TOML), readable where the tasks run")
    return parser.parse_args(arguments)


def _at_least_one(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} is not 1 or more")
    return number


def segment_rows(session: SparkSession, tiering: Tiering, *, ranges: int, config: Path | None) -> DataFrame:
    """All segments of now as `SEGMENTS`, read range by range where the tasks run."""
    key_ranges = tiering.segment_ranges(ranges)

    def read(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with ParentWatch(), open_tiering(load_settings(config)) as reader:
            for number in (number for batch in numbers for number in batch.column("id").to_pylist()):
                rows = map(_as_row, reader.export_segments(key_ranges[number]))
                while page := list(islice(rows, _PAGE_ROWS)):
                    yield pa.RecordBatch.from_pylist(page, schema=ROW)

    numbers = session.range(0, len(key_ranges), 1, numPartitions=max(1, len(key_ranges)))
    return numbers.mapInArrow(read, SEGMENTS)


def _as_row(row: SegmentRow) -> dict[str, Any]:
    metadata = row.metadata
    partition = metadata.topic_id_partition
    return {
        "topic": partition.topic,
        "topic_id": str(partition.topic_id),
        "partition": partition.partition,
        "state": metadata.state.name,
        "size_bytes": metadata.segment_size_bytes,
        "leader_epochs": [entry.epoch for entry in metadata.segment_leader_epochs],
    }


def partition_sizes(rows: Iterable[Row]) -> Iterator[PartitionSize]:
    """From rows of `SIZES`, ordered by topic id, partition and leader epoch with nulls first."""
    for (topic_id, partition), grouped in groupby(rows, key=lambda row: (row.topic_id, row.partition)):
        total, *epochs = grouped
        yield PartitionSize(
            TopicIdPartition(Uuid.parse(topic_id), partition, total.topic),
            total.size_bytes,
            total.segments,
            tuple(EpochSize(row.leader_epoch, row.size_bytes, row.segments) for row in epochs),
        )


def recount(session: SparkSession, tiering: Tiering, options: argparse.Namespace) -> dict[str, Any]:
    """Write the sizes, read them back, compare; returns the summary."""
    target = str(options.output / "sizes")
    session.conf.set("spark.sql.shuffle.partitions", str(options.ranges))
    segments = segment_rows(session, tiering, ranges=options.ranges, config=options.config)
    remote_log_sizes(segments).write.mode("overwrite").parquet(target)
    written = session.read.parquet(target).orderBy("topic_id", "partition", "leader_epoch")
    totals = _Totals()
    comparison = compare_sizes(totals.counting(partition_sizes(written.toLocalIterator())), tiering.metadata)
    return summary_of(totals, comparison)


class _Totals:
    def __init__(self) -> None:
        self.segments = 0
        self.size_bytes = 0

    def counting(self, sizes: Iterable[PartitionSize]) -> Iterator[PartitionSize]:
        for size in sizes:
            self.segments += size.segments
            self.size_bytes += size.size_bytes
            yield size


def summary_of(totals: _Totals, comparison: SizeComparison) -> dict[str, Any]:
    return {
        "exit_code": int(ExitCode.FINDINGS if comparison.differences else ExitCode.DONE),
        "partitions": comparison.partitions,
        "segments": totals.segments,
        "bytes": totals.size_bytes,
        "differences": [
            {
                **_labels(difference.counters.topic_id_partition),
                "counters": _size(difference.counters),
                "recounted": _size(difference.recounted),
            }
            for difference in comparison.differences
        ],
        "unsettled": [_labels(partition) for partition in comparison.unsettled],
    }


def _labels(partition: TopicIdPartition) -> dict[str, Any]:
    return {"topic": partition.topic, "topic_id": str(partition.topic_id), "partition": partition.partition}


def _size(size: PartitionSize) -> dict[str, Any]:
    epochs = [{"epoch": e.leader_epoch, "bytes": e.size_bytes, "segments": e.segments} for e in size.leader_epochs]
    return {"bytes": size.size_bytes, "segments": size.segments, "leader_epochs": epochs}


def attempt(session: SparkSession, options: argparse.Namespace) -> dict[str, Any]:
    """Recount and store the summary; a setting, a lost task or an output that cannot be written is an outcome too."""
    try:
        options.output.mkdir(parents=True, exist_ok=True)
        with open_tiering(load_settings(options.config)) as tiering:
            summary = recount(session, tiering, options)
        (options.output / "summary.json").write_text(json.dumps(summary, indent=2))
    except TieringError as error:
        return _refusal(f"{type(error).__name__}: {error}", code_of(error))
    except OSError as error:
        return _refusal(f"--output {options.output} cannot be written: {error.strerror}", ExitCode.USAGE)
    except Exception as error:
        if not is_lost_task(error):
            raise
        return _refusal(f"Spark lost a task ({type(error).__name__}): see its log", ExitCode.RETRY)
    return summary


def _refusal(message: str, code: ExitCode) -> dict[str, Any]:
    return {"exit_code": int(code), "error": message}


def main(arguments: Sequence[str]) -> int:
    options = parse_arguments(arguments)
    with ParentWatch():
        session = SparkSession.builder.appName("tiering.remote_log_sizes").getOrCreate()
        try:
            summary = attempt(session, options)
        finally:
            session.stop()
    print(json.dumps(summary))
    return int(summary["exit_code"])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
