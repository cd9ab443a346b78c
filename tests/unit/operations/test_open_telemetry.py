"""OpenTelemetry: what a collector gets, over its own protocol, and that nothing is imported without one."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from include.tiering.operations.exporters import exporting
from include.tiering.operations.monitoring import MetricValues
from include.tiering.telemetry.metrics import Metric, MetricKind

COPIED = Metric("copied_bytes", MetricKind.COUNTER, ("topic",), "Bytes.")
LIMIT = Metric("limit", MetricKind.GAUGE, (), "Limit.")


class Monitoring:
    """Stands for the service."""

    metrics = (COPIED, LIMIT)

    def values(self) -> tuple[MetricValues, ...]:
        return (MetricValues(COPIED, ((("orders",), 5.0), (("audit",), 2.0))), MetricValues(LIMIT, (((), 7.0),)))


@contextmanager
def collector() -> Iterator[tuple[str, list[bytes]]]:
    """A receiver of OTLP on a free port of loopback; yields its address and the bodies that it got."""
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http", reason="needs OpenTelemetry, which Airflow brings")
    got: list[bytes] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            assert self.path == "/v1/metrics"
            got.append(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            """Log nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", got
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_a_collector_gets_every_value(monkeypatch: pytest.MonkeyPatch) -> None:
    monitoring: Any = Monitoring()
    with collector() as (address, got):
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", address)
        with exporting(monitoring):
            pass
    from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

    (body,) = got
    request = ExportMetricsServiceRequest.FromString(body)
    (resource,) = request.resource_metrics
    assert {"service.name": "tiering"}.items() <= {
        pair.key: pair.value.string_value for pair in resource.resource.attributes
    }.items()
    found = {metric.name: metric for scope in resource.scope_metrics for metric in scope.metrics}
    assert found.keys() == {"copied_bytes_total", "limit"}
    copied = found["copied_bytes_total"].sum
    assert copied.is_monotonic
    assert {point.attributes[0].value.string_value: point.as_double for point in copied.data_points} == {
        "orders": 5.0,
        "audit": 2.0,
    }
    assert [point.as_double for point in found["limit"].gauge.data_points] == [7.0]
