"""Verdicts as gauges: each of them, those that no segment has too."""

from prometheus_client import CollectorRegistry

from include.tiering.model.segments import Verdict, VerdictTotal
from include.tiering.telemetry.metrics import PrometheusRecorder
from include.tiering.verification.metrics import publish_verdicts


def test_a_verdict_that_no_segment_has_goes_back_to_nothing() -> None:
    registry = CollectorRegistry()
    recorder = PrometheusRecorder(registry)

    def shown(verdict: str) -> list[float | None]:
        names = ("tiering_verdict_segments", "tiering_verdict_bytes", "tiering_verdict_age_seconds")
        return [registry.get_sample_value(name, {"verdict": verdict}) for name in names]

    none = VerdictTotal(Verdict.NONE, 2, 20, None)
    publish_verdicts(recorder, [none, VerdictTotal(Verdict.EXPIRED, 3, 30, 91_500)])
    assert shown("none") == [2, 20, 0]
    assert shown("expired") == [3, 30, 91.5]
    publish_verdicts(recorder, [none, VerdictTotal(Verdict.EXPIRED, 0, 0, None)])
    assert shown("expired") == [0, 0, 0]
