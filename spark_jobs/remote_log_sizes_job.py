"""Recount remote log sizes from the segment rows, and compare them with the counters.

    spark-submit spark_jobs/remote_log_sizes_job.py --output DIR [--ranges N] [--config F]
                 [--from-storage listing|manifests]

    DIR/sizes          Parquet: one row per partition, state and leader epoch, a null epoch is the whole partition
    DIR/summary.json   what was counted, every difference, what is stored twice
    history            the same rows once more, kept (see `size_history`)

Each task reads some ranges of segments through the library, page by page: memory does not grow with their number. With
`--from-storage` the rows are compared with the store's listing too, segment by segment, and with what every manifest
says. Writing again into the same directory replaces what is there. Exit codes: 0 equal, 1 differences, 2 a setting,
3 another try can help.
"""

import argparse
import json
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession, functions

from include.tiering.app import App, open_app
from include.tiering.cli.exit_codes import ExitCode, code_of
from include.tiering.clock import SystemClock
from include.tiering.errors import TieringError
from include.tiering.model.ids import RemoteLogSegmentId, TopicIdPartition, Uuid
from include.tiering.model.sizes import overlapping_bytes
from include.tiering.segments.stored_copies import Suspicion
from include.tiering.settings import load_settings
from include.tiering.sizes.compare import compare_sizes, settle_stored
from spark_jobs import stored_segments
from spark_jobs.lost_task import is_lost_task
from spark_jobs.parent_watch import ParentWatch
from spark_jobs.remote_log_sizes_transform import remote_log_sizes
from spark_jobs.segment_rows import read_partial_sizes, read_segments
from spark_jobs.size_history import append_run
from spark_jobs.size_summary import (
    Totals,
    differences_document,
    exit_code,
    labels,
    recounted_partitions,
    stored_document,
)

READ_RANGES: Final = 8
LISTING: Final = "listing"
MANIFESTS: Final = "manifests"


def parse_arguments(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="remote_log_sizes_job", description="Recount remote log sizes.")
    parser.add_argument("--output", required=True, type=Path, help="directory of the results")
    parser.add_argument("--ranges", type=_at_least_one, default=READ_RANGES, help="key ranges, shared among the tasks")
    parser.add_argument("--from-storage", choices=(LISTING, MANIFESTS), help="compare the rows with the store as well")
    parser.add_argument("--config", type=Path, help="settings file (TOML), readable where the tasks run")
    return parser.parse_args(arguments)


def _at_least_one(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} is not 1 or more")
    return number


def recount(session: SparkSession, app: App, options: argparse.Namespace) -> dict[str, Any]:
    """Write the sizes, read them back, compare, keep them; returns the summary.

    Raises:
        OSError: a result cannot be written.
    """
    now_ms = SystemClock().now_ms()
    began = time.monotonic()
    session.conf.set("spark.sql.shuffle.partitions", str(options.ranges))
    names = app.adapters.stores.remote_log_sizes.topic_names()
    target = options.output / "sizes"
    partial = read_partial_sizes(session, app, ranges=options.ranges, config=options.config)
    sizes = named(remote_log_sizes(partial), names)
    sizes.write.mode("overwrite").parquet(str(target))
    computation_ms = round((time.monotonic() - began) * 1000)
    written = session.read.parquet(str(target)).orderBy("topic_id", "partition", "state", "leader_epoch")
    totals = Totals()
    recounted = totals.counting(recounted_partitions(written.toLocalIterator(), names))
    comparison = compare_sizes(
        recounted, app.adapters.stores.remote_log_sizes, app.adapters.stores.metadata, app.adapters.size_judge()
    )
    history = append_run(
        app.sizes.history_dir(options.output), target, now_ms, keep_days=app.settings.sizes.history_days
    )
    summary = {
        **totals.document(),
        **differences_document(comparison),
        "overlaps": [overlap_document(app, partition) for partition in totals.not_contiguous],
        "stored": compare_with_store(session, app, options, names) if options.from_storage else None,
        "computation_ms": computation_ms,
        "history": str(history),
    }
    return {"exit_code": exit_code(summary), **summary}


def named(sizes: DataFrame, names: Mapping[Uuid, str]) -> DataFrame:
    """With the topic's name before its id."""
    rows = [(str(topic_id), name) for topic_id, name in names.items()]
    topics = sizes.sparkSession.createDataFrame(rows, "topic_id string, topic string")
    with_name = sizes.join(functions.broadcast(topics), on="topic_id", how="left")
    return with_name.select("topic", *sizes.columns)


def overlap_document(app: App, partition: TopicIdPartition) -> dict[str, Any]:
    """Bytes of the partition that are remote more than once; few partitions have any."""
    rows = app.adapters.stores.metadata.list_segments(partition)
    return {**labels(partition), "bytes": overlapping_bytes(row.metadata for row in rows)}


def compare_with_store(
    session: SparkSession, app: App, options: argparse.Namespace, names: Mapping[Uuid, str]
) -> dict[str, Any]:
    """The listing first, then the rows, then what looks unlike is asked about again.

    Raises:
        RemoteStorageError
    """
    target = options.output / "listing.parquet"
    stored_segments.write_listing(app.adapters.storage, target)
    stored = stored_segments.stored_segments(session.read.parquet(str(target)), app.adapters.storage.required_kinds)
    rows = read_segments(session, app, ranges=options.ranges, config=options.config)
    compared = stored_segments.beside_rows(stored, rows)
    suspects = stored_segments.listed_suspects(compared, names, options.config)
    if options.from_storage == MANIFESTS:
        suspects = suspects.unionByName(stored_segments.manifest_suspects(compared, names, options.config))
    most = stored_segments.MOST_SUSPECTS
    found = suspects.limit(most + 1).collect()
    asked = [
        (RemoteLogSegmentId(_partition_of(row, names), Uuid.parse(row.segment_id)), Suspicion(row.suspicion))
        for row in found[:most]
    ]
    differences = settle_stored(asked, app.adapters.stores.metadata, app.adapters.storage, app.adapters.stored_judge())
    counted = stored.agg(
        functions.sum("objects").alias("objects"),
        functions.count(functions.lit(1)).alias("segments"),
        functions.sum("stored_bytes").alias("stored_bytes"),
    )
    return stored_document(differences, counted.collect()[0], unsettled=max(0, len(found) - most))


def _partition_of(row: Any, names: Mapping[Uuid, str]) -> TopicIdPartition:
    """A topic that the database does not know has the name that its keys say."""
    topic_id = Uuid.parse(row.topic_id)
    return TopicIdPartition(topic_id, row.partition, names.get(topic_id) or row.topic)


def attempt(session: SparkSession, options: argparse.Namespace) -> dict[str, Any]:
    """Recount and store the summary; a setting, a lost task or an output that cannot be written is an outcome too."""
    try:
        options.output.mkdir(parents=True, exist_ok=True)
        with open_app(load_settings(options.config)) as app:
            summary = recount(session, app, options)
        (options.output / "summary.json").write_text(json.dumps(summary, indent=2))
    except TieringError as error:
        return _refusal(f"{type(error).__name__}: {error}", code_of(error))
    except OSError as error:
        return _refusal(f"{error.filename or options.output} cannot be written: {error.strerror}", ExitCode.USAGE)
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
