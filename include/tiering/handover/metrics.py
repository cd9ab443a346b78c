"""The metrics of handovers, which are set again whenever they are published."""

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from include.tiering.telemetry.metrics import Metric, MetricKind, MetricsRecorder

if TYPE_CHECKING:
    from include.tiering.handover.rules import HandoverState, HandoverStep


HANDOVERS: Final = Metric(
    "tiering_handovers",
    MetricKind.GAUGE,
    ("state", "step"),
    "Handovers that have not ended, by state and by the next step.",
)
HANDOVERS_FORGOTTEN: Final = Metric(
    "tiering_handovers_forgotten",
    MetricKind.GAUGE,
    (),
    "Handovers without progress for too long that may suspend the retention or the copies of their topic.",
)

HANDOVER_METRICS: Final = (HANDOVERS, HANDOVERS_FORGOTTEN)


def publish_handovers(
    recorder: MetricsRecorder, open_steps: "Iterable[tuple[HandoverState, HandoverStep]]", forgotten: int
) -> None:
    """Set the metrics of handovers; combinations of state and step that no handover has any more are removed."""
    counted = Counter((str(state), str(step)) for state, step in open_steps)
    values: dict[tuple[str, ...], float] = {labels: float(number) for labels, number in counted.items()}
    recorder.replace(HANDOVERS, values)
    recorder.show(HANDOVERS_FORGOTTEN, {(): float(forgotten)})
