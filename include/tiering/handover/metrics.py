"""Metrics of hand-overs."""

from collections import Counter
from collections.abc import Iterable
from typing import Final

from include.tiering.handover.handover import HandoverState, HandoverStep
from include.tiering.telemetry.metrics import Metric, MetricKind, PrometheusRecorder

HANDOVERS: Final = Metric(
    "tiering_handovers",
    MetricKind.GAUGE,
    ("state", "step"),
    "Hand-overs that have not ended, by state and by the step that is to be done next.",
)
HANDOVERS_FORGOTTEN: Final = Metric(
    "tiering_handovers_forgotten",
    MetricKind.GAUGE,
    (),
    "Hand-overs that hold a topic's retention or its copies back while nobody carries them on.",
)

HANDOVER_METRICS: Final = (HANDOVERS, HANDOVERS_FORGOTTEN)


def publish_handovers(
    recorder: PrometheusRecorder, open_ones: Iterable[tuple[HandoverState, HandoverStep]], forgotten: int
) -> None:
    """All that there are; a combination that is gone is gone from the metric too."""
    counted = Counter((str(state), str(step)) for state, step in open_ones)
    values: dict[tuple[str, ...], float] = {labels: float(number) for labels, number in counted.items()}
    recorder.show(HANDOVERS, values)
    recorder.show(HANDOVERS_FORGOTTEN, {(): float(forgotten)})
