"""The end of an audit by the job: what it wrote is handed to the library, which looks again and keeps it."""

from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from typing import Any, Final

from include.tiering.app import App
from include.tiering.audit.conclude_audit import SeenByAudit
from include.tiering.audit.finding import FindingKind, PassedOver
from include.tiering.audit.record import AuditSource
from include.tiering.audit.service import covered_kinds, seen_at_ms
from include.tiering.remote_storage.object_store import ListingFacts
from spark_jobs.audit_summary import read_findings

MOST_RECORDED: Final = 100_000
"""Of more findings than these the rest stays in the job's output: a database of findings is for people."""


def record(
    app: App,
    run_id: str,
    output: Path,
    facts: ListingFacts,
    *,
    began_at_ms: int,
    objects: int,
    rows: int,
    passed_over: Mapping[PassedOver, int],
    listing_ended_ms: int,
    rows_began_ms: int,
) -> dict[str, Any]:
    """Conclude the audit that wrote `output`; members for the job's summary.

    If not all findings are recorded, none of an earlier audit counts as healed.
    """
    stored = read_findings(output)
    findings = tuple(islice(stored, MOST_RECORDED))
    left_out = sum(1 for _ in stored)
    covers: frozenset[FindingKind] = frozenset() if left_out else covered_kinds(facts)
    report = app.audit.conclude(
        SeenByAudit(
            run_id=run_id,
            source=AuditSource.LISTING if facts.taken_at_ms is None else AuditSource.INVENTORY,
            began_at_ms=began_at_ms,
            objects=objects,
            rows=rows,
            findings=findings,
            passed_over=passed_over,
            listing_ended_ms=listing_ended_ms,
            rows_began_ms=rows_began_ms,
            covers=covers,
            seen_at_ms=seen_at_ms(facts),
        )
    )
    return {
        "run_id": run_id,
        "recorded": report.record.findings,
        "not_recorded": left_out,
        "refusals": [refusal.sentence for refusal in report.record.refusals],
    }
