"""Scrapes of the endpoint: over HTTP, by the program's own server."""

from collections.abc import Mapping
from http.client import HTTPConnection

from prometheus_client.parser import text_string_to_metric_families

from include.tiering.operations.exporters import MetricsServer, Values
from tests.doubles.patience import PATIENCE_SECONDS

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]
"""Values by name and labels, sorted by label."""


def serving(values: Values, token: str | None = None) -> MetricsServer:
    """Return a context in which a free port of loopback is served."""
    return MetricsServer(values, address="127.0.0.1:0", token=token)


def get(server: MetricsServer, path: str = "/metrics", headers: Mapping[str, str] | None = None) -> tuple[int, str]:
    """Return status and text."""
    connection = HTTPConnection(server.address, timeout=PATIENCE_SECONDS)
    try:
        connection.request("GET", path, headers=dict(headers or {}))
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def samples_of(text: str) -> Samples:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
