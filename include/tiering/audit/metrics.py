"""Metrics of audits."""

from collections.abc import Iterable
from typing import Final

from include.tiering.audit.finding import FindingKind
from include.tiering.audit.record import RecordedFinding
from include.tiering.telemetry.metrics import Metric, MetricKind, PrometheusRecorder

AUDIT_FINDINGS: Final = Metric(
    "tiering_audit_findings",
    MetricKind.GAUGE,
    ("kind",),
    "Findings that are open: the last audit saw them and nobody accepted them.",
)
AUDIT_FINDING_BYTES: Final = Metric(
    "tiering_audit_finding_bytes",
    MetricKind.GAUGE,
    ("kind",),
    "Bytes that are stored under their keys.",
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
    "Guards that forbid to remove anything by what the last audit saw.",
)
AUDIT_REMOVED_OBJECTS: Final = Metric(
    "tiering_audit_removed_objects",
    MetricKind.COUNTER,
    ("topic",),
    "Objects, open uploads and old versions without metadata that were removed.",
)

AUDIT_METRICS: Final = (AUDIT_FINDINGS, AUDIT_FINDING_BYTES, AUDIT_ENDED, AUDIT_REFUSALS, AUDIT_REMOVED_OBJECTS)


def publish_audit(
    recorder: PrometheusRecorder, findings: Iterable[RecordedFinding], *, ended_seconds: float, refusals: int
) -> None:
    """The open findings after an audit, kinds without any too."""
    number: dict[tuple[str, ...], float] = {(kind.value,): 0.0 for kind in FindingKind}
    size_bytes = dict(number)
    for finding in findings:
        number[finding.finding.kind.value,] += 1
        size_bytes[finding.finding.kind.value,] += finding.finding.size_bytes
    recorder.show(AUDIT_FINDINGS, number)
    recorder.show(AUDIT_FINDING_BYTES, size_bytes)
    recorder.show(AUDIT_ENDED, {(): ended_seconds})
    recorder.show(AUDIT_REFUSALS, {(): refusals})


def count_removed(recorder: PrometheusRecorder, topic: str, objects: int) -> None:
    """Count objects, open uploads and old versions that no metadata knew and that are gone."""
    recorder.add(AUDIT_REMOVED_OBJECTS, objects, topic)
