"""What an audit found: read from where the job wrote it, and summed up as the JSON of its summary."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pyarrow.dataset as ds
from pyspark.sql import DataFrame, functions

from include.tiering.audit.finding import AuditFinding, FindingKind, PassedOver
from include.tiering.cli.exit_codes import ExitCode
from include.tiering.remote_storage.store_ownership import MARKER_KEY
from spark_jobs.audit_frames import finding_of

_BATCH_ROWS: Final = 10_000

Document = dict[str, Any]


def read_findings(directory: Path) -> Iterator[AuditFinding]:
    """All findings of the audit whose `--output` was `directory`, in no particular order; memory holds a batch."""
    stored = ds.dataset(directory / "findings", format="parquet")
    for batch in stored.to_batches(batch_size=_BATCH_ROWS, filter=ds.field("kind").is_valid()):
        yield from map(finding_of, batch.to_pylist())


def totals_of(listed: DataFrame) -> tuple[int, int, bool]:
    """Current objects, their bytes, and whether the store's marker is among them."""
    current = listed.where(functions.col("is_latest") & ~functions.col("is_delete_marker"))
    counted = (
        current.where(functions.col("upload_id").isNull())
        .agg(
            functions.count(functions.lit(1)).alias("objects"),
            functions.sum("size_bytes").alias("size_bytes"),
            functions.max(functions.col("key") == MARKER_KEY).alias("has_marker"),
        )
        .collect()[0]
    )
    return counted.objects, counted.size_bytes or 0, bool(counted.has_marker)


def passed_over_of(findings: DataFrame) -> Mapping[PassedOver, int]:
    rows = findings.where(functions.col("passed_over").isNotNull()).groupBy("passed_over")
    return {
        PassedOver(row.passed_over): row.objects
        for row in rows.agg(functions.sum("objects").alias("objects")).collect()
    }


def kinds_of(findings: DataFrame) -> Document:
    """Findings and bytes of each kind that was found."""
    grouped = findings.where(functions.col("kind").isNotNull()).groupBy("kind")
    rows = grouped.agg(functions.count(functions.lit(1)).alias("findings"), functions.sum("size_bytes").alias("bytes"))
    found = {row.kind: {"findings": row.findings, "bytes": row.bytes} for row in rows.collect()}
    return {kind.value: found[kind.value] for kind in FindingKind if kind.value in found}


def exit_code(kinds: Mapping[str, Any]) -> int:
    return int(ExitCode.FINDINGS if kinds else ExitCode.DONE)
