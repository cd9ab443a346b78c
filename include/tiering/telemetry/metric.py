"""What a metric is."""

from dataclasses import dataclass
from enum import StrEnum


class MetricKind(StrEnum):
    """COUNTER only grows (prometheus-client adds `_total` to its name); GAUGE is the last value set."""

    COUNTER = "counter"
    GAUGE = "gauge"


class Across(StrEnum):
    """What a gauge shows that several processes have set; a process that ended counts only in NEWEST."""

    NEWEST = "mostrecent"
    SUM = "livesum"
    HIGHEST = "livemax"


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric: `sentence` says what is counted and in which unit. `across` is for gauges."""

    name: str
    kind: MetricKind
    labels: tuple[str, ...]
    sentence: str
    across: Across = Across.NEWEST
