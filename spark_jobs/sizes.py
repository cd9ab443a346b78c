"""Recount remote log sizes from the segment rows, and compare them with the counters.

    spark-submit spark_jobs/sizes.py --output DIR [--ranges N] [--config F]
                 [--from-storage listing|manifests] [--pool P --batch-id B]

    DIR/sizes          Parquet: rows per partition, state and leader epoch; a row with a null epoch is over all epochs
    DIR/summary.json   totals, every difference, bytes that are stored twice, each rule with its numbers
    DIR/results        results of the rules as Great Expectations stores them, of the last `data_docs.keep_runs` runs
    history            the same rows, kept after the next run (see `sizes_history`)

Each task reads some ranges of segments through the library, page by page: memory does not grow with the number of
segments. Rows are read from the database once, and all that follows is computed from them (see `packed_rows`). Only the
driver writes to DIR: the executors need not see it.

With `--from-storage listing` the rows are also compared with the store's listing, segment by segment; with
`--from-storage manifests` also with the content of the manifests. A second run with the same directory replaces its
content, but not the results. Exit codes: 0 equal, 1 differences that break a critical rule or an error that a retry
cannot cure, 2 a wrong setting, a wrong suite file or an unwritable DIR, 3 retry, 4 the pool became too small: nothing
was added to the history.
"""

import argparse
import json
import os
import shutil
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any, Final

import pyarrow.dataset as ds
from pyspark import StorageLevel
from pyspark.sql import DataFrame, Row, SparkSession, functions

from include.tiering.app import App
from include.tiering.app.adapters import great_expectations
from include.tiering.cli.exit_codes import ExitCode
from include.tiering.clock import SystemClock
from include.tiering.model.segments import RemoteLogSegmentId, RemoteLogSegmentState, TopicIdPartition, Uuid
from include.tiering.model.sizes import EpochSize, PartitionStates, StateSize
from include.tiering.presentation import labels
from include.tiering.segments.stored_copies import Suspicion
from include.tiering.sizes.compare import SizeComparison, StoredDifference, compare_sizes, settle_stored
from include.tiering.sizes.report import breaks_critical_rule
from include.tiering.verification.quality_run import read_results
from include.tiering.verification.rules import BrokenRule
from include.tiering.verification.suites import explain_size
from spark_jobs import sizes_listing
from spark_jobs.packed_rows import SESSION_CONF, kept, store, unpacked
from spark_jobs.shared import PoolSlot, add_pool_arguments, at_least_one, failed_outcome, refusal, run_in_session
from spark_jobs.sizes_history import append_run
from spark_jobs.sizes_rows import (
    FINISHED_SPANS,
    SEGMENTS,
    STORED_SIZES,
    finished_of,
    not_contiguous,
    overlaps,
    partial_sizes,
    read_segments,
    remote_log_sizes,
)
from spark_jobs.task_errors import require_no_error
from spark_jobs.task_settings import TaskSettings

Document = dict[str, Any]
_FINISHED = RemoteLogSegmentState.COPY_SEGMENT_FINISHED


@dataclass(slots=True)
class Totals:
    """Totals, which are added up while partitions are read."""

    by_state: dict[str, list[int]] = field(default_factory=lambda: defaultdict(lambda: [0, 0]))

    def counting(self, partitions: Iterable[PartitionStates]) -> Iterator[PartitionStates]:
        for partition in partitions:
            for size in partition.states:
                total = self.by_state[size.state.name]
                total[0] += size.size_bytes
                total[1] += size.segments
            yield partition

    def document(self) -> Document:
        """Return the bytes and the number of FINISHED segments, then both numbers for each state."""
        size_bytes, segments = self.by_state.get(_FINISHED.name, (0, 0))
        states = {name: {"bytes": total[0], "segments": total[1]} for name, total in sorted(self.by_state.items())}
        return {"segments": segments, "bytes": size_bytes, "states": states}


def recounted_partitions(rows: Iterable[Row], names: Mapping[Uuid, str]) -> Iterator[PartitionStates]:
    """Convert rows of `SIZES`, which are ordered by topic id, partition, state and leader epoch with nulls first."""
    for (topic_id, number), grouped in groupby(rows, key=lambda row: (row.topic_id, row.partition)):
        partition = TopicIdPartition(Uuid.parse(topic_id), number, names[Uuid.parse(topic_id)])
        states = []
        for name, sized in groupby(grouped, key=lambda row: row.state):
            total, *epochs = sized
            state = RemoteLogSegmentState[name]
            by_epoch = tuple(EpochSize(row.leader_epoch, row.size_bytes, row.segments) for row in epochs)
            states.append(StateSize(state, total.size_bytes, total.segments, by_epoch))
        states.sort(key=lambda size: size.state)
        yield PartitionStates(partition, tuple(states))


def differences_document(comparison: SizeComparison) -> Document:
    return {
        "partitions": comparison.partitions,
        "differences": [
            {
                **labels(difference.topic_id_partition),
                "state": difference.counters.state.name,
                "rules": [_broken_rule(broken) for broken in difference.broken],
                "counters": _size(difference.counters),
                "recounted": _size(difference.recounted),
            }
            for difference in comparison.differences
        ],
        "unsettled": [labels(partition) for partition in comparison.unsettled],
    }


def stored_document(differences: Sequence[StoredDifference], totals: Row, *, unsettled: int) -> Document:
    """Return the document. `unsettled` is 0 if all suspects were checked again, else more than 0."""
    return {
        "objects": totals.objects or 0,
        "segments": totals.segments or 0,
        "bytes": totals.stored_bytes or 0,
        "unsettled": unsettled,
        "differences": [
            {
                **labels(difference.topic_id_partition),
                "rules": [_broken_rule(broken) for broken in difference.broken],
                "segments": [
                    {"segment_id": str(segment_id.id), "kind": suspicion.value}
                    for segment_id, suspicion in difference.segments
                ],
            }
            for difference in differences
        ],
    }


def exit_code(summary: Mapping[str, Any]) -> int:
    stored = summary.get("stored") or {"differences": (), "unsettled": 0}
    differences = (*summary["differences"], *stored["differences"])
    found = any(breaks_critical_rule(difference) for difference in differences) or stored["unsettled"]
    return int(ExitCode.FINDINGS if found else ExitCode.DONE)


def _broken_rule(broken: BrokenRule[Any]) -> Document:
    rule = broken.rule
    return {"rule": rule.rule_id, "severity": rule.severity.value, "message": explain_size(rule, broken.measure)}


def unfinished_results(output: Path) -> Path:
    """Return the directory for the results of the rules while a run goes on; remove what an earlier run left there."""
    directory = output / "results.unfinished"
    shutil.rmtree(directory, ignore_errors=True)
    return directory


def keep_results(unfinished: Path, now_ms: int, *, keep_runs: int) -> Path:
    """Move the results of a run to a directory of their own; remove all but the newest of earlier runs.

    Its name begins with the time, so that names sort by age.
    """
    results = unfinished.with_name("results")
    results.mkdir(parents=True, exist_ok=True)
    for old in sorted(each for each in results.iterdir() if each.is_dir())[: -keep_runs + 1 or None]:
        shutil.rmtree(old, ignore_errors=True)
    unfinished.mkdir(exist_ok=True)
    return unfinished.rename(results / f"{now_ms:015d}-{os.getpid()}")


def suites_document(directory: Path) -> list[Document]:
    """Return the suites that were evaluated, with the numbers of each rule, as the results in `directory` have them."""
    return [asdict(suite) for suite in read_results(directory).suites]


def _size(size: StateSize) -> Document:
    epochs = [{"epoch": e.leader_epoch, "bytes": e.size_bytes, "segments": e.segments} for e in size.leader_epochs]
    return {"bytes": size.size_bytes, "segments": size.segments, "leader_epochs": epochs}


READ_RANGES: Final = 8
LISTING: Final = "listing"
MANIFESTS: Final = "manifests"


def parse_arguments(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="sizes", description="Recount remote log sizes.")
    parser.add_argument("--output", required=True, type=Path, help="directory of the results")
    parser.add_argument(
        "--ranges", type=at_least_one, default=READ_RANGES, help="ranges of segments, and parts of the listing"
    )
    parser.add_argument("--from-storage", choices=(LISTING, MANIFESTS), help="compare the rows with the store as well")
    parser.add_argument("--config", type=Path, help="settings file (TOML)")
    add_pool_arguments(parser)
    return parser.parse_args(arguments)


def recount(
    session: SparkSession, app: App, options: argparse.Namespace, keep: Callable[[], None] = lambda: None
) -> dict[str, Any]:
    """Write the sizes, compare them with the counters, add them to the history; return the summary.

    `keep` is called when all is read, before the first result is kept.

    Raises:
        OSError: a result cannot be written.
    """
    now_ms = SystemClock().now_ms()
    suites = app.adapters.suites
    unfinished = unfinished_results(options.output)
    session.conf.set("spark.sql.shuffle.partitions", str(options.ranges))
    # A copy writes its row before its first object: what is listed before the rows are read is of no running copy.
    listing = list_store(session, app, options) if options.from_storage else None
    began = time.monotonic()
    segments = read_segments(session, app, ranges=options.ranges, settings=TaskSettings.of_app(app))
    names = app.adapters.stores.remote_log_sizes.topic_names()
    target = options.output / "sizes"
    sizes = kept(remote_log_sizes(partial_sizes(segments)))
    store(named(sizes, names).orderBy("topic_id", "partition", "state", "leader_epoch"), STORED_SIZES, target)
    computation_ms = round((time.monotonic() - began) * 1000)
    totals = Totals()
    recounted = totals.counting(recounted_partitions(stored_sizes(target), names))
    comparison = compare_sizes(
        recounted,
        app.adapters.stores.remote_log_sizes,
        great_expectations(suites.sizes, unfinished),
    )
    stored = None if listing is None else compare_with_store(listing, segments, app, options, names, unfinished)
    overlapping = overlaps_document(segments, sizes, names)
    keep()
    results = keep_results(unfinished, now_ms, keep_runs=app.settings.data_docs.keep_runs)
    history = append_run(
        app.sizes.history_dir(options.output), target, now_ms, keep_days=app.settings.sizes.history_days
    )
    summary = {
        **totals.document(),
        **differences_document(comparison),
        "overlaps": overlapping,
        "stored": stored,
        "computation_ms": computation_ms,
        "history": str(history),
    }
    rules = {"suites": suites_document(results), "results": str(results)}
    return {"exit_code": exit_code(summary), **summary, **rules}


def stored_sizes(target: Path) -> Iterator[Row]:
    """Yield the rows that `store` wrote, in their order; memory holds a batch of them."""
    for batch in ds.dataset(target, format="parquet").to_batches():
        yield from (Row(**row) for row in batch.to_pylist())


def overlaps_document(segments: DataFrame, sizes: DataFrame, names: Mapping[Uuid, str]) -> list[Document]:
    """Return the bytes that are stored twice, for each partition that has such.

    Of the packed segments only those become rows of Spark whose partition has a hole or an overlap.
    """
    suspected = [(row.topic_id, row.partition) for row in not_contiguous(sizes).toLocalIterator()]
    if not suspected:
        return []
    found = overlaps(unpacked(segments.select("packed"), FINISHED_SPANS, finished_of(suspected)))
    in_order = named(found, names).orderBy("topic", "topic_id", "partition")
    return [{**labels(_partition_of(row, names)), "bytes": int(row.bytes)} for row in in_order.toLocalIterator()]


def named(sizes: DataFrame, names: Mapping[Uuid, str]) -> DataFrame:
    """Add the topic's name as the first column."""
    rows = [(str(topic_id), name) for topic_id, name in names.items()]
    topics = sizes.sparkSession.createDataFrame(rows, "topic_id string, topic string")
    with_name = sizes.join(functions.broadcast(topics), on="topic_id", how="left")
    return with_name.select("topic", *sizes.columns)


def list_store(session: SparkSession, app: App, options: argparse.Namespace) -> DataFrame:
    """List the objects of segments, packed; tasks list a part of the keys each.

    Raises:
        TaskStoppedError: a part could not be listed.
        RemoteStorageError: the store cannot be read.
    """
    parts = app.adapters.object_listing.parts(options.ranges)
    return sizes_listing.read_listing(session, parts, settings=TaskSettings.of_app(app))


def compare_with_store(
    listing: DataFrame,
    segments: DataFrame,
    app: App,
    options: argparse.Namespace,
    names: Mapping[Uuid, str],
    results: Path,
) -> dict[str, Any]:
    """Compare the listing with the rows, which were read after it, and check the first differences again.

    Both are packed.

    Raises:
        TaskStoppedError: a task could not read a manifest.
        RemoteStorageError: the store cannot be read.
    """
    objects = unpacked(listing, sizes_listing.OBJECTS)
    # Computed once, for the comparison and for the totals.
    stored = sizes_listing.stored_segments(objects, app.adapters.storage.required_kinds).persist(StorageLevel.DISK_ONLY)
    compared = sizes_listing.beside_rows(stored, unpacked(segments, SEGMENTS))
    with_manifests = options.from_storage == MANIFESTS
    suspects = sizes_listing.suspects(compared, names, TaskSettings.of_app(app), with_manifests=with_manifests)
    most = sizes_listing.MOST_SUSPECTS
    found = suspects.limit(most + 1).collect()
    require_no_error(found)
    asked = [
        (RemoteLogSegmentId(_partition_of(row, names), Uuid.parse(row.segment_id)), Suspicion(row.suspicion))
        for row in found[:most]
    ]
    evaluator = great_expectations(app.adapters.suites.stored, results)
    differences = settle_stored(asked, app.adapters.stores.metadata, app.adapters.storage, evaluator)
    counted = stored.agg(
        functions.sum("objects").alias("objects"),
        functions.count(functions.lit(1)).alias("segments"),
        functions.sum("stored_bytes").alias("stored_bytes"),
    )
    document = stored_document(differences, counted.collect()[0], unsettled=max(0, len(found) - most))
    stored.unpersist()
    return document


def _partition_of(row: Any, names: Mapping[Uuid, str]) -> TopicIdPartition:
    """Return the partition; a topic that the database lacks gets the name from its keys in the store."""
    topic_id = Uuid.parse(row.topic_id)
    return TopicIdPartition(topic_id, row.partition, names.get(topic_id) or row.topic)


def attempt(session: SparkSession, options: argparse.Namespace) -> dict[str, Any]:
    """Recount and store the summary; a wrong setting, a lost task or an unwritable output become an outcome, too."""
    try:
        options.output.mkdir(parents=True, exist_ok=True)
        with TaskSettings.of_driver(options.config).open_app() as app:
            batch_id = options.batch_id or "sizes"
            with PoolSlot(app, batch_id, batch_id, options.pool, leaves=os._exit) as slot:
                summary = recount(session, app, options, slot.keep)
        (options.output / "summary.json").write_text(json.dumps(summary, indent=2))
    except OSError as error:
        return refusal(f"{error.filename or options.output} cannot be written: {error.strerror}", ExitCode.USAGE)
    except Exception as error:
        if (outcome := failed_outcome(error)) is None:
            raise
        return outcome
    return summary


def main(arguments: Sequence[str]) -> int:
    options = parse_arguments(arguments)
    summary = run_in_session("remote_log_sizes", lambda session: attempt(session, options), options, SESSION_CONF)
    print(json.dumps(summary))
    return int(summary["exit_code"])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
