"""Compare what the store holds with the metadata, object by object.

    spark-submit spark_jobs/audit.py --output DIR [--inventory URL] [--record RUN] [--parts N] [--ranges N]
                 [--pool P --batch-id B] [--config F]

    DIR/findings       Parquet: the differences (`FINDINGS`)
    DIR/summary.json   how much was compared, findings by kind, numbers of objects that were passed over and why, and
                       whether the listing shows versions and open uploads

The listing is read before the rows: a row is stored before the first object of its segment, so a listed object without
a row has no metadata at all. With `--inventory` an S3 Inventory is used as the listing; URL is that of its
manifest.json, or a path that executors see, too. With `--record` the findings are checked again and stored in the
database under the id RUN, as `./tiering audit` does. No object is removed. A second run with the same directory
replaces its content. Only the driver writes to DIR: the executors need not see it.

Exit codes: 0 nothing found, 1 findings or an error that a retry cannot cure, 2 a wrong setting or an unwritable DIR, 3
retry, 4 the pool became too small: nothing was recorded.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from pyspark.sql import DataFrame, SparkSession, functions

from include.tiering.app import App
from include.tiering.audit.compare import require_marker
from include.tiering.audit.conclude_audit import EVIDENCE, SeenByAudit
from include.tiering.audit.finding import AuditFinding, FindingKind, PassedOver, no_manifest
from include.tiering.audit.record import AuditSource
from include.tiering.audit.service import covered_kinds, seen_at_ms
from include.tiering.cli.exit_codes import ExitCode
from include.tiering.remote_storage.object_store import ListingProperties
from include.tiering.remote_storage.store_ownership import MARKER_KEY
from spark_jobs.audit_frames import FACTS, FINDINGS_SCHEMA, LISTED, finding_of
from spark_jobs.audit_tasks import (
    classified_alone,
    classified_ranges,
    classified_segments,
    manifests_of_the_store,
    read_listing,
    read_segments,
)
from spark_jobs.packed_rows import SESSION_CONF, batches_of, kept, kept_without_errors, store, unpacked
from spark_jobs.shared import (
    Batches,
    PoolSlot,
    add_pool_arguments,
    at_least_one,
    failed_outcome,
    refusal,
    run_in_session,
)
from spark_jobs.task_settings import TaskSettings

_BATCH_ROWS: Final = 10_000

Document = dict[str, Any]


def read_findings(directory: Path, kinds: Iterable[FindingKind] = tuple(FindingKind)) -> Iterator[AuditFinding]:
    """Yield the findings of the audit whose `--output` was `directory`, in no order; memory holds 10,000 of them.

    `kinds` are those of the findings to yield; by default all.
    """
    wanted = ds.field("kind").isin([kind.value for kind in kinds])
    stored = ds.dataset(directory / "findings", format="parquet")
    for batch in stored.to_batches(batch_size=_BATCH_ROWS, filter=wanted):
        yield from map(finding_of, batch.to_pylist())


def totals_of(listed: DataFrame) -> tuple[int, int, bool]:
    """Count current objects and their bytes in packed rows; return also whether the store's marker is among them."""
    counted = (
        listed.select("packed")
        .mapInArrow(_totals, _TOTALS)
        .agg(
            functions.sum("objects").alias("objects"),
            functions.sum("size_bytes").alias("size_bytes"),
            functions.max("has_marker").alias("has_marker"),
        )
    )
    (found,) = counted.collect()
    return found.objects or 0, found.size_bytes or 0, bool(found.has_marker)


_TOTALS: Final = "objects bigint, size_bytes bigint, has_marker boolean"
_COUNTED: Final = ("key", "size_bytes", "is_latest", "is_delete_marker", "upload_id")


def _totals(values: Batches) -> Batches:
    for batch in batches_of(values, _COUNTED):
        is_object = pc.and_(batch.column("is_latest"), pc.invert(batch.column("is_delete_marker")))
        current = batch.filter(pc.and_(is_object, batch.column("upload_id").is_null()))
        sizes = {
            "objects": current.num_rows,
            "size_bytes": pc.sum(current.column("size_bytes")).as_py() or 0,
            "has_marker": pc.any(pc.equal(current.column("key"), MARKER_KEY)).as_py() or False,
        }
        yield pa.RecordBatch.from_pylist([sizes])


def passed_over_of(findings: DataFrame) -> Mapping[PassedOver, int]:
    rows = findings.where(functions.col("passed_over").isNotNull()).groupBy("passed_over")
    return {
        PassedOver(row.passed_over): row.objects
        for row in rows.agg(functions.sum("objects").alias("objects")).collect()
    }


def kinds_of(findings: DataFrame) -> Document:
    """Count findings and bytes by kind."""
    grouped = findings.where(functions.col("kind").isNotNull()).groupBy("kind")
    rows = grouped.agg(functions.count(functions.lit(1)).alias("findings"), functions.sum("size_bytes").alias("bytes"))
    found = {row.kind: {"findings": row.findings, "bytes": row.bytes} for row in rows.collect()}
    return {kind.value: found[kind.value] for kind in FindingKind if kind.value in found}


def exit_code(kinds: Mapping[str, Any]) -> int:
    return int(ExitCode.FINDINGS if kinds else ExitCode.DONE)


MOST_RECORDED: Final = 100_000
"""The most findings that are stored in the database, for people to read. The job's output has all of them."""


def record(
    app: App,
    run_id: str,
    output: Path,
    properties: ListingProperties,
    *,
    began_at_ms: int,
    objects: int,
    rows: int,
    passed_over: Mapping[PassedOver, int],
    listing_ended_ms: int,
    rows_began_ms: int,
) -> dict[str, Any]:
    """Check the findings in `output` again and record the audit; return members for the job's summary.

    Findings from which the guards decide come first: a guard that misses one would let orphan objects be removed.
    If not all findings are recorded, no finding of an earlier audit is marked as resolved.
    """
    others = [kind for kind in FindingKind if kind not in EVIDENCE]
    stored = chain(read_findings(output, EVIDENCE), read_findings(output, others))
    findings = tuple(islice(stored, MOST_RECORDED))
    left_out = sum(1 for _ in stored)
    covers: frozenset[FindingKind] = frozenset() if left_out else covered_kinds(properties)
    report = app.audit.conclude(
        SeenByAudit(
            run_id=run_id,
            source=AuditSource.LISTING if properties.taken_at_ms is None else AuditSource.INVENTORY,
            began_at_ms=began_at_ms,
            objects=objects,
            rows=rows,
            findings=findings,
            passed_over=passed_over,
            listing_ended_ms=listing_ended_ms,
            rows_began_ms=rows_began_ms,
            covers=covers,
            seen_at_ms=seen_at_ms(properties),
        )
    )
    return {
        "run_id": run_id,
        "recorded": report.record.findings,
        "not_recorded": left_out,
        "refusals": [refusal.sentence for refusal in report.record.refusals],
    }


PARTS: Final = 16
RANGES: Final = 8


def parse_arguments(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="audit", description="Compare the store with the metadata.")
    parser.add_argument("--output", required=True, type=Path, help="directory of the results")
    parser.add_argument("--inventory", help="manifest.json of an S3 Inventory instead of the store's own listing")
    parser.add_argument("--record", metavar="RUN", help="check the findings again and store them under this run")
    parser.add_argument(
        "--parts", type=at_least_one, default=PARTS, help="parts of the listing, shared among the tasks"
    )
    parser.add_argument(
        "--ranges", type=at_least_one, default=RANGES, help="ranges of segments, and groups of findings"
    )
    parser.add_argument("--config", type=Path, help="settings file (TOML)")
    add_pool_arguments(parser)
    return parser.parse_args(arguments)


class Steps:
    """Duration of each step in seconds."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._began = monotonic()
        self.seconds: dict[str, float] = {}

    def done(self, step: str) -> None:
        now = self._monotonic()
        self.seconds[step] = round(now - self._began, 2)
        self._began = now


def audit(
    session: SparkSession, app: App, options: argparse.Namespace, keep: Callable[[], None] = lambda: None
) -> dict[str, Any]:
    """List the store, read the rows, and classify; return the summary.

    `keep` is called when all is read, before findings are recorded.

    Raises:
        ForeignStoreError: the store, or the listing, is not this database's.
        TaskStoppedError: a task stopped with an error.
        OSError: a result cannot be written.
    """
    steps = Steps()
    session.conf.set("spark.sql.shuffle.partitions", str(options.ranges))
    app.ownership.require()
    listing = app.audit.listing_of(options.inventory)
    properties_of_listing, began_at_ms = listing.properties(), app.adapters.stores.audited_metadata.now_ms()
    moment = app.audit.moment(properties_of_listing, began_at_ms)
    parts = listing.parts(options.parts)
    settings = TaskSettings.of_app(app)
    listing_rows = read_listing(session, parts, options.inventory, settings=settings)
    objects, object_bytes, has_marker = totals_of(listing_rows)
    require_marker(has_marker)
    listing_ended_ms = int(time.monotonic() * 1000)
    steps.done("listing")
    rows_began_ms = int(time.monotonic() * 1000)
    segment_rows = read_segments(session, app, options.ranges, settings=settings)
    context = replace(app.audit.context(moment), read_manifest=no_manifest)
    rows = segment_rows.agg(functions.sum("rows")).collect()[0][0] or 0
    steps.done("rows")
    listed, segments = unpacked(listing_rows, LISTED), unpacked(segment_rows, FACTS)
    manifests = manifests_of_the_store(settings)
    provisional = kept_without_errors(
        classified_alone(listed, context).unionByName(
            classified_segments(listed, segments, context, manifests, tasks=options.ranges)
        )
    )
    findings = kept(classified_ranges(segments, provisional, context, tasks=options.ranges))
    store(findings, FINDINGS_SCHEMA, options.output / "findings")
    kinds, passed_over = kinds_of(findings), passed_over_of(findings)
    steps.done("judging")
    summary: dict[str, Any] = {
        "source": listing.describe(),
        "listed_at_ms": moment.listed_at_ms,
        "objects": objects,
        "bytes": object_bytes,
        "rows": rows,
        "findings": kinds,
        "passed_over": {why.value: count for why, count in passed_over.items()},
        "shows": {
            "versions": properties_of_listing.shows_versions,
            "open_uploads": properties_of_listing.shows_open_uploads,
        },
        "seconds": steps.seconds,
    }
    keep()
    if options.record is not None:
        recorded = record(
            app,
            options.record,
            options.output,
            properties_of_listing,
            began_at_ms=began_at_ms,
            objects=objects,
            rows=rows,
            passed_over=passed_over,
            listing_ended_ms=listing_ended_ms,
            rows_began_ms=rows_began_ms,
        )
        summary |= recorded
        steps.done("recording")
    return {"exit_code": exit_code(kinds), **summary}


def attempt(session: SparkSession, options: argparse.Namespace) -> dict[str, Any]:
    """Audit and store the summary; a wrong setting, a lost task or an unwritable output become an outcome, too."""
    try:
        options.output.mkdir(parents=True, exist_ok=True)
        with TaskSettings.of_driver(options.config).open_app() as app:
            batch_id = options.batch_id or options.record or "audit"
            with PoolSlot(app, batch_id, batch_id, options.pool, leaves=os._exit) as slot:
                summary = audit(session, app, options, slot.keep)
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
    summary = run_in_session("audit", lambda session: attempt(session, options), options, SESSION_CONF)
    print(json.dumps(summary))
    return int(summary["exit_code"])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
