"""What was recorded: of a recorder that nothing drains, or of a database that processes wrote to."""

from collections.abc import Mapping

from include.tiering.app import App
from include.tiering.database.metric_series import MetricSeries
from include.tiering.telemetry.metrics import Labels, Metric, MetricsRecorder
from tests.doubles.manual_clock import ManualClock


class RecordedMetrics(MetricsRecorder):
    """A recorder whose values can be read, under the names that Prometheus shows."""

    def __init__(self, clock: ManualClock | None = None) -> None:
        super().__init__(clock or ManualClock())

    def values(self) -> dict[tuple[str, ...], float]:
        """By name and the values of the labels in the order of their declaration."""
        recorded, found = self._recorded, dict[tuple[str, ...], float]()
        for (metric, labels, _), amount in recorded.added.items():
            found[key_of(metric, labels)] = found.get(key_of(metric, labels), 0.0) + amount
        for (metric, labels, _), value in recorded.highest.items():
            found[key_of(metric, labels)] = max(found.get(key_of(metric, labels), value), value)
        return found | {key_of(metric, labels): value for (metric, labels), (value, _) in recorded.latest.items()}

    def get_sample_value(self, name: str, labels: Mapping[str, str] | None = None) -> float | None:
        return self.values().get((name, *(labels or {}).values()))


def key_of(metric: Metric, labels: Labels) -> tuple[str, ...]:
    return (metric.shown_name, *labels)


def stored_value(series: MetricSeries, name: str, labels: Mapping[str, str] | None = None) -> float | None:
    """The value of a series in the database."""
    for one in series.all():
        if one.key.metric == name.removesuffix("_total") and dict(one.key.labels) == dict(labels or {}):
            return one.value
    return None


def written_value(app: App, name: str, labels: Mapping[str, str] | None = None) -> float | None:
    """The value in the database after this process has written what it recorded."""
    app.adapters.metrics_writer.write()
    return stored_value(app.adapters.metrics_writer.series, name, labels)
