"""Sends the metrics to an OpenTelemetry collector, if OpenTelemetry's own variables of the environment name one.

The packages are imported only then. Each export asks for the values once, and sends counters as monotonic sums and the
others as gauges, under the names that Prometheus shows. The other variables of OpenTelemetry apply, such as
OTEL_EXPORTER_OTLP_HEADERS, OTEL_METRIC_EXPORT_INTERVAL and OTEL_RESOURCE_ATTRIBUTES; the protocol is http/protobuf.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from include.tiering.errors import TieringError
from include.tiering.monitoring.service import MonitoringService
from include.tiering.telemetry import get_logger
from include.tiering.telemetry.metrics import Metric, MetricKind

if TYPE_CHECKING:
    from opentelemetry.metrics import Observation

ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_log: Final = get_logger(__name__)


@contextmanager
def exporting(monitoring: MonitoringService, environ: Mapping[str, str] = os.environ) -> Iterator[None]:
    """Send the values at OpenTelemetry's interval, and once at the end, while the context lasts.

    Without an endpoint in the environment nothing is sent.
    """
    if not any(environ.get(name) for name in ENDPOINTS):
        yield
        return
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
    from opentelemetry.sdk.resources import OTELResourceDetector, Resource

    resource = Resource.create({"service.name": "tiering"}).merge(OTELResourceDetector().detect())
    provider = MeterProvider([PeriodicExportingMetricReader(OTLPMetricExporter())], resource, shutdown_on_exit=False)
    meter = provider.get_meter("tiering")
    for metric in monitoring.metrics:
        _observe(meter, metric, monitoring)
    try:
        yield
    finally:
        provider.shutdown()


def _observe(meter: Any, metric: Metric, monitoring: MonitoringService) -> None:
    create = meter.create_observable_counter if metric.kind is MetricKind.COUNTER else meter.create_observable_gauge
    create(metric.shown_name, [lambda _: _observations(metric, monitoring)], description=metric.sentence)


def _observations(metric: Metric, monitoring: MonitoringService) -> "Iterator[Observation]":
    from opentelemetry.metrics import Observation

    try:
        read = monitoring.values()
    except TieringError as error:
        _log.warning("no metrics for OpenTelemetry: %s", error)
        return
    for metric_values in read:
        if metric_values.metric == metric:
            for labels, value in metric_values.values:
                yield Observation(value, dict(zip(metric.labels, labels, strict=True)))
