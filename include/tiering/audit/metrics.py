"""Metrics of audits."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from include.tiering.telemetry.metrics import Metric, MetricKind, MetricsRecorder

if TYPE_CHECKING:
    from include.tiering.audit.record import RecordedFinding


AUDIT_FINDINGS: Final = Metric(
    "tiering_audit_findings",
    MetricKind.GAUGE,
    ("kind",),
    "Open findings: an audit saw them, and since then they were not removed, accepted, or found to be gone.",
)
AUDIT_FINDING_BYTES: Final = Metric(
    "tiering_audit_finding_bytes",
    MetricKind.GAUGE,
    ("kind",),
    "Stored bytes that open findings are about.",
)
AUDIT_ENDED: Final = Metric(
    "tiering_audit_ended_timestamp_seconds",
    MetricKind.GAUGE,
    (),
    "When the last audit ended, in seconds since 1970.",
)
AUDIT_REFUSALS: Final = Metric(
    "tiering_audit_refusals",
    MetricKind.GAUGE,
    (),
    "Objections that guards raised in the last audit; with one or more, no orphan object is removed.",
)
AUDIT_REMOVED_OBJECTS: Final = Metric(
    "tiering_audit_removed_objects",
    MetricKind.COUNTER,
    ("topic",),
    "Objects, open uploads, old versions and delete markers without metadata that were removed.",
)

AUDIT_METRICS: Final = (AUDIT_FINDINGS, AUDIT_FINDING_BYTES, AUDIT_ENDED, AUDIT_REFUSALS, AUDIT_REMOVED_OBJECTS)


def publish_audit(
    recorder: MetricsRecorder, findings: "Iterable[RecordedFinding]", *, ended_seconds: float, refusals: int
) -> None:
    """Publish the open findings after an audit; kinds without open findings are published as 0."""
    from include.tiering.audit.finding import FindingKind

    number: dict[tuple[str, ...], float] = {(kind.value,): 0.0 for kind in FindingKind}
    size_bytes = dict(number)
    for finding in findings:
        number[finding.finding.kind.value,] += 1
        size_bytes[finding.finding.kind.value,] += finding.finding.size_bytes
    recorder.show(AUDIT_FINDINGS, number)
    recorder.show(AUDIT_FINDING_BYTES, size_bytes)
    recorder.show(AUDIT_ENDED, {(): ended_seconds})
    recorder.show(AUDIT_REFUSALS, {(): refusals})


def count_removed(recorder: MetricsRecorder, topic: str, objects: int) -> None:
    """Count removed objects, open uploads, old versions and delete markers without metadata."""
    recorder.add(AUDIT_REMOVED_OBJECTS, objects, topic)
