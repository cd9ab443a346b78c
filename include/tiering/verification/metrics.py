"""Metrics of the verdicts of segments."""

from collections.abc import Sequence
from typing import Final

from include.tiering.model.segments import VerdictTotal
from include.tiering.telemetry.metrics import Metric, MetricKind, MetricsRecorder

VERDICT_SEGMENTS: Final = Metric(
    "tiering_verdict_segments",
    MetricKind.GAUGE,
    ("verdict",),
    "FINISHED remote log segments by verdict: none, passed, failed, expired. Only those that passed count as safe.",
)
VERDICT_BYTES: Final = Metric(
    "tiering_verdict_bytes",
    MetricKind.GAUGE,
    ("verdict",),
    "Bytes of the `.log` of FINISHED remote log segments by verdict.",
)
VERDICT_AGE: Final = Metric(
    "tiering_verdict_age_seconds",
    MetricKind.GAUGE,
    ("verdict",),
    "Seconds since the oldest verdict of this kind on FINISHED segments; 0 if there is none, and always for `none`.",
)
AGED_SEGMENTS: Final = Metric(
    "tiering_verdict_segments_by_age",
    MetricKind.GAUGE,
    ("verdict", "depth", "age"),
    "The segments of tiering_verdict_segments by depth and age in days: depth `deep` if every byte was once read and"
    " found right, with the age of that; else `shallow`, with the age of the verdict. The depth is empty for the"
    " verdicts none and failed; for none the age is empty, too. Combinations without a segment are absent.",
)
AGED_BYTES: Final = Metric(
    "tiering_verdict_bytes_by_age",
    MetricKind.GAUGE,
    ("verdict", "depth", "age"),
    "Bytes of the `.log` of the segments that tiering_verdict_segments_by_age counts.",
)

VERDICT_METRICS: Final = (VERDICT_SEGMENTS, VERDICT_BYTES, VERDICT_AGE, AGED_SEGMENTS, AGED_BYTES)


def publish_verdicts(recorder: MetricsRecorder, totals: Sequence[VerdictTotal]) -> None:
    """Publish the totals; `totals` has an item for each verdict, also for verdicts that no segment has."""
    recorder.show(VERDICT_SEGMENTS, {(total.verdict,): total.segments for total in totals})
    recorder.show(VERDICT_BYTES, {(total.verdict,): total.size_bytes for total in totals})
    recorder.show(VERDICT_AGE, {(total.verdict,): (total.oldest_age_ms or 0) / 1000 for total in totals})
    aged = {
        (str(total.verdict), str(part.depth or ""), str(part.age or "")): part
        for total in totals
        for part in total.by_age
    }
    recorder.replace(AGED_SEGMENTS, {labels: part.segments for labels, part in aged.items()})
    recorder.replace(AGED_BYTES, {labels: part.size_bytes for labels, part in aged.items()})
